//! The life of an instance, in types.
//!
//! An [`Instance<S>`] is a belief: somebody read, or was told, that the instance stands in state
//! `S`. A transition turns the belief into a [`Pending`] change that carries its [`Guard`]; only
//! the store's agreement turns that into the next `Instance`. There is a method for each legal
//! transition and for no other, and nothing outside this module can make a [`Change`].
//!
//! A claim needs an idle instance; a running one has no such method:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, ids::RunId, time::Timestamp};
//! # use std::time::Duration;
//! fn steal(running: Instance<Running>, run: &RunId, now: Timestamp) {
//!     running.claim(run, now, Duration::ZERO);
//! }
//! ```
//!
//! A claimed instance is given back, not released; a created one can do neither:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, time::Timestamp};
//! # use std::time::Duration;
//! fn skip_running(claimed: Instance<Claimed>, now: Timestamp) {
//!     claimed.release(now, Duration::ZERO);
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, time::Timestamp};
//! # use std::time::Duration;
//! fn pool_unvalidated(created: Instance<Created>, now: Timestamp) {
//!     created.give_back(now, Duration::ZERO);
//! }
//! ```
//!
//! An idle instance cannot run without having been claimed:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, time::Timestamp};
//! # use std::time::Duration;
//! fn run_unclaimed(idle: Instance<Idle>, now: Timestamp) {
//!     idle.commit(now, Duration::ZERO);
//! }
//! ```
//!
//! Nothing comes after terminated:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, time::Timestamp};
//! fn revive(terminated: Instance<Terminated>, now: Timestamp) {
//!     terminated.expire(now);
//! }
//! ```
//!
//! And a change cannot be written by hand:
//!
//! ```compile_fail,E0451
//! # use ondeck_core::lifecycle::*;
//! fn forge(change: Change) -> Change {
//!     Change { guard: Guard::Absent, ..change }
//! }
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::ids::{InstanceId, RunId};
use crate::record::{MachineSpec, Record, State, Unreadable};
use crate::ticket::Ticket;
use crate::time::Timestamp;

/// A belief that an instance stands in state `S`.
#[derive(Clone)]
pub struct Instance<S> {
    id: InstanceId,
    state: State,
    run: Option<RunId>,
    threshold: Option<Timestamp>,
    spec: MachineSpec,
    _state: PhantomData<fn() -> S>,
}

/// Launched for a run and starting up.
#[derive(Debug, Clone, Copy)]
pub struct Created;
/// Waiting in the pool.
#[derive(Debug, Clone, Copy)]
pub struct Idle;
/// Taken by a run that is still checking it.
#[derive(Debug, Clone, Copy)]
pub struct Claimed;
/// Working for a run.
#[derive(Debug, Clone, Copy)]
pub struct Running;
/// Gone.
#[derive(Debug, Clone, Copy)]
pub struct Terminated;
/// In any state but terminated; which one is known at run time only.
#[derive(Debug, Clone, Copy)]
pub struct Live;

/// A state, as a type.
pub trait Phase: sealed::Sealed {
    /// Whether a record in `state` may be believed to be in this phase.
    fn covers(state: State) -> bool;
}

/// A phase behind which a machine stands.
pub trait LivePhase: Phase {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! phases {
    ($($phase:ident => $state:pat),* $(,)?) => {$(
        impl sealed::Sealed for $phase {}
        impl Phase for $phase {
            fn covers(state: State) -> bool {
                matches!(state, $state)
            }
        }
    )*};
}

phases! {
    Created => State::Created,
    Idle => State::Idle,
    Claimed => State::Claimed,
    Running => State::Running,
    Terminated => State::Terminated,
    Live => State::Created | State::Idle | State::Claimed | State::Running,
}

impl LivePhase for Created {}
impl LivePhase for Idle {}
impl LivePhase for Claimed {}
impl LivePhase for Running {}
impl LivePhase for Live {}

impl<S: Phase> Instance<S> {
    /// Takes a record at its word, if its word is `S`.
    pub fn believe(record: &Record) -> Option<Instance<S>> {
        S::covers(record.state).then(|| Instance {
            id: record.id.clone(),
            state: record.state,
            run: record.run.clone(),
            threshold: record.threshold,
            spec: record.spec.clone(),
            _state: PhantomData,
        })
    }

