//! Interrupted machines: terminates idle instances that their provider takes away, so that no run
//! claims one. A machine that a run has is left to the run's release, which reports it.

use super::Outcome;
use super::survey::Survey;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::signal::INTERRUPTED;
use crate::modes::plane::Plane;

/// Retires the interrupted instances among the idle ones, and takes them out of the survey.
pub(super) async fn retire(
    plane: &Plane,
    survey: &mut Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    let live = survey.live.iter().filter(|record| !record.is_expired(now));
    let idle: Vec<Instance<Idle>> = live.filter_map(Instance::believe).collect();
    if idle.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = idle.iter().map(|idle| idle.id().clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    survey.idle_status = ids.into_iter().zip(status.iter().cloned()).collect();
    let interrupted = idle.into_iter().zip(status).filter(|(_, status)| status.is_interrupted());
    let interrupted: Vec<Instance<Idle>> = interrupted.map(|(idle, _)| idle).collect();
    let retired = plane.retire_all(&interrupted, INTERRUPTED).await;
    let ids = interrupted.iter().map(|idle| idle.id().clone());
    let mut gone: Vec<InstanceId> = ids.filter(|id| retired.ended(id)).collect();
    survey.live.retain(|record| !gone.contains(&record.id));
    // Another process reports those that it has reaped.
    gone.retain(|id| retired.reaped.contains(id));
    outcome.interrupted = gone;
    match retired.failed.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }
}
