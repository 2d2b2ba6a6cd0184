//! The table of transitions, as the design states it.

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::timestamp::Timestamp;

/// Checks a change against the table of transitions.
pub(super) fn legal(
    transition: Transition,
    before: Option<&Record>,
    after: &Record,
    at: Timestamp,
) -> Result<(), String> {
    use State::{Claimed, Created, Idle, Running, Terminated};
    let Some(before) = before else {
        let registered = transition == Transition::Register && after.state == Created;
        return if registered && after.run.is_some() {
            Ok(())
        } else {
            Err("from nothing".to_owned())
        };
    };
    let (from, to) = (before.state, after.state);
    let states = match transition {
        Transition::Register => false,
        Transition::Activate => (from, to) == (Created, Running),
        Transition::Claim => (from, to) == (Idle, Claimed),
        Transition::Commit => (from, to) == (Claimed, Running),
        Transition::Release => (from, to) == (Running, Idle),
        Transition::GiveBack => (from, to) == (Claimed, Idle),
        Transition::Renew => from == to && matches!(from, Idle | Running),
        Transition::Preserve => (from, to) == (Running, Running),
        Transition::Retire | Transition::Drain => from != Terminated && from == to,
        Transition::Expire => from != Terminated && from == to,
        Transition::Reap => from != Terminated && to == Terminated,
    };
    if !states {
        return Err(format!("{from} to {to}"));
    }
    let kept = before.run == after.run;
    let runs = match transition {
        Transition::Activate | Transition::Commit => kept && after.run.is_some(),
        Transition::Claim => before.run.is_none() && after.run.is_some(),
        Transition::Release | Transition::GiveBack => before.run.is_some() && after.run.is_none(),
        Transition::Reap => after.run.is_none(),
        Transition::Expire
        | Transition::Renew
        | Transition::Preserve
        | Transition::Retire
        | Transition::Drain
        | Transition::Register => kept,
    };
    if !runs {
        return Err(format!("owner {:?} to {:?}", before.run, after.run));
    }
    let in_time = before.threshold.is_some_and(|threshold| threshold > at);
    let times = match transition {
        Transition::Reap => !in_time && after.threshold.is_none(),
        Transition::Expire => after.threshold.is_some_and(|threshold| threshold <= at),
        Transition::Retire | Transition::Drain => before.threshold == after.threshold,
        _ => in_time && after.threshold.is_some_and(|threshold| threshold >= at),
    };
    if !times {
        return Err(format!("threshold {:?} to {:?}, at {at}", before.threshold, after.threshold));
    }
    // A run of refresh that has only warmed the machine up does not count once it is released.
    let warmed_up = before.run.as_ref().is_some_and(|run| run.as_str().starts_with("keep-warm-"));
    counted(transition, &before.counts, &after.counts, warmed_up)
}

/// Checks the counts of a machine: idle states, runs, and registrations that it missed in a row.
fn counted(
    transition: Transition,
    before: &Counts,
    after: &Counts,
    warmed_up: bool,
) -> Result<(), String> {
    let grows = |transitions: &[Transition]| u32::from(transitions.contains(&transition));
    let ends = [Transition::Release, Transition::GiveBack, Transition::Preserve];
    let generation = before.generation + grows(&ends);
    let unused = before.runs.checked_sub(1);
    let runs = match transition {
        Transition::Release if warmed_up => Some(after.runs) == unused,
        // A provision that fails after its commits takes them back, and they do not count either.
        Transition::Release => after.runs == before.runs || Some(after.runs) == unused,
        _ => after.runs == before.runs + grows(&[Transition::Activate, Transition::Commit]),
    };
    let missed = before.missed_registrations;
    let missed = match transition {
        Transition::Commit => after.missed_registrations == 0,
        // A registration for a run that fails makes good for those before.
        Transition::GiveBack => [0, missed, missed + 1].contains(&after.missed_registrations),
        _ => after.missed_registrations == missed,
    };
    if after.generation != generation || !runs || !missed {
        return Err(format!("{before:?} to {after:?}"));
    }
    Ok(())
}
