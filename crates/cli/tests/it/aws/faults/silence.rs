//! Calls that are never answered. Each is given up when its time is over, and what came of it is
//! found out. One test has several such calls, because that time is no shorter in tests.

use ondeck_standin::AwsFault;
use ondeck_standin::Service::{DynamoDb, Ec2, Sqs};

use super::once::{CLAIM, REGISTER, meeting, once};
use crate::aws::harness::AwsHarness;
use crate::harness::Driven;

#[test]
fn calls_that_are_never_answered_are_given_up() {
    std::thread::scope(|scope| {
        scope.spawn(calls_are_made_again);
        scope.spawn(a_launch_is_undone);
    });
}

fn calls_are_made_again() {
    let harness = AwsHarness::with(&["--ticket-hold-sec=2", "--pickup-patience-sec=15"]);
    let cold = once(
        &harness,
        AwsFault::Silence,
        &[(DynamoDb, "UpdateItem", REGISTER)],
        &["provision", "--json", "--run-id=1"],
    );
    let updates = || harness.control.count(DynamoDb, "UpdateItem");
    assert_eq!(updates(), 4, "its request, the run's note, its registration twice");
    assert_eq!(harness.standings(), ["running 1"]);
    once(&harness, AwsFault::Hang, &[(Sqs, "SendMessageBatch", "")], &["release", "--run-id=1"]);
    assert_eq!((harness.standings(), harness.tickets()), (vec!["idle".to_owned()], 1));

    let warm = once(
        &harness,
        AwsFault::Silence,
        &[(Sqs, "ReceiveMessage", ""), (DynamoDb, "TransactWriteItems", CLAIM)],
        &["provision", "--json", "--run-id=2"],
    );
    assert_eq!((warm.sources(), warm.ids()), (vec!["warm".to_owned()], cold.ids()));
    let transactions = harness.control.count(DynamoDb, "TransactWriteItems");
    assert_eq!((updates(), transactions), (1, 3), "its request; its claim twice, its commit");
    assert_eq!((harness.standings(), harness.tickets()), (vec!["running 2".to_owned()], 0));

    once(
        &harness,
        AwsFault::Hang,
        &[(DynamoDb, "Query", "LIVE#"), (Ec2, "DescribeInstances", "")],
        &["refresh"],
    );
    assert_eq!(harness.standings(), ["running 2"]);
    assert_eq!(harness.machines().into_iter().collect::<Vec<_>>(), cold.ids());
}

/// A launch is given a minute, and the provision that waits for it gets no second one.
fn a_launch_is_undone() {
    let harness = AwsHarness::with(&[
        "--boot-deadline-sec=120",
        "--created-timeout-sec=20",
        "--validation-timeout-sec=15",
    ]);
    let provision = ["provision", "--run-id=1", "--instance-count=2"];
    meeting(&harness, AwsFault::Silence, &[(Ec2, "CreateFleet", "")], &provision).exited(6);
    assert_eq!(harness.gateway.ec2().machines().len(), 2, "the order was carried out");
    harness.until_machines(0);
    assert_eq!(harness.refresh(&[])["intentsSettled"], 1);
    harness.until_empty();
}
