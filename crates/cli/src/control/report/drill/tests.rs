use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::modes::drill::{Expectation, Scenario, Violation};

use super::*;

fn options() -> Options {
    Options {
        name: "drill-1a2b3c4d".to_owned(),
        scenarios: BTreeSet::from(Scenario::ALL),
        class: None,
        may_launch: false,
        no_interruption: None,
        patience: Duration::from_secs(600),
    }
}

fn plan() -> Vec<Planned> {
    let idle = Target {
        class: "large".parse().unwrap(),
        usage: "on-demand".parse().unwrap(),
        instance_type: Some("c6i.large".to_owned()),
    };
    let planned = |scenario, target: Result<&Target, &str>| Planned {
        scenario,
        target: target.cloned().map_err(str::to_owned),
    };
    vec![
        planned(Scenario::CancelProvision, Ok(&idle)),
        planned(Scenario::CancelLaunch, Err("it launches a machine; give --launch")),
        planned(Scenario::InterruptSpot, Err("there is no idle spot machine")),
        planned(Scenario::KillIdle, Ok(&idle)),
    ]
}

fn step(expectation: Expectation, is_met: bool, seen: &str, took: u64, limit: u64) -> Step {
    let limit = (limit > 0).then(|| Duration::from_secs(limit));
    Step { expectation, is_met, seen: seen.to_owned(), took: Duration::from_millis(took), limit }
}

/// A drill that has found something.
pub(crate) fn example() -> DrillReport {
    let id = "i-0123456789abcdef0";
    let denied = "exit code 6: EC2 cannot be used: AccessDenied";
    let killed = Played {
        scenario: Scenario::KillIdle,
        verdict: Verdict::Failed,
        machine: Some(id.parse().unwrap()),
        steps: vec![
            step(
                Expectation::Claimed,
                true,
                "i-0123456789abcdef0 for run drill-1a2b3c4d-2",
                2_300,
                300,
            ),
            step(Expectation::Released, true, "exit code 0", 3_100, 120),
            step(Expectation::Refreshed, false, denied, 4_000, 0),
            step(Expectation::Gone, true, "nothing is left", 61_000, 600),
        ],
    };
    let skipped = Played {
        scenario: Scenario::InterruptSpot,
        verdict: Verdict::Skipped("there is no idle spot machine".to_owned()),
        machine: None,
        steps: Vec::new(),
    };
    let outcome = Outcome {
        scenarios: vec![skipped, killed],
        before: vec![Violation {
            expectation: Expectation::NoOrphan,
            about: "i-0fedcba9876543210".to_owned(),
            what: "i-0fedcba9876543210 has no live record, and its provider lists it".to_owned(),
        }],
        unchecked: vec!["offline runners, needs ONDECK_GITHUB_TOKEN".to_owned()],
        left: Vec::new(),
        failure: None,
    };
    DrillReport::planned("acme/web", &options(), plan()).played(outcome)
}

#[test]
fn a_plan_says_what_would_be_done_and_what_it_costs() {
    let report = DrillReport::planned("acme/web", &options(), plan());
    assert_eq!(report.failure(), None);
    insta::assert_snapshot!(report.text(), @"
    plan of a drill in pool acme/web

    scenario          machine                    what a drill would do
    cancel-provision  large c6i.large on-demand  sends SIGINT to a provision that has just claimed an idle machine
    cancel-launch     -                          skipped: it launches a machine; give --launch
    interrupt-spot    -                          skipped: there is no idle spot machine
    kill-idle         large c6i.large on-demand  claims an idle machine, releases it, and ends it at its provider without touching its record

    cost: it ends 1 idle machine, and launches none
    machines of other runs are left alone; the refreshes of a drill do what they do on schedule
    ");
}

#[test]
fn a_failure_says_what_was_seen_why_it_matters_and_what_to_do() {
    let report = example();
    assert_eq!(report.failure().unwrap().kind.exit_code(), 22);
    insta::assert_snapshot!(report.text(), @"
    drill in pool acme/web, runs drill-1a2b3c4d-*

    interrupt-spot: skipped: there is no idle spot machine

    kill-idle (i-0123456789abcdef0): FAILED
      expectation  result   took    limit    seen
      claimed      met      2.3s    5m 00s   i-0123456789abcdef0 for run drill-1a2b3c4d-2
      released     met      3.1s    2m 00s   exit code 0
      refreshed    NOT MET  4.0s    -        exit code 6: EC2 cannot be used: AccessDenied
      gone         met      1m 01s  10m 00s  nothing is left

    not met:
      kill-idle: refresh succeeds
        seen: exit code 6: EC2 cannot be used: AccessDenied
        why: while refresh fails, machines stay that no run uses, and registration tokens expire
        fix: run ondeck refresh with the same credentials; check the permissions of its role with ondeck permissions check

    before the drill: i-0fedcba9876543210 has no live record, and its provider lists it
    not checked: offline runners, needs ONDECK_GITHUB_TOKEN
    ");
}

#[test]
fn a_drill_that_could_play_nothing_has_not_passed() {
    let skipped = Played {
        scenario: Scenario::KillIdle,
        verdict: Verdict::Skipped("there is no idle machine".to_owned()),
        machine: None,
        steps: Vec::new(),
    };
    let outcome = Outcome { scenarios: vec![skipped], ..Outcome::default() };
    let report = DrillReport::planned("acme/web", &options(), Vec::new()).played(outcome);
    let failure = report.failure().unwrap();
    assert_eq!((failure.kind.exit_code(), &*failure.message), (22, "no scenario could be played"));
}

#[test]
fn the_guide_has_each_expectation_and_each_scenario() {
    let guide = include_str!("../../../../../../docs/guides/drill.md");
    for expectation in Expectation::ALL {
        let row = format!("| `{}` |", expectation.as_str());
        assert!(guide.contains(&row), "{row}");
    }
    for scenario in Scenario::ALL {
        assert!(guide.contains(&format!("| `{scenario}` |")), "{scenario}");
    }
}
