//! Sweep: machines of ours without a live record. They are what a control plane leaves behind
//! that died between launch and record, or between reap and terminate.

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::settings::Settings;
use crate::modes::plane::Plane;

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
