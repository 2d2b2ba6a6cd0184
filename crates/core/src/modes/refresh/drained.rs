//! Drained machines: terminates idle instances that an operator has drained while a run had them, if
//! their release did not.

use super::Outcome;
use super::survey::Survey;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::record::Record;
use crate::model::signal::Report;
use crate::modes::handshake::DRAINED;
use crate::modes::plane::Plane;

/// Retires the drained instances among the idle ones whose agents have left their last run, and takes
/// them out of the survey.
pub(super) async fn terminate(
    plane: &Plane,
    survey: &mut Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    let is_free = |record: &&Record| {
        let status = survey.idle_status.get(&record.id);
        let free = |report: &Report| report.is_free_in(record.counts.generation, None);
        let report = status.and_then(|status| status.report.as_ref());
        record.ticketed_at.is_some() || report.is_some_and(free)
    };
    let drained = survey.live.iter().filter(|record| record.departure.is_drained());
    let drained = drained.filter(|record| !record.is_expired(now)).filter(is_free);
    let idle: Vec<Instance<Idle>> = drained.filter_map(Instance::believe).collect();
    let retired = plane.retire_all(&idle, DRAINED).await;
    let gone: Vec<InstanceId> =
        idle.iter().map(|idle| idle.id().clone()).filter(|id| retired.ended(id)).collect();
    survey.live.retain(|record| !gone.contains(&record.id));
    // The release that they were waiting for, or another refresh, reports those that it has reaped.
    let by_this = |id: &InstanceId| retired.reaped.contains(id);
    outcome.rotated.extend(gone.into_iter().filter(by_this));
    match retired.failed.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }
}
