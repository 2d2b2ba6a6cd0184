//! Launches at a provider that may have too much to do. That passes, and says nothing of what is
//! to be had: it must send nobody from spot to on demand.

use super::fleet::{self, Fleet};
use crate::model::failure::{Failure, FailureKind};
use crate::model::requirements::UsageClass;
use crate::modes::provision::Attempt;
use crate::runtime::retry::{Pauses, Retry};

/// Launches up to `wanted` machines of one usage class, ordering the rest again while something
/// that passes stood in the way. Each order has an intent of its own: under the old one it would
/// only be given the old answer.
pub(super) async fn launch(
    attempt: &Attempt<'_>,
    usage: UsageClass,
    wanted: u32,
) -> Result<Fleet, Failure> {
    let plane = attempt.plane;
    let mut pauses = Pauses::new(&*plane.clock, &*plane.random, Retry::SHORT);
    let mut count = 0;
    loop {
        let fleet = fleet::launch(attempt, usage, wanted - count).await?;
        count += fleet.count.min(wanted - count);
        let Some(reason) = fleet.passing.first().filter(|_| count < wanted) else {
            return Ok(Fleet { count, ..fleet });
        };
        if pauses.another(reason).await {
            continue;
        }
        // Where some of it is really not to be had, that is the answer.
        return match fleet.shortfalls.is_empty() {
            true => Err(too_busy(count, wanted, reason)),
            false => Ok(Fleet { count, ..fleet }),
        };
    }
}

fn too_busy(launched: u32, wanted: u32, reason: &str) -> Failure {
    let message =
        format!("the provider was too busy, {launched} of {wanted} machines launched: {reason}");
    Failure::new(FailureKind::Busy, message).hint("retry in a few minutes")
}
