//! Creation: launches the machines that the pool could not provide, all or nothing.

mod busy;
mod fleet;
mod validation;

pub(super) use self::validation::validate;
pub(in crate::modes) use self::validation::{Registered, readiness, registered};

use super::Attempt;
use crate::model::failure::{Failure, FailureKind};
use crate::model::requirements::UsageClass;

/// Launches `wanted` machines with one order. If the request allows the capacity fallback, the
/// missing machines are ordered once more, and spot ones finally on demand. An order that the
/// provider throttled is repeated first and does not count as lack of capacity.
///
/// Fails with `NoCapacity` if machines are still missing, and with `Busy` if the provider keeps
/// throttling.
pub(super) async fn create(attempt: &Attempt<'_>, wanted: u32) -> Result<(), Failure> {
    let mut missing = wanted;
    let mut shortfalls = Vec::new();
    for usage in tries(attempt) {
        let fleet = busy::launch(attempt, usage, missing).await?;
        missing = missing.saturating_sub(fleet.count);
        shortfalls = fleet.shortfalls;
        if missing == 0 {
            return Ok(());
        }
    }
    Err(no_capacity(attempt, wanted - missing, wanted, &shortfalls))
}

fn tries(attempt: &Attempt<'_>) -> Vec<UsageClass> {
    let usage = attempt.request.options.usage;
    match (attempt.request.options.capacity_fallback, usage) {
        (false, _) => vec![usage],
        (true, UsageClass::OnDemand) => vec![usage, usage],
        (true, UsageClass::Spot) => vec![usage, usage, UsageClass::OnDemand],
    }
}

fn no_capacity(
    attempt: &Attempt<'_>,
    launched: u32,
    wanted: u32,
    shortfalls: &[String],
) -> Failure {
    let reason = match shortfalls.first() {
        Some(reason) => reason.as_str(),
        None => "the provider gave no reason",
    };
    let hint = if attempt.request.options.capacity_fallback {
        "allow more instance types, or a smaller resource class"
    } else {
        "allow more instance types, or use --capacity-fallback"
    };
    let message =
        format!("not enough capacity, {launched} of {wanted} machines launched: {reason}");
    Failure::new(FailureKind::NoCapacity, message).hint(hint)
}
