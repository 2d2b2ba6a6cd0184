//! Orphans: machines of this pool without a live record. They remain when a control plane dies
//! between launch and register, or between reap and terminate.

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::settings::Settings;
use crate::modes::plane::Plane;

/// Terminates the orphans that were launched longer ago than the grace.
pub(super) async fn terminate(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    let grace = settings.times.self_termination_grace;
    let orphans: Vec<InstanceId> = survey
        .machines
        .iter()
        .filter(|machine| !survey.knows(&machine.id) && machine.launched_at + grace <= now)
        .map(|machine| machine.id.clone())
        .collect();
    plane.terminate(&orphans).await?;
    outcome.orphans.extend(orphans);
    Ok(())
}
