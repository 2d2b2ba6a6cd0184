//! A store in memory that counts what the adapter for DynamoDB would consume for the same calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join_all};
use ondeck_core::lifecycle::{Change, Guard, Next, RunGuard, Verdict};
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::demand::Demand;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::{EventRow, Record};
use ondeck_core::model::settings::INDEX_SHARDS;
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::summary::ProvisionSummary;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{AgentStore, Clock, Listing, PortResult, RecordScope, Store};
use ondeck_core::runtime::batcher::Batcher;
use ondeck_core::testkit::MemoryStore;

use super::layout::{
    ListEntry, ListIndex, events_by_run, events_list, key, list_key, plain_key, read_units,
    set_bytes, settings_bytes, shard_key, summaries_list, write_units,
};
use super::meter::{Meter, MeteredKey, Units};

/// The most keys of one batched read, and of one batched write.
const READ_AT_ONCE: usize = 100;
const WRITE_AT_ONCE: usize = 25;
const TRANSACTION_ITEMS: usize = 100;
/// The largest page of a query.
const PAGE_BYTES: usize = 1 << 20;
/// How long a process relies on a note that a machine is about to become a run's.
const RELIED_ON: Duration = Duration::from_secs(60);

/// What takes time beside the counting: each wave of calls that are under way together.
#[async_trait]
pub trait Pace: Send + Sync {
    /// Returns when this number of calls to DynamoDB have been answered.
    async fn dynamodb(&self, calls: usize);
    /// A record was written.
    fn written(&self, _record: &Record) {}
    /// Adds what is not played to what an agent has written.
    fn complete(&self, _status: &mut AgentStatus) {}
}

/// Calls that take no time.
#[derive(Debug, Clone, Copy)]
pub struct AtOnce;

#[async_trait]
impl Pace for AtOnce {
    async fn dynamodb(&self, _calls: usize) {}
}

/// The table that all processes share.
pub struct MeteredTable {
    pub(super) records: MemoryStore,
    pub(super) meter: Meter,
    clock: Arc<dyn Clock>,
    pace: Arc<dyn Pace>,
    index: Mutex<ListIndex>,
    sets: Mutex<HashMap<RunId, BTreeSet<InstanceId>>>,
}

impl MeteredTable {
    pub fn new(clock: Arc<dyn Clock>, meter: Meter, pace: Arc<dyn Pace>) -> Arc<MeteredTable> {
        let records = MemoryStore::default();
        let (index, sets) = (Mutex::default(), Mutex::default());
        Arc::new(MeteredTable { records, meter, clock, pace, index, sets })
    }

    pub(super) fn charge(&self, key: MeteredKey, units: Units) {
        self.meter.charge(self.clock.steady(), key, units);
    }

    /// Counts calls of one operation, and waits for their answers.
    pub(super) async fn calls(&self, operation: &'static str, times: usize) {
        self.meter.count(operation, times);
        self.pace.dynamodb(times).await;
    }

    /// Moves an item in the index.
    fn list(&self, item: &str, sk: &str, entry: Option<ListEntry>) {
        self.list_for(1.0, item, sk, entry);
    }

    /// Moves an item in the index, at this many units for each write.
    fn list_for(&self, units: f64, item: &str, sk: &str, entry: Option<ListEntry>) {
        let written = locked(&self.index).put(item, sk, entry);
        for key in written {
            self.charge(key, Units::writes(units));
        }
    }

    /// Puts a record that no process has written into the table, at no cost.
    pub(super) fn insert(&self, record: Record, shards: u32) {
        let entry = place_of(&record, shards);
        locked(&self.index).put(&record_item(&record.id), "RECORD", Some(entry));
        self.records.insert(record);
    }
}

impl std::fmt::Debug for MeteredTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MeteredTable")
    }
}

/// The table, as one process of the control plane uses it.
#[derive(Debug)]
pub struct MeteredStore {
    table: Arc<MeteredTable>,
    shards: AtomicU32,
    notes: Batcher<(RunId, InstanceId), ()>,
    claims: Batcher<Change, PortResult<Verdict>>,
    noted: Mutex<HashMap<(RunId, InstanceId), Timestamp>>,
    /// Events that are not written yet.
    events: AtomicUsize,
}

impl MeteredStore {
    pub fn new(table: &Arc<MeteredTable>) -> MeteredStore {
        MeteredStore {
            table: table.clone(),
            shards: AtomicU32::new(1),
            notes: Batcher::default(),
            claims: Batcher::default(),
            noted: Mutex::default(),
            events: AtomicUsize::new(0),
        }
    }

    fn shards(&self) -> u32 {
        self.shards.load(Ordering::Relaxed).max(1)
    }