    /// The machine.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// Its state; of interest for [`Live`] only.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whose it is.
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref()
    }

    /// What it is.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    fn change<T>(
        &self,
        transition: Transition,
        guard: Guard,
        next: Next,
        at: Timestamp,
    ) -> Pending<T> {
        let change =
            Change { id: self.id.clone(), transition, guard, next, at, why: String::new() };
        Pending { change, _next: PhantomData }
    }

    /// The guard that most transitions share: this state, this owner, still within the threshold.
    fn mine_and_unexpired(&self, now: Timestamp) -> Guard {
        Guard::Found {
            state: StateGuard::Is(self.state),
            run: RunGuard::Is(self.run.clone()),
            lease: LeaseGuard::Unexpired(now),
        }
    }
}

impl Instance<Created> {
    /// (absent) → created. Gives a machine that was just launched its record, its owner and its
    /// first deadline.
    pub fn register(
        id: &InstanceId,
        spec: &MachineSpec,
        run: &RunId,
        now: Timestamp,
        created_timeout: Duration,
    ) -> Pending<Created> {
        let record = Record {
            id: id.clone(),
            state: State::Created,
            run: Some(run.clone()),
            threshold: Some(now + created_timeout),
            spec: spec.clone(),
            created_at: now,
            updated_at: now,
            ticketed_at: None,
        };
        let change = Change {
            id: id.clone(),
            transition: Transition::Register,
            guard: Guard::Absent,
            next: Next::Insert(Box::new(record)),
            at: now,
            why: String::new(),
        };
        Pending { change, _next: PhantomData }
    }

    /// created → running. The machine has signalled and beats.
    pub fn activate(&self, now: Timestamp, max_runtime: Duration) -> Pending<Running> {
        let next = Next::update(State::Running, self.run.clone(), Some(now + max_runtime));
        self.change(Transition::Activate, self.mine_and_unexpired(now), next, now)
    }
}

impl Instance<Idle> {
    /// Believes what a ticket announces. The claim finds out whether it is still so.
    pub fn announced(ticket: &Ticket) -> Instance<Idle> {
        Instance {
            id: ticket.instance_id.clone(),
            state: State::Idle,
            run: None,
            threshold: Some(ticket.threshold),
            spec: ticket.spec.clone(),
            _state: PhantomData,
        }
    }

    /// idle → claimed. The one write that decides who gets the machine.
    ///
    /// Guarded by the very idle state that was announced: a ticket left over from an earlier one
    /// would otherwise win a machine whose agent is still busy leaving its last run.
    pub fn claim(&self, run: &RunId, now: Timestamp, claim_timeout: Duration) -> Pending<Claimed> {
        let next = Next::update(State::Claimed, Some(run.clone()), Some(now + claim_timeout));
        let guard = Guard::Found {
            state: StateGuard::Is(State::Idle),
            run: RunGuard::Is(None),
            lease: self.threshold.map_or(LeaseGuard::Unexpired(now), |threshold| {
                LeaseGuard::SameUnexpired { threshold, now }
            }),
        };
        self.change(Transition::Claim, guard, next, now)
    }

    /// The ticket that announces this idle state in the pool.
    pub fn ticket(&self) -> Ticket {
        let threshold = self.threshold.unwrap_or(Timestamp::from_millis(0));
        Ticket { instance_id: self.id.clone(), spec: self.spec.clone(), threshold }
    }
}

impl Instance<Claimed> {
    /// claimed → running. Every check has passed.
    pub fn commit(&self, now: Timestamp, max_runtime: Duration) -> Pending<Running> {
        let next = Next::update(State::Running, self.run.clone(), Some(now + max_runtime));
        self.change(Transition::Commit, self.mine_and_unexpired(now), next, now)
    }

    /// claimed → idle. The run cannot be served, so the machine is free for others again.
    pub fn give_back(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        let next = Next::update(State::Idle, None, Some(now + idle_time));
        self.change(Transition::GiveBack, self.mine_and_unexpired(now), next, now)
    }
}

impl Instance<Running> {
    /// running → idle. The run has finished; clearing its id tells the agent to deregister.
    pub fn release(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        let next = Next::update(State::Idle, None, Some(now + idle_time));
        self.change(Transition::Release, self.mine_and_unexpired(now), next, now)
    }
}

