//! One reading of machines, runners and records, on which the later steps of a refresh decide.
//!
//! The list of live records is read once, before the others. The records of machines and runners that
//! it lacks are read afterwards, consistently: the list may lag, and is a little older. A machine that
//! is registered meanwhile is therefore seen with its record and not taken for an orphan. Machines and
//! runners are listed while expired instances are reaped, so that list may have machines that were
//! terminated meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join;

use super::{Outcome, keep_first};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::record::Record;
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::{ListedRunner, Listing, Machine, PortResult};

pub(crate) struct Survey {
    /// Before the first list was asked for.
    pub(super) taken_at: Timestamp,
    /// Whether the provider has listed its machines.
    pub(super) has_machines: bool,
    pub(crate) machines: Vec<Machine>,
    pub(crate) runners: Vec<ListedRunner>,
    /// Every readable record that is not terminated.
    pub(crate) live: Vec<Record>,
    /// What agents of idle machines had written when the interrupted ones were looked for.
    pub(super) idle_status: BTreeMap<InstanceId, AgentStatus>,
    known: BTreeSet<String>,
    /// Those of the machines and runners without a live record that have a terminated one.
    terminated: BTreeSet<InstanceId>,
}

/// The machines and the runners, or why they are not known.
pub(crate) struct Lists {
    /// Before the first list was asked for.
    taken_at: Timestamp,
    machines: PortResult<Vec<Machine>>,
    runners: PortResult<Vec<ListedRunner>>,
}

impl Lists {
    /// Reads them. The live records must have been listed before.
    pub(crate) async fn read(plane: &Plane) -> Lists {
        let taken_at = plane.now();
        let machines = plane.retried(|| plane.compute.machines());
        let runners = plane.retried(|| plane.forge.runners());
        let (machines, runners) = join(machines, runners).await;
        Lists { taken_at, machines, runners }
    }
}

impl Survey {
    /// Joins the live records in `listing` with `lists`. Machines that this refresh has reaped count as
    /// gone. If the provider or the forge has not answered, its list is empty, so that no machine counts as
    /// an orphan; the failure goes to `failure`. Fails if the store does not answer.
    pub(crate) async fn take(
        plane: &Plane,
        listing: PortResult<Listing>,
        lists: Lists,
        outcome: &mut Outcome,
        failure: &mut Option<Failure>,
    ) -> Result<Survey, Failure> {
        let mut listing = listing?;
        let Lists { taken_at, machines, runners } = lists;
        let has_machines = machines.is_ok();
        let mut machines = or_none(failure, machines);
        let reaped: BTreeSet<&InstanceId> = outcome.reaped.iter().collect();
        machines.retain(|machine| !reaped.contains(&machine.id));
        let runners = or_none(failure, runners);
        let unlisted = unlisted(&listing, &machines, &runners);
        let mut terminated = BTreeSet::new();
        if !unlisted.is_empty() {
            let found = plane.retried(|| plane.store.records(&unlisted)).await?;
            let (live, ended): (Vec<Record>, Vec<Record>) =
                found.records.into_iter().partition(|record| record.state.is_live());
            listing.records.extend(live);
            terminated.extend(ended.into_iter().map(|record| record.id));
            listing.unreadable.extend(found.unreadable);
        }
        outcome.warnings.extend(listing.unreadable.iter().map(|row| format!("{row}; skipped")));
        // An unreadable row may be live, so its machine is left to its own deadline.
        let mut known: BTreeSet<String> =
            listing.unreadable.into_iter().map(|row| row.id).collect();
        known.extend(listing.records.iter().map(|record| record.id.to_string()));
        outcome.machines = has_machines.then_some(machines.len());
        let (live, idle_status) = (listing.records, BTreeMap::new());
        Ok(Survey {
            taken_at,
            has_machines,
            machines,
            runners,
            live,
            idle_status,
            known,
            terminated,
        })
    }

    /// The machines without a live record.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|machine| !self.knows(&machine.id))
    }

    /// Whether the instance has a live record, or one that cannot be read and may be live.
    pub(crate) fn knows(&self, instance: &InstanceId) -> bool {
        self.known.contains(instance.as_str())
    }

    /// Whether the instance has left this pool, as its terminated record says. Nothing follows from
    /// `false`: a record is deleted some time after its machine is terminated.
    pub(super) fn has_left(&self, instance: &InstanceId) -> bool {
        self.terminated.contains(instance)
    }
}

/// The instances that the provider or the forge knows and the listing does not.
fn unlisted(listing: &Listing, machines: &[Machine], runners: &[ListedRunner]) -> Vec<InstanceId> {
    let listed: BTreeSet<&str> = listing
        .records
        .iter()
        .map(|record| record.id.as_str())
        .chain(listing.unreadable.iter().map(|row| row.id.as_str()))
        .collect();
    let known = machines.iter().map(|machine| &machine.id);
    let known = known.chain(runners.iter().map(|runner| &runner.instance));
    let unlisted: BTreeSet<&InstanceId> =
        known.filter(|id| !listed.contains(id.as_str())).collect();
    unlisted.into_iter().cloned().collect()
}

fn or_none<T>(failure: &mut Option<Failure>, found: PortResult<Vec<T>>) -> Vec<T> {
    found.unwrap_or_else(|error| {
        keep_first(failure, Err(error.into()));
        Vec::new()
    })
}
