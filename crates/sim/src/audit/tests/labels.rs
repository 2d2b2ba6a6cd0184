//! Pools whose machines register while they are idle, under labels of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::demand::Demand;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::readiness::{IdleRegistration, Readiness, ReadinessNote};
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::modes::provision::{self, Request};
use ondeck_core::modes::refresh;

use super::*;
use crate::kernel::timestamp;
use crate::plan::SECOND;
use crate::simulated_machines::SeatView;

/// A moment of the simulation.
fn second(second: u64) -> Timestamp {
    timestamp(second * SECOND)
}

pub(super) fn own(digit: char) -> MachineLabel {
    MachineLabel::new(format!("m{}", digit.to_string().repeat(32))).unwrap()
}

fn job(of: &str) -> Label {
    Label::from(&run(of))
}

fn idle(generation: u32) -> Record {
    let record = record(State::Idle, "", None);
    let counts = Counts { generation, ..record.counts };
    Record { counts, threshold: Some(second(9_000)), ..record }
}

/// The machine listens under its own label as registration 4. It lets in jobs of `owner`.
fn listens(owner: Option<&str>) -> MachineView {
    MachineView {
        label: None,
        serving: None,
        job: None,
        seat: Some(SeatView { label: own('4'), number: 4, owner: owner.map(run) }),
        is_dirty: false,
        notice_at: None,
    }
}

/// The agent has said at `at` that its machine is ready in generation 2, by its fourth registration.
fn ready(at: u64) -> AgentStatus {
    let registration = IdleRegistration { generation: 2, label: own('4'), number: 4 };
    let readiness = Readiness::Ready(registration);
    AgentStatus {
        readiness: Some(ReadinessNote { readiness, at: second(at) }),
        ..AgentStatus::default()
    }
}

fn unready(at: u64) -> AgentStatus {
    let readiness = Readiness::NotReady { since: second(at), why: "the listener died".to_owned() };
    AgentStatus {
        readiness: Some(ReadinessNote { readiness, at: second(at) }),
        ..AgentStatus::default()
    }
}

fn has_left(generation: u32) -> AgentStatus {
    let report = Report {
        machine_label: None,
        signal: Signal::Deregistered,
        run: None,
        suffix: None,
        detail: String::new(),
        at: second(9),
        generation: Some(generation),
    };
    AgentStatus { report: Some(report), ..AgentStatus::default() }
}

#[test]
fn a_job_is_let_in_only_by_its_own_run() {
    let let_in = |found: &Record, of: &str, status: &AgentStatus| {
        after(|audit| {
            audit.owned_since.insert(id(), (run("a"), second(1)));
            audit.existing(found);
            audit.let_in(&id(), &job(of), status);
        })
    };
    let (violated, silent) = (Some(Invariant::Job), AgentStatus::default());
    for state in [State::Claimed, State::Running] {
        let owned = record(state, "a", Some(60));
        assert_eq!(let_in(&owned, "a", &silent), None, "{state}");
        assert_eq!(let_in(&owned, "b", &silent), violated, "{state}");
    }
    assert_eq!(let_in(&idle(2), "a", &silent), None, "it has not left the run that gave it back");
    assert_eq!(let_in(&idle(2), "b", &silent), violated, "it never had this one");
    assert_eq!(let_in(&idle(2), "a", &has_left(2)), violated, "it has left");
    assert_eq!(let_in(&idle(2), "a", &has_left(1)), None, "it has left the run before");
    let never_owned = after(|audit| {
        audit.existing(&idle(0));
        audit.let_in(&id(), &job("a"), &silent);
    });
    assert_eq!(never_owned, violated, "no run has had it");
    let by_hand = |of: &str| {
        after(|audit| {
            audit.owned_since.insert(id(), (run("a"), second(1)));
            audit.reassigned_by_hand(&record(State::Running, "hand", Some(60)), second(2));
            audit.let_in(&id(), &job(of), &silent);
        })
    };
    assert_eq!(by_hand("a"), None, "the operator has just taken it from this run");
    assert_eq!(by_hand("b"), violated, "neither the operator nor the store gave it to this run");
}

