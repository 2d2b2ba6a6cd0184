//! Jobs whose machines were taken away.

use std::collections::{BTreeMap, BTreeSet};

use ondeck_core::modes::refresh;
use ondeck_core::ports::Rerun;

use super::*;
use crate::kernel::timestamp;

fn second(second: u64) -> Timestamp {
    timestamp(second * 1_000_000)
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

/// Run a has completed, and a job of it has failed on each of these machines, which were taken away or
/// not.
fn failed(taken_away: &[bool]) -> SimulatedMachines {
    let mut machines = SimulatedMachines::default();
    let label = Label::from(&run("a"));
    for (number, is_taken_away) in (1..).zip(taken_away) {
        let id = InstanceId::new(format!("i-{number}")).unwrap();
        machines.launched(&[machine(&id)]);
        machines.queue(label.clone(), 1_000_000, 0);
        machines.set_serving(&id, Some(&label));
        machines.register(&id, &label, 0);
        assert_eq!(machines.assign().len(), 1);
        if *is_taken_away {
            machines.interrupt(&id, 20_000_000);
        }
        machines.remove(&id, 40_000_000);
    }
    machines.complete(&run("a"));
    machines
}

fn wants(audit: &mut Audit, text: &str) {
    let stored = BTreeMap::from([("on-interruption".to_owned(), text.to_owned())]);
    audit.stored.push((second(0), stored));
}

#[test]
fn only_cut_off_jobs_are_re_run_and_only_once() {
    let asked = |text: &str, taken_away: &[bool], asked: &[Rerun]| {
        after(|audit| {
            wants(audit, text);
            audit.refresh_begins(Pid(1), &BTreeMap::new(), second(50));
            let machines = failed(taken_away);
            for what in asked {
                audit.reruns(Pid(1), &run("a"), *what, &machines);
            }
        })
    };
    let violated = Some(Invariant::RerunOnce);
    let (first, all) = (Rerun::Job(0), Rerun::FailedJobs);
    assert_eq!(asked("rerun", &[true], &[first]), None);
    assert_eq!(asked("none", &[true], &[first]), violated, "the settings do not say so");
    assert_eq!(asked("rerun", &[false], &[first]), violated, "it failed by itself");
    assert_eq!(asked("rerun", &[true], &[first, first]), violated, "twice");
    assert_eq!(asked("rerun", &[true, true], &[all]), None);
    assert_eq!(asked("rerun", &[true, false], &[all]), violated, "one is re-run by itself");
}

#[test]
fn cut_off_jobs_are_re_run_within_four_refreshes() {
    let attended = |text: &str, begins: &[u64], known: Option<u64>| {
        after(|audit| {
            audit.judges_runs = true;
            wants(audit, text);
            let running =
                Record { threshold: Some(second(9_000)), ..record(State::Running, "a", None) };
            audit.existing(&running);
            audit.changed_at.insert(id(), second(1));
            if let Some(known) = known {
                audit.says_that_it_is_interrupted(&id(), second(known));
            }
            audit.run_completes(&run("a"), second(45));
            let machines = failed(&[true]);
            for (pid, begin) in begins.iter().enumerate() {
                audit.refresh_begins(Pid(pid), &BTreeMap::new(), second(*begin));
                let when = (second(*begin), second(begin + 5));
                let outcome = refresh::Outcome::default();
                audit.refresh_attends(&outcome, when, (&BTreeSet::new(), &[]), &machines);
                audit.refreshes.remove(&Pid(pid));
                // The record is gone once the first has noted it.
                audit.records.clear();
            }
        })
    };
    let violated = Some(Invariant::RerunOnce);
    let enough = [35, 50, 100, 150, 200];
    assert_eq!(attended("rerun", &enough, Some(20)), violated);
    assert_eq!(attended("rerun", &enough[..4], Some(20)), None, "three have looked");
    assert_eq!(attended("none", &enough, Some(20)), None, "the settings do not say so");
    assert_eq!(attended("rerun", &enough, None), None, "no refresh could know");
    assert_eq!(attended("rerun", &enough, Some(34)), None, "the first could not see it yet");
}
