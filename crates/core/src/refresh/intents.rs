//! Intents of which nobody has said what came: their provision did not live to say it.

use super::Outcome;
use crate::failure::Failure;
use crate::ids::InstanceId;
use crate::intent::Intent;
use crate::plane::{Plane, known_ids};
use crate::ports::Scope;

/// Ends the machines of overdue intents that have no live record, and settles the intents.
pub(super) async fn settle(plane: &Plane, outcome: &mut Outcome) -> Result<(), Failure> {
    let now = plane.now();
    let open = plane.retried(|| plane.store.open_intents()).await?;
    let overdue: Vec<Intent> = open.into_iter().filter(|i| i.deadline <= now).collect();
    if overdue.is_empty() {
        return Ok(());
    }
    let machines = plane.retried(|| plane.compute.machines()).await?;
    let known = known_ids(plane.retried(|| plane.store.list(Scope::Live)).await?);
    for mut intent in overdue {
        let orphans: Vec<InstanceId> = machines
            .iter()
            .filter(|machine| machine.intent == intent.id && !known.contains(machine.id.as_str()))
            .map(|machine| machine.id.clone())
            .collect();
        plane.terminate(&orphans).await?;
        intent.outcome = format!("abandoned, {} machines ended by refresh", orphans.len());
        plane.retried(|| plane.store.put_intent(&intent)).await?;
        tracing::info!(intent = %intent.id, run = %intent.run, "{}", intent.outcome);
        outcome.swept.extend(orphans);
        outcome.intents += 1;
    }
    Ok(())
}
