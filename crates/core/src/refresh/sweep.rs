//! Sweep: machines of ours without a live record. They are what a control plane leaves behind
//! that died between launch and record, or between reap and terminate.

use super::Outcome;
use crate::failure::Failure;
use crate::ids::InstanceId;
use crate::plane::{Plane, known_ids};
use crate::ports::Scope;
use crate::settings::Settings;

pub(super) async fn sweep(
    plane: &Plane,
    settings: &Settings,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    // Machines first: one that is registered in between is then seen with its record.
    let machines = plane.retried(|| plane.compute.machines()).await?;
    if machines.is_empty() {
        return Ok(());
    }
    let listing = plane.retried(|| plane.store.list(Scope::Live)).await?;
    let known = known_ids(listing);
    let now = plane.now();
    let grace = settings.times.self_termination_grace;
    let orphans: Vec<InstanceId> = machines
        .into_iter()
        .filter(|machine| !known.contains(machine.id.as_str()))
        .filter(|machine| machine.launched_at + grace <= now)
        .map(|machine| machine.id)
        .collect();
    plane.terminate(&orphans).await?;
    outcome.swept.extend(orphans);
    Ok(())
}