impl<S: LivePhase> Instance<S> {
    /// any live → same state, with its time up: nobody will use the instance from here on, and
    /// whoever comes by next may reap it.
    ///
    /// An owner tells one state from the next. Idle states have none, so there the threshold
    /// does: a machine that has been out and back since must not be expired by mistake.
    pub fn expire(&self, now: Timestamp) -> Pending<Live> {
        let guard = Guard::Found {
            state: StateGuard::Is(self.state),
            run: RunGuard::Is(self.run.clone()),
            lease: match (&self.run, self.threshold) {
                (None, Some(threshold)) => LeaseGuard::Same(threshold),
                _ => LeaseGuard::Any,
            },
        };
        let next = Next::Update {
            state: self.state,
            run: self.run.clone(),
            threshold: Some(now),
            keep_ticketed: true,
        };
        self.change(Transition::Expire, guard, next, now)
    }

    /// any live → terminated, if its time is up. Whoever wins this ends the machine.
    pub fn reap(&self, now: Timestamp) -> Pending<Terminated> {
        let guard = Guard::Found {
            state: StateGuard::Live,
            run: RunGuard::Any,
            lease: LeaseGuard::Expired(now),
        };
        let next = Next::update(State::Terminated, None, None);
        self.change(Transition::Reap, guard, next, now)
    }

    /// Forgets which live state it is.
    pub fn into_live(self) -> Instance<Live> {
        let Instance { id, state, run, threshold, spec, .. } = self;
        Instance { id, state, run, threshold, spec, _state: PhantomData }
    }
}

impl<S> fmt::Debug for Instance<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run.as_ref().map_or("", RunId::as_str);
        write!(f, "{} ({} {run})", self.id, self.state)
    }
}

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

/// The condition of a change. [`Guard::admits`] is its meaning; what a store evaluates is a
/// translation, tested against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// No such record.
    Absent,
    /// A record that satisfies all three.
    Found {
        /// The state that must stand there.
        state: StateGuard,
        /// The owner that must stand there.
        run: RunGuard,
        /// How the threshold must compare.
        lease: LeaseGuard,
    },
}

/// A condition on the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateGuard {
    /// This one.
    Is(State),
    /// Any but terminated.
    Live,
}

/// A condition on the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunGuard {
    /// This run, or nobody.
    Is(Option<RunId>),
    /// Whoever.
    Any,
}

/// A condition on the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseGuard {
    /// Later than this moment.
    Unexpired(Timestamp),
    /// At this moment or earlier.
    Expired(Timestamp),
    /// This very one.
    Same(Timestamp),
    /// This very one, and later than now.
    SameUnexpired {
        /// The one.
        threshold: Timestamp,
        /// Now.
        now: Timestamp,
    },
    /// Whatever it is.
    Any,
}

impl Guard {
    /// Whether the change may be made to what stands there.
    pub fn admits(&self, found: Option<&Record>) -> bool {
        match (self, found) {
            (Guard::Absent, found) => found.is_none(),
            (Guard::Found { .. }, None) => false,
            (Guard::Found { state, run, lease }, Some(record)) => {
                let state_fits = match state {
                    StateGuard::Is(state) => record.state == *state,
                    StateGuard::Live => record.state.is_live(),
                };
                let run_fits = match run {
                    RunGuard::Is(run) => record.run == *run,
                    RunGuard::Any => true,
                };
                let lease_fits = match lease {
                    LeaseGuard::Unexpired(now) => record.threshold.is_some_and(|t| t > *now),
                    LeaseGuard::Expired(now) => record.threshold.is_some_and(|t| t <= *now),
                    LeaseGuard::Same(threshold) => record.threshold == Some(*threshold),
                    LeaseGuard::SameUnexpired { threshold, now } => {
                        record.threshold == Some(*threshold) && threshold > now
                    }
                    LeaseGuard::Any => true,
                };
                state_fits && run_fits && lease_fits
            }
        }
    }
}

/// One conditional write. Made by the transitions above only.
#[derive(Debug, Clone)]
pub struct Change {
    id: InstanceId,
    transition: Transition,
    guard: Guard,
    next: Next,
    at: Timestamp,
    why: String,
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
    fn update(state: State, run: Option<RunId>, threshold: Option<Timestamp>) -> Next {
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
    change: Change,
    _next: PhantomData<fn() -> S>,
}

impl<S: Phase> Pending<S> {
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
