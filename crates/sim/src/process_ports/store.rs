//! The store, as a simulated process of the control plane reaches it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::lifecycle::{Change, Transition, Verdict};
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::demand::Demand;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::label::Label;
use ondeck_core::model::record::EventRow;
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::summary::ProvisionSummary;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Listing, PortResult, RecordScope, Store};

use super::{ProcessPorts, listed, named};
use crate::audit::{held_for, is_orphan};
use crate::faults::Fault;
use crate::kernel::{Micros, Pid};
use crate::policy::Policy;
use crate::world::{World, at_once};

/// What the store knows of a machine's agent.
pub(crate) fn status_of(world: &World, id: &InstanceId) -> AgentStatus {
    let status = at_once(world.store.agent_status(std::slice::from_ref(id)));
    status.ok().and_then(|mut status| status.pop()).unwrap_or_default()
}

/// What a run has asked for under this label.
pub(crate) fn demand_of(world: &World, label: &Label) -> Option<Demand> {
    let demands = at_once(world.store.demands(std::slice::from_ref(&label.run))).ok()?;
    demands.into_iter().find(|demand| demand.label() == *label)
}

/// The live machines that have registered, with the time that it took.
pub(crate) fn registered(world: &World) -> Vec<(InstanceId, Duration)> {
    let live = world.store.select(|record| record.state.is_live());
    let took = |id: &InstanceId| status_of(world, id).heartbeat?.registration;
    live.into_iter().filter_map(|record| Some((record.id.clone(), took(&record.id)?))).collect()
}

impl ProcessPorts {
    fn send_wake_up(&self, id: &InstanceId, after: Micros) {
        let (kernel, woken) = (self.world.kernel.clone(), id.clone());
        let arrive = move || {
            kernel.wake_up(&woken);
            String::new()
        };
        self.world.kernel.post(self.pid, ("wake up", id.to_string()), after, arrive);
    }
}

/// When the store's index shows a write that is made now.
fn shown_at(policy: &Policy, world: &World, item: &str, write: u64) -> Micros {
    let now = world.kernel.now();
    let lag = policy.index_lag(item, write, now);
    if lag > 0 {
        world.kernel.count(Fault::IndexLags);
    }
    now + lag
}

/// Makes a call that may change the count of machines, and tells the auditor what became of it.
fn watching_the_count<T>(w: &World, call: impl FnOnce() -> T) -> T {
    let count = || at_once(Store::machine_count(&w.store)).ok().flatten();
    let before = count();
    let answer = call();
    w.audit().count_changes(before.as_ref(), count().as_ref());
    answer
}

/// Makes a change, and tells the auditor.
fn make(w: &World, by: Pid, policy: &Policy, change: &Change) -> PortResult<Verdict> {
    let before = w.store.select(|record| record.id == *change.id()).pop();
    let has_job = w.machines().has_job(change.id());
    let verdict = at_once(w.store.write(change))?;
    if let Verdict::Agreed(after) = &verdict {
        let when = (change.at(), w.kernel.true_time());
        let condition = w.machines().condition(&after.id).cloned();
        let (transition, before) = (change.transition(), before.as_ref());
        w.audit().says_why(change);
        let status = status_of(w, &after.id);
        if transition == Transition::Claim {
            w.audit().claims(by, after, &status, when.1);
        }
        w.audit().gives_up(by, transition, before, (&status, has_job), when.1);
        w.audit().takes_from_job(by, transition, before, (has_job, when.1));
        if transition == Transition::Register && is_orphan(after) {
            let launched = w.compute.machine(after.id.as_str());
            let age = launched.map_or(Duration::MAX, |it| when.1.since(it.launched_at));
            w.audit().abandoned(&after.id, age);
        }
        let held_for = held_for(&status);
        let is_held = held_for.is_some() && held_for == after.run.as_ref();
        w.audit().keeps_for_job(transition, &after.id, is_held);
        w.audit().wrote(by, transition, before, after, when, condition.as_ref());
        let machines = w.machines();
        w.audit().rescue_gives(by, transition, after, &machines, when.1);
        drop(machines);
        w.kernel.record_changed(&after.id);
        let number = w.index().record_writes(&after.id);
        let shown_at = shown_at(policy, w, after.id.as_str(), number);
        w.index().write_record(after, shown_at);
    }
    Ok(verdict)
}