#[test]
fn a_hook_lets_in_the_jobs_of_the_owner_only() {
    let names =
        |owner: Option<&str>| after(|audit| audit.hook_is_right(&id(), &job("a"), &listens(owner)));
    assert_eq!(names(Some("a")), None);
    assert_eq!(names(None), None, "its agent has not named the owner yet");
    assert_eq!(names(Some("b")), Some(Invariant::Job));
    let without = MachineView { seat: None, ..listens(None) };
    assert_eq!(after(|audit| audit.hook_is_right(&id(), &job("a"), &without)), None);
}

#[test]
fn a_machine_is_announced_only_under_a_registration_that_no_run_has_had() {
    let announced = |owner: Option<&str>, served: Option<u32>| {
        after(|audit| {
            if let Some(number) = served {
                audit.names_owner(&id(), (&own('4'), number), &run("a"));
            }
            audit.existing(&idle(2));
            let ticket = Ticket { generation: 2, threshold: second(9_000), ..ticket(60) };
            audit.announced(&ticket, Some(&listens(owner)), second(30));
        })
    };
    assert_eq!(announced(None, None), None);
    assert_eq!(announced(None, Some(3)), None, "the registration before");
    assert_eq!(announced(None, Some(4)), Some(Invariant::OneRegistration), "this one");
    assert_eq!(announced(Some("a"), None), Some(Invariant::Job), "its hook is open");
}

#[test]
fn neither_a_registration_nor_a_label_serves_two_runs() {
    let named = |second: (char, u32, &str)| {
        after(|audit| {
            audit.names_owner(&id(), (&own('4'), 4), &run("a"));
            let (label, number, owner) = second;
            audit.names_owner(&id(), (&own(label), number), &run(owner));
        })
    };
    let violated = Some(Invariant::OneRegistration);
    assert_eq!(named(('4', 4, "a")), None, "again");
    assert_eq!(named(('4', 5, "a")), None, "it was repaired for its run");
    assert_eq!(named(('5', 5, "b")), None);
    assert_eq!(named(('5', 4, "b")), violated, "one registration");
    assert_eq!(named(('4', 5, "b")), violated, "one label");
    let by_hand = after(|audit| {
        audit.touched_by_hand.insert(id());
        audit.names_owner(&id(), (&own('4'), 4), &run("a"));
        audit.names_owner(&id(), (&own('4'), 4), &run("b"));
    });
    assert_eq!(by_hand, None, "an operator has given it to another run");
}

#[test]
fn the_label_of_a_run_is_registered_again_for_that_run_only() {
    let registers = |owner: Option<&str>, label: char| {
        after(|audit| {
            audit.settings_in_force(second(0), Settings::default());
            audit.names_owner(&id(), (&own('4'), 4), &run("a"));
            let other = InstanceId::new("i-2").unwrap();
            if let Some(owner) = owner {
                audit.owned_since.insert(other.clone(), (run(owner), second(20)));
            }
            let condition = Condition { is_prepared: true, ..Condition::default() };
            audit.registers_own(&other, &own(label), &condition);
        })
    };
    let violated = Some(Invariant::OneRegistration);
    assert_eq!(registers(Some("a"), '4'), None, "a rescue");
    assert_eq!(registers(Some("b"), '4'), violated, "it is of another run");
    assert_eq!(registers(None, '4'), violated, "it is of no run");
    assert_eq!(registers(None, '5'), None, "a new label");
    let unprepared = after(|audit| {
        audit.settings_in_force(second(0), Settings::default());
        audit.registers_own(&id(), &own('4'), &Condition::default());
    });
    assert_eq!(unprepared, Some(Invariant::Prepared));
}

/// A heartbeat that was sent at 100 s, when this was true of the listener, reaches the store, which has
/// this note.
fn beats(found: &Record, status: &AgentStatus, then: &Listening) -> Option<Invariant> {
    after(|audit| {
        audit.existing(found);
        let heartbeat = Some(Heartbeat::new(second(100), Duration::from_secs(5)));
        let status = AgentStatus { heartbeat, ..status.clone() };
        let then = Listening { at: 100 * SECOND, ..then.clone() };
        audit.beats_ready(&id(), &status, &then, second(101));
    })
}

