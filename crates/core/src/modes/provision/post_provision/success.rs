//! Success: everything becomes `running`.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::lifecycle::{Instance, Pending, Running};
use crate::model::failure::{Failure, FailureKind};
use crate::modes::plane::NotCommitted;
use crate::modes::provision::Attempt;

/// How long a run whose machines are handed over waits for its summary to be stored.
const SUMMARY_PATIENCE: Duration = Duration::from_millis(50);

/// Commits the claimed machines and activates the created ones, all together, but for those that the
/// request leaves to a refresh. Fails if the store refuses one of them, unless the run owns it as
/// `running` already.
pub(in crate::modes::provision) async fn succeed(attempt: &Attempt<'_>) -> Result<(), Failure> {
    let (now, max_runtime) = (attempt.plane.now(), attempt.times.max_runtime);
    let (claimed, mut created) = (attempt.holdings.claimed(), attempt.holdings.created());
    created.retain(|_| !attempt.request.leaves_new);
    let commits = claimed
        .iter()
        .map(|held| held.instance.commit(now, max_runtime).naming(held.label.clone()));
    let activations = created
        .iter()
        .map(|held| held.instance.activate(now, max_runtime).naming(held.label.clone()));
    let changes: Vec<Pending<Running>> = commits.chain(activations).collect();
    attempt.holdings.hands_over();
    let made = beside_summary(attempt, attempt.plane.apply_together(changes)).await;
    made.into_iter().try_for_each(|made| accept(attempt, made))
}

/// Makes the last writes while the summary is stored, which therefore costs no round trip of its own. If
/// it takes longer, it has [`SUMMARY_PATIENCE`] left.
async fn beside_summary<T>(attempt: &Attempt<'_>, writes: impl Future<Output = T>) -> T {
    let plane = attempt.plane;
    let summary = attempt.handing_over();
    match select(pin!(writes), pin!(summary.store(plane))).await {
        Either::Left((made, storing)) => {
            select(storing, plane.clock.sleep(SUMMARY_PATIENCE)).await;
            made
        }
        Either::Right(((), writes)) => writes.await,
    }
}

fn accept(attempt: &Attempt<'_>, made: Result<(), NotCommitted>) -> Result<(), Failure> {
    match made {
        Ok(()) => Ok(()),
        Err(NotCommitted::Refused(refused)) => {
            // Another provision of the same run may have committed it first.
            let running = refused.found.as_ref().and_then(Instance::<Running>::believe);
            match running {
                Some(running) if running.run() == Some(&attempt.request.run) => Ok(()),
                _ => Err(Failure::new(FailureKind::Unexpected, refused.to_string()).hint(
                    "the run was released meanwhile, or its machines passed their threshold",
                )),
            }
        }
        Err(NotCommitted::Unreachable(error)) => Err(error.into()),
    }
}
