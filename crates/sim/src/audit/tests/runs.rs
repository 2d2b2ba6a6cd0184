//! Runs whose jobs wait, runs that have completed, and machines with jobs.

use std::collections::{BTreeMap, BTreeSet};

use ondeck_core::model::label::Label;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::modes::refresh;
use ondeck_core::ports::WaitingJobs;

use super::labels::own;
use super::*;
use crate::kernel::timestamp;

/// A moment of the simulation.
fn second(second: u64) -> Timestamp {
    timestamp(second * 1_000_000)
}

fn held(state: State, until: u64) -> Record {
    Record { threshold: Some(second(until)), ..record(state, "a", None) }
}

/// Refreshes of ten seconds each begin at these moments. Returns what they violate.
fn attended(
    begins: &[u64],
    waiting: &[&str],
    before: impl FnOnce(&mut Audit, &mut SimulatedMachines),
) -> Option<Invariant> {
    after(|audit| {
        audit.judges_runs = true;
        audit.stored.push((second(0), BTreeMap::new()));
        let mut machines = SimulatedMachines::default();
        before(audit, &mut machines);
        let waiting: BTreeSet<Label> = waiting.iter().map(|name| (&run(name)).into()).collect();
        for (pid, begin) in begins.iter().enumerate() {
            audit.refresh_begins(Pid(pid), &BTreeMap::new(), second(*begin));
            let when = (second(*begin), second(begin + 10));
            audit.refresh_attends(&refresh::Outcome::default(), when, (&waiting, &[]), &machines);
            audit.refreshes.remove(&Pid(pid));
        }
    })
}

#[test]
fn a_refresh_leaves_a_rescue_to_the_next_one_only_if_its_time_is_up() {
    let leaves = |limit: Option<u64>, took: u64, warning: &str| {
        let audit = Audit { time_limit: limit.map(Duration::from_secs), ..Audit::default() };
        let (label, took) = (Label::from(&run("a")), Duration::from_secs(took));
        audit.has_no_time_for(&label, took, &[warning.to_owned()])
    };
    let late = "run a was not rescued: no time is left to launch machines, the next refresh does";
    let stopped = "the time limit was reached, the next refresh continues";
    assert!(leaves(Some(60), 45, late) && leaves(Some(60), 55, stopped));
    assert!(!leaves(Some(60), 5, late) && !leaves(Some(60), 40, stopped), "there was time");
    assert!(!leaves(None, 45, late) && !leaves(None, 55, stopped), "it has no limit");
    assert!(!leaves(Some(60), 45, &late.replace("run a", "run b")), "it is about another run");
    assert!(!leaves(Some(60), 55, "1 machine was not terminated"));
}

#[test]
fn a_completed_run_has_no_machine_after_two_refreshes() {
    let completed = |audit: &mut Audit| {
        audit.existing(&held(State::Running, 9_000));
        audit.run_completes(&run("a"), second(10));
    };
    let violated = Some(Invariant::CompletedHoldsNothing);
    assert_eq!(attended(&[100], &[], |audit, _| completed(audit)), None, "one has looked");
    assert_eq!(attended(&[100, 200], &[], |audit, _| completed(audit)), violated);
    assert_eq!(attended(&[5, 100], &[], |audit, _| completed(audit)), None, "one came too early");
    let opened = |audit: &mut Audit, _: &mut SimulatedMachines| {
        completed(audit);
        audit.run_opens(&run("a"));
    };
    assert_eq!(attended(&[100, 200], &[], opened), None, "its jobs are run again");
    let expired = |audit: &mut Audit, _: &mut SimulatedMachines| {
        completed(audit);
        audit.existing(&held(State::Running, 90));
    };
    assert_eq!(attended(&[100, 200], &[], expired), None, "its time is up");
}

