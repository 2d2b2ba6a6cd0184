//! Rollback, after an expected failure: new machines are terminated. Claimed ones return to the pool
//! by the same handshake as in release, because their runners are registered for this run.

use futures_util::future::{join, join_all};

use crate::lifecycle::{Claimed, Created, Instance};
use crate::modes::handshake::{Handshake, Returned};
use crate::modes::plane::NotCommitted;
use crate::modes::provision::Attempt;

use super::CleanUp;

/// Returns claimed machines to the pool and terminates created ones.
pub(in crate::modes::provision) async fn roll_back(attempt: &Attempt<'_>) -> CleanUp {
    let created: Vec<Instance<Created>> =
        attempt.holdings.created().into_iter().map(|held| held.instance).collect();
    let claimed = attempt.holdings.claimed();
    let handshake = Handshake::new(attempt.plane, &attempt.times);
    let returns = claimed.iter().map(|held| give_back(attempt, &handshake, &held.instance));
    let ends = attempt.plane.retire_all(&created, "the run could not be served");
    let (returned, not_ended) = join(join_all(returns), ends).await;
    let mut clean_up = CleanUp::default();
    for (held, not_returned) in claimed.iter().zip(returned) {
        match not_returned {
            None => clean_up.returned.push(held.instance.id().clone()),
            Some(why) => clean_up.failures.push(why),
        }
    }
    let ended = created.iter().map(Instance::id);
    clean_up
        .terminated
        .extend(ended.filter(|id| !not_ended.iter().any(|(n, _)| n == *id)).cloned());
    let not_ended = not_ended.iter().map(|(id, error)| format!("{id} was not terminated: {error}"));
    clean_up.failures.extend(not_ended);
    clean_up
}

/// Returns one machine to the pool. The result is the reason if it did not get there.
async fn give_back(
    attempt: &Attempt<'_>,
    handshake: &Handshake<'_>,
    claimed: &Instance<Claimed>,
) -> Option<String> {
    let plane = attempt.plane;
    let change = claimed
        .give_back(plane.now(), attempt.times.idle_time)
        .because("the run could not be served");
    let idle = match plane.apply(change).await {
        Ok(idle) => idle,
        Err(NotCommitted::Refused(refused)) => return Some(refused.to_string()),
        Err(NotCommitted::Unreachable(error)) => {
            return Some(format!("{} was not given back: {error}", claimed.id()));
        }
    };
    match handshake.take_back(&idle, &attempt.request.run).await {
        Ok(Returned::Pooled { .. } | Returned::Terminated { .. } | Returned::Superseded(_)) => None,
        Ok(Returned::Expired(why)) => Some(format!("{} was expired: {why}", claimed.id())),
        Err(error) => Some(format!("{} is not in the pool yet: {error}", claimed.id())),
    }
}
