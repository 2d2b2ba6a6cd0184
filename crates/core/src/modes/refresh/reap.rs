//! Reap: terminates every instance past its threshold. The record comes first, and only machines
//! whose reap this call won are terminated, so that no machine of another run is.

use futures_util::future::join_all;

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
    let expired: Vec<Instance<Live>> =
        listing.records.iter().filter_map(Instance::believe).collect();
    let reaps = expired.iter().map(|instance| {
        let why = match instance.reuse() {
            Reuse::Preserved => "kept for debugging long enough".to_owned(),
            Reuse::Always | Reuse::Never => format!("{} for too long", instance.state()),
        };
        plane.apply(instance.reap(now).because(why))
    });
    let mut won: Vec<InstanceId> = Vec::new();
    let mut unreachable = None;
    for result in join_all(reaps).await {
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
