//! Dump, after a failure that the program cannot explain: terminates every machine that this attempt
//! touched and deletes the records. It does not depend on how far the attempt came: it reads from
//! the store and the provider which machines belong to it.

use std::collections::BTreeSet;

use crate::lifecycle::{Instance, Live};
use crate::model::ids::InstanceId;
use crate::modes::provision::Attempt;
use crate::ports::PortResult;

use super::Progress;
use super::touched::{drop_spent_tickets, recorded, undo_launches};

/// Terminates what the attempt touched. Never fails: what could not be done is among the failures
/// of the result.
pub(super) async fn dump(attempt: &Attempt<'_>, done: &Progress) {
    drop_spent_tickets(attempt).await;
    let ended = end_recorded(attempt, done).await.unwrap_or_else(|error| {
        done.failed(format!(
            "the clean-up is incomplete and left to the machines' deadlines: {error}"
        ));
        BTreeSet::new()
    });
    let handed_over = undo_launches(attempt, "dumped", &ended, done).await;
    let handed_over: Vec<Instance<Live>> =
        handed_over.iter().filter_map(Instance::believe).collect();
    let retired = attempt.plane.retire_all(&handed_over, "dumped").await;
    done.terminated(retired.reaped.iter().cloned());
    done.not_terminated(&retired.failed);
}

/// Returns the machines that it found, terminated or not.
async fn end_recorded(attempt: &Attempt<'_>, done: &Progress) -> PortResult<BTreeSet<InstanceId>> {
    let touched = attempt.holdings.touched();
    if touched.is_empty() {
        return Ok(touched);
    }
    let plane = attempt.plane;
    let records = recorded(attempt, &touched).await?;
    let ours: Vec<Instance<Live>> = records.iter().filter_map(Instance::believe).collect();
    let mut retired = plane.retire_all(&ours, "dumped").await;
    // A write that was on its way may have changed them.
    let run = Some(&attempt.request.run);
    let changed = retired.alive.extract_if(.., |record| record.run.as_ref() == run);
    let changed: Vec<Instance<Live>> =
        changed.filter_map(|record| Instance::believe(&record)).collect();
    let again = plane.retire_all(&changed, "dumped").await;
    retired.failed.extend(again.failed);
    retired.alive.extend(again.alive);
    done.not_terminated(&retired.failed);
    let dumped: Vec<InstanceId> =
        ours.iter().map(Instance::id).filter(|id| retired.ended(id)).cloned().collect();
    done.terminated(dumped.iter().cloned());
    if let Err(error) = plane.retried(|| plane.store.remove(&dumped)).await {
        done.failed(format!("records of terminated machines were not deleted: {error}"));
    }
    Ok(ours.iter().map(|instance| instance.id().clone()).collect())
}