#[async_trait]
impl Store for ProcessPorts {
    async fn set_up(&self) -> PortResult<()> {
        self.ask("store", "set up store", String::new, |w| at_once(Store::set_up(&w.store))).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.ask("store", "settings", String::new, |w| at_once(Store::settings(&w.store))).await
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        let changes = changes.clone();
        let by = self.pid;
        let put = move |w: &World| {
            let before = at_once(Store::settings(&w.store)).unwrap_or_default();
            w.audit().stores_news(by, &changes, &before);
            let stored = at_once(w.store.put_settings(&changes));
            let usual = changes.get("registration-p95-ms").and_then(|text| text.parse().ok());
            if let Some(usual) = usual.map(Duration::from_millis) {
                let took = registered(w).into_iter().map(|(_, took)| took).collect();
                w.audit().stores_usual_time(usual, took);
            }
            let settings = at_once(Store::settings(&w.store));
            w.audit().stored_settings(by, &changes, &settings.unwrap_or_default(), w.kernel.now());
            stored
        };
        self.ask("store", "put settings", String::new, put).await
    }

    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool> {
        let [name, current, next] = [name, current, next].map(str::to_owned);
        let replace = move |w: &World| at_once(w.store.replace_setting(&name, &current, &next));
        self.ask("store", "replace setting", String::new, replace).await
    }