#[test]
fn a_run_whose_machines_died_has_another_after_two_refreshes() {
    let died = |at: u64| {
        move |audit: &mut Audit, machines: &mut SimulatedMachines| {
            audit.only_deaths = true;
            audit.asked_by_runs.insert(run("a"), vec![Ask::of(1)]);
            audit.settings.push((second(0), Settings::default()));
            audit.existing(&held(State::Running, 9_000));
            machines.remove(&id(), at * 1_000_000);
        }
    };
    let violated = Some(Invariant::Rescued);
    assert_eq!(attended(&[100, 200], &["a"], died(10)), violated);
    assert_eq!(attended(&[100], &["a"], died(10)), None, "one has looked");
    assert_eq!(attended(&[100, 200], &[], died(10)), None, "no job waits");
    assert_eq!(attended(&[100, 200], &["a"], died(95)), None, "its heartbeat was fresh at first");
    let alive = |audit: &mut Audit, machines: &mut SimulatedMachines| {
        died(10)(audit, machines);
        let name = InstanceId::new("i-2").unwrap();
        audit.existing(&Record { id: name, ..held(State::Running, 9_000) });
    };
    assert_eq!(attended(&[100, 200], &["a"], alive), None, "another machine serves it");
    let noticed = |at: u64| {
        move |audit: &mut Audit, machines: &mut SimulatedMachines| {
            died(10)(audit, machines);
            let name = InstanceId::new("i-2").unwrap();
            audit.existing(&Record { id: name.clone(), ..held(State::Running, 9_000) });
            machines.launched(&[machine(&name)]);
            machines.machine_mut(&name).unwrap().condition.notice_at = Some(at * 1_000_000);
        }
    };
    assert_eq!(attended(&[100, 200], &["a"], noticed(10)), violated, "it takes no further job");
    assert_eq!(attended(&[100, 200], &["a"], noticed(95)), None, "it served at first");
}

fn machine(id: &InstanceId) -> Machine {
    Machine {
        id: id.clone(),
        spec: record(State::Running, "a", None).spec,
        intent: IntentId::new("x").unwrap(),
        launched_at: second(0),
        image: None,
    }
}

#[test]
fn rescues_give_no_more_than_the_run_asked_for() {
    let given = |asked: u32, before: fn(&mut Audit, &mut SimulatedMachines)| {
        after(|audit| {
            (audit.is_quiet, audit.agents_beat) = (true, true);
            audit.asked_by_runs.insert(run("a"), vec![Ask::of(asked)]);
            audit.refresh_begins(Pid(1), &BTreeMap::new(), second(0));
            let mut machines = SimulatedMachines::default();
            for name in ["i-2", "i-3"] {
                let id = InstanceId::new(name).unwrap();
                audit.existing(&Record { id: id.clone(), ..held(State::Running, 9_000) });
                machines.launched(&[machine(&id)]);
                let condition = &mut machines.machine_mut(&id).unwrap().condition;
                condition.registered = Some((Label::from(&run("a")), 0));
            }
            before(audit, &mut machines);
            let last = audit.records[&InstanceId::new("i-3").unwrap()].clone();
            let when = second(100);
            audit.rescue_gives(Pid(1), Transition::Activate, &last, &machines, when);
        })
    };
    assert_eq!(given(2, |_, _| ()), None);
    assert_eq!(given(1, |_, _| ()), Some(Invariant::RescuedOnce));
    let gone = |_: &mut Audit, machines: &mut SimulatedMachines| {
        machines.remove(&InstanceId::new("i-2").unwrap(), 50_000_000);
    };
    assert_eq!(given(1, gone), None, "one replaces the other");
    let unregistered = |_: &mut Audit, machines: &mut SimulatedMachines| {
        let id = InstanceId::new("i-2").unwrap();
        machines.machine_mut(&id).unwrap().condition.registered = None;
    };
    assert_eq!(given(1, unregistered), None, "one of them takes no job");
    let provisions = |audit: &mut Audit, _: &mut SimulatedMachines| {
        audit.provision_begins(Pid(2), &run("a"), &Ask::of(1), second(90));
    };
    assert_eq!(given(1, provisions), None, "its own provision is at work");
    let provisioned = |audit: &mut Audit, _: &mut SimulatedMachines| {
        audit.provision_begins(Pid(2), &run("a"), &Ask::of(1), second(20));
        audit.provision_ended(Pid(2), second(90));
    };
    assert_eq!(given(1, provisioned), None, "its own provision was at work meanwhile");
    let others = |audit: &mut Audit, _: &mut SimulatedMachines| {
        audit.provision_begins(Pid(2), &run("b"), &Ask::of(1), second(20));
        audit.provision_ended(Pid(2), second(90));
    };
    assert_eq!(given(1, others), Some(Invariant::RescuedOnce), "that of another run was");
    let kept = |audit: &mut Audit, _: &mut SimulatedMachines| {
        audit.keeps_for_job(Transition::Claim, &InstanceId::new("i-2").unwrap(), true);
    };
    assert_eq!(given(1, kept), None, "one of them is kept for a job");
    let kept_before = |audit: &mut Audit, _: &mut SimulatedMachines| {
        for transition in [Transition::Claim, Transition::Release] {
            audit.keeps_for_job(transition, &InstanceId::new("i-2").unwrap(), true);
        }
    };
    assert_eq!(given(1, kept_before), Some(Invariant::RescuedOnce));
}

