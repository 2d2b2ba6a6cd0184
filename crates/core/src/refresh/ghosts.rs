//! Ghosts: runners that the forge still lists although their machine is gone.

use super::Outcome;
use super::survey::Survey;
use crate::failure::Failure;
use crate::plane::Plane;

pub(super) async fn strike(
    plane: &Plane,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let ghosts = survey.runners.iter().filter(|r| !r.online && !survey.knows(&r.instance));
    for runner in ghosts {
        plane.retried(|| plane.forge.remove_runner(&runner.name)).await?;
        tracing::info!(runner = runner.name, "struck from the forge's list: its machine is gone");
        outcome.ghosts.push(runner.name.clone());
    }
    Ok(())
}
