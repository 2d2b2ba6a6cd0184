//! Wake-ups: deletes what the store keeps to wake the agents of machines that are gone.

use std::collections::BTreeSet;

use super::survey::Survey;
use crate::model::ids::InstanceId;
use crate::modes::plane::Plane;

/// A machine that the provider does not list yet is spared by its age. A failure is a warning, which is
/// returned: what is left behind costs nothing, and the next refresh tries again.
pub(super) async fn prune(plane: &Plane, survey: &Survey) -> Option<String> {
    // Without a list of machines, nothing is known to be gone.
    if !survey.has_machines {
        return None;
    }
    let machines = survey.machines.iter().map(|machine| &machine.id);
    let live = survey.live.iter().map(|record| &record.id);
    let existing: BTreeSet<&InstanceId> = machines.chain(live).collect();
    let existing: Vec<InstanceId> = existing.into_iter().cloned().collect();
    let grace = plane.compute.listing_lag();
    match plane.retried(|| plane.store.prune_wake_ups(&existing, grace)).await {
        Ok(0) => None,
        Ok(count) => {
            tracing::info!(count, "deleted the wake-up queues of machines that are gone");
            None
        }
        Err(error) => {
            Some(format!("wake-up queues of machines that are gone are not deleted: {error}"))
        }
    }
}