    /// The message of a process that dies is under way nevertheless.
    fn wake(&self, ids: &[InstanceId]) {
        for id in ids {
            let deliveries = self.policy.deliveries(id.as_str(), self.world.kernel.now());
            deliveries.faults.iter().for_each(|fault| self.world.kernel.count(*fault));
            for after in deliveries.after {
                self.send_wake_up(id, after);
            }
            let machines = self.world.machines().alive();
            let others: Vec<_> = machines.iter().filter(|other| *other != id).collect();
            if let Some(after) = deliveries.forged_after
                && let Some(other) = usize::try_from(after).unwrap_or(0).checked_rem(others.len())
            {
                self.send_wake_up(others[other], after);
            }
        }
    }

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        let change = change.clone();
        let text = {
            let change = change.clone();
            move || format!("{} {}", change.transition(), change.id())
        };
        let (policy, by) = (self.policy.clone(), self.pid);
        let write = move |w: &World| make(w, by, &policy, &change);
        self.ask("store", "write", text, write).await
    }

    async fn write_all_or_none(&self, changes: &[Change]) -> PortResult<bool> {
        let (changes, shown) = (changes.to_vec(), changes.to_vec());
        let text = move || {
            let each = shown.iter().map(|it| format!("{} {}", it.transition(), it.id()));
            each.collect::<Vec<_>>().join(", ")
        };
        let (policy, by) = (self.policy.clone(), self.pid);
        let write = move |w: &World| {
            let found = |change: &Change| w.store.select(|record| record.id == *change.id()).pop();
            if changes.iter().any(|change| change.applied_to(found(change).as_ref()).is_none()) {
                return Ok(false);
            }
            for change in &changes {
                make(w, by, &policy, change)?;
            }
            Ok(true)
        };
        self.ask("store", "write together", text, write).await
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        let (run, shown) = (run.clone(), run.clone());
        let ask = move |w: &World| at_once(w.store.of_run(&run));
        self.ask("store", "of run", move || shown.to_string(), ask).await
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let ask = move |w: &World| at_once(w.store.records(&ids));
        self.ask("store", "records", move || listed(&shown), ask).await
    }

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        let ask = move |w: &World| {
            let mut listing = at_once(w.store.expired(now))?;
            let (index, at) = (w.index(), w.kernel.now());
            listing.records.retain(|record| index.lists_expired(record, now, at));
            Ok(listing)
        };
        self.ask("store", "expired", String::new, ask).await
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        let ask = move |w: &World| {
            let mut listing = at_once(w.store.list(scope))?;
            let (index, at) = (w.index(), w.kernel.now());
            listing.records.retain(|record| index.lists_live(record, at));
            Ok(listing)
        };
        self.ask("store", "list", String::new, ask).await
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let by = self.pid;
        let ask = move |w: &World| {
            w.audit().reads_status(by);
            at_once(w.store.agent_status(&ids))
        };
        self.ask("store", "agent status", move || listed(&shown), ask).await
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        let (tickets, shown) = (tickets.to_vec(), tickets.to_vec());
        let mark = move |w: &World| {
            w.audit().marked_ticketed(&tickets, w.kernel.true_time());
            at_once(w.store.mark_ticketed(&tickets, at))
        };
        self.ask("store", "mark ticketed", move || named(&shown), mark).await
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let remove = move |w: &World| {
            let removed = at_once(w.store.remove(&ids));
            ids.iter().for_each(|id| w.kernel.record_changed(id));
            removed
        };
        self.ask("store", "remove", move || listed(&shown), remove).await
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        let by = self.pid;
        let forget = move |w: &World| {
            let forgotten = at_once(w.store.forget(before))?;
            w.audit().note_forgotten(by, forgotten);
            Ok(forgotten)
        };
        self.ask("store", "forget", String::new, forget).await
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        let (intent, shown) = (intent.clone(), intent.clone());
        let (policy, by) = (self.policy.clone(), self.pid);
        let put = move |w: &World| {
            w.audit().intended(&intent.id);
            if !intent.is_open() {
                w.audit().note_closed(by, &intent.id);
            }
            let write = u64::from(!intent.is_open());
            let shown_at = shown_at(&policy, w, intent.id.as_str(), write);
            w.index().write_intent(&intent.id, intent.is_open(), shown_at);
            at_once(w.store.put_intent(&intent))
        };
        self.ask("store", "put intent", move || format!("{} {}", shown.id, shown.outcome), put)
            .await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        let ask = |w: &World| {
            let mut intents = at_once(w.store.open_intents())?;
            let (index, at) = (w.index(), w.kernel.now());
            intents.retain(|intent| index.lists_open(&intent.id, at));
            Ok(intents)
        };
        self.ask("store", "open intents", String::new, ask).await
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict> {
        let (reservation, limits) = (reservation.clone(), *limits);
        let text = {
            let Reservation { intent, class, count, .. } = reservation.clone();
            move || format!("{count} {class} under {intent}")
        };
        let reserve = move |w: &World| {
            watching_the_count(w, || at_once(w.store.reserve(&reservation, &limits)))
        };
        self.ask("store", "reserve", text, reserve).await
    }

    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()> {
        let settlement = settlement.clone();
        let text = {
            let Settlement { intent, from, to, .. } = settlement.clone();
            move || format!("{from} to {to} under {intent}")
        };
        let settle = move |w: &World| {
            watching_the_count(w, || at_once(w.store.settle_reservation(&settlement)))
        };
        self.ask("store", "settle reservation", text, settle).await
    }

    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>> {
        let ask = move |w: &World| at_once(w.store.hand_overs(since, until, most));
        self.ask("store", "hand-overs", String::new, ask).await
    }

    async fn machine_count(&self) -> PortResult<Option<MachineCount>> {
        let ask = |w: &World| at_once(w.store.machine_count());
        self.ask("store", "machine count", String::new, ask).await
    }

    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool> {
        let (count, total) = (count.clone(), count.total);
        let replace = move |w: &World| {
            watching_the_count(w, || at_once(w.store.replace_machine_count(version, &count)))
        };
        self.ask("store", "replace machine count", move || total.to_string(), replace).await
    }

    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()> {
        let (credentials, changes) = (credentials.clone(), changes.clone());
        let by = self.pid;
        let put = move |w: &World| {
            let stored = at_once(w.store.put_credentials(&credentials, &changes));
            w.audit().stored_credentials(w.kernel.true_time(), credentials.expires_at);
            let settings = at_once(Store::settings(&w.store));
            w.audit().stored_settings(by, &changes, &settings.unwrap_or_default(), w.kernel.now());
            stored
        };
        self.ask("store", "put credentials", String::new, put).await
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        let demand = demand.clone();
        let put = move |w: &World| {
            w.audit().keeps_labels(demand_of(w, &demand.label()).as_ref(), &demand);
            at_once(w.store.put_demand(&demand))
        };
        self.ask("store", "put demand", String::new, put).await
    }

    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool> {
        let (current, next) = (current.cloned(), next.clone());
        let by = self.pid;
        let replace = move |w: &World| {
            let before = demand_of(w, &next.label());
            let replaced = at_once(w.store.replace_demand(current.as_ref(), &next))?;
            if replaced {
                w.audit().keeps_labels(before.as_ref(), &next);
            }
            if replaced && next.lease.is_some() {
                w.audit().begins_rescue(by, &next.label(), w.kernel.true_time());
            }
            Ok(replaced)
        };
        self.ask("store", "replace demand", String::new, replace).await
    }

    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()> {
        let (summary, shown) = (summary.clone(), summary.key());
        let put = move |w: &World| at_once(w.store.put_summary(&summary));
        self.ask("store", "put summary", move || shown, put).await
    }

    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>> {
        let (runs, shown) = (runs.to_vec(), runs.to_vec());
        let ask = move |w: &World| at_once(w.store.demands(&runs));
        self.ask("store", "demands", move || format!("{shown:?}"), ask).await
    }
}
