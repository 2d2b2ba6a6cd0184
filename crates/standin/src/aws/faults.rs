//! Faults that a test injects between a program and AWS.

pub(crate) mod answers;
pub(crate) mod batches;

use std::time::Duration;

use crate::aws::call::{Call, Service};
use crate::injection::{ActiveFault, Occurrence};

/// A fault that a [`AwsFaultRule`] injects into a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AwsFault {
    /// The call takes longer. Delays of several rules add up, and combine with one other fault.
    Delay(Duration),
    /// The connection is reset before the service sees the call.
    Reset,
    /// The service performs the call, and the connection is closed without an answer.
    LostAnswer,
    /// The service answers with an error of its own (500 or 503) and does nothing.
    Status(u16),
    /// The service refuses the call with this status and code, and does nothing.
    Refusal(u16, &'static str),
    /// The service answers with its own throttling error and does nothing.
    Throttle,
    /// The service performs the call, and the connection is closed after half of the answer's body.
    CutBody,
    /// The service does nothing and never answers.
    Hang,
    /// The service performs the call and never answers.
    Silence,
    /// The service refuses the credentials as expired.
    ExpiredToken,
    /// The service's clock is this many seconds ahead (behind, if negative). Answers carry its
    /// date, and the service refuses requests whose signature is more than five minutes off.
    Skew(i64),
    /// SQS: a short poll returns no message even if there are some. Long polls query every server,
    /// so this fault does not apply to them.
    EmptyReceive,
    /// SQS: a received message can be received again at once, with the same message id
    /// and another receipt handle.
    DuplicateDelivery,
    /// DynamoDB and SQS: the second half of a batch (rounded up) is not processed, and the answer
    /// lists it as unprocessed or failed.
    PartialBatch,
}

/// Which calls at an endpoint get a fault. A filter that is `None` admits every call.
#[derive(Debug, Clone, PartialEq)]
pub struct AwsFaultRule {
    pub service: Option<Service>,
    pub operation: Option<String>,
    /// Text that the request's body must contain.
    pub body_contains: Option<String>,
    /// Which of the calls that pass the filters get the fault.
    pub occurrence: Occurrence,
    pub fault: AwsFault,
}

impl AwsFaultRule {
    /// Injects the fault into every call, until a filter or an occurrence narrows it.
    pub fn new(fault: AwsFault) -> AwsFaultRule {
        AwsFaultRule {
            service: None,
            operation: None,
            body_contains: None,
            occurrence: Occurrence::Always,
            fault,
        }
    }

    /// Limits the rule to calls of one service.
    #[must_use]
    pub fn service(self, service: Service) -> AwsFaultRule {
        AwsFaultRule { service: Some(service), ..self }
    }

    /// Limits the rule to calls of one operation.
    #[must_use]
    pub fn operation(self, operation: &str) -> AwsFaultRule {
        AwsFaultRule { operation: Some(operation.to_owned()), ..self }
    }

    /// Limits the rule to requests whose body contains this text. That tells writes to
    /// the same table apart.
    #[must_use]
    pub fn body_contains(self, text: &str) -> AwsFaultRule {
        AwsFaultRule { body_contains: Some(text.to_owned()), ..self }
    }

    /// Limits the rule to some of the calls that pass its filters.
    #[must_use]
    pub fn occurrence(self, occurrence: Occurrence) -> AwsFaultRule {
        AwsFaultRule { occurrence, ..self }
    }

    fn is_for(&self, call: &Call) -> bool {
        self.service.is_none_or(|service| service == call.service)
            && self.operation.as_ref().is_none_or(|operation| *operation == call.operation)
            && self.body_contains.as_ref().is_none_or(|text| contains(&call.body, text))
            && self.fault.suits(call)
    }
}

impl AwsFault {
    /// Whether this fault can affect such a call. A rule does not count other calls as matched.
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

/// Whether a body contains a text.
pub(crate) fn contains(body: &[u8], text: &str) -> bool {
    // Every body contains the empty text, but `windows` does not accept a size of zero.
    text.is_empty() || body.windows(text.len()).any(|part| part == text.as_bytes())
}

fn is_receive(call: &Call) -> bool {
    call.service == Service::Sqs && call.operation == "ReceiveMessage"
}

impl ActiveFault<AwsFaultRule> {
    pub(crate) fn new(rule: AwsFaultRule) -> ActiveFault<AwsFaultRule> {
        let occurrence = rule.occurrence;
        ActiveFault::of(rule, occurrence)
    }

    /// Counts a call that the rule matches. Returns the fault if the rule fires for it.
    fn meet(&self, call: &Call) -> Option<AwsFault> {
        self.fires(|rule| rule.is_for(call)).then_some(self.rule().fault)
    }
}

/// The delay and the fault that the rules have chosen for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) delay: Duration,
    pub(crate) fault: Option<AwsFault>,
}

impl Plan {
    /// Applies the rules in their order. Delays add up. The first other fault wins, and later rules
    /// do not count the call.
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
        assert_eq!(first, fires(chance, 64), "the same seed makes the same choices");
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
        assert_eq!(rules[2].matched(), 0, "a rule after the winning one does not count the call");
    }
}
