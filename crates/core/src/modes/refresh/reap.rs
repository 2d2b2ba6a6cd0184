//! Reap: terminates every instance past its threshold. The record comes first, and only machines
//! whose reap this call won are terminated, so that no machine of another run is.

use std::collections::BTreeSet;

use super::Outcome;
use crate::lifecycle::{Instance, Live};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::record::Record;
use crate::model::reuse::Reuse;
use crate::modes::plane::{NotCommitted, Plane};
use crate::ports::Listing;

/// Reaps what has expired among the live records, and leaves in the list what is alive then. Returns
/// the classes of the machines that were reaped. Unreadable rows stay, and the survey reports them.
pub(super) async fn reap(
    plane: &Plane,
    live: &mut Listing,
    outcome: &mut Outcome,
) -> Result<BTreeSet<ResourceClass>, Failure> {
    let now = plane.now();
    let records = std::mem::take(&mut live.records);
    let (expired, rest): (Vec<Record>, Vec<Record>) =
        records.into_iter().partition(|record| record.is_expired(now));
    live.records = rest;
    let reaps: Vec<_> = expired
        .into_iter()
        .filter_map(|record| {
            let instance = Instance::<Live>::believe(&record)?;
            let why = match instance.reuse() {
                Reuse::Preserved => "kept for debugging long enough".to_owned(),
                Reuse::Always | Reuse::Never => format!("{} for too long", instance.state()),
            };
            Some((instance.reap(now).because(why), record))
        })
        .collect();
    let asked: Vec<Record> = reaps.iter().map(|(_, record)| record.clone()).collect();
    let mut won: Vec<InstanceId> = Vec::new();
    let mut classes = BTreeSet::new();
    let mut unreachable = None;
    for (record, result) in asked.into_iter().zip(plane.apply_all(reaps).await) {
        match result {
            Ok(_) => {
                won.push(record.id);
                classes.insert(record.spec.resource_class);
            }
            Err(NotCommitted::Refused(refused)) => {
                live.records.extend(refused.found.filter(|found| found.state.is_live()));
            }
            Err(NotCommitted::Unreachable(error)) => {
                live.records.push(record);
                unreachable = Some(error);
            }
        }
    }
    // Machines whose reap was won are terminated even if the store failed for others.
    plane.terminate(&won).await?;
    outcome.reaped = won;
    match unreachable {
        Some(error) => Err(error.into()),
        None => Ok(classes),
    }
}
