use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use ondeck_core::lifecycle::{Change, Verdict};
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::demand::Demand;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::{EventRow, Record, State};
use ondeck_core::model::signal::{AgentStatus, Report};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{AgentStore, Listing, PortError, PortResult, RecordScope, Store};

use self::events::Outbox;
use self::keys::{Key, Kind, id_of, item, read_text, text};
use self::record_cache::RecordCache;
use self::runs::Runs;
use self::table::Table;
use crate::cloud::Cloud;
use crate::error::{DYNAMODB, unavailable};

mod change;
mod events;
mod guard;
mod keys;
mod record_cache;
mod removal;
mod rows;
mod runs;
mod set_up;
mod table;

/// The most items of one transaction.
const TRANSACTION_ITEMS: usize = 100;

/// The records in DynamoDB: the control plane's side and the agents' side of them.
#[derive(Debug, Clone)]
pub struct DynamoStore {
    table: Table,
    pool: String,
    runs: Arc<Runs>,
    outbox: Arc<Outbox>,
    seen: Arc<RecordCache>,
}

impl DynamoStore {
    pub fn new(cloud: &Cloud) -> DynamoStore {
        let table = Table::new(cloud);
        DynamoStore {
            pool: cloud.names.pool.to_string(),
            runs: Arc::default(),
            outbox: Arc::new(Outbox::new(table.clone())),
            seen: Arc::default(),
            table,
        }
    }

    pub fn table(&self) -> &str {
        &self.table.name
    }

    /// Returns the stored events, oldest first. An event may be missing if its write failed.
    pub async fn events(&self) -> PortResult<Vec<EventRow>> {
        events::all(&self.table).await
    }

    async fn read_settings(&self) -> PortResult<BTreeMap<String, String>> {
        let items = self.table.all_pages(self.table.query(Kind::Setting)).await?;
        let settings: BTreeMap<String, String> = items.iter().filter_map(rows::setting).collect();
        if settings.is_empty() {
            let what = format!("no settings in the table {}", self.table.name);
            return Err(PortError::NotSetUp { what });
        }
        Ok(settings)
    }

    fn setting(&self, name: &str, value: &str) -> TransactWriteItem {
        let key = Kind::Setting.key(name).attributes();
        let write = TransactWriteItem::builder();
        if value.is_empty() {
            let delete = Delete::builder().table_name(&self.table.name).set_key(Some(key));
            return write.delete(delete.build().expect("a table and a key")).build();
        }
        let mut setting = key;
        setting.extend(item([("value", text(value))]));
        let put = Put::builder().table_name(&self.table.name).set_item(Some(setting));
        write.put(put.build().expect("a table and an item")).build()
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
        set_up::set_up(&self.table, &self.pool).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.read_settings().await
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        const ACTION: &str = "TransactWriteItems";
        let writes: Vec<_> =
            changes.iter().map(|(name, value)| self.setting(name, value)).collect();
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

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        if let Some(run) = change::joined_run(change) {
            self.runs.note(&self.table, run, change.id(), change.at()).await?;
        }
        let written = change::apply(&self.table, change).await;
        self.seen.forget();
        let (verdict, event) = written?;
        if let Some(event) = event {
            self.outbox.add(event);
        }
        Ok(verdict)
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        runs::of_run(&self.table, run).await
    }

    /// From the index, which may lag: a record that it does not show yet is reaped by the next
    /// refresh, and one that it should no longer show refuses its reap.
    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        let query = self
            .table
            .query(Kind::Instance)
            .index_name(set_up::LIVE)
            .consistent_read(false)
            .key_condition_expression("PK = :kind AND expiresAt <= :now")
            .expression_attribute_values(":now", text(now));
        Ok(rows::listing(&self.table.all_pages(query).await?))
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        let items = match scope {
            RecordScope::All => self.table.all_pages(self.table.query(Kind::Instance)).await?,
            RecordScope::Live => {
                let ended = [(":ended", State::Terminated.as_str())];
                self.table.select(Kind::Instance, "NOT (#state = :ended)", &ended).await?
            }
        };
        Ok(rows::listing(&items))
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let unique: HashSet<&InstanceId> = ids.iter().collect();
        let keys: Vec<Key> = unique
            .into_iter()
            .flat_map(|id| [Kind::Heartbeat, Kind::Signal].map(|kind| kind.key(id)))
            .collect();
        let mut status: HashMap<String, AgentStatus> = HashMap::new();
        for item in self.table.get_all(&keys).await? {
            let Some(id) = id_of(&item) else { continue };
            let status = status.entry(id.to_owned()).or_default();
            match read_text(&item, "PK") {
                Ok(pk) if pk == Kind::Heartbeat.pk() => status.heartbeat = rows::beat(&item),
                _ => status.report = rows::report(&item),
            }
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
            let key = Kind::Instance.key(id);
            let state = text(State::Idle);
            vec![text(at), text(key.kind.pk()), text(key.sk), state, text(threshold)]
        });
        let marked = self.table.execute_all(&statement, marks.collect()).await;
        self.seen.forget();
        marked.map(drop)
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let removed = removal::remove(&self.table, ids).await;
        self.seen.forget();
        removed
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        let forgotten = removal::forget(&self.table, before).await;
        self.seen.forget();
        forgotten
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        self.table.put(rows::intent_item(intent)).await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        let items = self.table.select(Kind::Intent, "#outcome = :open", &[(":open", "")]).await?;
        Ok(items.iter().filter_map(rows::intent).collect())
    }

    async fn put_credentials(&self, credentials: &Credentials) -> PortResult<()> {
        self.table.put(rows::credentials_item(credentials)).await
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        self.table.put(rows::demand_item(demand)).await
    }

    async fn demand(&self, run: &RunId) -> PortResult<Option<Demand>> {
        let found = self.table.get(&Kind::Demand.key(run), true).await?;
        Ok(found.and_then(|item| Demand::read(run, read_text(&item, "value").ok()?)))
    }

    async fn finish(&self) -> PortResult<()> {
        self.outbox.finish().await;
        Ok(())
    }
}

#[async_trait]
impl AgentStore for DynamoStore {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        self.seen.look(&self.table, id).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.read_settings().await
    }

    async fn credentials(&self) -> PortResult<Option<Credentials>> {
        let found = self.table.get(&Kind::Credentials.key(rows::RUNNERS), true).await?;
        Ok(found.as_ref().and_then(rows::credentials))
    }

    async fn beat(&self, id: &InstanceId, at: Timestamp) -> PortResult<()> {
        self.seen.beat(at);
        self.table.put(rows::heartbeat(id, at)).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        self.table.put_unless_later(rows::signal(id, report), report.at).await
    }
}