    async fn read(&self, kind: &'static str, ids: impl Iterator<Item = String>) {
        let mut count = 0_usize;
        for id in ids {
            count += 1;
            self.table.charge(key(kind, id), read_units(0, true));
        }
        if count > 0 {
            self.table.calls("BatchGetItem", count.div_ceil(READ_AT_ONCE)).await;
        }
    }

    async fn query(&self, list: &str, bound: Option<&str>) {
        let mut pages = 0;
        for shard in 0..self.shards() {
            let list = shard_key(list, shard);
            let (bytes, _) = locked(&self.table.index).query(&list, bound);
            pages += bytes.div_ceil(PAGE_BYTES).max(1);
            self.table.charge(list, read_units(bytes, false));
        }
        self.table.calls("Query", pages).await;
    }

    /// Notes that a machine is about to become a run's. Those who do so at the same time share a
    /// write.
    async fn note(&self, run: &RunId, id: &InstanceId, at: Timestamp) -> PortResult<()> {
        let place = (run.clone(), id.clone());
        if locked(&self.noted).get(&place).is_some_and(|noted| at.since(*noted) < RELIED_ON) {
            return Ok(());
        }
        self.notes.ask(place.clone(), |notes| self.write_notes(notes)).await?;
        locked(&self.noted).insert(place, at);
        Ok(())
    }

    async fn write_notes(&self, notes: Vec<(RunId, InstanceId)>) -> PortResult<Vec<()>> {
        let count = notes.len();
        let mut runs: BTreeMap<RunId, Vec<InstanceId>> = BTreeMap::new();
        for (run, id) in notes {
            runs.entry(run).or_default().push(id);
        }
        self.table.calls("UpdateItem", runs.len()).await;
        for (run, ids) in runs {
            self.add_to_set(&run, &ids.into_iter().collect(), 1.0);
        }
        Ok(vec![(); count])
    }

    /// Adds to the set of a run, at this many times the units of a write by itself.
    fn add_to_set(&self, run: &RunId, ids: &BTreeSet<InstanceId>, times: f64) {
        let mut sets = locked(&self.table.sets);
        let set = sets.entry(run.clone()).or_default();
        set.extend(ids.iter().cloned());
        let bytes = set_bytes(run.as_str(), set.iter().map(InstanceId::as_str));
        drop(sets);
        let Units { writes, .. } = write_units(bytes);
        self.table.charge(key("RUN", run), Units::writes(times * writes));
    }

    fn add_event(&self, units: f64, change: &Change, before: Option<&Record>, after: &Record) {
        let (id, units) = (change.id(), Units::writes(units));
        let table = &self.table;
        table.charge(key("EVENT", id), units);
        table.charge(list_key(&events_list(change.at()), id.as_str(), self.shards()), units);
        let concerns = after.run.as_ref().or_else(|| before.and_then(|it| it.run.as_ref()));
        if let Some(run) = concerns {
            table.charge(events_by_run(run.as_str()), units);
        }
    }

