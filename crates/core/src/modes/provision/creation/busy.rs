//! Launches at a provider that throttles requests. Throttling passes and tells nothing about
//! capacity, so it must not cause a fallback from spot to on demand.

use super::fleet::{self, Fleet};
use crate::model::failure::{Failure, FailureKind};
use crate::model::requirements::UsageClass;
use crate::model::summary::WaitCause;
use crate::modes::provision::Attempt;
use crate::runtime::retry::{Pauses, Retry};

/// Launches up to `wanted` machines of one usage class, and orders the missing ones again while the
/// provider reports passing errors. Each order has its own intent, because an order with a used
/// intent gets the earlier answer again. Fails with `Busy` when the retries are used up.
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
        let from = plane.clock.steady();
        if pauses.another(reason).await {
            let span = (from, plane.clock.steady());
            attempt.journal.waited(span, WaitCause::Provider, reason);
            continue;
        }
        // A lack of capacity counts, even if the provider throttled as well.
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
