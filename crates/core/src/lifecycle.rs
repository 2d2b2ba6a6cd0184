//! The lifecycle of an instance, in types.
//!
//! An [`Instance<S>`] is a belief: a record or a ticket said that the instance is in state
//! `S`. A transition turns the belief into a [`Pending`] change that carries its [`Guard`]; only
//! the store's agreement turns that into the next `Instance`. There is a method for each legal
//! transition and for no other, and nothing outside this module can make a [`Change`].
//!
//! A claim needs an idle instance; a running one has no such method:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::ids::RunId, model::timestamp::Timestamp};
//! # use std::time::Duration;
//! fn steal(running: Instance<Running>, run: &RunId, now: Timestamp) {
//!     running.claim(run, now, Duration::ZERO);
//! }
//! ```
//!
//! A claimed instance is given back, not released; a created one can do neither:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::timestamp::Timestamp};
//! # use std::time::Duration;
//! fn skip_running(claimed: Instance<Claimed>, now: Timestamp) {
//!     claimed.release(now, Duration::ZERO);
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::timestamp::Timestamp};
//! # use std::time::Duration;
//! fn pool_unvalidated(created: Instance<Created>, now: Timestamp) {
//!     created.give_back(now, Duration::ZERO);
//! }
//! ```
//!
//! An idle instance cannot run without having been claimed:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::timestamp::Timestamp};
//! # use std::time::Duration;
//! fn run_unclaimed(idle: Instance<Idle>, now: Timestamp) {
//!     idle.commit(now, Duration::ZERO);
//! }
//! ```
//!
//! A preserved instance neither returns to the pool nor gets more time:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::timestamp::Timestamp};
//! # use std::time::Duration;
//! fn pool_preserved(preserved: Instance<Preserved>, now: Timestamp) {
//!     preserved.release(now, Duration::ZERO);
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::timestamp::Timestamp};
//! fn prolong_preserved(preserved: Instance<Preserved>, now: Timestamp) {
//!     preserved.renew(now, now);
//! }
//! ```
//!
//! Nothing comes after terminated:
//!
//! ```compile_fail,E0599
//! # use ondeck_core::{lifecycle::*, model::timestamp::Timestamp};
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

mod change;
mod guard;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

pub use self::change::{Change, Next, Pending, Refused, Transition, Verdict};
pub use self::guard::{DepartureGuard, Guard, LeaseGuard, RunGuard, StateGuard, UseGuard};

use crate::model::departure::Departure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::{Label, LabelSuffix};
use crate::model::machine_label::RequestedLabel;
use crate::model::record::{Counts, MachineSpec, Record, State};
use crate::model::reuse::Reuse;
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;

/// A belief that an instance is in state `S`.
#[derive(Clone)]
pub struct Instance<S> {
    id: InstanceId,
    state: State,
    run: Option<RunId>,
    suffix: Option<LabelSuffix>,
    requested: RequestedLabel,
    threshold: Option<Timestamp>,
    spec: MachineSpec,
    counts: Counts,
    reuse: Reuse,
    departure: Departure,
    _state: PhantomData<fn() -> S>,
}

/// Launched for a run and starting up.
#[derive(Debug, Clone, Copy)]
pub struct Created;
/// Owned by no run and free to be claimed.
#[derive(Debug, Clone, Copy)]
pub struct Idle;
/// Taken by a run that is still checking it.
#[derive(Debug, Clone, Copy)]
pub struct Claimed;
/// Owned by a run that may use it.
#[derive(Debug, Clone, Copy)]
pub struct Running;
/// Owned by a run that has failed, and kept for people until its threshold. In the record it is
/// `running` with [`Reuse::Preserved`]. It can only expire and be reaped.
#[derive(Debug, Clone, Copy)]
pub struct Preserved;
/// Final: no transition leaves this state.
#[derive(Debug, Clone, Copy)]
pub struct Terminated;
/// In any state but terminated; which one is known at run time only.
#[derive(Debug, Clone, Copy)]
pub struct Live;

