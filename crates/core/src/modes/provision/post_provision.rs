//! Post-provision: how an attempt ends. Success commits everything. After a failure, [`Ending`] says
//! what becomes of the machines that the attempt has touched.

mod dump;
mod keep;
mod rollback;
mod success;
mod touched;

pub(super) use self::success::succeed;

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};

use super::Attempt;
use super::outcome::Phase;
use super::request::Origin;
use crate::model::failure::FailureKind;
use crate::model::ids::InstanceId;
use crate::modes::plane::listed;
use crate::ports::PortError;
use crate::runtime::stop::StopSignal;

/// How long a clean-up may go on after the process was told to stop. GitHub sends SIGTERM 7.5 s
/// after SIGINT and kills the process 2.5 s later.
const AFTER_STOP: Duration = Duration::from_secs(5);

/// What becomes of the machines that a failed attempt has touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Claimed machines return to the pool by the handshake, new ones are terminated.
    RollBack,
    /// All of them are terminated and their records deleted.
    Dump,
}

impl Ending {
    /// The ending of an attempt that failed like this in this phase. Only a contradiction that the
    /// program cannot explain leads to a dump, because then nothing is known about the machines.
    pub(super) fn of(failure: FailureKind, phase: Phase) -> Ending {
        match (failure, phase) {
            // The provider, the store, GitHub, a setting, another machine, or the run itself: none
            // of these says anything about a claimed machine.
            (
                FailureKind::InvalidInput
                | FailureKind::NotSetUp
                | FailureKind::Closed
                | FailureKind::NoCapacity
                | FailureKind::AtCeiling
                | FailureKind::AtSpendCap
                | FailureKind::NotReady
                | FailureKind::Unavailable
                | FailureKind::Busy
                | FailureKind::Forge
                | FailureKind::Interrupted
                | FailureKind::Stopped,
                Phase::Adoption
                | Phase::Selection
                | Phase::Creation
                | Phase::Validation
                | Phase::PostProvision,
            ) => Ending::RollBack,
            // A commit, or the renewal of an adopted machine, was refused: the run was released
            // meanwhile, or a threshold has passed. The records tell which machines the run still
            // has.
            (FailureKind::Unexpected, Phase::PostProvision) => Ending::RollBack,
            // For example, a machine that was launched just now has a record already.
            (
                FailureKind::Unexpected,
                Phase::Adoption | Phase::Selection | Phase::Creation | Phase::Validation,
            ) => Ending::Dump,
            // No provision fails with these.
            (
                FailureKind::InUse
                | FailureKind::PartlyReleased
                | FailureKind::WrongPermissions
                | FailureKind::FoundWarnings
                | FailureKind::FoundErrors
                | FailureKind::NotRecovered
                | FailureKind::Unreported,
                _,
            ) => Ending::Dump,
        }
    }
}

/// What a rollback or a dump did.
#[derive(Debug, Default)]
pub(super) struct CleanUp {
    pub(super) terminated: Vec<InstanceId>,
    pub(super) returned: Vec<InstanceId>,
    pub(super) kept: Vec<InstanceId>,
    /// Messages about what could not be undone.
    pub(super) failures: Vec<String>,
    /// Machines that are idle again and whose agents have not answered yet.
    returning: Vec<InstanceId>,
}

/// Cleans up after a failure and returns what was done. Once `stop` is raised, or if it was raised
/// before, the clean-up has [`AFTER_STOP`] left: what it has not finished by then is left to the
/// run's release, to refresh, and to thresholds.
pub(super) async fn clean_up(attempt: &Attempt<'_>, ending: Ending, stop: &StopSignal) -> CleanUp {
    let done = Progress::default();
    let work = async {
        let is_rescue = attempt.request.origin == Origin::Rescue;
        if is_rescue && !keep::keep_serving(attempt, &done).await {
            return touched::drop_spent_tickets(attempt).await;
        }
        match ending {
            Ending::RollBack => rollback::roll_back(attempt, &done).await,
            Ending::Dump => dump::dump(attempt, &done).await,
        }
    };
    let time_up = async {
        stop.raised().await;
        attempt.plane.clock.sleep(AFTER_STOP).await;
    };
    let finished = matches!(select(pin!(work), pin!(time_up)).await, Either::Left(_));
    let mut clean_up = done.into_inner();
    if !finished {
        clean_up.cut_short();
    }
    clean_up
}

/// What the messages of a clean-up begin with that its time has ended.
const CUT_SHORT: &str = "the clean-up did not finish within";
const TO_ANNOUNCE: &str = "refresh announces these when their agents have answered:";

/// Whether a message of [`Outcome::clean_up_failures`](super::Outcome::clean_up_failures) only says that
/// there was no time for the rest, which a release or a refresh finishes.
pub fn is_left_to_refresh(message: &str) -> bool {
    message.starts_with(CUT_SHORT) || message.starts_with(TO_ANNOUNCE)
}

impl CleanUp {
    fn cut_short(&mut self) {
        let after = AFTER_STOP.as_secs();
        self.failures
            .push(format!("{CUT_SHORT} {after} s, the run's release or refresh continues it"));
        if !self.returning.is_empty() {
            self.failures.push(format!("{TO_ANNOUNCE} {}", listed(&self.returning)));
        }
    }
}

/// The clean-up so far. It is kept outside the work, which may be dropped half-way.
#[derive(Debug, Default)]
struct Progress(Mutex<CleanUp>);

impl Progress {
    fn into_inner(self) -> CleanUp {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn terminated(&self, ids: impl IntoIterator<Item = InstanceId>) {
        let mut clean_up = self.inner();
        for id in ids {
            if !clean_up.terminated.contains(&id) {
                clean_up.terminated.push(id);
            }
        }
    }

    /// The machine is idle, and its agent has not answered yet.
    fn returning(&self, id: &InstanceId) {
        self.inner().returning.push(id.clone());
    }

    /// The handshake of a returning machine is over.
    fn answered(&self, id: &InstanceId) {
        self.inner().returning.retain(|returning| returning != id);
    }

    fn returned(&self, id: &InstanceId) {
        self.inner().returned.push(id.clone());
    }

    fn kept(&self, id: &InstanceId) {
        self.inner().kept.push(id.clone());
    }

    fn failed(&self, why: impl Into<String>) {
        self.inner().failures.push(why.into());
    }

    fn not_terminated(&self, failed: &[(InstanceId, PortError)]) {
        for (id, error) in failed {
            self.failed(format!("{id} was not terminated: {error}"));
        }
    }

    fn inner(&self) -> MutexGuard<'_, CleanUp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_explained_is_dumped() {
        use Phase::{Adoption, Creation, PostProvision, Selection, Validation};
        for kind in FailureKind::ALL {
            for phase in [Adoption, Selection, Creation, Validation, PostProvision] {
                let ending = match kind {
                    FailureKind::Unexpected if phase == PostProvision => Ending::RollBack,
                    FailureKind::Unexpected
                    | FailureKind::InUse
                    | FailureKind::PartlyReleased
                    | FailureKind::WrongPermissions
                    | FailureKind::FoundWarnings
                    | FailureKind::FoundErrors
                    | FailureKind::NotRecovered
                    | FailureKind::Unreported => Ending::Dump,
                    _ => Ending::RollBack,
                };
                assert_eq!(Ending::of(kind, phase), ending, "{kind:?} in {phase:?}");
            }
        }
    }
}
