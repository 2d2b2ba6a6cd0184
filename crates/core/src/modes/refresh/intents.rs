//! Intents of which nobody has said what came: their provision did not live to say it.

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::modes::plane::Plane;

/// Ends the machines of overdue intents that have no live record, and settles the intents.
pub(super) async fn settle(
    plane: &Plane,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    let open = plane.retried(|| plane.store.open_intents()).await?;
    for mut intent in open.into_iter().filter(|intent| intent.deadline <= now) {
        let orphans: Vec<InstanceId> = survey
            .machines
            .iter()
            .filter(|machine| machine.intent == intent.id && !survey.knows(&machine.id))
            .map(|machine| machine.id.clone())
            .collect();
        // What the sweep has just ended needs no second ending.
        let left: Vec<InstanceId> =
            orphans.iter().filter(|id| !outcome.orphans.contains(id)).cloned().collect();
        plane.terminate(&left).await?;
        intent.outcome = format!("abandoned, machines terminated by refresh: {}", orphans.len());
        plane.retried(|| plane.store.put_intent(&intent)).await?;
        tracing::info!(intent = %intent.id, run = %intent.run, "{}", intent.outcome);
        outcome.orphans.extend(left);
        outcome.settled_intents += 1;
    }
    Ok(())
}