/// One of the state types above.
pub trait TypedState: sealed::Sealed {
    /// Whether a record in `state` matches this type, and whether it is preserved.
    fn covers(state: State, is_preserved: bool) -> bool;
}

/// A state type other than [`Terminated`].
pub trait LiveState: TypedState {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! typed_states {
    ($($type:ident => $state:pat),* $(,)?) => {$(
        impl sealed::Sealed for $type {}
        impl TypedState for $type {
            fn covers(state: State, is_preserved: bool) -> bool {
                matches!((state, is_preserved), $state)
            }
        }
    )*};
}

typed_states! {
    Created => (State::Created, _),
    Idle => (State::Idle, _),
    Claimed => (State::Claimed, _),
    Running => (State::Running, false),
    Preserved => (State::Running, true),
    Terminated => (State::Terminated, _),
    Live => (State::Created | State::Idle | State::Claimed | State::Running, _),
}

impl LiveState for Created {}
impl LiveState for Idle {}
impl LiveState for Claimed {}
impl LiveState for Running {}
impl LiveState for Preserved {}
impl LiveState for Live {}

impl<S: TypedState> Instance<S> {
    /// Believes a record. Returns `None` if its state is not `S`.
    pub fn believe(record: &Record) -> Option<Instance<S>> {
        S::covers(record.state, record.is_preserved()).then(|| Instance {
            id: record.id.clone(),
            state: record.state,
            run: record.run.clone(),
            suffix: record.suffix.clone(),
            requested: record.requested.clone(),
            threshold: record.threshold,
            spec: record.spec.clone(),
            counts: record.counts,
            reuse: record.reuse,
            departure: record.departure,
            _state: PhantomData,
        })
    }

    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// The state, which only [`Live`] does not know from its type.
    pub fn state(&self) -> State {
        self.state
    }

    /// The owner, if the state has one.
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref()
    }

    /// The label that its owner asked for it under, if the state has an owner.
    pub fn label(&self) -> Option<Label> {
        Some(Label::new(self.run.clone()?, self.suffix.clone()))
    }

    /// What its owner wants the runner to be registered with.
    pub fn requested(&self) -> &RequestedLabel {
        &self.requested
    }

    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Until when the state may last; `None` if terminated.
    pub fn threshold(&self) -> Option<Timestamp> {
        self.threshold
    }

    /// What the record counts. Of an instance that only a ticket announces, nothing but the
    /// generation and the number of runs is known.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the machine may serve another run. Of an instance that only a ticket announces, it may.
    pub fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// What an operator has decided about the machine. Of an instance that only a ticket announces,
    /// nothing is known.
    pub fn departure(&self) -> Departure {
        self.departure
    }

    fn change<T>(
        &self,
        transition: Transition,
        guard: Guard,
        next: Next,
        at: Timestamp,
    ) -> Pending<T> {
        let id = self.id.clone();
        let (why, settings_version) = (String::new(), None);
        let change = Change { id, transition, guard, next, at, why, settings_version };
        Pending { change, _next: PhantomData }
    }

    /// The guard that most transitions share: this state in this generation, this owner, still
    /// within the threshold, which may have moved to later and not to earlier.
    ///
    /// Only an expiry moves it to earlier. It writes the time of the clock that decides on it, which may
    /// be ahead of this one.
    fn same_and_unexpired(&self, now: Timestamp) -> Guard {
        self.same(LeaseGuard::Unexpired(self.not_earlier(now)))
    }

    /// As [`same_and_unexpired`](Self::same_and_unexpired), with a threshold that has not moved.
    fn same_and_not_renewed(&self, now: Timestamp) -> Guard {
        let until = self.threshold.unwrap_or(now);
        self.same(LeaseGuard::Within(self.not_earlier(now), until))
    }

