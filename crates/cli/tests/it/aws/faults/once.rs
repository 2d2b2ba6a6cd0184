//! Each kind of call goes wrong once, the first time that a mode makes it: the request is lost
//! before its effect, or the answer after it. Nothing is launched, counted or left twice.

use std::collections::BTreeSet;

use ondeck_standin::{AwsFault, AwsFaultRule, Occurrence, Service};
use serde_json::json;

use super::within_calls;
use crate::aws::harness::{AwsHarness, LAUNCH, TIMES};
use crate::harness::{Done, Driven};

/// A kind of call: service, operation, and what tells it from others of the same operation.
pub(super) type Kind = (Service, &'static str, &'static str);

use Service::{DynamoDb, Ec2, Sqs};

const SET_UP: [Kind; 5] = [
    (DynamoDb, "CreateTable", ""),
    (DynamoDb, "UpdateTimeToLive", ""),
    (DynamoDb, "TransactWriteItems", ""),
    (Sqs, "CreateQueue", ""),
    (Ec2, "CreateLaunchTemplate", ""),
];

const CHANGED: [Kind; 1] = [(Ec2, "CreateLaunchTemplateVersion", "")];

/// The default version follows once the settings name the new one, so at the next refresh.
const FOLLOWED: [Kind; 1] = [(Ec2, "ModifyLaunchTemplate", "")];

const COLD: [Kind; 9] = [
    (DynamoDb, "Query", ""),
    (DynamoDb, "UpdateItem", "DEMAND#"),
    (DynamoDb, "PutItem", "INTENT#"),
    (Ec2, "CreateFleet", ""),
    (DynamoDb, "UpdateItem", "RUN#"),
    (DynamoDb, "UpdateItem", REGISTER),
    (DynamoDb, "BatchGetItem", ""),
    (DynamoDb, "TransactWriteItems", ACTIVATE_OR_COMMIT),
    (DynamoDb, "BatchWriteItem", "EVENT#"),
];

const RELEASE: [Kind; 5] = [
    (DynamoDb, "GetItem", "RUN#"),
    (DynamoDb, "BatchGetItem", ""),
    (DynamoDb, "BatchExecuteStatement", RELEASE_TO_POOL),
    (Sqs, "SendMessageBatch", ""),
    (DynamoDb, "BatchExecuteStatement", "SET ticketedAt=?"),
];

const PICKY: [Kind; 2] = [(Sqs, "ReceiveMessage", ""), (Sqs, "ChangeMessageVisibilityBatch", "")];

/// The run's set by itself is among those of a cold start. Here, it is written with the claims.
const WARM: [Kind; 5] = [
    (Sqs, "ReceiveMessage", ""),
    (DynamoDb, "TransactWriteItems", CLAIM),
    (DynamoDb, "BatchGetItem", "AGENT#"),
    (Sqs, "DeleteMessageBatch", ""),
    (DynamoDb, "TransactWriteItems", ACTIVATE_OR_COMMIT),
];

const REAP: [Kind; 8] = [
    (DynamoDb, "DescribeTable", ""),
    (Sqs, "CreateQueue", ""),
    (DynamoDb, "Query", "LIVE#"),
    (DynamoDb, "BatchExecuteStatement", REAPED),
    (Ec2, "TerminateInstances", ""),
    (Ec2, "DescribeInstances", ""),
    (Sqs, "DeleteMessageBatch", ""),
    (DynamoDb, "BatchExecuteStatement", "DELETE"),
];

/// The state that a conditional write is about to make.
pub(super) const REGISTER: &str = r#"":state":{"S":"created"}"#;
const ACTIVATE_OR_COMMIT: &str = r#"":state":{"S":"running"}"#;
const RELEASE_TO_POOL: &str = r#"SET \"state\"=?"#;
pub(super) const CLAIM: &str = r#"":state":{"S":"claimed"}"#;
const REAPED: &str = r#"{"S":"terminated"}"#;

#[test]
fn each_request_is_lost_once() {
    lifecycle(AwsFault::Reset);
}

#[test]
fn each_answer_is_lost_once() {
    lifecycle(AwsFault::LostAnswer);
}

