//! For tests only: stops the process before a port call, so that a test can kill it there.
//!
//! `ONDECK_HOLD_BEFORE` names the call: a transition (`claim`, `register`, …), or `launch`,
//! `put-settings`, `send`, `terminate`, or `delete-` and the kind of a resource, such as
//! `delete-table`; or `rename` and the name of a file that `ondeck init` writes. Before that call the
//! process prints a line on stderr, and waits for ever; other calls may be made beside it. Of several names,
//! separated by commas, each is held.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::lifecycle::{Change, Verdict};
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::demand::Demand;
use ondeck_core::model::ids::{InstanceId, InvalidId, ProviderName, ResourceClass, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::{EventRow, Record};
use ondeck_core::model::requirements::{Requirements, TypePatterns};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::summary::ProvisionSummary;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::{
    Compute, Depth, Infrastructure, Launched, Listing, Machine, Order, Pool, PortResult, Receipt,
    ReceivedMessage, RecordScope, Resource, Store,
};

/// Wraps the ports if `ONDECK_HOLD_BEFORE` is set.
pub(crate) fn wrap(plane: Plane) -> Plane {
    let Ok(point) = std::env::var("ONDECK_HOLD_BEFORE") else { return plane };
    let point: Arc<str> = point.into();
    Plane {
        store: Arc::new(Holding { inner: plane.store, point: point.clone() }),
        pool: Arc::new(Holding { inner: plane.pool, point: point.clone() }),
        compute: Arc::new(Holding { inner: plane.compute, point }),
        ..plane
    }
}

/// The same for what teardown deletes.
pub(crate) fn wrap_parts(parts: Vec<Arc<dyn Infrastructure>>) -> Vec<Arc<dyn Infrastructure>> {
    let Ok(point) = std::env::var("ONDECK_HOLD_BEFORE") else { return parts };
    let point: Arc<str> = point.into();
    let wrap = |inner| -> Arc<dyn Infrastructure> {
        Arc::new(Holding::<dyn Infrastructure> { inner, point: point.clone() })
    };
    parts.into_iter().map(wrap).collect()
}

/// Holds before a file gets its name.
#[cfg(feature = "init")]
pub(crate) fn before_rename(file: &std::path::Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let call = format!("rename {name}");
    if std::env::var("ONDECK_HOLD_BEFORE").is_ok_and(|point| point == call) {
        drop(writeln!(std::io::stderr(), "held before {call}"));
        loop {
            std::thread::park();
        }
    }
}

struct Holding<T: ?Sized> {
    point: Arc<str>,
    inner: Arc<T>,
}

impl<T: ?Sized> Holding<T> {
    async fn before(&self, call: &str) {
        if self.point.split(',').any(|point| point == call) {
            drop(writeln!(std::io::stderr(), "held before {}", self.point));
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for Holding<dyn Store> {
    async fn set_up(&self) -> PortResult<()> {
        self.inner.set_up().await
    }
    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.inner.settings().await
    }
    async fn put_settings(&self, settings: &BTreeMap<String, String>) -> PortResult<()> {
        self.before("put-settings").await;
        self.inner.put_settings(settings).await
    }
    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool> {
        self.inner.replace_setting(name, current, next).await
    }
    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        self.before(change.transition().as_str()).await;
        self.inner.write(change).await
    }
    fn deletion_command(&self, ids: &[InstanceId]) -> Option<String> {
        self.inner.deletion_command(ids)
    }
    fn wake(&self, ids: &[InstanceId]) {
        self.inner.wake(ids);
    }
    async fn prune_wake_ups(&self, existing: &[InstanceId], grace: Duration) -> PortResult<usize> {
        self.inner.prune_wake_ups(existing, grace).await
    }
    async fn write_all(&self, writes: &[(Change, Record)]) -> Vec<PortResult<Verdict>> {
        for (change, _) in writes {
            self.before(change.transition().as_str()).await;
        }
        self.inner.write_all(writes).await
    }
    async fn write_all_or_none(&self, changes: &[Change]) -> PortResult<bool> {
        for change in changes {
            self.before(change.transition().as_str()).await;
        }
        self.inner.write_all_or_none(changes).await
    }
    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        self.inner.of_run(run).await
    }
    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        self.inner.records(ids).await
    }
    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        self.inner.expired(now).await
    }
    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        self.inner.list(scope).await
    }
    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        self.inner.agent_status(ids).await
    }
    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        self.before("mark-ticketed").await;
        self.inner.mark_ticketed(tickets, at).await
    }
    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        self.inner.remove(ids).await
    }
    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        self.inner.forget(before).await
    }
    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()> {
        self.before("put-settings").await;
        self.inner.put_credentials(credentials, changes).await
    }
    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        self.inner.put_demand(demand).await
    }
    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool> {
        self.inner.replace_demand(current, next).await
    }
    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>> {
        self.inner.demands(runs).await
    }
    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        self.before(if intent.is_open() { "intent" } else { "close-intent" }).await;
        self.inner.put_intent(intent).await
    }
    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        self.inner.open_intents().await
    }
    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict> {
        self.before("reserve").await;
        self.inner.reserve(reservation, limits).await
    }
    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()> {
        self.before("settle-reservation").await;
        self.inner.settle_reservation(settlement).await
    }
    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>> {
        self.inner.hand_overs(since, until, most).await
    }
    async fn machine_count(&self) -> PortResult<Option<MachineCount>> {
        self.inner.machine_count().await
    }
    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool> {
        self.before("replace-machine-count").await;
        self.inner.replace_machine_count(version, count).await
    }
    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()> {
        self.before("put-summary").await;
        self.inner.put_summary(summary).await
    }
    async fn finish(&self) -> PortResult<()> {
        self.inner.finish().await
    }
}

