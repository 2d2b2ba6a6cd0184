//! The audit of a drill: compares what the store, the provider, the agents and GitHub say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Expectation, Violation};
use crate::inputs::times::Times;
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{Record, State};
use crate::model::signal::{AgentStatus, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::doctor::ForgeAccess;
use crate::modes::operate::tickets::{ClassTickets, Truth};
use crate::modes::plane::{Plane, readable};
use crate::ports::{ListedRunner, Machine, PortResult, RecordScope};

/// One reading of the pool. Records were read before and after the machines, so that one that was
/// registered or ended meanwhile is seen as it is.
#[derive(Debug, Clone)]
pub struct Look {
    pub(super) now: Timestamp,
    pub(super) live: Vec<(Record, AgentStatus)>,
    machines: Vec<Machine>,
    runners: Vec<ListedRunner>,
}

impl Look {
    /// Reads the pool. Fails if the store or the provider does not answer.
    pub async fn take(plane: &Plane, forge: &ForgeAccess<'_>) -> PortResult<Look> {
        let listed = readable(plane.retried(|| plane.store.list(RecordScope::Live)).await?);
        let machines = plane.retried(|| plane.compute.machines()).await?;
        let runners = match forge {
            ForgeAccess::Open(forge) => plane.retried(|| forge.runners()).await?,
            ForgeAccess::Closed(_) | ForgeAccess::OfProvider => Vec::new(),
        };
        let known: BTreeSet<&InstanceId> = listed.iter().map(|record| &record.id).collect();
        let up: BTreeSet<&InstanceId> = machines.iter().map(|machine| &machine.id).collect();
        let again: Vec<InstanceId> = known.symmetric_difference(&up).copied().cloned().collect();
        let mut records: BTreeMap<InstanceId, Record> =
            listed.iter().map(|record| (record.id.clone(), record.clone())).collect();
        if !again.is_empty() {
            again.iter().for_each(|id| drop(records.remove(id)));
            let found = readable(plane.retried(|| plane.store.records(&again)).await?);
            records.extend(found.into_iter().map(|record| (record.id.clone(), record)));
        }
        records.retain(|_, record| record.state.is_live());
        let ids: Vec<InstanceId> = records.keys().cloned().collect();
        let status = match ids.is_empty() {
            true => Vec::new(),
            false => plane.retried(|| plane.store.agent_status(&ids)).await?,
        };
        let live = records.into_values().zip(status).collect();
        Ok(Look { now: plane.now(), live, machines, runners })
    }

    /// Whether the provider lists the machine.
    pub(super) fn lists(&self, id: &InstanceId) -> bool {
        self.machines.iter().any(|machine| machine.id == *id)
    }

    /// The live record of the machine.
    pub(super) fn record(&self, id: &InstanceId) -> Option<&Record> {
        self.live.iter().map(|(record, _)| record).find(|record| record.id == *id)
    }
}

/// What belongs to the drill.
pub(super) struct Own<'a> {
    pub(super) name: &'a str,
    /// The machines that its runs have had.
    pub(super) machines: &'a BTreeSet<InstanceId>,
}

impl Own<'_> {
    fn owns(&self, run: &RunId) -> bool {
        run.as_str().starts_with(self.name)
    }
}

/// What is wrong with the pool. `lag`: how long after its launch a machine is listed at the latest.
pub(super) fn audit(
    look: &Look,
    own: &Own<'_>,
    (times, lag): (&Times, Duration),
) -> Vec<Violation> {
    let mut found: Vec<Violation> = Vec::new();
    let mut add = |expectation, about: &dyn ToString, what: String| {
        found.push(Violation { expectation, about: about.to_string(), what });
    };
    for (record, status) in &look.live {
        let id = &record.id;
        if let Some(run) = record.run.as_ref().filter(|run| own.owns(run)) {
            let what = format!("{id} is {} for run {run}", record.state);
            add(Expectation::NothingOwned, id, what);
        }
        if record.is_expired(look.now) {
            // Refresh ends it, on its schedule.
            continue;
        }
        if look.now.since(record.created_at) > lag && !look.lists(id) {
            let what = format!("{id} is {}, and its provider does not list it", record.state);
            add(Expectation::MachineForEachRecord, id, what);
        }
        if let Some(other) = registered_for_another(record, status) {
            let of = record.run.as_ref().map_or("no run".to_owned(), |run| format!("run {run}"));
            let what = format!("{id} is registered for run {other}, and its record names {of}");
            add(Expectation::OneOwner, id, what);
        }
    }
    // A machine that never gets a record terminates itself at its boot deadline.
    let grace = times.boot_deadline.max(times.self_termination_grace);
    let live: BTreeSet<&InstanceId> = look.live.iter().map(|(record, _)| &record.id).collect();
    for machine in look.machines.iter().filter(|machine| !live.contains(&machine.id)) {
        let age = look.now.since(machine.launched_at);
        if own.machines.contains(&machine.id) || age > grace {
            let what = format!("{} has no live record, and its provider lists it", machine.id);
            add(Expectation::NoOrphan, &machine.id, what);
        }
    }
    for runner in look.runners.iter().filter(|runner| !runner.online) {
        let id = &runner.instance;
        if own.machines.contains(id) && !live.contains(id) {
            let what = format!("runner {} is offline, and its machine is gone", runner.name);
            add(Expectation::NoOfflineRunner, &runner.name, what);
        }
    }
    found
}

/// The run that the agent says to be registered for, if its record does not name that run.
fn registered_for_another<'a>(record: &Record, status: &'a AgentStatus) -> Option<&'a RunId> {
    let report = status.report.as_ref().filter(|it| it.signal == Signal::Registered)?;
    report.run.as_ref().filter(|run| record.run.as_ref() != Some(run))
}

/// What is wrong with the tickets of a class.
pub(super) fn audit_tickets(look: &Look, tickets: &ClassTickets, own: &Own<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for seen in tickets.tickets.iter().filter(|seen| seen.truth == Truth::True) {
        let Some(id) = seen.ticket.as_ref().map(|ticket| &ticket.instance_id) else { continue };
        if look.record(id).is_some_and(|record| record.state == State::Idle) && !look.lists(id) {
            found.push(Violation {
                expectation: Expectation::NoTicketForDeadMachine,
                about: id.to_string(),
                what: format!("a ticket announces {id}, which its provider does not list"),
            });
        }
    }
    for id in tickets.unannounced.iter().filter(|id| own.machines.contains(*id)) {
        found.push(Violation {
            expectation: Expectation::Announced,
            about: id.to_string(),
            what: format!("{id} is idle and has no ticket"),
        });
    }
    found
}

#[cfg(test)]
mod tests;
