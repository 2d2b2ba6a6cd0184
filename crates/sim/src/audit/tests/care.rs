//! Settings, credentials, reports of agents and the usual time of a registration.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{AgentStatus, HELD, Report, Signal};
use ondeck_core::modes::refresh;

use super::at as second;
use super::*;

fn reports(signal: Signal, detail: &str, at: u64) -> AgentStatus {
    let report = Report {
        machine_label: None,
        signal,
        run: Some(run("a")),
        suffix: None,
        detail: detail.to_owned(),
        at: second(at),
        generation: None,
    };
    AgentStatus { readiness: None, heartbeat: None, report: Some(report) }
}

fn idle(until: u64) -> Record {
    let record = record(State::Idle, "a", None);
    Record { run: None, threshold: Some(second(until)), updated_at: second(0), ..record }
}

#[test]
fn sound_settings_are_accepted_and_others_refused() {
    for (given, is_refused, all_done, found) in [
        (("idle-time-sec", "0"), true, false, Some(Invariant::Contradiction)),
        (("idle-time-sec", "0"), false, true, None),
        (("idle-time-sec", "-1"), true, false, None),
        (("idle-time-sec", "-1"), false, true, Some(Invariant::Contradiction)),
        (("idle-time-sec", "-1"), false, false, None),
        (("heartbeat-period-sec", "90"), false, true, Some(Invariant::Contradiction)),
    ] {
        let given = BTreeMap::from([(given.0.to_owned(), given.1.to_owned())]);
        let judged = after(|audit| {
            audit.refresh_begins(Pid(1), &given, second(0));
            audit.judges_settings(Pid(1), is_refused, all_done);
        });
        assert_eq!(judged, found, "{given:?}, refused: {is_refused}");
    }
}

#[test]
fn credentials_are_renewed_when_they_are_old() {
    let asked_at = |at: u64, expires: u64| {
        after(|audit| {
            audit.calls_are_answered = true;
            audit.settings_in_force(second(0), Settings::default());
            audit.stored_credentials(second(100), second(expires));
            audit.refresh_begins(Pid(1), &BTreeMap::new(), second(at));
            audit.mints(Pid(1), second(at + 1));
        })
    };
    assert_eq!(asked_at(300, 9_000), Some(Invariant::FewCredentials));
    assert_eq!(asked_at(2_000, 9_000), None, "after half an hour");
    assert_eq!(asked_at(300, 330), None, "they expire soon");
    assert_eq!(asked_at(105, 9_000), None, "the refresh may have looked before");
}

#[test]
fn a_provision_does_not_claim_again_what_it_has_given_back() {
    let claimed = |by: usize, status: &AgentStatus| {
        after(|audit| {
            audit.is_quiet = true;
            audit.stored.push((second(0), BTreeMap::new()));
            audit.provision_begins(Pid(1), &run("a"), &Ask::of(1), second(0));
            audit.provision_begins(Pid(2), &run("b"), &Ask::of(1), second(0));
            audit.given_back.insert((Pid(1), idle(500).id));
            let claimed = Record { run: Some(run("a")), ..idle(500) };
            audit.claims(Pid(by), &claimed, status, second(50));
        })
    };
    assert_eq!(claimed(1, &AgentStatus::default()), Some(Invariant::FewHedges));
    assert_eq!(claimed(2, &AgentStatus::default()), None, "another may");
    assert_eq!(claimed(1, &reports(Signal::Registered, HELD, 40)), None, "it has a job");
}

#[test]
fn a_mode_does_not_wait_for_an_agent_that_has_failed() {
    let given_up_by = |by: usize, status: &AgentStatus, at: u64| {
        after(|audit| {
            audit.calls_are_answered = true;
            audit.operator_begins(Pid(2));
            let before = Some(idle(900));
            let seen = (status, false);
            audit.gives_up(Pid(by), Transition::Expire, before.as_ref(), seen, second(at));
        })
    };
    let given_up = |status: &AgentStatus, at: u64| given_up_by(1, status, at);
    let failed = reports(Signal::DeregisterFailed, "", 40);
    assert_eq!(given_up(&failed, 90), Some(Invariant::Believed));
    assert_eq!(given_up_by(2, &failed, 90), None, "an operator has not waited for it");
    assert_eq!(given_up(&failed, 60), None);
    assert_eq!(given_up(&reports(Signal::Registered, "", 40), 90), None);
}

