//! Reap: terminates every instance past its threshold. The record comes first, and only machines
//! whose reap this call won are terminated, so that no machine of another run is.

use super::Outcome;
use crate::lifecycle::{Instance, Live};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::reuse::Reuse;
use crate::modes::plane::{NotCommitted, Plane};

pub(super) async fn reap(plane: &Plane, outcome: &mut Outcome) -> Result<(), Failure> {
    let now = plane.now();
    let listing = plane.retried(|| plane.store.expired(now)).await?;
    // Unreadable rows are reported by the survey that follows.
    let expired = listing.records.into_iter().filter_map(|record| {
        let instance = Instance::<Live>::believe(&record)?;
        let why = match instance.reuse() {
            Reuse::Preserved => "kept for debugging long enough".to_owned(),
            Reuse::Always | Reuse::Never => format!("{} for too long", instance.state()),
        };
        Some((instance.reap(now).because(why), record))
    });
    let reaps = plane.apply_all(expired.collect()).await;
    let mut won: Vec<InstanceId> = Vec::new();
    let mut unreachable = None;
    for result in reaps {
        match result {
            Ok(terminated) => won.push(terminated.id().clone()),
            Err(NotCommitted::Refused(_)) => {}
            Err(NotCommitted::Unreachable(error)) => unreachable = Some(error),
        }
    }
    // Machines whose reap was won are terminated even if the store failed for others.
    plane.terminate(&won).await?;
    outcome.reaped = won;
    match unreachable {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
