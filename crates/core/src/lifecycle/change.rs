//! A change on its way to the store and back.

use std::fmt;
use std::marker::PhantomData;

use super::guard::{DepartureGuard, Guard, UseGuard};
use super::{Claimed, Created, Instance, Running, TypedState};
use crate::model::departure::Departure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::{Label, LabelSuffix};
use crate::model::machine_label::{MachineLabel, RequestedLabel};
use crate::model::record::{Counts, Record, State, Unreadable};
use crate::model::reuse::Reuse;
use crate::model::settings::SettingsVersion;
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
    /// idle or running → same state
    Renew,
    /// running → running, for people and not for its run
    Preserve,
    /// any live → same state, and the machine leaves once others are idle in its place
    Retire,
    /// any live → same state, and the machine serves no further run
    Drain,
    /// any live → same state
    Expire,
    /// any live → terminated
    Reap,
}

impl Transition {
    /// Those by which a run is given a machine: a new one, or one from the pool.
    pub const HAND_OVERS: [Transition; 2] = [Transition::Activate, Transition::Commit];

    /// The name in logs and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Transition::Register => "register",
            Transition::Activate => "activate",
            Transition::Claim => "claim",
            Transition::Commit => "commit",
            Transition::Release => "release",
            Transition::GiveBack => "give-back",
            Transition::Renew => "renew",
            Transition::Preserve => "preserve",
            Transition::Retire => "retire",
            Transition::Drain => "drain",
            Transition::Expire => "expire",
            Transition::Reap => "reap",
        }
    }

    /// Whether the machine's agent has to act at once: register for a run, leave it, or take no further
    /// job. The others move a threshold or confirm what the agent does already, and it learns of them by
    /// its next look; a machine that was reaped is terminated by its provider.
    pub fn wakes_agent(self) -> bool {
        match self {
            Transition::Claim
            | Transition::Release
            | Transition::GiveBack
            | Transition::Preserve
            | Transition::Expire => true,
            Transition::Register
            | Transition::Activate
            | Transition::Commit
            | Transition::Renew
            | Transition::Retire
            | Transition::Drain
            | Transition::Reap => false,
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One conditional write. Only the transitions of [`Instance`] make one.
#[derive(Debug, Clone)]
pub struct Change {
    pub(super) id: InstanceId,
    pub(super) transition: Transition,
    pub(super) guard: Guard,
    pub(super) next: Next,
    pub(super) at: Timestamp,
    pub(super) why: String,
    pub(super) settings_version: Option<SettingsVersion>,
}

/// What a change writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The whole record of a new instance.
    Insert(Box<Record>),
    /// New values of the record that the guard has admitted.
    Update {
        state: State,
        run: Option<RunId>,
        /// Of the label under which the run gets the machine. `None` without a run.
        suffix: Option<LabelSuffix>,
        /// What its runner is to be registered with. [`RequestedLabel::OfRun`] without a run.
        requested: RequestedLabel,
        threshold: Option<Timestamp>,
        /// `None` leaves what the record says.
        counts: Option<Counts>,
        /// `None` leaves what the record says.
        reuse: Option<Reuse>,
        /// `None` leaves what the record says.
        departure: Option<Departure>,
        /// Whether the record stays marked as ticketed. Only a change that keeps the state does so.
        keep_ticketed: bool,
    },
}

impl Next {
    pub(super) fn update(state: State, label: Option<Label>, threshold: Option<Timestamp>) -> Next {
        let (run, suffix) = label.map_or((None, None), |label| (Some(label.run), label.suffix));
        let (counts, reuse, departure, keep_ticketed) = (None, None, None, false);
        let requested = RequestedLabel::OfRun;
        Next::Update {
            state,
            run,
            suffix,
            requested,
            threshold,
            counts,
            reuse,
            departure,
            keep_ticketed,
        }
    }

    pub(super) fn requesting(mut self, new: RequestedLabel) -> Next {
        match &mut self {
            Next::Update { requested, .. } => *requested = new,
            Next::Insert(record) => record.requested = new,
        }
        self
    }

    pub(super) fn keeping_ticketed(mut self, keep: bool) -> Next {
        if let Next::Update { keep_ticketed, .. } = &mut self {
            *keep_ticketed = keep;
        }
        self
    }

    pub(super) fn reusing(mut self, new: Reuse) -> Next {
        match &mut self {
            Next::Update { reuse, .. } => *reuse = Some(new),
            Next::Insert(record) => record.reuse = new,
        }
        self
    }

    pub(super) fn departing(mut self, new: Departure) -> Next {
        if let Next::Update { departure, .. } = &mut self {
            *departure = Some(new);
        }
        self
    }

    pub(super) fn counting(mut self, new: Counts) -> Next {
        match &mut self {
            Next::Update { counts, .. } => *counts = Some(new),
            Next::Insert(record) => record.counts = new,
        }
        self
    }
}

impl Change {
    /// The state and the owner that it leaves.
    pub fn leaves(&self) -> (State, Option<&RunId>) {
        match &self.next {
            Next::Insert(record) => (record.state, record.run.as_ref()),
            Next::Update { state, run, .. } => (*state, run.as_ref()),
        }
    }

    /// The record it is about.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// Which transition it makes.
    pub fn transition(&self) -> Transition {
        self.transition
    }

    pub fn guard(&self) -> &Guard {
        &self.guard
    }

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

    /// The settings that it was decided by, which an update writes into the record; `None` leaves
    /// what the record says.
    pub fn settings_version(&self) -> Option<&SettingsVersion> {
        self.settings_version.as_ref()
    }

    /// The record after the change, or `None` where the guard does not admit it.
    pub fn applied_to(&self, found: Option<&Record>) -> Option<Record> {
        if !self.guard.admits(found) {
            return None;
        }
        match (&self.next, found) {
            (Next::Insert(record), _) => Some((**record).clone()),
            (
                Next::Update {
                    state,
                    run,
                    suffix,
                    requested,
                    threshold,
                    counts,
                    reuse,
                    departure,
                    keep_ticketed,
                },
                Some(found),
            ) => Some(Record {
                state: *state,
                run: run.clone(),
                suffix: suffix.clone(),
                requested: requested.clone(),
                threshold: *threshold,
                counts: counts.unwrap_or(found.counts),
                reuse: reuse.unwrap_or(found.reuse),
                departure: departure.unwrap_or(found.departure),
                updated_at: self.at,
                ticketed_at: found.ticketed_at.filter(|_| *keep_ticketed),
                settings_version: self.settings_version.clone().or(found.settings_version.clone()),
                ..found.clone()
            }),
            (Next::Update { .. }, None) => None,
        }
    }

    /// Whether `found` is what this change leaves. After a refused repetition this means that an
    /// earlier write, whose answer was lost, made the change.
    pub fn is_done_in(&self, found: &Record) -> bool {
        let (state, run, suffix, threshold) = match &self.next {
            Next::Insert(record) => (record.state, &record.run, &record.suffix, record.threshold),
            Next::Update { state, run, suffix, threshold, .. } => (*state, run, suffix, *threshold),
        };
        found.updated_at == self.at
            && found.state == state
            && found.run == *run
            && found.suffix == *suffix
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
    /// Sets the reason, which the event of the change records.
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.change.why = why.into();
        self
    }

    /// Says which settings the change was decided by.
    pub(crate) fn under(mut self, settings: Option<SettingsVersion>) -> Self {
        if let Next::Insert(record) = &mut self.change.next {
            record.settings_version.clone_from(&settings);
        }
        self.change.settings_version = settings;
        self
    }

    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Turns the store's answer into the next belief. Fails if the store refused the change, or
    /// returned a record that is not in state `S`.
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

impl Pending<Created> {
    /// Says whether the machine may serve another run after its first.
    pub fn reusing(mut self, reuse: Reuse) -> Self {
        self.change.next = self.change.next.reusing(reuse);
        self
    }

    /// Says what the runner is to be registered with.
    pub fn requesting(mut self, requested: RequestedLabel) -> Self {
        self.change.next = self.change.next.requesting(requested);
        self
    }
}

impl Pending<Claimed> {
    /// Says what the runner is to be registered with.
    pub fn requesting(mut self, requested: RequestedLabel) -> Self {
        self.change.next = self.change.next.requesting(requested);
        self
    }

    /// Says whether the machine may serve another run after this one. For [`Reuse::Never`], the guard
    /// also requires that it was given to no run before.
    pub fn reusing(mut self, reuse: Reuse) -> Self {
        if let Guard::Found { uses, .. } = &mut self.change.guard {
            *uses = if reuse.is_never() { UseGuard::Unused } else { UseGuard::Reusable };
        }
        self.change.next = self.change.next.reusing(reuse);
        self
    }

    /// Admits a machine that was drained. For its last run only, whose job is on it.
    pub(crate) fn although_drained(mut self) -> Self {
        if let Guard::Found { departs, .. } = &mut self.change.guard {
            *departs = DepartureGuard::Any;
        }
        self
    }
}

impl Pending<Running> {
    /// Names the label of the machine that its agent has registered with.
    pub fn naming(mut self, label: Option<MachineLabel>) -> Self {
        if let Some(label) = label {
            self.change.next = self.change.next.requesting(RequestedLabel::Named(label));
        }
        self
    }

    /// Says that the machine may serve no run after this one.
    pub fn never_reused(mut self) -> Self {
        self.change.next = self.change.next.reusing(Reuse::Never);
        self
    }
}

/// The store's answer to a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The change was made. Carries the record after it.
    Agreed(Record),
    /// The guard did not admit the change. Carries the record that was found, if any.
    Refused(Option<Record>),
    /// The change was not made, because the row that was found is corrupt.
    Unreadable(Unreadable),
}

/// A change that the store refused, and what it found instead. This is an answer, not an error.
#[derive(Debug, Clone)]
pub struct Refused {
    pub change: Change,
    pub found: Option<Record>,
    /// The corrupt row that was found instead of a record.
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
                if found.departure.is_drained() {
                    f.write_str(", drained")?;
                }
                if found.is_expired(self.change.at) {
                    f.write_str(", past its threshold")?;
                }
                Ok(())
            }
        }
    }
}
