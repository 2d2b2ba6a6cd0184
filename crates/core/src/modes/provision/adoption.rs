//! Adoption: the machines that the run already owns count. This makes provision idempotent: a second
//! attempt of the same run gets the machines of the first.

use super::Attempt;
use crate::lifecycle::{Instance, Running};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::record::Record;
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::modes::plane::readable;

/// Adopts the run's `running` machines that match the request, have a fresh heartbeat and are
/// registered.
///
/// Machines that are still `created` or `claimed` for the run are left alone: another provision of
/// the run may be working on them. If it was killed, their threshold or the run's release expires
/// them.
pub(super) async fn adopt(attempt: &Attempt<'_>) -> Result<(), Failure> {
    let plane = attempt.plane;
    let listing = plane.retried(|| plane.store.of_run(&attempt.request.run)).await?;
    let now = plane.now();
    let candidates: Vec<Instance<Running>> = readable(listing)
        .iter()
        .filter(|record| !record.is_expired(now))
        .filter(|record| fits(attempt, record))
        .filter_map(Instance::believe)
        .collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = candidates.iter().map(|c| c.id().clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    for (instance, status) in candidates.into_iter().zip(status) {
        if attempt.missing() > 0 && is_at_work(attempt, &status) {
            tracing::info!(instance = %instance.id(), "adopted");
            attempt.holdings.adopt(instance, plane.clock.steady());
        }
    }
    Ok(())
}

/// Whether the machine matches the request. With the capacity fallback, any usage class does.
fn fits(attempt: &Attempt<'_>, record: &Record) -> bool {
    let mut requirements = attempt.requirements.clone();
    if attempt.request.options.capacity_fallback {
        requirements.usage = record.spec.usage_class;
    }
    requirements.mismatch(&record.spec).is_none()
}

fn is_at_work(attempt: &Attempt<'_>, status: &AgentStatus) -> bool {
    let pulse = status.pulse(attempt.plane.now());
    let registered = |report: &crate::model::signal::Report| {
        report.says(Signal::Registered, &attempt.request.run)
    };
    pulse == Pulse::Healthy && status.report.as_ref().is_some_and(registered)
}