    /// The last moment at which a threshold would have passed by now, or would have moved to earlier.
    fn not_earlier(&self, now: Timestamp) -> Timestamp {
        let before = self.threshold.map(|it| it.before(Duration::from_millis(1)));
        before.map_or(now, |it| it.max(now))
    }

    /// This state in this generation, with this owner, and a threshold that the lease allows.
    fn same(&self, lease: LeaseGuard) -> Guard {
        Guard::Found {
            state: StateGuard::Is(self.state),
            run: RunGuard::Is(self.run.clone()),
            lease,
            generation: Some(self.counts.generation),
            uses: UseGuard::Any,
            departs: DepartureGuard::Any,
        }
    }

    /// Enters the next idle generation.
    fn idle_again(&self, now: Timestamp, idle_time: Duration, missed: u32) -> Next {
        let counts = Counts {
            generation: self.counts.generation.saturating_add(1),
            missed_registrations: missed,
            ..self.counts
        };
        Next::update(State::Idle, None, Some(now + idle_time)).counting(counts)
    }

    /// Becomes `running` for its owner.
    fn running_now(&self, now: Timestamp, max_runtime: Duration) -> Next {
        let counts = Counts {
            runs: self.counts.runs.saturating_add(1),
            missed_registrations: 0,
            ..self.counts
        };
        let next = Next::update(State::Running, self.label(), Some(now + max_runtime));
        next.counting(counts).requesting(self.requested.clone())
    }

    /// Keeps the state and the owner, with another threshold.
    fn lasting_until(&self, until: Timestamp, keep_ticketed: bool) -> Next {
        let next = Next::update(self.state, self.label(), Some(until));
        next.requesting(self.requested.clone()).keeping_ticketed(keep_ticketed)
    }
}

impl Instance<Created> {
    /// (absent) → created. Gives a machine that was just launched its record, its owner and its
    /// first deadline. Its event tells what kind of machine it is.
    pub fn register(
        id: &InstanceId,
        spec: &MachineSpec,
        label: impl Into<Label>,
        now: Timestamp,
        created_timeout: Duration,
    ) -> Pending<Created> {
        let Label { run, suffix } = label.into();
        let record = Record {
            id: id.clone(),
            state: State::Created,
            run: Some(run),
            suffix,
            requested: RequestedLabel::OfRun,
            threshold: Some(now + created_timeout),
            spec: spec.clone(),
            counts: Counts::default(),
            reuse: Reuse::Always,
            departure: Departure::None,
            created_at: now,
            updated_at: now,
            ticketed_at: None,
            settings_version: None,
        };
        let change = Change {
            id: id.clone(),
            transition: Transition::Register,
            guard: Guard::Absent,
            next: Next::Insert(Box::new(record)),
            at: now,
            why: spec.told(),
            settings_version: None,
        };
        Pending { change, _next: PhantomData }
    }

    /// created → running. The caller must have seen the machine registered and healthy.
    pub fn activate(&self, now: Timestamp, max_runtime: Duration) -> Pending<Running> {
        let next = self.running_now(now, max_runtime);
        self.change(Transition::Activate, self.same_and_unexpired(now), next, now)
    }
}

impl Instance<Idle> {
    /// Believes what a ticket announces. The claim finds out whether it is still true.
    pub fn announced(ticket: &Ticket) -> Instance<Idle> {
        Instance {
            id: ticket.instance_id.clone(),
            state: State::Idle,
            run: None,
            suffix: None,
            requested: RequestedLabel::OfRun,
            threshold: Some(ticket.threshold),
            spec: ticket.spec.clone(),
            counts: Counts {
                generation: ticket.generation,
                runs: ticket.runs.unwrap_or_default(),
                ..Counts::default()
            },
            reuse: Reuse::Always,
            departure: Departure::None,
            _state: PhantomData,
        }
    }

