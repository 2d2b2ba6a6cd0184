//! Between the program and AWS everything goes wrong that can, one thing at a time. Every mode
//! ends correctly, and with a bounded number of calls.

mod clock;
mod gone;
mod once;
mod silence;

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_standin::{ActiveFault, AwsFault, AwsFaultRule, Occurrence, Service};
use serde_json::json;

use super::harness::AwsHarness;
use crate::harness::{Background, Driven};

/// Plays [`lifecycle_under`], and asserts that the second run gets the machines of the first.
fn lifecycle_with_reuse_under(rules: &[AwsFaultRule]) {
    let (cold, warm) = lifecycle_under(rules);
    assert_eq!(warm, cold, "the same two, warm");
}

/// Plays setting up, a cold run, a second run, and reaping while the rules inject faults into the
/// control plane's calls. Then removes the faults and asserts that nothing is left. Returns the
/// machines of the first run and of the second. Where the answer to a receive gets lost, tickets
/// stay hidden for a while, and the second run launches others.
fn lifecycle_under(rules: &[AwsFaultRule]) -> (Vec<String>, Vec<String>) {
    let harness = AwsHarness::bare();
    let faults: Vec<_> = rules.iter().map(|rule| harness.control.inject(rule.clone())).collect();
    set_up_under_rules(&harness);
    let (cold, warm) = two_runs_under_rules(&harness);
    harness.until_expired(&warm);
    reap_under_rules(&harness, &warm);
    let fired: usize = faults.iter().map(ActiveFault::fired).sum();
    assert!(fired > 0, "no fault was injected: {:?}", harness.control.calls());
    harness.control.clear_faults();
    harness.until_empty();
    (cold, warm)
}

fn set_up_under_rules(harness: &AwsHarness) {
    within_calls(harness, 160, || {
        harness.set_up(&["--self-termination-grace-sec=60", "--idle-time-sec=20"]);
    });
    assert_eq!(harness.gateway.ec2().launch_templates().len(), 1);
    // Without the table, the settings and every queue there is none.
    let pool = harness.status()["pool"].clone();
    assert!(pool.as_object().is_some_and(|pool| pool.len() > 1), "{pool}");
}

fn two_runs_under_rules(harness: &AwsHarness) -> (Vec<String>, Vec<String>) {
    within_calls(harness, 250, || {
        let cold = harness.provision("1", 2).succeeded().ids();
        assert_eq!(harness.machines(), cold.iter().cloned().collect(), "as many as were asked for");
        harness.release("1").succeeded();
        let warm = harness.provision("2", 2).succeeded().ids();
        assert_eq!(warm.iter().collect::<BTreeSet<_>>().len(), 2, "two different ones");
        harness.ondeck(&["release", "--run-id=2", "--idle-time-sec=8"]).succeeded();
        (cold, warm)
    })
}

/// On a busy computer, a release under faults may take longer than the idle time. It then reaps a
/// machine itself, so refresh has to reap only those that still have a record.
fn reap_under_rules(harness: &AwsHarness, expired: &[String]) {
    let before = harness.records();
    let refreshed = within_calls(harness, 110, || harness.refresh(&[]));
    let (machines, records) = (harness.machines(), harness.records());
    for machine in expired {
        let is_reaped = refreshed["reaped"].as_array().unwrap().contains(&json!(machine));
        assert_eq!(is_reaped, before.contains_key(machine), "{machine}: {refreshed}");
        assert!(!machines.contains(machine), "reaped, but alive: {machine}");
        assert!(!records.contains_key(machine), "reaped, but recorded as {}", records[machine]);
    }
}

/// Does something that takes no more than so many calls of the control plane.
#[track_caller]
fn within_calls<T>(harness: &AwsHarness, most: usize, mode: impl FnOnce() -> T) -> T {
    harness.control.reset();
    let done = mode();
    let calls = harness.control.total();
    assert!(calls < most, "{calls} calls: {:?}", harness.control.calls());
    done
}

/// Every third call, so that each is repeated at most twice in a row.
fn every_third(what: AwsFault) -> AwsFaultRule {
    AwsFaultRule::new(what).occurrence(Occurrence::Every(3))
}

#[test]
fn resets_before_the_effect() {
    lifecycle_with_reuse_under(&[every_third(AwsFault::Reset)]);
}

#[test]
fn answers_lost_after_the_effect() {
    lifecycle_under(&[every_third(AwsFault::LostAnswer)]);
}

#[test]
fn answers_cut_in_half() {
    lifecycle_under(&[every_third(AwsFault::CutBody)]);
}

#[test]
fn internal_errors() {
    lifecycle_with_reuse_under(&[every_third(AwsFault::Status(500))]);
}

