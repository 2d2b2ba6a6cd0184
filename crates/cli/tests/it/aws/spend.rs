//! The cap on what machines may cost in a day, on AWS.

use ondeck_standin::Service;

use super::harness::AwsHarness;
use crate::cost::account;
use crate::harness::{Background, Done, Driven};
use crate::spend::{away_from_midnight, wanted};

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn provision(harness: &AwsHarness, run: &str, count: u32) -> Done {
    harness.ondeck(&words(&wanted(run, count)))
}

/// A pool with money for about so many machines, one of which exists for the run `first`.
fn with_money_for(machines: f64) -> AwsHarness {
    let harness = AwsHarness::with(&["--max-machine-age-min=30", "--max-spend-per-day=50"]);
    provision(&harness, "first", 1).succeeded();
    let one = harness.refresh(&[])["spend"]["reservedUsd"].as_f64().unwrap();
    harness.refresh(&[&format!("--max-spend-per-day={}", one * machines)]);
    harness
}

#[test]
fn processes_race_for_the_last_money_and_no_more_machines_are_launched() {
    away_from_midnight();
    let harness = with_money_for(3.5);
    let racers: Vec<Background> =
        (0..4).map(|run| harness.start(&words(&wanted(&run.to_string(), 1)))).collect();
    let done: Vec<Done> = racers.into_iter().map(Background::finish).collect();
    let mut codes: Vec<i32> = done.iter().map(|done| done.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 0, 4, 4], "{done:?}");
    for refused in done.iter().filter(|done| done.code == 4) {
        assert_eq!(refused.json()["error"]["kind"], "at-spend-cap");
    }
    assert_eq!(harness.gateway.ec2().machines().len(), 3, "no fourth one was ever launched");
    let used = harness.refresh(&[])["spend"].clone();
    let amount = |name: &str| used[name].as_f64().unwrap();
    assert!(amount("spentUsd") + amount("reservedUsd") <= amount("capUsd"), "{used}");
    assert_eq!(account(&harness, &[])["spend"], used, "the operator's role may read it");
}

#[test]
fn a_rollback_gives_its_money_back_by_the_next_refresh() {
    away_from_midnight();
    let harness = with_money_for(3.5);
    harness.refresh(&["--pre-runner-script=exit 3"]);
    provision(&harness, "never-ready", 2).exited(5);
    assert_eq!(provision(&harness, "1", 2).exited(4).json()["error"]["kind"], "at-spend-cap");
    harness.refresh(&["--reset=pre-runner-script"]);
    provision(&harness, "1", 2).succeeded();
}

#[test]
fn a_cap_costs_two_writes_for_each_launch_and_none_for_a_claim() {
    away_from_midnight();
    let writes = |harness: &AwsHarness| {
        let count = |operation| harness.control.count(Service::DynamoDb, operation);
        (count("UpdateItem"), count("PutItem"))
    };
    let harness = AwsHarness::with(&[]);
    let cost = |words: &[&str]| {
        harness.control.reset();
        harness.ondeck(words).succeeded();
        writes(&harness)
    };
    let cold = |run: &'static str| ["provision", "--json", "--machine-source=new", "--run-id", run];
    let without = cost(&cold("1"));
    harness.release("1").succeeded();
    let warm = cost(&["provision", "--json", "--run-id=2"]);
    harness.release("2").succeeded();
    harness.refresh(&["--max-machine-age-min=30", "--max-spend-per-day=50"]);
    assert_eq!(cost(&["provision", "--json", "--run-id=3"]), warm, "a claim needs no money");
    let below = cost(&cold("4"));
    assert_eq!(below, (without.0 + 2, without.1), "a reservation and its settlement");
}
