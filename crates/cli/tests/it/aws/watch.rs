//! `ondeck status` and `ondeck watch` on emulated AWS: how many calls they make, under the operator's
//! policy, and what they show if AWS does not answer.

use ondeck_standin::{AwsFault, AwsFaultRule, Service};

use super::harness::AwsHarness;
use crate::harness::{AtTerminal, Driven, OnScreen, until};

/// The default classes, each with a queue.
const CLASSES: usize = 7;

fn watch(harness: &AwsHarness) -> OnScreen {
    let command = harness.command(&["watch", "--interval-sec=1"]);
    let mut watch = AtTerminal::on_screen(&command, 100, 30);
    watch.until("the first frame", |shown| shown.contains("instance"));
    watch
}

#[test]
fn each_reading_is_one_batch_of_calls() {
    let harness = AwsHarness::with(&["--max-machines=9"]);
    harness.provision("1", 2).succeeded();
    harness.control.reset();
    let mut watch = watch(&harness);
    let readings = || harness.control.count(Service::Sqs, "GetQueueAttributes") / CLASSES;
    until("five readings", || readings() >= 5);
    watch.press("q");
    assert_eq!(watch.ended().0, Some(0));
    let readings = harness.control.count(Service::Sqs, "GetQueueAttributes").div_ceil(CLASSES);
    let calls = harness.control.calls();
    let of = |operation: &str| harness.control.count(Service::DynamoDb, operation);
    // The settings and the list each time, and the latest events of today and yesterday once.
    assert!(
        (2 * (readings - 1)..=2 * readings + 2).contains(&of("Query")),
        "{readings}: {calls:?}"
    );
    // Records and agent status each time, and the events once.
    let batches = 2 * (readings - 1)..=2 * readings + 1;
    assert!(batches.contains(&of("BatchGetItem")), "{readings}: {calls:?}");
    assert!((readings - 1..=readings).contains(&of("GetItem")), "the ceiling: {calls:?}");
    assert!(harness.control.count(Service::Sqs, "GetQueueUrl") <= CLASSES, "once: {calls:?}");
    let most = readings * (1 + 1 + 2 + CLASSES + 1) + CLASSES + 3;
    assert!(harness.control.total() <= most, "{readings} readings: {calls:?}");
}

#[test]
fn a_story_is_read_once_for_each_change_of_its_machine() {
    let harness = AwsHarness::with(&[]);
    harness.provision("1", 1).succeeded();
    let mut watch = watch(&harness);
    watch.press("e");
    watch.until("the story", |shown| shown.contains("was handed to run 1"));
    harness.control.reset();
    let readings = || harness.control.count(Service::Sqs, "GetQueueAttributes") / CLASSES;
    until("eight readings", || readings() >= 8);
    // Two for each reading, the latest events of two days once, and once more the settings and the events
    // of the machine, when those of a late change have had time to arrive.
    let queries = harness.control.count(Service::DynamoDb, "Query");
    assert!(queries <= 2 * (readings() + 1) + 4, "{:?}", harness.control.calls());
    harness.release("1").succeeded();
    watch.until("it has grown", |shown| shown.contains("Run 1 released it"));
    watch.press("\x03");
    assert_eq!(watch.ended().0, Some(0));
}

#[test]
fn status_shows_what_the_operator_may_read() {
    let harness = AwsHarness::with(&["--max-machines=9 large=5"]);
    harness.warm_up(2);
    harness.provision("2", 2).succeeded();
    let text = harness.ondeck(&["status"]).succeeded().stdout;
    assert!(text.contains("machines: 2 (2 running), all large"), "{text}");
    assert!(text.contains("warm: 50 %, 2 of the last 4 machines"), "{text}");
    assert!(text.contains("ceiling: 2 of 9, large 2 of 5"), "{text}");
    assert!(
        text.contains("refresh: within the last ") && text.contains("wrong: nothing"),
        "{text}"
    );
}

#[test]
fn a_store_out_of_reach_is_shown_and_watching_goes_on() {
    let harness = AwsHarness::with(&[]);
    harness.provision("1", 2).succeeded();
    let mut watch = watch(&harness);
    let fault = harness.control.inject(AwsFaultRule::new(AwsFault::Reset));
    let shown = watch.until("the failure", |shown| {
        shown.starts_with("OUT OF REACH for") && shown.contains("shown is what was read")
    });
    assert_eq!(shown.matches("running").count(), 3, "the machines stay on the screen:\n{shown}");
    fault.stop();
    watch.until("it reads again", |shown| shown.starts_with("ondeck watch, read"));
    watch.press("q");
    assert_eq!(watch.ended().0, Some(0));
}