#[test]
fn unavailable_services() {
    lifecycle_with_reuse_under(&[every_third(AwsFault::Status(503))]);
}

#[test]
fn throttling() {
    lifecycle_with_reuse_under(&[every_third(AwsFault::Throttle)]);
}

#[test]
fn latency() {
    lifecycle_with_reuse_under(&[AwsFaultRule::new(AwsFault::Delay(Duration::from_millis(40)))]);
}

#[test]
fn batches_done_in_part() {
    lifecycle_with_reuse_under(&[
        AwsFaultRule::new(AwsFault::PartialBatch).occurrence(Occurrence::Every(2))
    ]);
}

#[test]
fn tickets_delivered_twice() {
    lifecycle_with_reuse_under(&[AwsFaultRule::new(AwsFault::DuplicateDelivery)]);
}

#[test]
fn short_polls_that_find_nothing() {
    lifecycle_with_reuse_under(&[AwsFaultRule::new(AwsFault::EmptyReceive)]);
}

#[test]
fn everything_at_random() {
    let seed = std::env::var("ONDECK_FAULT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("ONDECK_FAULT_SEED={seed} replays the faults");
    let kinds = [
        AwsFault::Reset,
        AwsFault::LostAnswer,
        AwsFault::CutBody,
        AwsFault::Status(500),
        AwsFault::Throttle,
    ];
    let rules: Vec<AwsFaultRule> = kinds
        .into_iter()
        .enumerate()
        .map(|(n, what)| {
            // More than one call in five fails. A call fails in every one of its attempts once in
            // three million.
            let which = Occurrence::Chance { probability: 0.05, seed: seed ^ n as u64 };
            AwsFaultRule::new(what).occurrence(which)
        })
        .collect();
    lifecycle_under(&rules);
}

#[test]
fn expired_credentials_are_said_to_be_expired() {
    let harness = AwsHarness::with(&[]);
    harness.control.inject(AwsFaultRule::new(AwsFault::ExpiredToken));
    harness.control.reset();
    for mode in [&["provision", "--run-id=1"][..], &["release", "--run-id=1"], &["refresh"]] {
        let done = harness.ondeck(mode).exited(6);
        assert!(done.stderr.contains("the AWS credentials have expired"), "{done:?}");
    }
    assert!(
        harness.control.total() <= 12,
        "it does not pass by itself: {:?}",
        harness.control.calls()
    );
}

#[test]
fn agents_whose_calls_go_wrong_serve_all_the_same() {
    let harness = AwsHarness::with(&[]);
    let agents = harness.gateway.endpoint("agents");
    let kinds = [
        AwsFault::Reset,
        AwsFault::LostAnswer,
        AwsFault::CutBody,
        AwsFault::Status(500),
        AwsFault::Throttle,
    ];
    let rules: Vec<_> = kinds
        .into_iter()
        .enumerate()
        .map(|(n, what)| {
            let which = Occurrence::Chance { probability: 0.06, seed: n as u64 };
            agents.inject(AwsFaultRule::new(what).occurrence(which))
        })
        .collect();
    let cold = harness.provision("1", 2).succeeded();
    harness.release("1").succeeded();
    assert_eq!(harness.provision("2", 2).succeeded().ids(), cold.ids());
    harness.release("2").succeeded();
    assert!(rules.iter().map(ActiveFault::fired).sum::<usize>() > 0);
}

#[test]
fn credentials_that_cannot_be_had_just_now_are_asked_for_again() {
    let harness = AwsHarness::with(&[]);
    let profiles = harness.logs().with_file_name("profiles");
    let text = "[default]\nrole_arn = arn:aws:iam::000000000000:role/ci\nsource_profile = keys\n\
                [profile keys]\naws_access_key_id = operator\naws_secret_access_key = test\n";
    std::fs::write(&profiles, text).unwrap();
    let ask = || {
        let mut command = harness.command(&["status", "--json"]);
        command
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY")
            .env("AWS_CONFIG_FILE", &profiles);
        Background::start(&mut command).finish()
    };
    for what in [AwsFault::Status(503), AwsFault::Throttle, AwsFault::Reset] {
        let rule = AwsFaultRule::new(what)
            .service(Service::Sts)
            .operation("AssumeRole")
            .occurrence(Occurrence::First(2));
        let fault = harness.control.inject(rule);
        ask().succeeded();
        assert_eq!(fault.fired(), 2, "{what:?}");
        harness.control.clear_faults();
    }
    let expired =
        harness.control.inject(AwsFaultRule::new(AwsFault::ExpiredToken).service(Service::Sts));
    let done = ask().exited(6);
    assert_eq!(expired.fired(), 1, "asking again would not help");
    assert!(done.stderr.contains("hint: set AWS_ACCESS_KEY_ID"), "{}", done.stderr);
}