    /// idle → claimed. The one write that decides which run gets the machine.
    ///
    /// The guard requires the generation that was announced. Otherwise an old ticket could claim a
    /// machine whose agent is still leaving its last run. The threshold may have moved since: a
    /// renewal does not void the tickets that runs hold.
    pub fn claim(
        &self,
        label: impl Into<Label>,
        now: Timestamp,
        claim_timeout: Duration,
    ) -> Pending<Claimed> {
        let next = Next::update(State::Claimed, Some(label.into()), Some(now + claim_timeout));
        let mut guard = self.same_and_unexpired(now);
        if let Guard::Found { departs, .. } = &mut guard {
            *departs = DepartureGuard::NotDrained;
        }
        let pending: Pending<Claimed> = self.change(Transition::Claim, guard, next, now);
        pending.reusing(Reuse::Always)
    }

    /// idle → idle until `until`, in the same generation. Tickets of the machine announce the old
    /// threshold and are dropped after it, so the record counts as not ticketed: the caller must
    /// send a new ticket. If the threshold stays as it is, so does the ticket.
    ///
    /// The guard refuses to shorten: another refresh may have renewed the machine meanwhile, and its
    /// tickets announce the later threshold. It also refuses a machine that was expired meanwhile.
    pub fn renew(&self, now: Timestamp, until: Timestamp) -> Pending<Idle> {
        let next = self.lasting_until(until, self.threshold == Some(until));
        let guard = self.same(LeaseGuard::Within(self.not_earlier(now), until));
        self.change(Transition::Renew, guard, next, now)
    }

    /// The ticket that announces this idle state in the pool.
    pub fn ticket(&self) -> Ticket {
        let threshold = self.threshold.unwrap_or(Timestamp::from_millis(0));
        Ticket {
            instance_id: self.id.clone(),
            spec: self.spec.clone(),
            threshold,
            generation: self.counts.generation,
            runs: Some(self.counts.runs),
        }
    }
}

impl Instance<Claimed> {
    /// claimed → running. The caller must have passed every check.
    pub fn commit(&self, now: Timestamp, max_runtime: Duration) -> Pending<Running> {
        let next = self.running_now(now, max_runtime);
        self.change(Transition::Commit, self.same_and_unexpired(now), next, now)
    }

    /// claimed → idle. Returns a machine that the run does not need, or cannot use because of
    /// something else than this machine. Any other run may have it, because this one has not used it.
    pub fn give_back(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        self.unused(now, idle_time, self.counts.missed_registrations)
    }

    /// claimed → idle. Like [`Instance::give_back`], of a machine that has registered for the run: what it
    /// missed before does not count any more.
    pub fn give_back_registered(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        self.unused(now, idle_time, 0)
    }

    /// claimed → idle. Returns a machine that did not register in time, and counts that.
    pub fn give_back_unregistered(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        self.unused(now, idle_time, self.counts.missed_registrations.saturating_add(1))
    }

    fn unused(&self, now: Timestamp, idle_time: Duration, missed: u32) -> Pending<Idle> {
        let next = self.idle_again(now, idle_time, missed).reusing(Reuse::Always);
        self.change(Transition::GiveBack, self.same_and_unexpired(now), next, now)
    }
}

impl Instance<Running> {
    /// running → idle. The run has finished; clearing its id tells the agent to deregister.
    pub fn release(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        let next = self.idle_again(now, idle_time, self.counts.missed_registrations);
        self.change(Transition::Release, self.same_and_unexpired(now), next, now)
    }

    /// running → idle. As [`release`](Self::release), but refused if the machine was renewed meanwhile:
    /// its run, which had completed, asks for machines again.
    pub fn release_unless_renewed(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        let next = self.idle_again(now, idle_time, self.counts.missed_registrations);
        self.change(Transition::Release, self.same_and_not_renewed(now), next, now)
    }

    /// running → idle. As [`release`](Self::release), for a machine that its run has not used: it was
    /// only warmed up, or committed by a provision that failed. The run does not count among those
    /// that the machine was given to.
    pub fn release_unused(&self, now: Timestamp, idle_time: Duration) -> Pending<Idle> {
        let counts = Counts { runs: self.counts.runs.saturating_sub(1), ..self.counts };
        let warmed = Instance { counts, ..self.clone() };
        let next = warmed.idle_again(now, idle_time, counts.missed_registrations);
        let next = next.reusing(Reuse::Always);
        self.change(Transition::Release, self.same_and_unexpired(now), next, now)
    }

