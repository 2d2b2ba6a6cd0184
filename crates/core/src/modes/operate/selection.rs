//! Which machines an order is about.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Order;
use crate::model::failure::Failure;
use crate::model::heartbeat::PROTOCOL;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::record::Record;
use crate::model::requirements::UsageClass;
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::{Listing, PortResult, RecordScope};

/// Which machines are meant. All conditions that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// These machines only; empty for all.
    pub ids: Vec<InstanceId>,
    pub class: Option<ResourceClass>,
    pub usage: Option<UsageClass>,
    /// Registered at least so long ago.
    pub older_than: Option<Duration>,
    /// Booted from another image than a launch would use now.
    pub old_image: bool,
    /// With an agent of an older protocol than this program's.
    pub old_agent: bool,
}

impl Selection {
    /// Whether the record satisfies the conditions that only a record is needed for.
    fn fits(&self, record: &Record, now: Timestamp) -> bool {
        let aged = |age: Duration| now.since(record.created_at) >= age;
        record.state.is_live()
            && self.class.as_ref().is_none_or(|class| record.spec.resource_class == *class)
            && self.usage.is_none_or(|usage| record.spec.usage_class == usage)
            && self.older_than.is_none_or(aged)
    }
}

pub(super) struct Selected {
    /// In the order of their ids.
    pub(super) machines: Vec<(Record, AgentStatus)>,
    pub(super) unknown: Vec<InstanceId>,
    /// Those that were named by id and cannot be read.
    pub(super) unreadable: Vec<InstanceId>,
    pub(super) warnings: Vec<String>,
}

/// Finds the machines. Those that were named by id are among them also if they are terminated.
pub(super) async fn select(plane: &Plane, order: &Order) -> Result<Selected, Failure> {
    let selection = &order.selection;
    // Also makes known by which settings the changes are decided.
    let settings = plane.settings().await?;
    let named: BTreeSet<&InstanceId> = selection.ids.iter().collect();
    let Listing { mut records, unreadable } = match named.is_empty() {
        true => plane.retried(|| plane.store.list(RecordScope::Live)).await?,
        false => {
            let ids: Vec<InstanceId> = named.iter().map(|id| (*id).clone()).collect();
            plane.retried(|| plane.store.records(&ids)).await?
        }
    };
    let is_known = |id: &InstanceId| {
        records.iter().any(|record| record.id == *id)
            || unreadable.iter().any(|row| row.id == id.as_str())
    };
    let is_unreadable = |id: &&InstanceId| unreadable.iter().any(|row| row.id == id.as_str());
    let left: Vec<InstanceId> = named.iter().copied().filter(is_unreadable).cloned().collect();
    let unknown = named.into_iter().filter(|id| !is_known(id)).cloned().collect();
    let mut warnings: Vec<String> =
        unreadable.iter().map(|row| format!("{row}; left as it is")).collect();
    let now = plane.now();
    let is_named = !selection.ids.is_empty();
    records.retain(|record| selection.fits(record, now) || (is_named && !record.state.is_live()));
    if selection.old_image {
        let current = plane.retried(|| plane.compute.current_image(&settings)).await?;
        let Some(current) = current else {
            return Err(Failure::invalid("machines of this provider have no images")
                .hint("select them in another way, such as by --older-than-min"));
        };
        let machines = plane.retried(|| plane.compute.machines()).await?;
        let images: BTreeMap<&InstanceId, &str> = machines
            .iter()
            .filter_map(|machine| Some((&machine.id, machine.image.as_deref()?)))
            .collect();
        let untold = records.iter().filter(|record| !images.contains_key(&record.id)).count();
        if untold > 0 {
            warnings
                .push(format!("machines whose image is not known, and that are left: {untold}"));
        }
        records.retain(|record| images.get(&record.id).is_some_and(|image| *image != current));
    }
    records.sort_by(|one, other| one.id.cmp(&other.id));
    let mut machines = beside_status(plane, records).await?;
    if selection.old_agent {
        let is_old = |status: &AgentStatus| {
            status.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.protocol < PROTOCOL)
        };
        machines.retain(|(_, status)| is_old(status));
    }
    Ok(Selected { machines, unknown, unreadable: left, warnings })
}

/// The records of these machines as they are now, each with what its agent wrote.
pub(super) async fn with_status(
    plane: &Plane,
    ids: &[InstanceId],
) -> Result<Vec<(Record, AgentStatus)>, Failure> {
    let found = plane.retried(|| plane.store.records(ids)).await?;
    Ok(beside_status(plane, found.records).await?)
}

async fn beside_status(
    plane: &Plane,
    records: Vec<Record>,
) -> PortResult<Vec<(Record, AgentStatus)>> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<InstanceId> = records.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    Ok(records.into_iter().zip(status).collect())
}
