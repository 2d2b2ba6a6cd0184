//! `ondeck dashboard` on emulated AWS, under the operator's policy: when it calls AWS, and what it says
//! if AWS does not answer.

use ondeck_standin::{AwsFault, AwsFaultRule, Service};
use serde_json::Value;

use super::harness::AwsHarness;
use crate::dashboard::requests::{Events, got};
use crate::dashboard::{SECRETS, Served, assert_tells_no_secret, ids_in};
use crate::doctor::ids;
use crate::harness::{Driven, until};

/// The default classes, each with a queue.
const CLASSES: usize = 7;

#[test]
fn it_calls_aws_only_while_a_page_is_open_and_once_for_all_pages() {
    let harness = AwsHarness::with(&[]);
    harness.provision("1", 2).succeeded();
    let served = Served::of(&harness);
    harness.control.reset();
    assert_eq!(got(&served.address, "/").status, 200);
    assert_eq!(harness.control.total(), 0, "no page is open: {:?}", harness.control.calls());

    let mut pages: Vec<Events> = (0..3).map(|_| Events::of(&served.address)).collect();
    let mut told = 0;
    while told < 4 {
        pages[0].until("change", |_| true);
        told += 1;
    }
    let readings = harness.control.count(Service::Sqs, "GetQueueAttributes").div_ceil(CLASSES);
    assert!((4..=5).contains(&readings), "three pages share a reading: {readings}");
    // The first reading lists terminated machines as well; hand-overs and calls are read once.
    let queries = harness.control.count(Service::DynamoDb, "Query");
    assert!(queries <= 2 * readings + 8, "{readings}: {:?}", harness.control.calls());

    drop(pages);
    // One reading may be under way; then there is none, however often the page is asked for.
    let is_quiet = || {
        let before = harness.control.total();
        (0..200).for_each(|_| drop(got(&served.address, "/")));
        harness.control.total() == before
    };
    until("no page is open, and nothing is called", is_quiet);
}

#[test]
fn doctor_and_cost_call_aws_when_they_are_asked_and_not_again_for_the_next_page() {
    let harness = AwsHarness::with(&[]);
    harness.warm_up(2);
    let served = Served::of(&harness);
    for path in ["/doctor", "/cost?since=24h"] {
        harness.control.reset();
        let first = got(&served.address, path);
        assert_eq!(first.status, 200, "{}", first.body);
        let calls = harness.control.total();
        assert!(calls > 0, "{path}");
        assert_eq!(got(&served.address, path).body, first.body, "{path}");
        assert_eq!(harness.control.total(), calls, "{path}: {:?}", harness.control.calls());
    }
    let examined: Value = serde_json::from_str(&got(&served.address, "/doctor").body).unwrap();
    assert_eq!(ids(&examined["doctor"]), [""; 0], "{examined:#}");
    assert!(examined["doctor"]["caller"].as_str().unwrap().starts_with("arn:aws:"));
}

#[test]
fn doctor_is_asked_anew_when_something_else_is_wrong() {
    let harness = AwsHarness::with(&[
        "--heartbeat-period-sec=1",
        "--self-termination-grace-sec=60",
        "--boot-deadline-sec=600",
    ]);
    let machine = harness.provision("1", 1).succeeded().ids().concat();
    let served = Served::of(&harness);
    let mut events = Events::of(&served.address);
    let found = || {
        let answer = got(&served.address, "/doctor");
        let examined: Value = serde_json::from_str(&answer.body).unwrap();
        ids(&examined["doctor"]).concat()
    };
    events.until("change", |_| true);
    assert_eq!(found(), "");
    until("its agent is killed", || harness.gateway.ec2().kill_agent(&machine));
    let is_silent = |problem: &Value| problem["kind"] == "silent";
    events.until("change", |change| {
        let problems = change["summary"]["problems"].as_array();
        problems.is_some_and(|problems| problems.iter().any(is_silent))
    });
    assert_eq!(found(), "machines-silent", "the answer of before is no longer given");
}

#[test]
fn no_secret_is_in_an_answer_while_aws_answers_or_does_not() {
    let harness = AwsHarness::with(&["--pre-runner-script=echo script-secret-1"]);
    harness.provision("1", 1).succeeded();
    let served = Served::on(&harness, "127.0.0.1:0", &SECRETS);
    let mut events = Events::of(&served.address);
    assert!(!events.until("change", |_| true).to_string().contains("secret"));
    assert_eq!(assert_tells_no_secret(&served, &[], "1"), [200, 400, 403, 404, 405]);
    harness.control.inject(AwsFaultRule::new(AwsFault::Reset).service(Service::DynamoDb));
    let trouble = events.until("trouble", |_| true);
    assert!(!trouble.to_string().contains("secret"), "{trouble}");
    let statuses = assert_tells_no_secret(&served, &[], "1");
    assert!(statuses.iter().any(|status| *status >= 500), "{statuses:?}");
}

#[test]
fn a_store_out_of_reach_is_said_and_the_machines_stay() {
    let harness = AwsHarness::with(&[]);
    let ids = harness.provision("1", 2).succeeded().ids();
    let served = Served::of(&harness);
    let mut events = Events::of(&served.address);
    let first = events.until("change", |change| ids_in(change).len() == 2);
    assert_eq!(ids_in(&first), ids);
    let fault = harness.control.inject(AwsFaultRule::new(AwsFault::Reset));
    let trouble = events.until("trouble", |_| true);
    assert!(trouble["message"].as_str().unwrap().contains("out of reach"), "{trouble}");
    let (_, state) = Events::of(&served.address).next();
    assert_eq!(state["machines"].as_array().unwrap().len(), 2);
    assert!(state["trouble"].is_object());
    fault.stop();
    events.until("change", |_| true);
    harness.release("1").succeeded();
    events.until("change", |change| change["summary"]["states"]["idle"] == 2);
    let story = got(&served.address, &format!("/story?of={}", ids[0]));
    assert_eq!(story.status, 200, "{}", story.body);
    assert!(story.body.contains("released it into the pool"), "{}", story.body);
}
