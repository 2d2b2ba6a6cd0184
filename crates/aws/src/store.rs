use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use futures_util::future::join_all;
use ondeck_core::lifecycle::{Change, Verdict};
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use ondeck_core::model::credentials::{Credentials, Token, TokenPurpose};
use ondeck_core::model::demand::Demand;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::record::{EventRow, Record, State};
use ondeck_core::model::settings::{AGENT_KEY_PREFIX, Settings, SettingsVersion, version_of};
use ondeck_core::model::signal::{AgentStatus, Report};
use ondeck_core::model::summary::ProvisionSummary;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{
    AgentStore, Clock, Events, History, Listing, News, PortError, PortResult, RecordScope, Store,
};

pub use self::events::EventsOf;
use self::events::Outbox;
use self::keys::{Item, Key, List, SETTINGS, id_of, item, text};
use self::layout::Layout;
use self::record_cache::RecordCache;
use self::runs::Runs;
use self::table::Table;
pub(crate) use self::teardown::{delete_table, has_table};
use self::writes::{ClaimedRecords, Claims};
use crate::cloud::{Account, Cloud};
use crate::error::{DYNAMODB, unavailable};
use crate::wake_ups::{self, Listener, Sender};

mod agent_status;
mod ceiling;
mod change;
mod demands;
mod events;
mod guard;
mod keys;
mod layout;
mod record_cache;
mod removal;
mod replace_setting;
mod rows;
mod runs;
mod set_up;
mod summaries;
mod table;
mod teardown;
mod writes;

/// The most items of one transaction.
const TRANSACTION_ITEMS: usize = 100;

/// The records in DynamoDB: the control plane's side and the agents' side of them.
#[derive(Debug, Clone)]
pub struct DynamoStore {
    table: Table,
    pool: String,
    cloud: Cloud,
    layout: Arc<Layout>,
    runs: Arc<Runs>,
    claims: Arc<Claims>,
    claimed: Arc<ClaimedRecords>,
    outbox: Arc<Outbox>,
    seen: Arc<RecordCache>,
    sender: Arc<Sender>,
    listener: Arc<OnceLock<Listener>>,
}

impl DynamoStore {
    /// The store, as the control plane uses it.
    pub fn new(cloud: &Cloud) -> DynamoStore {
        let table = Table::new(cloud);
        DynamoStore {
            pool: cloud.names.pool.to_string(),
            cloud: cloud.clone(),
            layout: Arc::default(),
            runs: Arc::default(),
            claims: Arc::default(),
            claimed: Arc::default(),
            outbox: Arc::new(Outbox::new(table.clone())),
            seen: Arc::default(),
            sender: Arc::new(Sender::new(cloud)),
            listener: Arc::default(),
            table,
        }
    }

    /// The store, as the agent of one machine uses it. `identity` is what AWS knows the machine by,
    /// if it does: the agent may write under a key with this name only.
    pub fn of_agent(cloud: &Cloud, identity: Option<String>) -> DynamoStore {
        let store = DynamoStore::new(cloud);
        DynamoStore { layout: Arc::new(Layout::of_agent(identity)), ..store }
    }

    pub fn table(&self) -> &str {
        &self.table.name
    }

    /// Returns stored events, oldest first. An event may be missing if its write failed.
    pub async fn events(&self, of: &EventsOf) -> PortResult<Vec<EventRow>> {
        events::select(&self.table, of, self.layout.shards()).await
    }

    /// Reads the settings. A query may see some writes of a transaction and not the others, so
    /// settings that are not of the version that they name are read once more. They may stay so
    /// until the next refresh, if two refreshes have stored different ones at the same time.
    async fn read_settings(&self) -> PortResult<BTreeMap<String, String>> {
        let mut settings = self.query_settings().await?;
        let named = version_of(&settings);
        if named.is_some_and(|named| named != SettingsVersion::of(&settings)) {
            settings = self.query_settings().await?;
        }
        if settings.is_empty() {
            let what = format!("no settings in the table {}", self.table.name);
            return Err(PortError::NotSetUp { what });
        }
        self.layout.learn(&settings);
        // A refresh that does not describe the table learns the account from what it has stored.
        if let Some(account) = settings.get(AGENT_KEY_PREFIX).and_then(|arn| Account::of_arn(arn)) {
            self.cloud.account.get_or_init(|| account);
        }
        Ok(settings)
    }