#[test]
fn a_refresh_keeps_an_idle_machine_that_has_a_job() {
    let given_up = |detail: &str, has_job| {
        after(|audit| {
            audit.agents_beat = true;
            audit.refresh_begins(Pid(1), &BTreeMap::new(), second(0));
            let (before, status) = (Some(idle(900)), reports(Signal::Registered, detail, 40));
            let seen = (&status, has_job);
            audit.gives_up(Pid(1), Transition::Expire, before.as_ref(), seen, second(90));
        })
    };
    assert_eq!(given_up(HELD, true), Some(Invariant::JobKept));
    assert_eq!(given_up(HELD, false), None, "the job is over");
    assert_eq!(given_up("", true), None);
}

#[test]
fn the_usual_time_is_that_of_most_machines() {
    let took = [1, 2, 3, 4, 5].map(Duration::from_secs).to_vec();
    let stored = |seconds, took: &[Duration]| {
        after(|audit| audit.stores_usual_time(Duration::from_secs(seconds), took.to_vec()))
    };
    assert_eq!(stored(5, &took), None);
    assert_eq!(stored(1, &took), Some(Invariant::TrueReport));
    assert_eq!(stored(1, &took[..4]), None, "most of them may have changed");
}

#[test]
fn with_machines_enough_the_usual_time_is_known() {
    let known = |machines: usize, stored: bool| {
        after(|audit| {
            let ids = (0..machines).map(|n| InstanceId::new(format!("i-{n}")).unwrap());
            let ids: Vec<InstanceId> = ids.collect();
            audit.changed_at.extend(ids.iter().map(|id| (id.clone(), second(0))));
            let all = stored.then(|| ("registration-p95-ms".to_owned(), "900".to_owned()));
            audit.stored.push((second(0), all.into_iter().collect()));
            audit.knows_usual_time(second(100), &ids);
        })
    };
    assert_eq!(known(7, false), Some(Invariant::TrueReport));
    assert_eq!(known(7, true), None);
    assert_eq!(known(4, false), None);
}

#[test]
fn a_refresh_renews_credentials_that_are_too_old() {
    let left = |minted: u64, expires: u64, before: fn(&mut Audit)| {
        after(|audit| {
            audit.calls_are_answered = true;
            audit.settings_in_force(second(0), Settings::default());
            audit.stored_credentials(second(minted), second(expires));
            before(audit);
            audit.renews_credentials(Pid(1), (second(2_000), second(2_010)));
        })
    };
    let violated = Some(Invariant::FewCredentials);
    assert_eq!(left(1_000, 9_000, |_| ()), None);
    assert_eq!(left(100, 9_000, |_| ()), violated, "half an hour has passed");
    assert_eq!(left(1_000, 2_040, |_| ()), violated, "they expire too soon");
    let another = |audit: &mut Audit| audit.has_another_forge(Pid(1));
    assert_eq!(left(100, 9_000, another), None, "they are of another forge");
}

#[test]
fn what_is_created_is_given_up_only_if_the_run_is_released_meanwhile() {
    let given_up = |released: Option<(u64, &str)>| {
        after(|audit| {
            audit.forbid_waste = true;
            audit.provision_begins(Pid(1), &run("a"), &Ask::of(2), at(100));
            if let Some((when, owner)) = released {
                let (before, idle) = (record(State::Running, owner, Some(900)), idle(900));
                let counts = Counts { generation: 1, ..Counts::default() };
                let after = Record { counts, ..idle };
                let when = (at(when), at(when));
                audit.wrote(Pid(2), Transition::Release, Some(&before), &after, when, None);
            }
            let created = record(State::Created, "a", Some(900));
            audit.spare(Pid(1), Transition::Expire, Some(&created), at(120), None);
        })
    };
    let violated = Some(Invariant::NoWaste);
    assert_eq!(given_up(None), violated);
    assert_eq!(given_up(Some((110, "a"))), None);
    assert_eq!(given_up(Some((110, "b"))), violated, "another run was");
    assert_eq!(given_up(Some((90, "a"))), violated, "it was before it asked again");
}

