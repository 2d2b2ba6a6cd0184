//! What can go wrong between a program and AWS, on demand.

pub(crate) mod answers;
pub(crate) mod batches;

use std::time::Duration;

use crate::aws::call::{Call, Service};
use crate::injection::{ActiveFault, Occurrence};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AwsFault {
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
pub struct AwsFaultRule {
    /// For this service alone.
    pub service: Option<Service>,
    /// For this operation alone.
    pub operation: Option<String>,
    /// For requests with this text in their body alone.
    pub body_contains: Option<String>,
    /// For which of those calls.
    pub occurrence: Occurrence,
    /// What goes wrong with them.
    pub fault: AwsFault,
}

impl AwsFaultRule {
    /// For every call.
    pub fn new(fault: AwsFault) -> AwsFaultRule {
        AwsFaultRule {
            service: None,
            operation: None,
            body_contains: None,
            occurrence: Occurrence::Always,
            fault,
        }
    }

    /// For one service.
    #[must_use]
    pub fn service(self, service: Service) -> AwsFaultRule {
        AwsFaultRule { service: Some(service), ..self }
    }

    /// For one operation.
    #[must_use]
    pub fn operation(self, operation: &str) -> AwsFaultRule {
        AwsFaultRule { operation: Some(operation.to_owned()), ..self }
    }

    /// For requests with this text in their body, which tells writes to one table apart.
    #[must_use]
    pub fn body_contains(self, text: &str) -> AwsFaultRule {
        AwsFaultRule { body_contains: Some(text.to_owned()), ..self }
    }

    /// For some of the calls.
    #[must_use]
    pub fn occurrence(self, occurrence: Occurrence) -> AwsFaultRule {
        AwsFaultRule { occurrence, ..self }
    }

    fn is_for(&self, call: &Call) -> bool {
        self.service.is_none_or(|service| service == call.service)
            && self.operation.as_ref().is_none_or(|operation| *operation == call.operation)
            && self.body_contains.as_ref().is_none_or(|text| says(call, text))
            && self.fault.suits(call)
    }
}

impl AwsFault {
    /// Whether this can happen to such a call at all. What cannot is not counted either.
    fn suits(self, call: &Call) -> bool {
        match self {
            AwsFault::EmptyReceive => {
                let wait = call.json().and_then(|request| request["WaitTimeSeconds"].as_u64());
                is_receive(call) && wait.unwrap_or(0) == 0
            }
            AwsFault::DuplicateDelivery => is_receive(call),
            AwsFault::PartialBatch => batches::is_batch(call),
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

impl ActiveFault<AwsFaultRule> {
    pub(crate) fn new(rule: AwsFaultRule) -> ActiveFault<AwsFaultRule> {
        let occurrence = rule.occurrence;
        ActiveFault::of(rule, occurrence)
    }

    /// What it does to a call.
    fn meet(&self, call: &Call) -> Option<AwsFault> {
        self.fires(|rule| rule.is_for(call)).then_some(self.rule().fault)
    }
}

/// What is to happen to one call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) delay: Duration,
    pub(crate) fault: Option<AwsFault>,
}

impl Plan {
    /// Asks the rules in their order: delays add up, of the rest the first one wins and the later
    /// ones are not asked.
    pub(crate) fn of(call: &Call, rules: &[ActiveFault<AwsFaultRule>]) -> Plan {
        let mut plan = Plan::default();
        for rule in rules {
            let is_delay = matches!(rule.rule().fault, AwsFault::Delay(_));
            if plan.fault.is_some() && !is_delay {
                continue;
            }
            match rule.meet(call) {
                Some(AwsFault::Delay(delay)) => plan.delay += delay,
                Some(fault) => plan.fault = Some(fault),
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

    fn fires(occurrence: Occurrence, times: usize) -> Vec<bool> {
        let rules = [ActiveFault::new(AwsFaultRule::new(AwsFault::Reset).occurrence(occurrence))];
        let put = call("DynamoDB_20120810.PutItem", "{}");
        (0..times).map(|_| Plan::of(&put, &rules).fault.is_some()).collect()
    }

    #[test]
    fn rules_choose_among_the_calls_they_are_for() {
        assert_eq!(fires(Occurrence::Always, 2), [true, true]);
        assert_eq!(fires(Occurrence::First(1), 3), [true, false, false]);
        assert_eq!(fires(Occurrence::Nth(2), 3), [false, true, false]);
        assert_eq!(fires(Occurrence::Every(2), 4), [false, true, false, true]);
        let chance = Occurrence::Chance { probability: 0.5, seed: 7 };
        let first = fires(chance, 64);
        assert_eq!(first, fires(chance, 64), "the same seed, the same dice");
        assert!(first.contains(&true) && first.contains(&false));
    }

    #[test]
    fn a_rule_leaves_alone_what_it_is_not_for() {
        let rule = AwsFaultRule::new(AwsFault::Throttle)
            .service(Service::DynamoDb)
            .operation("UpdateItem");
        let rules = [ActiveFault::new(rule)];
        let plan = |target| Plan::of(&call(target, "{}"), &rules).fault;
        assert_eq!(plan("DynamoDB_20120810.PutItem"), None);
        assert_eq!(plan("AmazonSQS.UpdateItem"), None);
        assert_eq!(plan("DynamoDB_20120810.UpdateItem"), Some(AwsFault::Throttle));
        assert_eq!((rules[0].matched(), rules[0].fired()), (1, 1));
        rules[0].stop();
        assert_eq!(plan("DynamoDB_20120810.UpdateItem"), None);
    }

    #[test]
    fn a_rule_may_be_for_what_a_request_says() {
        let rules =
            [ActiveFault::new(AwsFaultRule::new(AwsFault::Reset).body_contains(r#""S":"idle""#))];
        let plan = |body| Plan::of(&call("DynamoDB_20120810.UpdateItem", body), &rules).fault;
        assert_eq!(plan(r#"{"S":"claimed"}"#), None);
        assert_eq!(plan(r#"{"S":"idle"}"#), Some(AwsFault::Reset));
        assert_eq!((rules[0].matched(), rules[0].fired()), (1, 1));
        let rules = [ActiveFault::new(AwsFaultRule::new(AwsFault::Reset).body_contains(""))];
        let plan = Plan::of(&call("DynamoDB_20120810.UpdateItem", ""), &rules);
        assert_eq!(plan.fault, Some(AwsFault::Reset));
    }

    #[test]
    fn only_short_polls_are_falsely_empty() {
        let rules = [ActiveFault::new(AwsFaultRule::new(AwsFault::EmptyReceive))];
        let plan = |body| Plan::of(&call("AmazonSQS.ReceiveMessage", body), &rules).fault;
        assert_eq!(plan(r#"{"WaitTimeSeconds":1}"#), None);
        assert_eq!(plan(r#"{"WaitTimeSeconds":0}"#), Some(AwsFault::EmptyReceive));
        assert_eq!(plan("{}"), Some(AwsFault::EmptyReceive));
        assert_eq!(Plan::of(&call("AmazonSQS.SendMessage", "{}"), &rules).fault, None);
    }

    #[test]
    fn delays_add_up_and_go_with_one_other() {
        let rules = [AwsFault::Delay(Duration::from_millis(2)), AwsFault::Reset, AwsFault::Hang]
            .into_iter()
            .chain([AwsFault::Delay(Duration::from_millis(3))])
            .map(|fault| ActiveFault::new(AwsFaultRule::new(fault)))
            .collect::<Vec<_>>();
        let plan = Plan::of(&call("AmazonSQS.SendMessage", "{}"), &rules);
        assert_eq!(plan, Plan { delay: Duration::from_millis(5), fault: Some(AwsFault::Reset) });
        assert_eq!(rules[2].matched(), 0, "whoever comes too late is not counted");
    }
}