    async fn query_settings(&self) -> PortResult<BTreeMap<String, String>> {
        let items = self.table.all_pages(self.table.query(SETTINGS)).await?;
        Ok(items.iter().filter_map(rows::setting).collect())
    }

    fn setting(&self, name: &str, value: &str) -> TransactWriteItem {
        let key = Key::setting(name).attributes();
        let write = TransactWriteItem::builder();
        if value.is_empty() {
            let delete = Delete::builder().table_name(&self.table.name).set_key(Some(key));
            return write.delete(delete.build().expect("a table and a key")).build();
        }
        let mut setting = key;
        setting.extend(item([("value", text(value))]));
        self.transact_put(setting)
    }

    fn transact_put(&self, item: Item) -> TransactWriteItem {
        let put = Put::builder().table_name(&self.table.name).set_item(Some(item));
        TransactWriteItem::builder().put(put.build().expect("a table and an item")).build()
    }

    /// Makes these writes in one transaction, or in several if they are too many for one.
    async fn transact(&self, writes: &[TransactWriteItem]) -> PortResult<()> {
        const ACTION: &str = "TransactWriteItems";
        for chunk in writes.chunks(TRANSACTION_ITEMS) {
            let write = self.table.client.transact_write_items();
            let write = write.set_transact_items(Some(chunk.to_vec()));
            if let Err(error) = self.table.ask(write.send()).await {
                return Err(match error.as_service_error() {
                    Some(cancelled) if only_conflicts(cancelled) => {
                        unavailable(DYNAMODB, ACTION, cancelled)
                    }
                    _ => self.table.port_error(ACTION, &error),
                });
            }
        }
        Ok(())
    }

    /// Reads the records with these keys.
    async fn read(&self, keys: &[Key]) -> PortResult<Listing> {
        Ok(rows::listing(&self.table.get_all(keys).await?))
    }
}

/// Cancellation reasons that pass: a concurrent transaction, or throttling.
const CONFLICTS: [&str; 4] =
    ["None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];

fn only_conflicts(error: &TransactWriteItemsError) -> bool {
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else {
        return false;
    };
    let mut codes = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code());
    codes.all(|code| CONFLICTS.contains(&code))
}

