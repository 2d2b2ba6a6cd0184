//! Intents that are still open after their deadline, because their provision died before it could
//! close them.

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::modes::plane::Plane;

/// Terminates the machines of overdue intents that have no live record, and closes the intents.
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
        // The step for orphans may have terminated some of them just now.
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
