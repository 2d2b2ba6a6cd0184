//! What can go wrong between a program and AWS, on demand.

pub(crate) mod answers;
pub(crate) mod batches;

use std::time::Duration;

use crate::aws::call::{Call, Service};
use crate::injection::{Disturbance, Which};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// It takes longer, and nothing else. Adds up, and goes together with one other.
    Delay(Duration),
    /// The connection is reset before anything has happened.
    Reset,
    /// It happens, and the connection is closed without an answer.
    LostAnswer,
    /// The service says that it has trouble (500 or 503), before anything has happened.
    Status(u16),
    /// The service says that there are too many calls, in its own words.
    Throttle,
    /// It happens, and half of the answer's body arrives before the connection is closed.
    CutBody,
    /// Nothing happens, and there is no answer for as long as the caller cares to wait.
    Hang,
    /// It happens, and there is no answer for as long as the caller cares to wait.
    Silence,
    /// The credentials have expired.
    ExpiredToken,
    /// The service's clock is ahead by so many seconds (or behind, if negative). Every answer has
    /// its date, and what is signed more than five minutes off it is refused.
    Skew(i64),
    /// SQS: a short poll finds nothing, whatever there is. Long polls ask every server, so they
    /// are left alone.
    EmptyReceive,
    /// SQS: what is received can be received once more at once, under the same message id and
    /// with a receipt of its own.
    DuplicateDelivery,
    /// DynamoDB and SQS: of a batch the second half (rounded up) is not done, and the answer says
    /// so.
    PartialBatch,
}

/// A rule by which a door disturbs what passes.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// For this service alone.
    pub service: Option<Service>,
    /// For this operation alone.
    pub operation: Option<String>,
    /// For requests with this text in their body alone.
    pub saying: Option<String>,
    /// For which of those calls.
    pub which: Which,
    /// What goes wrong with them.
    pub what: What,
}

impl Rule {
    /// For every call.
    pub fn new(what: What) -> Rule {
        Rule { service: None, operation: None, saying: None, which: Which::Always, what }
    }

    /// For one service.
    #[must_use]
    pub fn on(self, service: Service) -> Rule {
        Rule { service: Some(service), ..self }
    }

    /// For one operation.
    #[must_use]
    pub fn of(self, operation: &str) -> Rule {
        Rule { operation: Some(operation.to_owned()), ..self }
    }

    /// For requests with this text in their body, which tells writes to one table apart.
    #[must_use]
    pub fn saying(self, text: &str) -> Rule {
        Rule { saying: Some(text.to_owned()), ..self }
    }

    /// For some of the calls.
    #[must_use]
    pub fn which(self, which: Which) -> Rule {
        Rule { which, ..self }
    }

    fn is_for(&self, call: &Call) -> bool {
        self.service.is_none_or(|service| service == call.service)
            && self.operation.as_ref().is_none_or(|operation| *operation == call.operation)
            && self.saying.as_ref().is_none_or(|text| says(call, text))
            && self.what.suits(call)
    }
}

impl What {
    /// Whether this can happen to such a call at all. What cannot is not counted either.
    fn suits(self, call: &Call) -> bool {
        match self {
            What::EmptyReceive => {
                let wait = call.json().and_then(|request| request["WaitTimeSeconds"].as_u64());
                is_receive(call) && wait.unwrap_or(0) == 0
            }
            What::DuplicateDelivery => is_receive(call),
            What::PartialBatch => batches::is_batch(call),
            _ => true,
        }
    }
}

fn says(call: &Call, text: &str) -> bool {
    // Whatever a request says, it says nothing as well; and no window is that narrow.
    text.is_empty() || call.body.windows(text.len()).any(|part| part == text.as_bytes())
}

fn is_receive(call: &Call) -> bool {
    call.service == Service::Sqs && call.operation == "ReceiveMessage"
}

impl Disturbance<Rule> {
    pub(crate) fn new(rule: Rule) -> Disturbance<Rule> {
        let which = rule.which;
        Disturbance::of(rule, which)
    }

    /// What it does to a call.
    fn meet(&self, call: &Call) -> Option<What> {
        self.fires(|rule| rule.is_for(call)).then_some(self.rule().what)
    }
}

/// What is to happen to one call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) delay: Duration,
    pub(crate) what: Option<What>,
}