#[test]
fn a_machine_that_is_called_ready_listens_under_the_registration_that_is_named() {
    let number = |number: u32| Listening { number: Some(number), ..Listening::default() };
    let violated = Some(Invariant::ReadyIsReady);
    assert_eq!(beats(&idle(2), &ready(50), &number(4)), None);
    assert_eq!(beats(&idle(2), &ready(50), &number(3)), violated, "it names a later one");
    assert_eq!(beats(&idle(2), &ready(50), &number(5)), violated, "it names an earlier one");
    assert_eq!(beats(&idle(2), &unready(50), &number(3)), None, "it is not called ready");
    assert_eq!(beats(&idle(3), &ready(50), &number(3)), None, "in an earlier idle state");
    assert_eq!(beats(&idle(2), &ready(101), &number(3)), None, "since the heartbeat was sent");
    let claimed = Record { counts: idle(2).counts, ..record(State::Claimed, "a", Some(60)) };
    assert_eq!(beats(&claimed, &ready(50), &number(3)), None, "a run has it");
}

#[test]
fn a_machine_whose_listener_has_ended_is_not_called_ready() {
    let silent = |since: Option<u64>, frozen_until: u64| {
        let silent_since = since.map(|tenths| tenths * SECOND / 10);
        let then =
            Listening { silent_since, frozen_until: frozen_until * SECOND, ..Listening::default() };
        beats(&idle(2), &ready(50), &then)
    };
    let violated = Some(Invariant::ReadyIsReady);
    assert_eq!(silent(Some(995), 0), None, "it has just ended");
    assert_eq!(silent(Some(985), 0), violated);
    assert_eq!(silent(Some(600), 100), None, "its agent was frozen until now");
    assert_eq!(silent(Some(600), 90), violated, "it was frozen until ten seconds ago");
    assert_eq!(silent(None, 0), violated, "none has ever listened");
}

/// Heartbeats of an idle machine reach the store at these moments, and its listener lives. Each comes with
/// what the store has of the machine's readiness, and after its agent has tried to say something else.
fn heard(
    beats: &[(u64, &AgentStatus)],
    machine: &MachineView,
    condition: &Condition,
) -> Option<Invariant> {
    after(|audit| {
        audit.existing(&idle(2));
        for (at, status) in beats {
            audit.tries_to_say(&id(), second(*at));
            audit.beats_listening(&id(), status, machine, condition, second(*at));
        }
    })
}

#[test]
fn a_machine_that_listens_is_called_ready_after_a_minute() {
    let sound = Condition::default();
    let violated = Some(Invariant::CalledReady);
    let (ready, unready, silent) = (ready(90), unready(90), AgentStatus::default());
    let listens = listens(None);
    assert_eq!(heard(&[(100, &ready), (200, &ready)], &listens, &sound), None);
    assert_eq!(heard(&[(100, &unready), (200, &unready)], &listens, &sound), violated);
    assert_eq!(heard(&[(100, &silent), (200, &silent)], &listens, &sound), violated);
    assert_eq!(heard(&[(100, &unready), (160, &unready)], &listens, &sound), None, "not yet");
    let told_between = [(100, &unready), (130, &ready), (165, &unready)];
    assert_eq!(heard(&told_between, &listens, &sound), None, "it is not ready again");
    let other = MachineView {
        seat: Some(SeatView { label: own('5'), number: 5, owner: None }),
        ..listens.clone()
    };
    assert_eq!(heard(&[(100, &ready), (200, &ready)], &other, &sound), violated, "as another one");
    let of_run = self::listens(Some("a"));
    assert_eq!(
        heard(&[(100, &unready), (200, &unready)], &of_run, &sound),
        None,
        "its run is over"
    );
    let deaf = MachineView { seat: None, ..listens };
    assert_eq!(heard(&[(100, &unready), (200, &unready)], &deaf, &sound), None, "none listens");
}

