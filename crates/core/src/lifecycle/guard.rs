//! The condition of a change, and its meaning.

use crate::model::ids::RunId;
use crate::model::record::{Record, State};
use crate::model::timestamp::Timestamp;

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