#[test]
fn what_has_expired_by_every_clock_is_not_given_up_again() {
    let given_up = |threshold: u64| {
        after(|audit| {
            audit.forbid_waste = true;
            audit.provision_begins(Pid(1), &run("a"), &Ask::of(2), at(100));
            let created = record(State::Created, "a", Some(threshold));
            let created = Record { updated_at: at(120), ..created };
            // By the clock of the provision.
            audit.spare(Pid(1), Transition::Expire, Some(&created), at(115), None);
        })
    };
    assert_eq!(given_up(120), None, "another process has expired it");
    assert_eq!(given_up(121), Some(Invariant::NoWaste));
}

#[test]
fn a_refresh_reports_what_it_reaps_of_a_completed_run_by_the_run() {
    let reported = |completed: bool, released: bool| {
        after(|audit| {
            audit.forbid_waste = true;
            audit.refresh_begins(Pid(1), &BTreeMap::new(), at(0));
            audit.stored.push((at(0), BTreeMap::new()));
            audit.settings_in_force(at(0), Settings::default());
            if released {
                audit.note_written(Pid(1), Transition::Release, &idle(9).id);
            }
            audit.note_written(Pid(1), Transition::Reap, &idle(9).id);
            let completed = completed.then(|| run("a")).into_iter().collect();
            let outcome = refresh::Outcome { completed, ..refresh::Outcome::default() };
            audit.refresh_reports(Pid(1), &outcome, (at(0), at(1)));
        })
    };
    assert_eq!(reported(true, true), None);
    assert_eq!(reported(true, false), Some(Invariant::TrueReport), "it was not of the run");
    assert_eq!(reported(false, true), Some(Invariant::TrueReport), "no run has completed");
}

/// A refresh with a time limit makes idle what an earlier one has launched for a minimum, and may
/// replace it at once.
#[test]
fn a_refresh_with_a_limit_reports_what_it_replaces() {
    let reported = |told: bool, reaped: bool| {
        after(|audit| {
            audit.forbid_waste = true;
            audit.time_limit = Some(Duration::from_secs(45));
            audit.refresh_begins(Pid(1), &BTreeMap::new(), at(0));
            audit.stored.push((at(0), BTreeMap::new()));
            audit.settings_in_force(at(0), Settings::default());
            audit.is_quiet = true;
            audit.note_written(Pid(1), Transition::Release, &idle(9).id);
            if reaped {
                audit.note_written(Pid(1), Transition::Reap, &idle(9).id);
            }
            let rotated = told.then(|| idle(9).id).into_iter().collect();
            let outcome = refresh::Outcome { rotated, ..refresh::Outcome::default() };
            audit.refresh_reports(Pid(1), &outcome, (at(0), at(1)));
        })
    };
    assert_eq!(reported(true, true), None);
    assert_eq!(reported(true, false), Some(Invariant::TrueReport), "another process has done it");
}

#[test]
fn a_machine_has_run_a_script_that_was_stored_since_it_was_launched() {
    let with = |script: &str| Settings { pre_runner_script: script.into(), ..Settings::default() };
    let registers = |script: &str, launched: u64| {
        after(|audit| {
            for (from, stored) in [(0, "old"), (100, ""), (200, "new")] {
                audit.settings_in_force(second(from), with(stored));
            }
            audit.launched_at.insert(id(), second(launched));
            let script = script.to_owned();
            let condition = Condition { is_prepared: true, script, ..Condition::default() };
            audit.registers(&id(), &Label::from(&run("a")), &condition);
        })
    };
    let unprepared = Some(Invariant::Prepared);
    assert_eq!(["old", "", "new"].map(|script| registers(script, 50)), [None; 3]);
    assert_eq!(["old", "", "new"].map(|script| registers(script, 150)), [unprepared, None, None]);
    assert_eq!(["", "new"].map(|script| registers(script, 250)), [unprepared, None]);
}
