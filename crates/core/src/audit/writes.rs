use std::collections::BTreeMap;

use crate::model::ids::{InstanceId, RunId};
use crate::model::record::State;
use crate::model::timestamp::Timestamp;

/// One write to an instance's record, as the store itself kept it: by a trigger or by the table's
/// change stream, not by the program that wrote.
#[derive(Debug, Clone)]
pub struct InstanceWrite {
    pub id: InstanceId,
    /// `None` if there was no record.
    pub before: Option<RecordedState>,
    /// `None` if the record was removed.
    pub after: Option<RecordedState>,
}

/// The part of a record that the invariants are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedState {
    pub state: State,
    pub run: Option<RunId>,
    pub threshold: Option<Timestamp>,
    pub updated_at: Timestamp,
}

/// Finds every write that the design does not allow, and every gap between two writes to the same
/// record. The writes of one instance must come in the order in which they were made.
pub fn illegal_writes(writes: &[InstanceWrite]) -> Vec<String> {
    let mut last = BTreeMap::<&InstanceId, Option<&RecordedState>>::new();
    let mut violations = Vec::new();
    for write in writes {
        let before = last.insert(&write.id, write.after.as_ref()).flatten();
        if before != write.before.as_ref() {
            violations.push(format!("out of order: {write:?}, but the record was {before:?}"));
        }
        if let Err(why) = judge(write.before.as_ref(), write.after.as_ref()) {
            violations.push(format!("{why}: {write:?}"));
        }
    }
    violations
}

fn judge(
    before: Option<&RecordedState>,
    after: Option<&RecordedState>,
) -> Result<(), &'static str> {
    use State::{Claimed, Created, Idle, Running, Terminated};
    let (before, after) = match (before, after) {
        (None, Some(new)) => {
            return require(new.state == Created && new.run.is_some(), "not registered as created");
        }
        (Some(old), None) => return require(old.state == Terminated, "removed while live"),
        (None, None) => return Err("neither before nor after"),
        (Some(before), Some(after)) => (before, after),
    };
    let same_run = before.run == after.run && before.run.is_some();
    let in_time = before.threshold > Some(after.updated_at);
    let (legal, why) = match (before.state, after.state) {
        (Terminated, _) => (false, "changed after termination"),
        (_, Terminated) => (!in_time && after.run.is_none(), "terminated before its threshold"),
        // An expiry, a renewal, or the note that the instance has a ticket.
        (from, to) if from == to => {
            let expired = after.threshold <= Some(after.updated_at);
            let kept = before.threshold == after.threshold;
            let renewed = matches!(from, Idle | Running) && in_time;
            (
                before.run == after.run && (expired || kept || renewed),
                "changed without a transition",
            )
        }
        (Created | Claimed, Running) => (same_run && in_time, "not to be committed to this run"),
        (Idle, Claimed) => {
            (before.run.is_none() && after.run.is_some() && in_time, "not to be claimed")
        }
        (Running | Claimed, Idle) => {
            (before.run.is_some() && after.run.is_none() && in_time, "not to be released")
        }
        _ => (false, "no such transition"),
    };
    require(legal, why)
}

fn require(legal: bool, why: &'static str) -> Result<(), &'static str> {
    if legal { Ok(()) } else { Err(why) }
}

/// Writes of one instance from a list of its states, for the unit tests of this module and its
/// neighbours. A state is `state run threshold updated-at`; every other text is no record.
#[cfg(test)]
pub(super) mod history {
    use super::*;

    pub(crate) const WHOLE_LIFE: [&str; 9] = [
        "created a 5 1",
        "running a 5 2",
        "idle - 5 3",
        "idle - 5 3",
        "claimed b 6 4",
        "running b 9 5",
        "running b 6 6",
        "terminated - - 7",
        "removed",
    ];

    pub(crate) fn of_one_instance(states: &[&str]) -> Vec<InstanceWrite> {
        let states: Vec<_> = ["absent"].iter().chain(states).map(|words| state(words)).collect();
        let write = |pair: &[Option<RecordedState>]| InstanceWrite {
            id: InstanceId::new("i-1").unwrap(),
            before: pair[0].clone(),
            after: pair[1].clone(),
        };
        states.windows(2).map(write).collect()
    }

    /// Seconds, so that tests have moments in between.
    pub(crate) fn at(seconds: &str) -> Timestamp {
        let millis = seconds.parse::<f64>().unwrap() * 1000.0;
        Timestamp::parse(&format!("1970-01-01T00:00:{:06.3}Z", millis / 1000.0)).unwrap()
    }

    fn state(words: &str) -> Option<RecordedState> {
        let [state, run, threshold, updated_at] = words.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(RecordedState {
            state: State::parse(state).unwrap(),
            run: (run != "-").then(|| RunId::new(run).unwrap()),
            threshold: (threshold != "-").then(|| at(threshold)),
            updated_at: at(updated_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::history::{WHOLE_LIFE, of_one_instance};
    use super::*;

    #[test]
    fn a_whole_life_is_legal_and_each_violation_is_found() {
        assert_eq!(illegal_writes(&of_one_instance(&WHOLE_LIFE)), Vec::<String>::new());
        for (states, why) in [
            (&["running a 5 1"][..], "not registered as created"),
            (&["created - 5 1"], "not registered as created"),
            (&["created a 5 1", "running b 9 2"], "not to be committed"),
            (&["created a 5 1", "running a 9 5"], "not to be committed"),
            (&["created a 5 1", "idle - 9 2"], "no such transition"),
            (&["created a 5 1", "created b 5 2"], "changed without a transition"),
            (&["created a 5 1", "created a 7 2"], "changed without a transition"),
            (&["created a 5 1", "terminated - - 4"], "terminated before its threshold"),
            (&["created a 5 1", "removed"], "removed while live"),
            (&["created a 5 1", "running a 5 2", "idle a 9 3"], "not to be released"),
            (&["created a 5 1", "running a 5 2", "idle - 9 3", "claimed b 9 9"], "to be claimed"),
            (&["created a 5 1", "terminated - - 5", "idle - 9 6"], "changed after termination"),
        ] {
            let found = illegal_writes(&of_one_instance(states));
            assert!(found.len() == 1 && found[0].contains(why), "{states:?}: {found:?}");
        }
        let mut incomplete = of_one_instance(&WHOLE_LIFE);
        incomplete.remove(2);
        assert!(illegal_writes(&incomplete)[0].starts_with("out of order"));
    }
}
