//! Ghosts: runners that the forge still lists although their machine is gone.

use std::collections::BTreeSet;

use super::Outcome;
use crate::failure::Failure;
use crate::ids::InstanceId;
use crate::plane::{Plane, readable};
use crate::ports::{ListedRunner, Scope};

pub(super) async fn strike(plane: &Plane, outcome: &mut Outcome) -> Result<(), Failure> {
    let listed = plane.retried(|| plane.forge.runners()).await?;
    let offline: Vec<ListedRunner> = listed.into_iter().filter(|runner| !runner.online).collect();
    if offline.is_empty() {
        return Ok(());
    }
    let live = readable(plane.retried(|| plane.store.list(Scope::Live)).await?);
    let live: BTreeSet<&InstanceId> = live.iter().map(|record| &record.id).collect();
    for runner in offline.into_iter().filter(|runner| !live.contains(&runner.instance)) {
        plane.retried(|| plane.forge.remove_runner(&runner.name)).await?;
        tracing::info!(runner = runner.name, "struck from the forge's list: its machine is gone");
        outcome.ghosts.push(runner.name);
    }
    Ok(())
}