#[test]
fn a_refresh_takes_no_machine_from_its_job() {
    let taken_from = |state, transition, has_job, until, by_refresh: bool| {
        after(|audit| {
            (audit.is_quiet, audit.agents_beat) = (true, true);
            match by_refresh {
                true => audit.refresh_begins(Pid(1), &BTreeMap::new(), second(0)),
                false => audit.release_begins(Pid(1), second(0)),
            }
            let before = held(state, until);
            audit.takes_from_job(Pid(1), transition, Some(&before), (has_job, second(100)));
        })
    };
    // A rescue that fails.
    for state in [State::Created, State::Claimed] {
        let taken = |transition, has_job| taken_from(state, transition, has_job, 500, true);
        assert_eq!(taken(Transition::Expire, true), Some(Invariant::JobKept), "{state}");
        assert_eq!(taken(Transition::Expire, false), None, "{state} without a job");
        assert_eq!(taken(Transition::GiveBack, true), None, "{state}: its agent stays");
    }
    let taken = |transition, has_job, until, by_refresh| {
        taken_from(State::Running, transition, has_job, until, by_refresh)
    };
    for transition in [Transition::Release, Transition::Expire, Transition::Reap] {
        let violated = Some(Invariant::JobKept);
        assert_eq!(taken(transition, true, 500, true), violated, "{transition}");
        assert_eq!(taken(transition, false, 500, true), None, "{transition} without a job");
        assert_eq!(taken(transition, true, 90, true), None, "{transition} when its time is up");
        assert_eq!(taken(transition, true, 500, false), None, "{transition} by its release");
    }
    assert_eq!(taken(Transition::Renew, true, 500, true), None);
}

#[test]
fn a_machine_whose_time_is_up_takes_no_job() {
    let starts = |until: u64, changed: u64, now: u64| {
        after(|audit| {
            audit.is_quiet = true;
            audit.looks_within = Duration::from_secs(15);
            audit.existing(&held(State::Running, until));
            audit.changed_at.insert(id(), second(changed));
            let mut machines = SimulatedMachines::default();
            machines.launched(&[machine(&id())]);
            audit.job_starts(&id(), &machines, second(now));
        })
    };
    let violated = Some(Invariant::NoJobWhenExpired);
    assert_eq!(starts(100, 1, 99), None);
    assert_eq!(starts(100, 1, 110), None, "its clock may be behind");
    assert_eq!(starts(100, 1, 120), violated);
    assert_eq!(starts(100, 100, 119), None, "its agent may not have looked since");
    assert_eq!(starts(100, 100, 121), violated);
}