    /// running → running until `until`, for the same run.
    pub fn renew(&self, now: Timestamp, until: Timestamp) -> Pending<Running> {
        let next = self.lasting_until(until, false);
        self.change(Transition::Renew, self.same_and_unexpired(now), next, now)
    }

    /// running → running until `until`, for people. The run has failed, and the machine takes no
    /// further job.
    ///
    /// The next generation makes the guards of changes that were decided before refuse: a release or a
    /// renewal of the run that has read the record earlier finds the machine as it is now.
    pub fn preserve(&self, now: Timestamp, until: Timestamp) -> Pending<Preserved> {
        let counts = Counts { generation: self.counts.generation.saturating_add(1), ..self.counts };
        let next = self.lasting_until(until, false).counting(counts).reusing(Reuse::Preserved);
        self.change(Transition::Preserve, self.same_and_unexpired(now), next, now)
    }
}

impl<S: LiveState> Instance<S> {
    /// any live → same state, with its threshold set to `now`: no other transition but reap is
    /// admitted from here on.
    ///
    /// The guard must not admit a later state of the same machine, which has another owner or
    /// another generation.
    pub fn expire(&self, now: Timestamp) -> Pending<Live> {
        let next = self.lasting_until(now, true);
        self.change(Transition::Expire, self.same(LeaseGuard::Any), next, now)
    }

    /// any live → same state, and the machine leaves the pool as one that has reached the limit of its
    /// lifetime does. Refused if an operator has decided about it already.
    pub fn retire(&self, now: Timestamp) -> Pending<Live> {
        self.depart(Transition::Retire, Departure::Retired, DepartureGuard::None, now)
    }

    /// any live → same state, and no further run gets the machine. Its present run keeps it.
    pub fn drain(&self, now: Timestamp) -> Pending<Live> {
        self.depart(Transition::Drain, Departure::Drained, DepartureGuard::Any, now)
    }

    /// Leaves all but the departure. So the guard needs the very threshold that was read: a renewal
    /// between the two must not be undone.
    fn depart(
        &self,
        transition: Transition,
        departure: Departure,
        wanted: DepartureGuard,
        now: Timestamp,
    ) -> Pending<Live> {
        let until = self.threshold.unwrap_or(now);
        let mut guard = self.same(LeaseGuard::Is(until));
        if let Guard::Found { departs, .. } = &mut guard {
            *departs = wanted;
        }
        let next = self.lasting_until(until, true).departing(departure);
        self.change(transition, guard, next, now)
    }

    /// any live → terminated, if its threshold has passed. The caller whose reap is admitted must
    /// terminate the machine.
    pub fn reap(&self, now: Timestamp) -> Pending<Terminated> {
        let guard = Guard::Found {
            state: StateGuard::Live,
            run: RunGuard::Any,
            lease: LeaseGuard::Expired(now),
            generation: None,
            uses: UseGuard::Any,
            departs: DepartureGuard::Any,
        };
        let next = Next::update(State::Terminated, None, None);
        self.change(Transition::Reap, guard, next, now)
    }

    /// Converts to [`Live`], which covers every live state.
    pub fn into_live(self) -> Instance<Live> {
        Instance {
            id: self.id,
            state: self.state,
            run: self.run,
            suffix: self.suffix,
            requested: self.requested,
            threshold: self.threshold,
            spec: self.spec,
            counts: self.counts,
            reuse: self.reuse,
            departure: self.departure,
            _state: PhantomData,
        }
    }
}

impl<S> fmt::Debug for Instance<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run.as_ref().map_or("", RunId::as_str);
        write!(f, "{} ({} {run})", self.id, self.state)
    }
}
