//! Sweep: machines of ours without a live record. They are what a control plane leaves behind
//! that died between launch and record, or between reap and terminate.

use std::collections::BTreeSet;

use super::Outcome;
use crate::failure::Failure;
use crate::ids::InstanceId;
use crate::plane::{Plane, readable};
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
    // A row that cannot be read may well be live: its machine is left to its own deadline.
    let mut known: BTreeSet<String> = listing.unreadable.iter().map(|row| row.id.clone()).collect();
    known.extend(readable(listing).iter().map(|record| record.id.to_string()));
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