#[test]
fn a_machine_works_under_the_label_of_its_record() {
    let works = |suffix: Option<&str>| {
        after(|audit| {
            let build = Some("build".parse().unwrap());
            audit.existing(&Record { suffix: build, ..held(State::Running, 500) });
            audit.changed = true;
            let mut machines = SimulatedMachines::default();
            machines.launched(&[machine(&id())]);
            let label = Label::new(run("a"), suffix.map(|suffix| suffix.parse().unwrap()));
            machines.set_serving(&id(), Some(&label));
            machines.register(&id(), &label, 0);
            audit.compare(&mut machines, second(10));
        })
    };
    assert_eq!(works(Some("build")), None);
    for other in [None, Some("tests")] {
        assert_eq!(works(other), Some(Invariant::Label), "{other:?}");
    }
}

#[test]
fn a_refresh_may_launch_what_the_run_asked_for_under_all_labels() {
    let may = |asks: &[(Option<&'static str>, u32)], named: &[char], waits: bool| {
        let mut audit = Audit::default();
        let ask = |(suffix, count): &(_, u32)| Ask { suffix: *suffix, ..Ask::of(*count) };
        audit.asked_by_runs.insert(run("a"), asks.iter().map(ask).collect());
        for digit in named {
            audit.names_owner(&id(), (&own(*digit), 1), &run("a"));
        }
        let jobs = waits.then(|| (Label::from(&run("a")), 1));
        let waiting = WaitingJobs { labels: jobs.into_iter().collect(), ..WaitingJobs::new() };
        audit.sees_waiting(Pid(7), &run("a"), &waiting);
        audit.may_rescue(Pid(7), &run("a"))
    };
    assert_eq!(may(&[(None, 2)], &[], true), None);
    assert_eq!(may(&[(Some("build"), 2), (Some("build"), 1)], &[], true), None, "one label");
    let asks = [(Some("build"), 2), (Some("tests"), 3), (Some("build"), 1)];
    assert_eq!(may(&asks, &[], true), Some(5));
    assert_eq!(may(&[(None, 2)], &['4', '5'], false), Some(2), "one for each of their labels");
    assert_eq!(may(&[(None, 2)], &['4', '5'], true), Some(4), "some jobs wait for the run's label");
}

#[test]
fn a_machine_has_jobs_of_one_run_if_a_run_asked_for_its_own() {
    let served = |first: Reuse, second_run: Reuse, setting: &str, by_hand: bool| {
        after(|audit| {
            let stored = BTreeMap::from([("reuse".to_owned(), setting.to_owned())]);
            audit.stored.push((second(0), stored));
            let mut machines = SimulatedMachines::default();
            machines.launched(&[machine(&id())]);
            for (name, reuse) in [("a", first), ("b", second_run)] {
                let ask = Ask { reuse, ..Ask::of(1) };
                audit.provision_begins(Pid(0), &run(name), &ask, second(1));
                if by_hand {
                    audit.reassigned_by_hand(&held(State::Running, 9_000), second(2));
                }
                let label = Label::from(&run(name));
                machines.set_serving(&id(), Some(&label));
                machines.register(&id(), &label, 0);
                machines.queue(label, 1, 0);
                let (job, _) = machines.assign()[0].clone();
                audit.job_starts(&id(), &machines, second(3));
                machines.end_job(job);
            }
        })
    };
    let (always, never, violated) = (Reuse::Always, Reuse::Never, Some(Invariant::OneRun));
    assert_eq!(served(always, always, "always", false), None);
    assert_eq!(served(never, always, "always", false), violated, "it served its only run");
    assert_eq!(served(always, never, "always", false), violated, "it served another before");
    assert_eq!(served(always, always, "never", false), violated, "by the setting");
    assert_eq!(served(never, never, "never", true), None, "the operator gave it away");
}

#[test]
fn a_refresh_that_is_gone_is_not_at_work() {
    let mut audit = Audit::default();
    audit.refresh_begins(Pid(1), &BTreeMap::new(), second(0));
    audit.refresh_begins(Pid(2), &BTreeMap::new(), second(5));
    assert_eq!(audit.refreshes_at_work(), 2);
    audit.refresh_is_gone(Pid(1), second(10));
    assert_eq!(audit.refreshes_at_work(), 1);
    assert!(audit.is_refresh(Pid(1)), "what it has sent may still arrive");
    assert!(audit.refresh_ended.is_some_and(|ended| ended > second(10)));
}