    /// Counts an event that is written later, with others.
    fn batch_event(&self) {
        if (self.events.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(WRITE_AT_ONCE) {
            // The adapter writes a full batch beside what the mode does.
            self.table.meter.count("BatchWriteItem", 1);
        }
    }

    /// Makes a change whose call is counted already, at this many units for each write of its own and of
    /// its event.
    async fn apply(&self, (units, of_event): (f64, f64), change: &Change) -> PortResult<Verdict> {
        let before = AgentStore::record(&self.table.records, change.id()).await?;
        let verdict = self.table.records.write(change).await?;
        self.table.charge(key("INSTANCE", change.id()), Units::writes(units));
        if let Verdict::Agreed(after) = &verdict {
            let entry = place_of(after, self.shards());
            self.table.list_for(units, &record_item(&after.id), "RECORD", Some(entry));
            self.add_event(of_event, change, before.as_ref(), after);
            self.table.pace.written(after);
        }
        Ok(verdict)
    }

    /// Makes a change whose call is counted already, and writes its event with others later.
    async fn apply_alone(&self, change: &Change) -> PortResult<Verdict> {
        self.apply_with_event_later(1.0, change).await
    }

    async fn apply_with_event_later(&self, units: f64, change: &Change) -> PortResult<Verdict> {
        let verdict = self.apply((units, 1.0), change).await?;
        if let Verdict::Agreed(_) = &verdict {
            self.batch_event();
        }
        Ok(verdict)
    }

    async fn note_joined(&self, change: &Change) -> PortResult<()> {
        match joined_run(change) {
            Some(run) => self.note(run, change.id(), change.at()).await,
            None => Ok(()),
        }
    }

    /// Makes claims that are asked for at the same moment, in one transaction with the set of their run, in
    /// which a write costs twice. Their records are read beside it. If one of them is lost, the transaction
    /// is in vain, and the others are made in batches after the set is written.
    async fn claim_all(&self, changes: Vec<Change>) -> PortResult<Vec<PortResult<Verdict>>> {
        let ids: BTreeSet<InstanceId> = changes.iter().map(|it| it.id().clone()).collect();
        let runs: BTreeSet<&RunId> = changes.iter().filter_map(joined_run).collect();
        let is_one = runs.len() == 1 && ids.len() == changes.len();
        let fits = is_one && changes.len() < TRANSACTION_ITEMS;
        let read = self.read("INSTANCE", ids.iter().map(ToString::to_string));
        let transact = async {
            if fits {
                self.table.calls("TransactWriteItems", 1).await;
            }
        };
        join(read, transact).await;
        let mut lost = Vec::new();
        for change in &changes {
            let before = AgentStore::record(&self.table.records, change.id()).await?;
            lost.push(change.applied_to(before.as_ref()).is_none());
        }
        if let (Some(run), true, false) = (runs.first(), fits, lost.contains(&true)) {
            self.add_to_set(run, &ids, 2.0);
            let noted = changes.iter().map(|it| (((*run).clone(), it.id().clone()), it.at()));
            locked(&self.noted).extend(noted);
            let mut verdicts = Vec::new();
            for change in &changes {
                verdicts.push(self.apply_with_event_later(2.0, change).await);
            }
            return Ok(verdicts);
        }
        if let (Some(run), true) = (runs.first(), fits) {
            // It is billed all the same.
            self.add_to_set(run, &BTreeSet::new(), 2.0);
            for id in &ids {
                self.table.charge(key("INSTANCE", id), Units::writes(2.0));
            }
        }
        let rest = changes.iter().zip(&lost).filter(|(_, lost)| !(fits && **lost));
        let rest: Vec<&Change> = rest.map(|(change, _)| change).collect();
        let noted = join_all(rest.iter().map(|change| self.note_joined(change))).await;
        match rest.len() {
            0 => {}
            1 => self.table.calls("UpdateItem", 1).await,
            count => {
                let calls = count.div_ceil(WRITE_AT_ONCE);
                self.table.calls("BatchExecuteStatement", calls).await;
            }
        }
        let mut noted = noted.into_iter();
        let mut verdicts = Vec::new();
        for (change, lost) in changes.iter().zip(lost) {
            if fits && lost {
                // The answer to the transaction says so.
                verdicts.push(self.table.records.write(change).await);
                continue;
            }
            verdicts.push(match noted.next() {
                Some(Err(error)) => Err(error),
                Some(Ok(())) | None => self.apply_alone(change).await,
            });
        }
        Ok(verdicts)
    }

    /// Places what a run asks for in the list of its day.
    fn list_demand(&self, demand: &Demand) {
        let entry = ListEntry {
            list: list_key("OPEN-DEMAND", demand.run.as_str(), self.shards()),
            sort: demand.at.to_string(),
        };
        self.table.list(&key("DEMAND", &demand.run).value, "DEMAND", Some(entry));
    }

    /// Each setting is an item of one transaction, in which a write costs twice.
    fn charge_settings(&self, changes: &BTreeMap<String, String>) {
        for (name, value) in changes {
            let item = BTreeMap::from([(name.clone(), value.clone())]);
            let Units { writes, .. } = write_units(settings_bytes(&item));
            self.table.charge(plain_key("SETTING"), Units::writes(2.0 * writes));
        }
    }
}

fn record_item(id: &InstanceId) -> String {
    format!("INSTANCE#{id}")
}

/// Where a record is in the index.
fn place_of(record: &Record, shards: u32) -> ListEntry {
    let (list, sort) = match record.threshold {
        Some(threshold) => ("LIVE", threshold),
        None => ("TERMINATED", record.updated_at),
    };
    ListEntry { list: list_key(list, record.id.as_str(), shards), sort: sort.to_string() }
}

/// The run that an instance becomes part of by a change, if it was not before.
fn joined_run(change: &Change) -> Option<&RunId> {
    let run = match change.next() {
        Next::Insert(record) => record.run.as_ref(),
        Next::Update { run, .. } => run.as_ref(),
    }?;
    match change.guard() {
        Guard::Found { run: RunGuard::Is(Some(before)), .. } if before == run => None,
        _ => Some(run),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for MeteredStore {
    async fn set_up(&self) -> PortResult<()> {
        self.table.calls("DescribeTable", 1).await;
        Store::set_up(&self.table.records).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.table.calls("Query", 1).await;
        let settings = Store::settings(&self.table.records).await?;
        self.table.charge(plain_key("SETTING"), read_units(settings_bytes(&settings), true));
        let shards = settings.get(INDEX_SHARDS).and_then(|text| text.parse().ok());
        self.shards.store(shards.unwrap_or(1), Ordering::Relaxed);
        Ok(settings)
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        self.table.calls("TransactWriteItems", 1).await;
        self.charge_settings(changes);
        self.table.records.put_settings(changes).await
    }

    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool> {
        self.table.calls("UpdateItem", 1).await;
        self.charge_settings(&BTreeMap::from([(name.to_owned(), next.to_owned())]));
        self.table.records.replace_setting(name, current, next).await
    }

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        if joined_run(change).is_some() && matches!(change.next(), Next::Update { .. }) {
            return self.claims.ask(change.clone(), |changes| self.claim_all(changes)).await?;
        }
        self.note_joined(change).await?;
        self.table.calls("UpdateItem", 1).await;
        self.apply_alone(change).await
    }

    /// In a transaction, in which a write costs twice.
    async fn write_all_or_none(&self, changes: &[Change]) -> PortResult<bool> {
        let joins = |change: &Change| joined_run(change).is_some();
        if changes.len() * 2 > TRANSACTION_ITEMS || changes.iter().any(joins) {
            return Ok(false);
        }
        self.table.calls("TransactWriteItems", 1).await;
        for change in changes {
            let before = AgentStore::record(&self.table.records, change.id()).await?;
            if change.applied_to(before.as_ref()).is_none() {
                return Ok(false);
            }
        }
        for change in changes {
            self.apply((2.0, 2.0), change).await?;
        }
        Ok(true)
    }

    async fn write_all(&self, writes: &[(Change, Record)]) -> Vec<PortResult<Verdict>> {
        let noted = join_all(writes.iter().map(|(change, _)| self.note_joined(change))).await;
        let calls = writes.len().div_ceil(WRITE_AT_ONCE);
        self.table.calls("BatchExecuteStatement", calls).await;
        let mut verdicts = Vec::new();
        for ((change, _), noted) in writes.iter().zip(noted) {
            verdicts.push(match noted {
                Ok(()) => self.apply_alone(change).await,
                Err(error) => Err(error),
            });
        }
        verdicts
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        let set = locked(&self.table.sets).get(run).cloned().unwrap_or_default();
        let bytes = set_bytes(run.as_str(), set.iter().map(InstanceId::as_str));
        self.table.charge(key("RUN", run), read_units(bytes, true));
        self.table.calls("GetItem", 1).await;
        self.read("INSTANCE", set.iter().map(ToString::to_string)).await;
        self.table.records.of_run(run).await
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        let unique: BTreeSet<&InstanceId> = ids.iter().collect();
        self.read("INSTANCE", unique.into_iter().map(ToString::to_string)).await;
        self.table.records.records(ids).await
    }

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        let bound = (now + Duration::from_millis(1)).to_string();
        self.query("LIVE", Some(&bound)).await;
        let listing = self.table.records.expired(now).await?;
        self.read("INSTANCE", listing.records.iter().map(|it| it.id.to_string())).await;
        Ok(listing)
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        self.query("LIVE", None).await;
        if scope == RecordScope::All {
            self.query("TERMINATED", None).await;
        }
        let listing = self.table.records.list(scope).await?;
        self.read("INSTANCE", listing.records.iter().map(|it| it.id.to_string())).await;
        Ok(listing)
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let unique: BTreeSet<&InstanceId> = ids.iter().collect();
        self.read("AGENT", unique.into_iter().map(ToString::to_string)).await;
        let mut status = self.table.records.agent_status(ids).await?;
        status.iter_mut().for_each(|status| self.table.pace.complete(status));
        Ok(status)
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        let unique: BTreeSet<&InstanceId> = tickets.iter().map(|it| &it.instance_id).collect();
        if unique.is_empty() {
            return Ok(());
        }
        for id in &unique {
            self.table.charge(key("INSTANCE", id), write_units(0));
        }
        self.table.calls("BatchExecuteStatement", unique.len().div_ceil(WRITE_AT_ONCE)).await;
        self.table.records.mark_ticketed(tickets, at).await
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let unique: BTreeSet<&InstanceId> = ids.iter().collect();
        for id in &unique {
            self.table.charge(key("INSTANCE", id), write_units(0));
        }
        if !unique.is_empty() {
            let calls = unique.len().div_ceil(WRITE_AT_ONCE);
            self.table.calls("BatchExecuteStatement", calls).await;
        }
        self.table.records.remove(ids).await?;
        for id in unique {
            if AgentStore::record(&self.table.records, id).await?.is_none() {
                self.table.list(&record_item(id), "RECORD", None);
            }
        }
        Ok(())
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        self.query("TERMINATED", Some(&before.to_string())).await;
        let is_over = |record: &Record| !record.state.is_live() && record.updated_at < before;
        let over = self.table.records.select(is_over);
        let ids: Vec<InstanceId> = over.into_iter().map(|record| record.id).collect();
        self.remove(&ids).await?;
        self.table.records.forget(before).await?;
        Ok(ids.len())
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        self.table.calls("PutItem", 1).await;
        let item = key("INTENT", &intent.id);
        let open = intent.is_open().then(|| ListEntry {
            list: list_key("OPEN-INTENT", intent.id.as_str(), self.shards()),
            sort: intent.deadline.to_string(),
        });
        self.table.list(&item.value, "INTENT", open);
        self.table.charge(item, write_units(0));
        self.table.records.put_intent(intent).await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        self.query("OPEN-INTENT", None).await;
        let intents = self.table.records.open_intents().await?;
        self.read("INTENT", intents.iter().map(|it| it.id.to_string())).await;
        Ok(intents)
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict> {
        self.table.calls("UpdateItem", 1).await;
        self.table.charge(plain_key("CEILING"), write_units(0));
        self.table.records.reserve(reservation, limits).await
    }

    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()> {
        self.table.calls("UpdateItem", 1).await;
        self.table.charge(plain_key("CEILING"), write_units(0));
        self.table.records.settle_reservation(settlement).await
    }

    /// No mode that is played asks for it.
    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>> {
        self.table.calls("Query", 1).await;
        self.table.records.hand_overs(since, until, most).await
    }

    async fn machine_count(&self) -> PortResult<Option<MachineCount>> {
        self.table.calls("GetItem", 1).await;
        self.table.charge(plain_key("CEILING"), read_units(0, true));
        self.table.records.machine_count().await
    }

    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool> {
        self.table.calls("PutItem", 1).await;
        self.table.charge(plain_key("CEILING"), write_units(0));
        self.table.records.replace_machine_count(version, count).await
    }

    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()> {
        self.table.calls("TransactWriteItems", 1).await;
        for purpose in ["REGISTRATION", "REMOVAL"] {
            self.table.charge(key("CREDENTIALS", purpose), Units::writes(2.0));
        }
        self.charge_settings(changes);
        self.table.records.put_credentials(credentials, changes).await
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        self.table.calls("UpdateItem", 1).await;
        self.list_demand(demand);
        self.table.charge(key("DEMAND", &demand.run), write_units(0));
        self.table.records.put_demand(demand).await
    }

    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool> {
        self.table.calls("UpdateItem", 1).await;
        self.table.charge(key("DEMAND", &next.run), write_units(0));
        let replaced = self.table.records.replace_demand(current, next).await?;
        match current {
            Some(_) if !replaced => {
                self.read("DEMAND", std::iter::once(next.run.to_string())).await;
            }
            Some(current) if next.at <= current.at => {}
            _ if replaced => self.list_demand(next),
            _ => {}
        }
        Ok(replaced)
    }

    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>> {
        let unique: BTreeSet<&RunId> = runs.iter().collect();
        self.read("DEMAND", unique.into_iter().map(ToString::to_string)).await;
        self.table.records.demands(runs).await
    }

    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()> {
        self.table.calls("BatchWriteItem", 1).await;
        let item = key("SUMMARY", &summary.run);
        let entry = ListEntry {
            list: list_key(&summaries_list(summary.began), summary.run.as_str(), self.shards()),
            sort: summary.key(),
        };
        self.table.list(&item.value, "SUMMARY", Some(entry));
        self.table.charge(item, write_units(summary.stored().len()));
        self.table.records.put_summary(summary).await
    }

    fn wake(&self, ids: &[InstanceId]) {
        self.table.meter.count("SendMessage", ids.len());
    }

    async fn prune_wake_ups(&self, existing: &[InstanceId], _grace: Duration) -> PortResult<usize> {
        const PAGE: usize = 1_000;
        self.table.calls("ListQueues", existing.len().div_ceil(PAGE).max(1)).await;
        Ok(0)
    }

    async fn finish(&self) -> PortResult<()> {
        if !self.events.swap(0, Ordering::Relaxed).is_multiple_of(WRITE_AT_ONCE) {
            self.table.calls("BatchWriteItem", 1).await;
        }
        Ok(())
    }
}
