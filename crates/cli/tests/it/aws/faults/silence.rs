//! Calls that are never answered. Each is given up when its time is over, and what came of it is
//! found out; several in one life, because that time is no shorter in tests.

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
    let site = AwsHarness::with(&["--ticket-hold-sec=2", "--pickup-patience-sec=15"]);
    let cold = once(
        &site,
        AwsFault::Silence,
        &[(DynamoDb, "UpdateItem", REGISTER)],
        &["provision", "--json", "--run-id=1"],
    );
    let updates = || site.control.count(DynamoDb, "UpdateItem");
    assert_eq!(updates(), 4, "the run's note, its registration twice, its activation");
    assert_eq!(site.standings(), ["running 1"]);
    once(&site, AwsFault::Hang, &[(Sqs, "SendMessageBatch", "")], &["release", "--run-id=1"]);
    assert_eq!((site.standings(), site.tickets()), (vec!["idle".to_owned()], 1));

    let warm = once(
        &site,
        AwsFault::Silence,
        &[(Sqs, "ReceiveMessage", ""), (DynamoDb, "UpdateItem", CLAIM)],
        &["provision", "--json", "--run-id=2"],
    );
    assert_eq!((warm.sources(), warm.ids()), (vec!["warm".to_owned()], cold.ids()));
    assert_eq!(updates(), 4, "the run's note, its claim twice, its commit");
    assert_eq!((site.standings(), site.tickets()), (vec!["running 2".to_owned()], 0));

    once(
        &site,
        AwsFault::Hang,
        &[(DynamoDb, "Query", "live-by-threshold"), (Ec2, "DescribeInstances", "")],
        &["refresh"],
    );
    assert_eq!(site.standings(), ["running 2"]);
    assert_eq!(site.machines().into_iter().collect::<Vec<_>>(), cold.ids());
}

/// A launch is given a minute, and the provision that waits for it gets no second one.
fn a_launch_is_undone() {
    let site = AwsHarness::with(&["--boot-deadline-sec=120", "--created-timeout-sec=20"]);
    let provision = ["provision", "--run-id=1", "--instance-count=2"];
    meeting(&site, AwsFault::Silence, &[(Ec2, "CreateFleet", "")], &provision).exited(6);
    assert_eq!(site.gateway.ec2().machines().len(), 2, "the order was carried out");
    site.until_machines(0);
    assert_eq!(site.refresh(&[])["intentsSettled"], 1);
    site.until_empty();
}
