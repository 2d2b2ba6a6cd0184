//! Agents that are woken, and what happens where they cannot be.

use std::time::{Duration, Instant};

use ondeck_standin::Service;
use serde_json::{Value, json};

use super::direct_requests::{ask_sqs, is_of_machine, queues};
use super::harness::AwsHarness;
use super::permissions::policies;
use crate::harness::{Driven, until};

/// Polls that are so slow that a test notices each of them.
const SELDOM: [&str; 5] = [
    "--heartbeat-period-sec=20",
    "--agent-poll-waiting-sec=9",
    "--agent-poll-running-sec=9",
    "--claim-registration-timeout-sec=30",
    "--release-timeout-sec=40",
];

/// The queues of the pool's machines.
fn wake_queues(harness: &AwsHarness) -> Vec<String> {
    let all = queues(&harness.table());
    all.into_iter().map(|(url, _)| url).filter(|url| is_of_machine(url)).collect()
}

/// Removes what the policies say about the queues of machines.
fn without_queues_of_machines(mut policy: Value) -> Value {
    let statements = policy["Statement"].as_array_mut().unwrap();
    let is_about = |statement: &Value| statement["Resource"].to_string().contains("NAME_*");
    statements.retain(|statement| !is_about(statement));
    policy
}

/// The lines of all agents that contain this.
fn said(harness: &AwsHarness, what: &str) -> usize {
    let logs = std::fs::read_dir(harness.logs()).unwrap();
    let text = |log: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(log.unwrap().path()).unwrap_or_default()
    };
    logs.map(text).map(|text| text.lines().filter(|line| line.contains(what)).count()).sum()
}

#[test]
fn claims_and_releases_are_noticed_by_wake_ups() {
    let harness = AwsHarness::with(&SELDOM);
    harness.warm_up(2);
    assert_eq!(wake_queues(&harness).len(), 2);
    let agents = harness.gateway.endpoint("agents");
    until("both listen", || agents.count(Service::Sqs, "ReceiveMessage") >= 4);
    let begun = Instant::now();
    let warm = harness.provision("1", 2).succeeded();
    assert_eq!(warm.sources(), ["warm", "warm"]);
    harness.release("1").succeeded();
    // Each of them would take nine seconds by polling.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(said(&harness, "no wake-ups"), 0);
}

#[test]
fn an_agent_that_may_not_listen_polls_and_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, policy| match role {
        "machine" => without_queues_of_machines(policy),
        _ => policy,
    });
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&[]);
    harness.warm_up(1);
    let warm = harness.provision("1", 1).succeeded();
    assert_eq!(warm.sources(), ["warm"]);
    assert_eq!(wake_queues(&harness), Vec::<String>::new());
    let line = "no wake-ups, so the record is read every 0.1 s: SQS cannot be used: CreateQueue";
    until("it is said", || said(&harness, line) == 1);
    harness.release("1").succeeded();
    assert_eq!(said(&harness, "no wake-ups"), 1);
}

/// As a control plane that is older than wake-ups: the first change is noticed late, and the others by
/// polling.
#[test]
fn an_agent_whose_control_plane_sends_no_wake_ups_polls() {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, policy| match role {
        "provision" | "release" | "refresh" => without_queues_of_machines(policy),
        _ => policy,
    });
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&[]);
    harness.provision("warm-up", 1).succeeded();
    let released = harness.release("warm-up").succeeded();
    let warning =
        "machines are not woken, and notice changes later: SQS cannot be used: SendMessage";
    assert!(released.stderr.contains(warning), "{}", released.stderr);
    until("it is said", || said(&harness, "the last change was not announced") == 1);
    let begun = Instant::now();
    harness.provision("1", 1).succeeded();
    harness.release("1").succeeded();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn an_agent_whose_queue_was_deleted_is_woken_again() {
    let harness = AwsHarness::with(&[]);
    harness.warm_up(1);
    let [queue] = &wake_queues(&harness)[..] else { panic!("one queue") };
    ask_sqs("DeleteQueue", &json!({ "QueueUrl": queue }));
    until("the queue is there again", || wake_queues(&harness).len() == 1);
    assert_eq!(harness.provision("1", 1).succeeded().sources(), ["warm"]);
}

#[test]
fn refresh_deletes_the_queues_of_machines_that_are_gone_and_no_others() {
    let harness = AwsHarness::with(&[]);
    harness.warm_up(1);
    let [queue] = &wake_queues(&harness)[..] else { panic!("one queue") };
    let stem = queue.rsplit('/').next().unwrap().split('_').next().unwrap();
    let make = |machine: &str, created: &str| {
        let attributes = json!({ "CreatedTimestamp": created });
        let name = format!("{stem}_{machine}");
        ask_sqs("CreateQueue", &json!({ "QueueName": name, "Attributes": attributes }));
    };
    let tickets = queues(&format!("{stem}-")).len();
    make("i-0000000000000gone", "1700000000");
    make("i-00000000000000new", "4000000000");
    let before = harness.control.count(Service::Sqs, "ListQueues");
    harness.refresh(&[]);
    let mut left = wake_queues(&harness);
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(queue) && left.iter().any(|url| url.ends_with("new")), "{left:?}");
    assert_eq!(queues(&format!("{stem}-")).len(), tickets);
    let calls = |operation: &str| harness.control.count(Service::Sqs, operation);
    assert_eq!((calls("ListQueues") - before, calls("DeleteQueue")), (1, 1));
}
