//! Intents that are still open after their deadline, because their provision died before it could
//! close them.

use super::survey::Survey;
use super::{Outcome, orphans};
use crate::model::failure::Failure;
use crate::model::intent::Intent;
use crate::modes::plane::Plane;
use crate::ports::{Machine, PortResult};

/// Terminates the machines of overdue intents that have no live record, and closes the intents. `open`
/// are those that were open when the machines were listed.
pub(super) async fn settle(
    plane: &Plane,
    survey: &Survey,
    open: PortResult<Vec<Intent>>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    for mut intent in open?.into_iter().filter(|intent| intent.deadline <= now) {
        let (ended, left): (Vec<&Machine>, Vec<&Machine>) = survey
            .orphans()
            .filter(|machine| machine.intent == intent.id)
            // The step for orphans may have terminated some of them just now.
            .partition(|machine| outcome.orphans.contains(&machine.id));
        let left = orphans::terminate_all(plane, &left).await?;
        let terminated = ended.len() + left.len();
        intent.outcome = format!("abandoned, machines terminated by refresh: {terminated}");
        plane.retried(|| plane.store.put_intent(&intent)).await?;
        tracing::info!(intent = %intent.id, run = %intent.run, "{}", intent.outcome);
        outcome.orphans.extend(left);
        outcome.settled_intents += 1;
    }
    Ok(())
}
