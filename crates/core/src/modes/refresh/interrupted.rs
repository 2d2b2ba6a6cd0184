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
    outcome.interrupted = interrupted.iter().map(|idle| idle.id().clone()).collect();
    outcome.interrupted.retain(|id| retired.ended(id));
    survey.live.retain(|record| !outcome.interrupted.contains(&record.id));
    match retired.failed.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }
}
