//! The condition of a change, and its meaning.

use crate::model::departure::Departure;
use crate::model::ids::RunId;
use crate::model::record::{Record, State};
use crate::model::reuse::Reuse;
use crate::model::timestamp::Timestamp;

/// The condition of a change. [`Guard::admits`] is its meaning; what a store evaluates is a
/// translation, tested against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// There must be no record.
    Absent,
    /// There must be a record that satisfies all of these conditions.
    Found {
        state: StateGuard,
        run: RunGuard,
        lease: LeaseGuard,
        /// The generation that the record must have; `None` admits every one.
        generation: Option<u32>,
        uses: UseGuard,
        departs: DepartureGuard,
    },
}

/// A condition on the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateGuard {
    Is(State),
    /// Any state but `terminated`.
    Live,
}

/// A condition on the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunGuard {
    /// This run, or no owner.
    Is(Option<RunId>),
    Any,
}

/// A condition on the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseGuard {
    /// Later than this moment.
    Unexpired(Timestamp),
    /// At this moment or earlier.
    Expired(Timestamp),
    /// Later than the first moment, and not later than the second.
    Within(Timestamp, Timestamp),
    Is(Timestamp),
    Any,
}

/// A condition on the runs that the machine has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseGuard {
    /// None of them was the only one that it may serve.
    Reusable,
    /// As [`Reusable`](UseGuard::Reusable), and it was given to no run.
    Unused,
    Any,
}

/// A condition on what operators have decided about the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepartureGuard {
    /// No operator wants it to leave.
    None,
    /// It may serve another run.
    NotDrained,
    Any,
}

impl Guard {
    /// Whether the change may be made to the record that was found, or to none.
    pub fn admits(&self, found: Option<&Record>) -> bool {
        match (self, found) {
            (Guard::Absent, found) => found.is_none(),
            (Guard::Found { .. }, None) => false,
            (Guard::Found { state, run, lease, generation, uses, departs }, Some(record)) => {
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
                    LeaseGuard::Within(now, until) => {
                        record.threshold.is_some_and(|t| t > *now && t <= *until)
                    }
                    LeaseGuard::Is(at) => record.threshold == Some(*at),
                    LeaseGuard::Any => true,
                };
                let generation_fits = generation.is_none_or(|it| record.counts.generation == it);
                let uses_fit = match uses {
                    UseGuard::Reusable => record.reuse == Reuse::Always,
                    UseGuard::Unused => record.reuse == Reuse::Always && record.counts.runs == 0,
                    UseGuard::Any => true,
                };
                let departs_fit = match departs {
                    DepartureGuard::None => record.departure == Departure::None,
                    DepartureGuard::NotDrained => !record.departure.is_drained(),
                    DepartureGuard::Any => true,
                };
                state_fits && run_fits && lease_fits && generation_fits && uses_fit && departs_fit
            }
        }
    }
}