#[test]
fn a_machine_with_a_failure_of_its_own_need_not_be_called_ready() {
    let heard = |condition: Condition| {
        let unready = unready(90);
        heard(&[(100, &unready), (200, &unready)], &listens(None), &condition)
    };
    let troubled =
        |until: u64| Condition { troubled_until: until * SECOND, ..Condition::default() };
    assert_eq!(heard(troubled(199)), Some(Invariant::CalledReady), "a minute ago");
    assert_eq!(heard(troubled(200)), None, "its last call failed within the last minute");
    assert_eq!(heard(Condition { is_broken: true, ..Condition::default() }), None);
    let taken = Condition { notice_at: Some(150 * SECOND), ..Condition::default() };
    assert_eq!(heard(taken), None, "it will be taken away");
}

#[test]
fn each_listener_has_a_minute_until_its_machine_is_called_ready() {
    let died_between = |listeners: [u32; 2]| {
        after(|audit| {
            audit.existing(&idle(2));
            for (at, listeners) in [100, 170].into_iter().zip(listeners) {
                audit.tries_to_say(&id(), second(at));
                let condition = Condition { listeners, ..Condition::default() };
                let status = unready(90);
                audit.beats_listening(&id(), &status, &listens(None), &condition, second(at));
            }
        })
    };
    assert_eq!(died_between([7, 7]), Some(Invariant::CalledReady));
    assert_eq!(died_between([7, 8]), None);
    let claimed_between = after(|audit| {
        for (at, generation) in [(100, 2), (170, 3)] {
            audit.existing(&idle(generation));
            audit.tries_to_say(&id(), second(at));
            let condition = Condition::default();
            audit.beats_listening(&id(), &unready(90), &listens(None), &condition, second(at));
        }
    });
    assert_eq!(claimed_between, None, "it is idle anew");
}

#[test]
fn an_agent_whose_calls_fail_goes_on_trying_to_say_that_its_machine_is_ready() {
    let tried = |tries: &[u64], beats: &[u64]| {
        after(|audit| {
            audit.existing(&idle(2));
            let condition = Condition { troubled_until: 999 * SECOND, ..Condition::default() };
            tries.iter().for_each(|at| audit.tries_to_say(&id(), second(*at)));
            for at in beats {
                let (status, listens) = (unready(90), listens(None));
                audit.beats_listening(&id(), &status, &listens, &condition, second(*at));
            }
        })
    };
    let violated = Some(Invariant::CalledReady);
    assert_eq!(tried(&[90], &[100, 161]), violated);
    assert_eq!(tried(&[90], &[100, 160]), None, "not yet");
    assert_eq!(tried(&[90, 110], &[100, 170]), None, "it has tried again");
    assert_eq!(tried(&[90, 110], &[100, 171]), violated, "but not since");
    assert_eq!(tried(&[], &[100, 161]), violated, "it has never tried");
}

fn demand(of: &str, labels: &[char]) -> Demand {
    let labels = labels.iter().map(|digit| own(*digit)).collect();
    Demand { labels, ..Demand::of(&Request::of_run(run(of)), second(1)) }
}

#[test]
fn a_demand_loses_no_label() {
    let replaced = |before: Option<&[char]>, labels: &[char]| {
        after(|audit| {
            let before = before.map(|labels| demand("a", labels));
            audit.keeps_labels(before.as_ref(), &demand("a", labels));
        })
    };
    let violated = Some(Invariant::LabelWorks);
    assert_eq!(replaced(None, &['1']), None, "the first");
    assert_eq!(replaced(Some(&['1']), &['1', '2']), None);
    assert_eq!(replaced(Some(&['1', '2']), &['2']), violated);
    assert_eq!(replaced(Some(&['1']), &['2']), violated);
    let full = Demand { labels: vec![own('2'); 2_000], ..demand("a", &[]) };
    let forgotten = after(|audit| audit.keeps_labels(Some(&demand("a", &['1'])), &full));
    assert_eq!(forgotten, None, "there are too many");
}