impl Plan {
    /// Asks the rules in their order: delays add up, of the rest the first one wins and the later
    /// ones are not asked.
    pub(crate) fn of(call: &Call, rules: &[Disturbance<Rule>]) -> Plan {
        let mut plan = Plan::default();
        for rule in rules {
            let is_delay = matches!(rule.rule().what, What::Delay(_));
            if plan.what.is_some() && !is_delay {
                continue;
            }
            match rule.meet(call) {
                Some(What::Delay(delay)) => plan.delay += delay,
                Some(what) => plan.what = Some(what),
                None => {}
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{HeaderMap, Method, Uri};

    use super::*;

    fn call(target: &str, body: &'static str) -> Call {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-target", target.parse().unwrap());
        Call::of(Method::POST, Uri::from_static("/"), headers, Bytes::from_static(body.as_bytes()))
    }

    fn fires(which: Which, times: usize) -> Vec<bool> {
        let rules = [Disturbance::new(Rule::new(What::Reset).which(which))];
        let put = call("DynamoDB_20120810.PutItem", "{}");
        (0..times).map(|_| Plan::of(&put, &rules).what.is_some()).collect()
    }

    #[test]
    fn rules_choose_among_the_calls_they_are_for() {
        assert_eq!(fires(Which::Always, 2), [true, true]);
        assert_eq!(fires(Which::First(1), 3), [true, false, false]);
        assert_eq!(fires(Which::Nth(2), 3), [false, true, false]);
        assert_eq!(fires(Which::Every(2), 4), [false, true, false, true]);
        let chance = Which::Chance { probability: 0.5, seed: 7 };
        let first = fires(chance, 64);
        assert_eq!(first, fires(chance, 64), "the same seed, the same dice");
        assert!(first.contains(&true) && first.contains(&false));
    }

    #[test]
    fn a_rule_leaves_alone_what_it_is_not_for() {
        let rule = Rule::new(What::Throttle).on(Service::DynamoDb).of("UpdateItem");
        let rules = [Disturbance::new(rule)];
        let plan = |target| Plan::of(&call(target, "{}"), &rules).what;
        assert_eq!(plan("DynamoDB_20120810.PutItem"), None);
        assert_eq!(plan("AmazonSQS.UpdateItem"), None);
        assert_eq!(plan("DynamoDB_20120810.UpdateItem"), Some(What::Throttle));
        assert_eq!((rules[0].met(), rules[0].fired()), (1, 1));
        rules[0].lift();
        assert_eq!(plan("DynamoDB_20120810.UpdateItem"), None);
    }

    #[test]
    fn a_rule_may_be_for_what_a_request_says() {
        let rules = [Disturbance::new(Rule::new(What::Reset).saying(r#""S":"idle""#))];
        let plan = |body| Plan::of(&call("DynamoDB_20120810.UpdateItem", body), &rules).what;
        assert_eq!(plan(r#"{"S":"claimed"}"#), None);
        assert_eq!(plan(r#"{"S":"idle"}"#), Some(What::Reset));
        assert_eq!((rules[0].met(), rules[0].fired()), (1, 1));
        let rules = [Disturbance::new(Rule::new(What::Reset).saying(""))];
        let plan = Plan::of(&call("DynamoDB_20120810.UpdateItem", ""), &rules);
        assert_eq!(plan.what, Some(What::Reset));
    }

    #[test]
    fn only_short_polls_are_falsely_empty() {
        let rules = [Disturbance::new(Rule::new(What::EmptyReceive))];
        let plan = |body| Plan::of(&call("AmazonSQS.ReceiveMessage", body), &rules).what;
        assert_eq!(plan(r#"{"WaitTimeSeconds":1}"#), None);
        assert_eq!(plan(r#"{"WaitTimeSeconds":0}"#), Some(What::EmptyReceive));
        assert_eq!(plan("{}"), Some(What::EmptyReceive));
        assert_eq!(Plan::of(&call("AmazonSQS.SendMessage", "{}"), &rules).what, None);
    }

    #[test]
    fn delays_add_up_and_go_with_one_other() {
        let rules = [What::Delay(Duration::from_millis(2)), What::Reset, What::Hang]
            .into_iter()
            .chain([What::Delay(Duration::from_millis(3))])
            .map(|what| Disturbance::new(Rule::new(what)))
            .collect::<Vec<_>>();
        let plan = Plan::of(&call("AmazonSQS.SendMessage", "{}"), &rules);
        assert_eq!(plan, Plan { delay: Duration::from_millis(5), what: Some(What::Reset) });
        assert_eq!(rules[2].met(), 0, "whoever comes too late is not counted");
    }
}