fn lifecycle(what: AwsFault) {
    // Tickets whose receive was never answered are waited for, and shown again before long.
    let inputs =
        ["--self-termination-grace-sec=60", "--ticket-hold-sec=2", "--pickup-patience-sec=15"];
    let harness = AwsHarness::bare();
    let once = |kinds: &[Kind], arguments: &[&str]| once(&harness, what, kinds, arguments);
    once(&SET_UP, &[&["refresh"], &TIMES[..], &LAUNCH[..]].concat());
    assert_eq!(harness.gateway.ec2().launch_templates().len(), 1);
    assert_eq!(harness.tickets(), 0);
    harness.refresh(&inputs);

    once(&CHANGED, &["refresh", "--ami=ami-0fedcba9876543210"]);
    once(&FOLLOWED, &["refresh"]);
    harness.control.reset();
    harness.refresh(&[]);
    for (service, operation, _) in CHANGED.into_iter().chain(FOLLOWED) {
        assert_eq!(
            harness.control.count(service, operation),
            0,
            "{operation}: it was changed once"
        );
    }

    let cold = once(&COLD, &provision("1", "2", "c*")).ids();
    assert_eq!(harness.machines(), set(&cold), "launched once");
    assert_eq!(harness.standings(), ["running 1", "running 1"]);

    let released = once(&RELEASE, &["release", "--json", "--run-id=1"]);
    assert_eq!(released.ids(), cold);
    assert_eq!(harness.standings(), ["idle", "idle"]);
    // A ticket too many is harmless, one too few is not. Both leave together, unless one machine
    // is long in answering.
    let sent_again = harness.tickets() - 2;
    let expected = if what == AwsFault::LostAnswer { 1..=2 } else { 0..=0 };
    assert!(expected.contains(&sent_again), "{sent_again} too many");

    let other = once(&PICKY, &provision("2", "1", "m*")).ids();
    assert_eq!(harness.machines(), set(&[&cold[..], &other].concat()), "launched once");
    assert_eq!(harness.tickets(), 2 + sent_again, "none of them fits, and each was put back");

    let warm = once(&WARM, &provision("3", "2", "c*"));
    assert_eq!((warm.sources(), warm.ids()), (vec!["warm".to_owned(); 2], cold.clone()));
    assert_eq!(harness.standings(), ["running 2", "running 3", "running 3"]);
    assert!(
        harness.tickets() <= sent_again,
        "those of the claimed are deleted: {}",
        harness.tickets()
    );

    for run in ["2", "3"] {
        harness.ondeck(&["release", "--run-id", run, "--idle-time-sec=3"]).succeeded();
    }
    let all = [cold, other].concat();
    harness.until_expired(&all);
    let reaped = once(&REAP, &["refresh", "--json", "--retention-min=0"]).json();
    let ids = reaped["reaped"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
    assert_eq!(ids.collect::<BTreeSet<_>>(), set(&all));
    assert_eq!((harness.machines(), harness.standings()), (BTreeSet::new(), Vec::new()));
    assert_eq!(reaped["orphansTerminated"], json!([]), "terminated once");

    // A run that receives a ticket that was sent twice finds no machine for it, and drops it.
    assert_eq!(harness.ondeck(&provision("4", "1", "c*")).succeeded().sources(), ["cold"]);
    assert_eq!(harness.tickets(), 0);
    harness.ondeck(&["release", "--run-id=4", "--idle-time-sec=1"]).succeeded();
    harness.until_empty();
}

fn provision<'a>(run: &'a str, count: &'a str, types: &'a str) -> Vec<&'a str> {
    let what = ["--instance-count", count, "--allowed-instance-types", types];
    [&["provision", "--json", "--run-id", run], &what[..]].concat()
}

/// Runs a mode in which the first call of each kind goes wrong, and no other does. It succeeds all
/// the same.
#[track_caller]
pub(super) fn once(
    harness: &AwsHarness,
    what: AwsFault,
    kinds: &[Kind],
    arguments: &[&str],
) -> Done {
    meeting(harness, what, kinds, arguments).succeeded()
}

/// Like `once`, but the mode may also fail. Asserts that one call of each kind went wrong.
#[track_caller]
pub(super) fn meeting(
    harness: &AwsHarness,
    what: AwsFault,
    kinds: &[Kind],
    arguments: &[&str],
) -> Done {
    let rule = |(service, operation, says): &Kind| {
        AwsFaultRule::new(what)
            .service(*service)
            .operation(operation)
            .body_contains(says)
            .occurrence(Occurrence::First(1))
    };
    let faults: Vec<_> = kinds.iter().map(|kind| harness.control.inject(rule(kind))).collect();
    let done = within_calls(harness, 120, || harness.ondeck(arguments));
    for (kind, fault) in kinds.iter().zip(faults) {
        let calls = harness.control.calls();
        assert_eq!(fault.fired(), 1, "{arguments:?}, {kind:?}: {calls:?}, {done:?}");
    }
    harness.control.clear_faults();
    done
}

fn set(ids: &[String]) -> BTreeSet<String> {
    ids.iter().cloned().collect()
}
