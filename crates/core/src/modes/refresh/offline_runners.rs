//! Ghosts: runners that the forge still lists although their machine is gone.

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
            // Such as one whose machine went in the middle of a job, for which the forge still
            // waits. It must not keep the others, and the next refresh meets it again.
            Err(PortError::Forge { reason, .. }) => {
                outcome.warnings.push(reason);
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        tracing::info!(runner = runner.name, "struck from the forge's list: its machine is gone");
        outcome.offline_runners.push(runner.name.clone());
    }
    Ok(())
}
