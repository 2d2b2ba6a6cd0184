//! Dump, after a failure that nobody planned for, or when told to stop: whatever this attempt
//! touched is ended and its records deleted. Nothing here depends on how far the attempt had
//! come; what is ours is read from the store and from the provider.

use std::collections::BTreeSet;

use crate::ids::InstanceId;
use crate::intent::Intent;
use crate::lifecycle::{Instance, Live};
use crate::plane::readable;
use crate::ports::PortError;
use crate::provision::Attempt;

/// Ends everything. Gives what could not be ended, in words.
pub(in crate::provision) async fn dump(attempt: &Attempt<'_>) -> Vec<String> {
    let (touched, intents) = (attempt.holdings.touched(), attempt.holdings.intents());
    if touched.is_empty() && intents.is_empty() {
        return Vec::new();
    }
    match end_everything(attempt, touched, intents).await {
        Ok(leftovers) => leftovers,
        Err(error) => {
            vec![format!("the clear-up was cut short, deadlines will do the rest: {error}")]
        }
    }
}

async fn end_everything(
    attempt: &Attempt<'_>,
    mut touched: BTreeSet<InstanceId>,
    intents: Vec<Intent>,
) -> Result<Vec<String>, PortError> {
    let plane = attempt.plane;
    let launched = launched_by_us(attempt).await?;
    touched.extend(launched.iter().cloned());

    let listing = plane.retried(|| plane.store.of_run(&attempt.request.run)).await?;
    let ours: Vec<Instance<Live>> = readable(listing)
        .iter()
        .filter(|record| touched.contains(&record.id))
        .filter_map(Instance::believe)
        .collect();
    let failed = plane.retire_all(&ours, "dumped").await;

    let recorded: BTreeSet<&InstanceId> = ours.iter().map(Instance::id).collect();
    let unrecorded: Vec<InstanceId> =
        launched.into_iter().filter(|id| !recorded.contains(id)).collect();
    plane.terminate(&unrecorded).await?;

    let kept: BTreeSet<&InstanceId> = failed.iter().map(|(id, _)| id).collect();
    let dumped: Vec<InstanceId> =
        recorded.into_iter().filter(|id| !kept.contains(id)).cloned().collect();
    plane.retried(|| plane.store.remove(&dumped)).await?;
    for mut intent in intents {
        "dumped".clone_into(&mut intent.outcome);
        plane.retried(|| plane.store.put_intent(&intent)).await?;
    }
    Ok(failed.iter().map(|(id, error)| format!("{id} was not ended: {error}")).collect())
}

/// Machines that carry an intent of ours, registered or not.
async fn launched_by_us(attempt: &Attempt<'_>) -> Result<Vec<InstanceId>, PortError> {
    let intents = attempt.holdings.intent_ids();
    if intents.is_empty() {
        return Ok(Vec::new());
    }
    let machines = attempt.plane.retried(|| attempt.plane.compute.machines()).await?;
    let ours = machines.into_iter().filter(|machine| intents.contains(&machine.intent));
    Ok(ours.map(|machine| machine.id).collect())
}
