//! A claim worker: takes a candidate, claims it, checks it, and starts over if either fails.

use futures_util::future::join;

use super::checks;
use super::pickup::{Candidate, Pickup};
use crate::lifecycle::{Claimed, Instance};
use crate::model::failure::Failure;
use crate::modes::agent_watch::AgentWatch;
use crate::modes::plane::NotCommitted;
use crate::modes::provision::Attempt;
use crate::modes::provision::holdings::Moments;

/// Works until one machine is claimed and checked, or the pool is exhausted for this run. Fails if
/// the store or the pool does not answer.
pub(super) async fn worker(
    attempt: &Attempt<'_>,
    pickup: &Pickup<'_>,
    watch: &AgentWatch<'_>,
) -> Result<(), Failure> {
    while let Some(candidate) = pickup.next().await? {
        // The ticket is not needed any more in either case: the instance is claimed, or the refusal
        // has shown that it is gone, expired, or owned by another run.
        match claim(attempt, pickup, &candidate).await? {
            Some(claimed) => {
                let plane = attempt.plane;
                let owned = plane.clock.steady();
                let checks = checks::pass(attempt, watch, &claimed);
                match join(checks, pickup.delete(&candidate)).await.0? {
                    Ok(registered) => {
                        let moments = Moments {
                            found: Some(candidate.found),
                            owned,
                            registered: Some(plane.steady_at(registered)),
                            ready: Some(plane.clock.steady()),
                        };
                        attempt.holdings.claim(claimed, moments);
                        return Ok(());
                    }
                    Err(why) => {
                        attempt.holdings.searching(|search| search.unhealthy += 1);
                        discard(attempt, &claimed, &why).await?;
                    }
                }
            }
            None => pickup.delete(&candidate).await,
        }
        pickup.ask_again().await;
    }
    Ok(())
}

/// Makes the claim, the one write that decides which run gets the machine. Returns `None` if the
/// store refuses it.
async fn claim(
    attempt: &Attempt<'_>,
    pickup: &Pickup<'_>,
    candidate: &Candidate,
) -> Result<Option<Instance<Claimed>>, Failure> {
    let plane = attempt.plane;
    attempt.holdings.about_to_touch(candidate.idle.id());
    let change =
        candidate.idle.claim(&attempt.request.run, plane.now(), attempt.times.claim_timeout);
    match pickup.holding(candidate, plane.apply(change)).await {
        Ok(claimed) => Ok(Some(claimed)),
        Err(NotCommitted::Refused(refused)) => {
            if let Some(row) = &refused.unreadable {
                tracing::warn!("{row}; its ticket is dropped");
            }
            attempt.holdings.not_touched(candidate.idle.id());
            let taken = refused.found.as_ref().is_some_and(|found| found.run.is_some());
            attempt.holdings.searching(
                |search| {
                    if taken { search.lost += 1 } else { search.void += 1 }
                },
            );
            Ok(None)
        }
        Err(NotCommitted::Unreachable(error)) => Err(error.into()),
    }
}

/// Terminates a machine that failed its checks, because it would fail the next run as well.
async fn discard(
    attempt: &Attempt<'_>,
    claimed: &Instance<Claimed>,
    why: &str,
) -> Result<(), Failure> {
    let (plane, id) = (attempt.plane, claimed.id());
    tracing::warn!(instance = %id, "discarded: {why}");
    if plane.expire_and_reap(claimed, why).await?.is_some()
        && let Err(error) = plane.terminate(std::slice::from_ref(id)).await
    {
        // Its record is terminated, so no run can claim it. Refresh or its deadline terminates it.
        tracing::warn!(instance = %id, "not terminated yet: {error}");
    }
    Ok(())
}
