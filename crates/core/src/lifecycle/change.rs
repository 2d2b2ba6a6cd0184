//! A change on its way to the store and back.

use std::fmt;
use std::marker::PhantomData;

use super::guard::Guard;
use super::{Instance, TypedState};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{Record, State, Unreadable};
use crate::model::timestamp::Timestamp;

/// The legal transitions, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transition {
    /// (absent) → created
    Register,
    /// created → running
    Activate,
    /// idle → claimed
    Claim,
    /// claimed → running
    Commit,
    /// running → idle
    Release,
    /// claimed → idle
    GiveBack,
    /// any live → same state
    Expire,
    /// any live → terminated
    Reap,
}

impl Transition {
    /// The name, for logs and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Transition::Register => "register",
            Transition::Activate => "activate",
            Transition::Claim => "claim",
            Transition::Commit => "commit",
            Transition::Release => "release",
            Transition::GiveBack => "give-back",
            Transition::Expire => "expire",
            Transition::Reap => "reap",
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One conditional write. Only the transitions of [`Instance`] make any.
#[derive(Debug, Clone)]
pub struct Change {
    pub(super) id: InstanceId,
    pub(super) transition: Transition,
    pub(super) guard: Guard,
    pub(super) next: Next,
    pub(super) at: Timestamp,
    pub(super) why: String,
}

/// What a change leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A new record.
    Insert(Box<Record>),
    /// New values in the record that the guard has admitted.
    Update {
        /// The state from here on.
        state: State,
        /// The owner from here on.
        run: Option<RunId>,
        /// The threshold from here on.
        threshold: Option<Timestamp>,
        /// Whether the note of the ticket stays: every state but the same one starts without.
        keep_ticketed: bool,
    },
}

impl Next {
    pub(super) fn update(state: State, run: Option<RunId>, threshold: Option<Timestamp>) -> Next {
        Next::Update { state, run, threshold, keep_ticketed: false }
    }
}

impl Change {
    /// The record it is about.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// Which transition it makes.
    pub fn transition(&self) -> Transition {
        self.transition
    }

    /// Its condition.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Its effect.
    pub fn next(&self) -> &Next {
        &self.next
    }

    /// When it was decided.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The reason, for the event that records it.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The record after the change, or `None` where the guard does not admit it.
    pub fn applied_to(&self, found: Option<&Record>) -> Option<Record> {
        if !self.guard.admits(found) {
            return None;
        }
        match (&self.next, found) {
            (Next::Insert(record), _) => Some((**record).clone()),
            (Next::Update { state, run, threshold, keep_ticketed }, Some(found)) => Some(Record {
                state: *state,
                run: run.clone(),
                threshold: *threshold,
                updated_at: self.at,
                ticketed_at: found.ticketed_at.filter(|_| *keep_ticketed),
                ..found.clone()
            }),
            (Next::Update { .. }, None) => None,
        }
    }

    /// Whether what stands there is this very change, made earlier by a write whose answer was
    /// lost.
    pub fn is_done_in(&self, found: &Record) -> bool {
        let (state, run, threshold) = match &self.next {
            Next::Insert(record) => (record.state, &record.run, record.threshold),
            Next::Update { state, run, threshold, .. } => (*state, run, *threshold),
        };
        found.updated_at == self.at
            && found.state == state
            && found.run == *run
            && found.threshold == threshold
    }
}

/// A change that the store has not agreed to yet. `S` is what the instance will be if it does.
#[must_use = "a pending change has no effect until it is committed"]
#[derive(Debug, Clone)]
pub struct Pending<S> {
    pub(super) change: Change,
    pub(super) _next: PhantomData<fn() -> S>,
}

impl<S: TypedState> Pending<S> {
    /// Adds the reason.
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.change.why = why.into();
        self
    }

    /// What to ask of the store.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Turns the store's answer into the next belief.
    pub fn settle(self, verdict: Verdict) -> Result<Instance<S>, Box<Refused>> {
        let found = match verdict {
            Verdict::Agreed(record) => match Instance::believe(&record) {
                Some(instance) => return Ok(instance),
                None => Some(record),
            },
            Verdict::Refused(found) => found,
            Verdict::Unreadable(row) => {
                let unreadable = Some(row);
                return Err(Box::new(Refused { change: self.change, found: None, unreadable }));
            }
        };
        Err(Box::new(Refused { change: self.change, found, unreadable: None }))
    }
}

/// The store's answer to a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was made; this stands there now.
    Agreed(Record),
    /// It was not; this stands there instead.
    Refused(Option<Record>),
    /// It was not; what stands there makes no sense, and nobody may build on it.
    Unreadable(Unreadable),
}

/// A change that lost, and what it lost to. An answer, not an error.
#[derive(Debug, Clone)]
pub struct Refused {
    /// What was asked.
    pub change: Change,
    /// What stands there.
    pub found: Option<Record>,
    /// What stands there, if it makes no sense.
    pub unreadable: Option<Unreadable>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} refused: ", self.change.transition, self.change.id)?;
        match (&self.found, &self.unreadable) {
            (_, Some(row)) => row.fmt(f),
            (None, None) => f.write_str("there is no such record"),
            (Some(found), None) => {
                write!(f, "it is {}", found.state)?;
                if let Some(run) = &found.run {
                    write!(f, ", owned by run {run}")?;
                }
                if found.is_expired(self.change.at) {
                    f.write_str(", past its threshold")?;
                }
                Ok(())
            }
        }
    }
}
