//! Reap: every live record past its threshold. The store first; then the machines of those
//! whose reap was won, so that nobody ends a machine that somebody else has just been given.

use futures_util::future::join_all;

use super::Outcome;
use crate::lifecycle::{Instance, Live};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::modes::plane::{NotCommitted, Plane};

pub(super) async fn reap(plane: &Plane, outcome: &mut Outcome) -> Result<(), Failure> {
    let now = plane.now();
    let listing = plane.retried(|| plane.store.expired(now)).await?;
    // Rows that cannot be read are reported with the survey that follows.
    let expired: Vec<Instance<Live>> =
        listing.records.iter().filter_map(Instance::believe).collect();
    let reaps = expired.iter().map(|instance| {
        let why = format!("{} for too long", instance.state());
        plane.commit(instance.reap(now).because(why))
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
    // Those that were won are ended even if the store gave out half-way.
    plane.terminate(&won).await?;
    outcome.reaped = won;
    match unreachable {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