#[test]
fn a_run_is_given_labels_that_its_demand_names() {
    let given = |labels: &[char], stored: Option<&[char]>| {
        after(|audit| {
            let labels: Vec<MachineLabel> = labels.iter().map(|digit| own(*digit)).collect();
            let stored = stored.map(|labels| demand("a", labels));
            audit.gives_labels(&labels, stored.as_ref());
        })
    };
    let violated = Some(Invariant::LabelWorks);
    assert_eq!(given(&['1', '2'], Some(&['0', '1', '2'])), None);
    assert_eq!(given(&['1', '2'], Some(&['1'])), violated);
    assert_eq!(given(&['1'], None), violated, "nothing is stored");
    assert_eq!(given(&['1', '1'], Some(&['1'])), violated, "two machines have one label");
}

#[test]
fn a_run_is_let_in_where_its_label_was_given_to_it() {
    let refused = |forbid_waste: bool, of: &str| {
        after(|audit| {
            audit.forbid_waste = forbid_waste;
            audit.names_owner(&id(), (&own('4'), 4), &run("a"));
            audit.refused(&id(), &job(of), &own('4'));
        })
    };
    assert_eq!(refused(true, "a"), Some(Invariant::LabelWorks));
    assert_eq!(refused(true, "b"), None, "it is not its label");
    assert_eq!(refused(false, "a"), None, "its machine may have died in between");
}

/// Refreshes begin at these moments, and each leaves these runners on the list.
fn unlisted(begins: &[(u64, &[Listed])], before: impl FnOnce(&mut Audit)) -> Option<Invariant> {
    after(|audit| {
        before(audit);
        for (pid, (began, listed)) in begins.iter().enumerate() {
            audit.refresh_unlists(Pid(pid), listed, second(*began));
        }
    })
}

/// Registration 4 of the machine, without a job.
fn listed(gone_since: Option<u64>, status: AgentStatus) -> Listed {
    Listed {
        name: "i-1-own-4".to_owned(),
        instance: id(),
        number: 4,
        gone_since: gone_since.map(second),
        status,
    }
}

#[test]
fn the_runner_of_a_machine_that_is_gone_is_removed_by_the_second_refresh() {
    let violated = Some(Invariant::Unlisted);
    let gone = || [listed(Some(50), AgentStatus::default())];
    let nothing = |_: &mut Audit| ();
    assert_eq!(unlisted(&[(100, &gone())], nothing), None, "the first may have seen a job");
    assert_eq!(unlisted(&[(100, &gone()), (200, &gone())], nothing), violated);
    assert_eq!(
        unlisted(&[(100, &gone()), (200, &[]), (300, &gone())], nothing),
        None,
        "it had a job in between"
    );
    assert_eq!(unlisted(&[(60, &gone()), (65, &gone())], nothing), None, "it has just gone");
    let lags = |audit: &mut Audit| audit.index_lag = Duration::from_secs(200);
    assert_eq!(unlisted(&[(100, &gone()), (200, &gone())], lags), None, "by a list that lags");
    let live = |audit: &mut Audit| audit.existing(&idle(2));
    assert_eq!(unlisted(&[(100, &gone()), (200, &gone())], live), None, "its record is live");
    let ended = |audit: &mut Audit| {
        audit.existing(&record(State::Terminated, "", None));
        audit.changed_at.insert(id(), second(60));
    };
    assert_eq!(unlisted(&[(100, &gone()), (200, &gone())], ended), violated);
    let there = || [listed(None, AgentStatus::default())];
    assert_eq!(unlisted(&[(100, &there()), (200, &there())], ended), None, "it still runs");
    let another = |audit: &mut Audit| audit.has_another_forge(Pid(1));
    assert_eq!(unlisted(&[(100, &gone()), (200, &gone())], another), None, "of another forge");
}

#[test]
fn an_earlier_registration_is_removed_by_the_second_refresh() {
    let left = |number: u32, status: AgentStatus, found: &Record| {
        let runners = [Listed { number, ..listed(None, status) }];
        unlisted(&[(100, &runners), (200, &runners)], |audit| audit.existing(found))
    };
    let violated = Some(Invariant::Unlisted);
    assert_eq!(left(3, ready(50), &idle(2)), violated);
    assert_eq!(left(3, ready(50), &record(State::Running, "a", None)), violated, "of a run");
    assert_eq!(left(4, ready(50), &idle(2)), None, "the one that is called ready");
    assert_eq!(left(5, ready(50), &idle(2)), None, "a later one");
    assert_eq!(left(3, unready(50), &idle(2)), None, "none is called ready");
    assert_eq!(left(3, ready(190), &idle(2)), None, "it has just become so");
}