#[async_trait]
impl Store for DynamoStore {
    async fn set_up(&self) -> PortResult<()> {
        let arn = set_up::set_up(&self.table, &self.pool).await?;
        if let Some(account) = Account::of_arn(&arn) {
            self.cloud.account.get_or_init(|| account);
        }
        Ok(())
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.read_settings().await
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        let settings = changes.iter().map(|(name, value)| self.setting(name, value));
        self.transact(&settings.collect::<Vec<_>>()).await
    }

    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool> {
        replace_setting::replace(&self.table, name, current, next).await
    }

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        if writes::is_claim(change) {
            return self.claim(change).await;
        }
        self.note(change).await?;
        self.write_alone(change).await
    }

    /// In batches. A write whose batch finds another record than the known one is made by itself.
    async fn write_all(&self, writes: &[(Change, Record)]) -> Vec<PortResult<Verdict>> {
        let changes: Vec<&Change> = writes.iter().map(|(change, _)| change).collect();
        let known = writes.iter().map(|(_, record)| (record.id.clone(), record.clone())).collect();
        let noted = join_all(changes.iter().map(|change| self.note(change))).await;
        self.write_together(&changes, noted, known).await
    }

    /// In one transaction. It costs twice the units, and saves the round trip that the events would take
    /// at the end of a provision. A record that a claim of this process has left is required to be that
    /// record still; if it is not, the caller makes the changes one by one, by their guards.
    async fn write_all_or_none(&self, changes: &[Change]) -> PortResult<bool> {
        let joins = |change: &Change| change::joined_run(change).is_some();
        if changes.len() * 2 > TRANSACTION_ITEMS || changes.iter().any(joins) {
            return Ok(false);
        }
        let shards = self.layout.shards();
        let known = self.claimed.of(changes);
        let parts = changes.iter().zip(&known);
        let updates =
            parts.map(|(change, known)| change::part(&self.table, change, known.as_ref(), shards));
        let events =
            changes.iter().map(|change| self.transact_put(change::event_of(change, shards)));
        let write = self.table.client.transact_write_items();
        let write = write.set_transact_items(Some(updates.chain(events).collect()));
        let written = self.table.ask(write.send()).await;
        self.seen.forget();
        match written {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                // Nothing was written, because of a guard or of another write at the same moment.
                Some(TransactWriteItemsError::TransactionCanceledException(_)) => Ok(false),
                _ => Err(self.table.port_error("TransactWriteItems", &error)),
            },
        }
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        runs::of_run(&self.table, run).await
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        let ids: HashSet<&InstanceId> = ids.iter().collect();
        self.read(&ids.into_iter().map(Key::record).collect::<Vec<_>>()).await
    }

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        // The bound is exclusive, and a threshold of now is past.
        let bound = (now + Duration::from_millis(1)).to_string();
        let keys = self.table.listed(List::Live, self.layout.shards(), Some(&bound)).await?;
        let mut listing = self.read(&keys).await?;
        listing.records.retain(|record| record.state.is_live() && record.is_expired(now));
        Ok(listing)
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        let shards = self.layout.shards();
        let mut keys = self.table.listed(List::Live, shards, None).await?;
        if scope == RecordScope::All {
            keys.extend(self.table.listed(List::Terminated, shards, None).await?);
            let unique: HashSet<Key> = keys.drain(..).collect();
            keys.extend(unique);
        }
        let mut listing = self.read(&keys).await?;
        listing.records.retain(|record| scope == RecordScope::All || record.state.is_live());
        Ok(listing)
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let prefix = self.layout.agent_prefix(&self.table).await?;
        let unique: HashSet<&InstanceId> = ids.iter().collect();
        let keys: Vec<Key> =
            unique.into_iter().map(|id| Key::agent(&format!("{prefix}{id}"))).collect();
        let mut status: HashMap<String, AgentStatus> = HashMap::new();
        for item in self.table.get_all(&keys).await? {
            let Some(id) = id_of(&item).and_then(|identity| identity.strip_prefix(&*prefix)) else {
                continue;
            };
            status.insert(id.to_owned(), rows::agent_status(&item));
        }
        Ok(ids.iter().map(|id| status.get(id.as_str()).cloned().unwrap_or_default()).collect())
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        // A batch may name an item once. Of two tickets for one machine, the one of the later
        // idle state is the one that may still be true.
        let mut latest: HashMap<&InstanceId, Timestamp> = HashMap::new();
        for ticket in tickets {
            let threshold = latest.entry(&ticket.instance_id).or_insert(ticket.threshold);
            *threshold = ticket.threshold.max(*threshold);
        }
        let statement = format!(
            r#"UPDATE "{}" SET ticketedAt=? WHERE PK=? AND SK=? AND "state"=? AND threshold=?"#,
            self.table.name
        );
        let marks = latest.into_iter().map(|(id, threshold)| {
            let Key { pk, sk } = Key::record(id);
            vec![text(at), text(pk), text(sk), text(State::Idle), text(threshold)]
        });
        let marked = self.table.execute_all(&statement, marks.collect()).await;
        self.seen.forget();
        marked.map(drop)
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let removed = removal::remove(&self.table, ids.iter().map(Key::record).collect()).await;
        self.seen.forget();
        removed.map(drop)
    }

    fn deletion_command(&self, ids: &[InstanceId]) -> Option<String> {
        Some(removal::command(&self.table.name, ids))
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        let forgotten = removal::forget(&self.table, self.layout.shards(), before).await;
        self.seen.forget();
        forgotten
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        self.table.put(rows::intent_item(intent, self.layout.shards())).await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        let keys = self.table.listed(List::OpenIntents, self.layout.shards(), None).await?;
        let items = self.table.get_all(&keys).await?;
        let mut intents: Vec<Intent> =
            items.iter().filter_map(rows::intent).filter(Intent::is_open).collect();
        intents.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(intents)
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict> {
        ceiling::reserve(&self.table, reservation, limits).await
    }

    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()> {
        ceiling::settle(&self.table, settlement).await
    }

    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>> {
        events::hand_overs(&self.table, (since, until), most, self.layout.shards()).await
    }

    async fn machine_count(&self) -> PortResult<Option<MachineCount>> {
        ceiling::read(&self.table).await
    }

    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool> {
        ceiling::replace(&self.table, version, count).await
    }

    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()> {
        let purposes = [TokenPurpose::Registration, TokenPurpose::Removal];
        let tokens = purposes.map(|of| self.transact_put(rows::token_item(credentials, of)));
        let settings = changes.iter().map(|(name, value)| self.setting(name, value));
        self.transact(&tokens.into_iter().chain(settings).collect::<Vec<_>>()).await
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        demands::put(&self.table, demand, self.layout.shards()).await
    }

    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool> {
        match current {
            Some(current) => {
                demands::replace(&self.table, current, next, self.layout.shards()).await
            }
            None => demands::insert(&self.table, next, self.layout.shards()).await,
        }
    }

    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>> {
        demands::of_runs(&self.table, runs).await
    }

    /// Together with the events that wait.
    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()> {
        self.outbox.write_now(summaries::item_of(summary, self.layout.shards())).await;
        Ok(())
    }

    fn wake(&self, ids: &[InstanceId]) {
        let (layout, table) = (self.layout.clone(), self.table.clone());
        self.sender.wake(ids, async move { layout.agent_prefix(&table).await });
    }

    async fn prune_wake_ups(&self, existing: &[InstanceId], grace: Duration) -> PortResult<usize> {
        // Machines that AWS does not know have no queue.
        if self.layout.agent_prefix(&self.table).await?.is_empty() {
            return Ok(0);
        }
        wake_ups::prune(&self.cloud, existing, grace).await
    }

    async fn finish(&self) -> PortResult<()> {
        tokio::join!(self.outbox.finish(), self.sender.finish());
        Ok(())
    }
}

