//! A claim worker: takes a candidate, claims it, checks it, and starts over where either fails.

use super::checks;
use super::pickup::{Candidate, Pickup};
use crate::failure::Failure;
use crate::lifecycle::{Claimed, Instance};
use crate::plane::NotCommitted;
use crate::provision::Attempt;
use crate::signs::Lookout;

/// Works until one machine is claimed and checked, or the pool has none for this run.
pub(super) async fn worker(
    attempt: &Attempt<'_>,
    pickup: &Pickup<'_>,
    lookout: &Lookout<'_>,
) -> Result<(), Failure> {
    while let Some(candidate) = pickup.next().await? {
        if let Some(claimed) = claim(attempt, pickup, &candidate).await? {
            match checks::pass(attempt, lookout, &claimed).await? {
                Ok(()) => {
                    attempt.holdings.claim(claimed, attempt.plane.now());
                    return Ok(());
                }
                Err(why) => discard(attempt, &claimed, &why).await?,
            }
        }
        pickup.ask_again().await;
    }
    Ok(())
}

/// The atomic claim. Either way the ticket is done with: the instance is ours, or the refusal
/// has shown that it is gone, past its time, or somebody else's.
async fn claim(
    attempt: &Attempt<'_>,
    pickup: &Pickup<'_>,
    candidate: &Candidate,
) -> Result<Option<Instance<Claimed>>, Failure> {
    let plane = attempt.plane;
    attempt.holdings.about_to_touch(candidate.idle.id());
    let change =
        candidate.idle.claim(&attempt.request.run, plane.now(), attempt.times.claim_timeout);
    let claimed = match pickup.holding(candidate, plane.commit(change)).await {
        Ok(claimed) => Some(claimed),
        Err(NotCommitted::Refused(refused)) => {
            if let Some(row) = &refused.unreadable {
                tracing::warn!("{row}; its ticket is dropped");
            }
            attempt.holdings.not_touched(candidate.idle.id());
            None
        }
        Err(NotCommitted::Unreachable(error)) => return Err(error.into()),
    };
    pickup.delete(candidate).await;
    Ok(claimed)
}

/// A machine that fails its checks is ended: whatever ails it, the next run would meet it too.
async fn discard(
    attempt: &Attempt<'_>,
    claimed: &Instance<Claimed>,
    why: &str,
) -> Result<(), Failure> {
    let (plane, id) = (attempt.plane, claimed.id());
    tracing::warn!(instance = %id, "discarded: {why}");
    if plane.bury(claimed, why).await?.is_some()
        && let Err(error) = plane.terminate(std::slice::from_ref(id)).await
    {
        // Off the books, nobody will be given it, and the sweep or its deadline ends it.
        tracing::warn!(instance = %id, "not ended yet: {error}");
    }
    Ok(())
}