/// The machine runs for run `owner` under this label.
fn runs_as(owner: &str, label: char) -> Record {
    let requested = RequestedLabel::Named(own(label));
    let running = record(State::Running, owner, None);
    Record { requested, threshold: Some(second(9_000)), ..running }
}

#[test]
fn a_label_whose_jobs_wait_has_a_machine_after_a_refresh() {
    let waits = |found: Option<Record>| {
        after(|audit| {
            found.iter().for_each(|record| audit.existing(record));
            audit.labels_work(&[(own('4'), job("a"))]);
        })
    };
    let violated = Some(Invariant::LabelWorks);
    assert_eq!(waits(Some(runs_as("a", '4'))), None);
    assert_eq!(waits(None), violated);
    assert_eq!(waits(Some(runs_as("a", '5'))), violated, "under another label");
    assert_eq!(waits(Some(runs_as("b", '4'))), violated, "of another run");
    assert_eq!(after(|audit| audit.labels_work(&[])), None, "no job waits");
}

/// The machine of run a dies at 100 s. Refreshes begin at these moments, and jobs wait for its label at
/// those that are marked.
fn died(begins: &[(u64, bool)], before: impl FnOnce(&mut Audit)) -> Option<Invariant> {
    after(|audit| {
        (audit.judges_runs, audit.only_deaths) = (true, true);
        audit.asked_by_runs.insert(run("a"), vec![Ask::of(1)]);
        audit.stored.push((second(0), BTreeMap::new()));
        audit.settings_in_force(second(0), Settings::default());
        audit.existing(&runs_as("a", '4'));
        before(audit);
        let mut machines = SimulatedMachines::default();
        machines.remove(&id(), 100 * SECOND);
        let waiting = [(own('4'), job("a"))];
        for (pid, (began, waits)) in begins.iter().enumerate() {
            audit.refresh_begins(Pid(pid), &BTreeMap::new(), second(*began));
            let waiting = if *waits { &waiting[..] } else { &[] };
            let (when, none) = ((second(*began), second(began + 10)), BTreeSet::new());
            let outcome = refresh::Outcome::default();
            audit.refresh_attends(&outcome, when, (&none, waiting), &machines);
            audit.refreshes.remove(&Pid(pid));
        }
    })
}

#[test]
fn a_label_whose_machine_died_has_another_after_two_refreshes() {
    let violated = Some(Invariant::LabelWorks);
    let nothing = |_: &mut Audit| ();
    assert_eq!(died(&[(200, true)], nothing), None, "the first may not have seen it");
    assert_eq!(died(&[(200, true), (300, true)], nothing), violated);
    assert_eq!(died(&[(101, true), (300, true)], nothing), None, "it had just died");
    assert_eq!(died(&[(200, true), (300, false), (400, true)], nothing), None, "not in between");
    let pool = |audit: &mut Audit| {
        let ask = Ask { source: provision::SourcePolicy::Pool, ..Ask::of(1) };
        audit.asked_by_runs.insert(run("a"), vec![ask]);
    };
    assert_eq!(died(&[(200, true), (300, true)], pool), None, "it must not launch");
    let another = |audit: &mut Audit| {
        let id = InstanceId::new("i-2").unwrap();
        audit.existing(&Record { id, ..runs_as("a", '4') });
    };
    assert_eq!(died(&[(200, true), (300, true)], another), None, "another machine has it");
    let of_other_label = |audit: &mut Audit| {
        let id = InstanceId::new("i-2").unwrap();
        audit.existing(&Record { id, ..runs_as("a", '5') });
    };
    assert_eq!(died(&[(200, true), (300, true)], of_other_label), violated, "not this one");
}
