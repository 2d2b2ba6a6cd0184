//! Offline runners: listed by the forge although their machine is gone.

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::modes::plane::Plane;
use crate::ports::PortError;

pub(super) async fn remove(
    plane: &Plane,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let offline = survey.runners.iter().filter(|r| !r.online && !survey.knows(&r.instance));
    for runner in offline {
        match plane.retried(|| plane.forge.remove_runner(&runner.name)).await {
            Ok(()) => {}
            // GitHub refuses, for example, while it still waits for the job of a machine that was
            // taken away. The other runners are removed nevertheless; the next refresh retries.
            Err(PortError::Forge { reason, .. } | PortError::Limited { reason, .. }) => {
                outcome.warnings.push(reason);
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        tracing::info!(runner = runner.name, "offline runner removed: its machine is gone");
        outcome.offline_runners.push(runner.name.clone());
    }
    Ok(())
}
