//! The ceiling on AWS: the same race as on the local backend, and what it costs.

use ondeck_standin::Service;
use serde_json::json;

use super::harness::AwsHarness;
use crate::harness::{Background, Driven, until};

/// How many requests of DynamoDB a provision of one new machine made, but for polls.
fn writes(harness: &AwsHarness) -> (usize, usize) {
    let count = |operation| harness.control.count(Service::DynamoDb, operation);
    (count("UpdateItem"), count("PutItem"))
}

#[test]
fn two_processes_race_for_the_last_place_and_one_is_refused() {
    let harness = AwsHarness::with(&["--max-machines=9 large=3"]);
    harness.provision("1", 2).succeeded();
    let racers: Vec<Background> = ["2", "3"]
        .iter()
        .map(|run| harness.start(&["provision", "--json", "--run-id", run]))
        .collect();
    let done: Vec<_> = racers.into_iter().map(Background::finish).collect();
    let mut codes: Vec<i32> = done.iter().map(|done| done.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 4], "{done:?}");
    let refused = done.iter().find(|done| done.code == 4).unwrap().json();
    assert_eq!(refused["error"]["kind"], "at-ceiling");
    let told = "class large has 3 of 3 machines, 1 more is needed";
    assert_eq!(refused["error"]["message"], told);
    assert_eq!(harness.gateway.ec2().machines().len(), 3, "no fourth one was ever launched");
    let ceilings = json!([
        {"machines": 3, "max": 9},
        {"resourceClass": "large", "machines": 3, "max": 3},
    ]);
    assert_eq!(harness.refresh(&[])["ceilings"], ceilings, "EC2 may not list them yet");

    let (waiting, served) = (["2", "3"], done.iter().position(|done| done.code == 0).unwrap());
    let patient =
        ["provision", "--json", "--run-id", waiting[1 - served], "--ceiling-patience-sec=35"];
    let patient = harness.start(&patient);
    patient.until_it_says(&format!("waiting for room: {told}"));
    let at_once = ["release", "--run-id", "1", "--idle-time-sec=0"];
    harness.ondeck(&at_once).exited(0);
    until("refresh sees that two are gone", || {
        harness.refresh(&[]);
        harness.gateway.ec2().machines().len() > 3
    });
    assert_eq!(patient.finish().succeeded().sources(), ["cold"]);
}

#[test]
fn a_ceiling_costs_two_writes_for_each_launch_and_none_for_a_claim() {
    let harness = AwsHarness::with(&[]);
    let cost = |run: &str| {
        harness.control.reset();
        let done = harness.provision(run, 1).succeeded();
        let writes = writes(&harness);
        harness.release(run).succeeded();
        (done.sources().concat(), writes)
    };
    let (cold, without) = cost("1");
    let (warm, claim) = cost("2");
    assert_eq!((cold.as_str(), warm.as_str()), ("cold", "warm"));
    harness.refresh(&["--max-machines=9"]);
    let (warm, claim_below) = cost("3");
    assert_eq!((warm.as_str(), claim_below), ("warm", claim), "a claim needs no place");
    harness.control.reset();
    let new = ["provision", "--json", "--run-id=4", "--machine-source=new"];
    assert_eq!(harness.ondeck(&new).succeeded().sources(), ["cold"]);
    assert_eq!(writes(&harness), (without.0 + 2, without.1), "a reservation and its settlement");
}
