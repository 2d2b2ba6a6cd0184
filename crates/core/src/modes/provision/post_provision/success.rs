//! Success: everything becomes `running`.

use futures_util::future::{join, join_all};

use crate::lifecycle::{Instance, Pending, Running};
use crate::model::failure::{Failure, FailureKind};
use crate::modes::plane::NotCommitted;
use crate::modes::provision::Attempt;

/// Commits the claimed machines and activates the created ones, all concurrently. Fails if the store
/// refuses one of them, unless the run owns it as `running` already.
pub(in crate::modes::provision) async fn succeed(attempt: &Attempt<'_>) -> Result<(), Failure> {
    let (now, max_runtime) = (attempt.plane.now(), attempt.times.max_runtime);
    let (claimed, created) = (attempt.holdings.claimed(), attempt.holdings.created());
    let commits =
        join_all(claimed.iter().map(|held| run(attempt, held.instance.commit(now, max_runtime))));
    let activations =
        join_all(created.iter().map(|held| run(attempt, held.instance.activate(now, max_runtime))));
    let (commits, activations) = join(commits, activations).await;
    commits.into_iter().chain(activations).collect()
}

async fn run(attempt: &Attempt<'_>, change: Pending<Running>) -> Result<(), Failure> {
    match attempt.plane.apply(change).await {
        Ok(_) => Ok(()),
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