#[async_trait]
impl History for DynamoStore {
    fn kept_since(&self, _settings: &Settings, now: Timestamp) -> Timestamp {
        now.before(events::RETENTION)
    }

    async fn events_of_machine(&self, id: &InstanceId, limit: usize) -> PortResult<Events> {
        events::of_machine(&self.table, id, limit).await
    }

    async fn events_of_run(&self, run: &RunId, limit: usize) -> PortResult<Events> {
        events::of_run(&self.table, run, limit).await
    }

    async fn events_between(
        &self,
        since: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> PortResult<Events> {
        events::between(&self.table, (since, until), limit, self.layout.shards()).await
    }

    async fn summaries_of_run(
        &self,
        run: &RunId,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        summaries::of_run(&self.table, run, limit).await
    }

    async fn recent_summaries(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        summaries::recent(&self.table, now, limit, self.layout.shards()).await
    }
}

#[async_trait]
impl AgentStore for DynamoStore {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        self.seen.look(&self.table, id).await
    }

    /// Reads the settings, unless the machine's record says that they are those that were read last.
    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        if let Some(settings) = self.seen.settings() {
            return Ok(settings);
        }
        let settings = self.read_settings().await?;
        self.seen.remember_settings(&settings);
        Ok(settings)
    }

    fn listen(&self, id: &InstanceId) {
        if let Some(identity) = self.layout.own_identity() {
            self.listener.get_or_init(|| Listener::begin(&self.cloud, id, identity));
        }
    }

    async fn news(&self, clock: &dyn Clock, poll: Duration, patience: Duration) -> News {
        let Some(listener) = self.listener.get() else {
            clock.sleep(poll).await;
            return News::Unheard(None);
        };
        let news = listener.news(clock, poll, patience).await;
        if news == News::Announced {
            // The next read has to be consistent in any case.
            self.seen.forget();
        }
        news
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        let found = self.table.get(&Key::token(purpose), true).await?;
        Ok(found.as_ref().and_then(rows::token))
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        agent_status::beat(&self.table, &self.layout.own_key(id), heartbeat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        agent_status::report(&self.table, &self.layout.own_key(id), report).await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        agent_status::note_readiness(&self.table, &self.layout.own_key(id), note).await
    }
}