#[async_trait]
impl Pool for Holding<dyn Pool> {
    async fn locate(&self, class: &ResourceClass) {
        self.inner.locate(class).await;
    }
    async fn receive_thoroughly(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        self.inner.receive_thoroughly(class, max, hold).await
    }
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()> {
        self.inner.set_up(classes).await
    }
    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        self.inner.receive(class, max, hold).await
    }
    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        self.inner.extend(class, receipts, hold).await
    }
    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        self.before("put-back").await;
        self.inner.put_back(class, receipts).await
    }
    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        self.before("delete").await;
        self.inner.delete(class, receipts).await
    }
    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        self.before("send").await;
        self.inner.send(tickets, delay).await
    }
    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        self.inner.depth(class).await
    }
}

#[async_trait]
impl Compute for Holding<dyn Compute> {
    async fn look_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        self.inner.look_up(settings).await
    }
    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        self.inner.set_up(settings).await
    }
    fn notice(&self, settings: &Settings) -> Option<String> {
        self.inner.notice(settings)
    }
    fn launchable(
        &self,
        requirements: &Requirements,
        settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        self.inner.launchable(requirements, settings, types)
    }

    fn default_types(&self) -> TypePatterns {
        self.inner.default_types()
    }
    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        self.inner.identity(name)
    }
    async fn launch(&self, order: &Order, settings: &Settings) -> PortResult<Launched> {
        self.before("launch").await;
        self.inner.launch(order, settings).await
    }
    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        self.before("terminate").await;
        self.inner.terminate(ids).await
    }
    async fn machines(&self) -> PortResult<Vec<Machine>> {
        self.inner.machines().await
    }
    async fn current_image(&self, settings: &Settings) -> PortResult<Option<String>> {
        self.inner.current_image(settings).await
    }
    fn listing_lag(&self) -> Duration {
        self.inner.listing_lag()
    }
}

#[async_trait]
impl Infrastructure for Holding<dyn Infrastructure> {
    async fn existing(&self, classes: &[ResourceClass]) -> PortResult<Vec<Resource>> {
        self.inner.existing(classes).await
    }
    async fn delete(&self, resource: &Resource) -> PortResult<()> {
        self.before(&format!("delete-{}", resource.kind.as_str().replace(' ', "-"))).await;
        self.inner.delete(resource).await
    }
}
