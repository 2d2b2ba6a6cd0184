use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::lifecycle::{Change, Transition, Verdict};
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use ondeck_core::model::credentials::{Credentials, Token, TokenPurpose};
use ondeck_core::model::demand::{Demand, RETENTION};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::record::{EventRow, Record, Unreadable};
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::{AgentStatus, Report};
use ondeck_core::model::summary::ProvisionSummary;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{
    AgentStore, Clock, Listing, News, PortError, PortResult, RecordScope, Store,
};
use rusqlite::{OptionalExtension, Transaction, params};

use self::column::{NotText, invalid};
use self::db::Db;
use crate::error::SERVICE;
use crate::forge::jobs;

mod ceiling;
mod change;
pub(crate) mod column;
pub(crate) mod db;
mod guard;
mod history;
pub(crate) mod room;
mod rows;
pub(crate) mod schema;

/// Selects the rows of a run. The second term lets SQLite use the index of owned rows.
const OF_RUN: &str = "run = ?1 AND run <> ''";
/// Selects the rows whose ids are in a JSON array.
const WITH_IDS: &str = "id IN (SELECT value FROM json_each(?1))";
/// Selects live rows whose threshold has passed, by the index of live rows.
const EXPIRED: &str = "state <> 'terminated' AND threshold <= ?1";

/// How often an agent checks whether the file has changed.
const POLL: Duration = Duration::from_millis(40);

/// An agent whose checks have found so many changes, less twice the checks that found none, checks
/// less often. A large pool changes the file all the time, mostly by heartbeats, and each change makes
/// every agent read its record. The changes of one provision or release are fewer.
const BUSY_AFTER: u32 = 25;

/// The longest time between two checks of a busy file.
const SLOWEST_POLL: Duration = Duration::from_millis(250);

/// The records in the shared file, for the control plane and for agents.
#[derive(Debug, Clone)]
pub struct LocalStore {
    db: Db,
    /// The file's version at the last call of `news`.
    seen: Arc<AtomicI64>,
    /// How many checks have found a change, less twice those that have not.
    changes: Arc<AtomicU32>,
}

impl LocalStore {
    pub fn new(db: Db) -> LocalStore {
        LocalStore { db, seen: Arc::default(), changes: Arc::default() }
    }

    /// Returns when another connection has committed to the file, and after `at_most` in any case.
    /// SQLite keeps a counter of commits in shared memory, which is much cheaper to read than a record.
    async fn await_commit(&self, clock: &dyn Clock, at_most: Duration) {
        let begun = clock.steady();
        let mut changes = self.changes.load(Ordering::Relaxed);
        if let doublings @ 1.. = changes.saturating_sub(BUSY_AFTER) {
            let pause = POLL * (1 << doublings);
            clock.sleep(pause.min(SLOWEST_POLL).min(at_most)).await;
        }
        loop {
            let version = self.db.call(|c| c.query_row("PRAGMA data_version", [], |r| r.get(0)));
            // An error counts as no news; the caller's next read reports it.
            let version: i64 = version.await.unwrap_or(self.seen.load(Ordering::Relaxed));
            if self.seen.swap(version, Ordering::Relaxed) != version {
                self.changes.store((changes + 1).min(BUSY_AFTER + 3), Ordering::Relaxed);
                return;
            }
            changes = changes.saturating_sub(2);
            self.changes.store(changes, Ordering::Relaxed);
            let left = at_most.saturating_sub(clock.steady().saturating_sub(begun));
            if left.is_zero() {
                return;
            }
            clock.sleep(left.min(POLL)).await;
        }
    }

    /// Returns every committed transition in the order of the commits. Corrupt rows are logged and
    /// skipped.
    pub async fn events(&self) -> PortResult<Vec<EventRow>> {
        self.db
            .call(|connection| {
                let mut statement =
                    connection.prepare_cached("SELECT * FROM events ORDER BY seq")?;
                column::readable(statement.query_map([], history::event)?)
            })
            .await
    }

    async fn read_settings(&self) -> PortResult<BTreeMap<String, String>> {
        let settings = self.db.call(|connection| settings(connection)).await?;
        if settings.is_empty() {
            let what = format!("no settings in {}", self.db.file().display());
            return Err(PortError::NotSetUp { what });
        }
        Ok(settings)
    }
}

/// Returns all settings. There are none before the first refresh. Fails if one is not text.
pub(crate) fn settings(
    connection: &rusqlite::Connection,
) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut statement = connection.prepare_cached("SELECT name, value FROM settings")?;
    let settings = statement.query_map([], |row| {
        let name: String = row.get("name")?;
        let value = row.get("value").map_err(|_| invalid(row, "value", NotText(name.clone())))?;
        Ok((name, value))
    })?;
    settings.collect()
}

fn change_settings(
    transaction: &Transaction<'_>,
    changes: &BTreeMap<String, String>,
) -> rusqlite::Result<()> {
    let mut put =
        transaction.prepare_cached("INSERT OR REPLACE INTO settings (name, value) VALUES (?,?)")?;
    for change in changes {
        put.execute(change)?;
    }
    transaction.execute("DELETE FROM settings WHERE value = ''", []).map(drop)
}

/// Deletes what is not kept any more at this moment.
fn forget_demands(transaction: &Transaction<'_>, at: Timestamp) -> rusqlite::Result<()> {
    let kept = at.before(RETENTION).to_string();
    transaction.execute("DELETE FROM demands WHERE at < ?1", [kept]).map(drop)
}

fn corrupt(unreadable: &Unreadable) -> PortError {
    PortError::Unusable {
        service: SERVICE,
        reason: unreadable.to_string(),
        hint: format!("delete the row {:?} from the table instances", unreadable.id),
    }
}

#[async_trait]
impl Store for LocalStore {
    async fn set_up(&self) -> PortResult<()> {
        match self.db.write(schema::create).await? {
            None => Ok(()),
            Some(problem) => Err(problem.error_for(self.db.file())),
        }
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.read_settings().await
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        let changes = changes.clone();
        self.db.write(move |transaction| change_settings(transaction, &changes)).await
    }

    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool> {
        let change = BTreeMap::from([(name.to_owned(), next.to_owned())]);
        let (name, current) = (name.to_owned(), current.to_owned());
        let replace = move |transaction: &Transaction<'_>| {
            const STORED: &str = "SELECT value FROM settings WHERE name = ?";
            let stored: Option<String> =
                transaction.query_row(STORED, [name], |row| row.get(0)).optional()?;
            if stored.unwrap_or_default() != current {
                return Ok(false);
            }
            change_settings(transaction, &change).map(|()| true)
        };
        self.db.write(replace).await
    }

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        let change = change.clone();
        self.db.write(move |transaction| change::apply(transaction, &change)).await
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        let run = run.to_string();
        self.db.call(|conn| rows::listing(conn, OF_RUN, [run])).await
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        let ids = serde_json::json!(ids).to_string();
        self.db.call(move |conn| rows::listing(conn, WITH_IDS, [ids])).await
    }

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        self.db.call(move |conn| rows::listing(conn, EXPIRED, [now.to_string()])).await
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        let condition = match scope {
            RecordScope::Live => "state IS NOT 'terminated'",
            RecordScope::All => "TRUE",
        };
        self.db.call(move |conn| rows::listing(conn, condition, [])).await
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let ids = serde_json::json!(ids).to_string();
        self.db.call(move |conn| rows::agent_status(conn, &ids)).await
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        const SQL: &str = "UPDATE instances SET ticketed_at = ?1
            WHERE id = ?2 AND state = 'idle' AND threshold = ?3";
        let tickets = tickets.to_vec();
        self.db
            .write(move |transaction| {
                let mut update = transaction.prepare_cached(SQL)?;
                for ticket in tickets {
                    let threshold = ticket.threshold.to_string();
                    update.execute((at.to_string(), ticket.instance_id.as_str(), threshold))?;
                }
                Ok(())
            })
            .await
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let ids = ids.to_vec();
        let remove = move |transaction: &Transaction<'_>| {
            for id in &ids {
                remove_terminated(transaction, "id = ?1", id.as_str())?;
            }
            Ok(())
        };
        self.db.write(remove).await
    }

    fn deletion_command(&self, ids: &[InstanceId]) -> Option<String> {
        let file = self.db.file().display().to_string().replace('\'', r"'\''");
        let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
        let sql = format!("DELETE FROM instances WHERE id IN ({})", ids.join(", "));
        Some(format!("sqlite3 '{file}' \"{sql}\""))
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        let before = before.to_string();
        self.db.write(move |transaction| forget(transaction, &before)).await
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        const SQL: &str = "INSERT OR REPLACE INTO intents
            (id, run, resource_class, count, usage_class, deadline, outcome)
            VALUES (?,?,?,?,?,?,?)";
        let intent = intent.clone();
        self.db
            .write(move |transaction| {
                transaction.prepare_cached(SQL)?.execute(params![
                    intent.id.as_str(),
                    intent.run.as_str(),
                    intent.class.as_ref().map_or("", ResourceClass::as_str),
                    intent.count,
                    intent.usage.as_str(),
                    intent.deadline.to_string(),
                    intent.outcome,
                ])?;
                Ok(())
            })
            .await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        const SQL: &str = "SELECT * FROM intents WHERE outcome = '' ORDER BY id";
        self.db
            .call(|connection| {
                let mut statement = connection.prepare_cached(SQL)?;
                column::readable(statement.query_map([], intent)?)
            })
            .await
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict> {
        let (reservation, limits) = (reservation.clone(), *limits);
        self.db.write(move |transaction| ceiling::reserve(transaction, &reservation, &limits)).await
    }

    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()> {
        let settlement = settlement.clone();
        self.db.write(move |transaction| ceiling::settle(transaction, &settlement)).await
    }

    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>> {
        // The bound by number keeps a long history from being read to its beginning.
        const SQL: &str = "SELECT * FROM events
            WHERE seq > (SELECT coalesce(max(seq), 0) FROM events) - 20000
              AND at BETWEEN ? AND ? AND transition IN (?, ?) ORDER BY at DESC, seq DESC LIMIT ?";
        let (since, until) = (since.to_string(), until.to_string());
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let [activate, commit] = Transition::HAND_OVERS.map(Transition::as_str);
        self.db
            .call(move |connection| {
                let mut statement = connection.prepare_cached(SQL)?;
                let limits = params![since, until, activate, commit, most];
                let rows = statement.query_map(limits, history::event)?;
                column::readable(rows)
            })
            .await
    }

    async fn machine_count(&self) -> PortResult<Option<MachineCount>> {
        self.db.call(|connection| ceiling::read(connection)).await
    }

    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool> {
        let count = count.clone();
        self.db.write(move |transaction| ceiling::replace(transaction, version, &count)).await
    }

    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()> {
        const SQL: &str = "INSERT OR REPLACE INTO credentials
            (id, registration, removal, expires_at) VALUES (1,?,?,?)";
        let (credentials, changes) = (credentials.clone(), changes.clone());
        self.db
            .write(move |transaction| {
                change_settings(transaction, &changes)?;
                let expires_at = credentials.expires_at.to_string();
                let tokens = (credentials.registration.expose(), credentials.removal.expose());
                transaction.execute(SQL, (tokens.0, tokens.1, expires_at)).map(drop)
            })
            .await
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        const SQL: &str = "INSERT OR REPLACE INTO demands (run, label, body, at) VALUES (?,?,?,?)";
        let (run, label) = (demand.run.to_string(), demand.label().to_string());
        let body = serde_json::json!(demand).to_string();
        let at = demand.at;
        self.db
            .write(move |transaction| {
                forget_demands(transaction, at)?;
                let row = (run, label, body, at.to_string());
                transaction.prepare_cached(SQL)?.execute(row).map(drop)
            })
            .await
    }

    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()> {
        let summary = summary.clone();
        self.db.write(move |transaction| history::put_summary(transaction, &summary)).await
    }

    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool> {
        const READ: &str = "SELECT body FROM demands WHERE run = ?1 AND label = ?2";
        const WRITE: &str =
            "UPDATE demands SET body = ?3, at = max(at, ?4) WHERE run = ?1 AND label = ?2";
        const INSERT: &str =
            "INSERT OR IGNORE INTO demands (run, label, body, at) VALUES (?,?,?,?)";
        let (current, next) = (current.cloned(), next.clone());
        self.db
            .write(move |transaction| {
                let key = (next.run.to_string(), next.label().to_string());
                let (text, at) = (serde_json::json!(next).to_string(), next.at.to_string());
                let Some(current) = current else {
                    forget_demands(transaction, next.at)?;
                    let row = (key.0, key.1, text, at);
                    return Ok(transaction.prepare_cached(INSERT)?.execute(row)? > 0);
                };
                let body: Option<String> = transaction
                    .prepare_cached(READ)?
                    .query_row((&key.0, &key.1), column::lossy_text)
                    .optional()?;
                let found = body.and_then(|body| Demand::read(&current.run, &body));
                if found.as_ref() != Some(&current) {
                    return Ok(false);
                }
                transaction.prepare_cached(WRITE)?.execute((key.0, key.1, text, at))?;
                Ok(true)
            })
            .await
    }

    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>> {
        const SQL: &str = "SELECT body, run FROM demands
            WHERE run IN (SELECT value FROM json_each(?1)) ORDER BY run, label";
        let runs = serde_json::json!(runs).to_string();
        let bodies: Vec<(String, RunId)> = self
            .db
            .call(move |connection| {
                let mut statement = connection.prepare_cached(SQL)?;
                let row = |row: &rusqlite::Row<'_>| {
                    Ok((column::lossy_text(row)?, column::parsed(row, "run", str::parse)?))
                };
                column::readable(statement.query_map([runs], row)?)
            })
            .await?;
        Ok(bodies.iter().filter_map(|(body, run)| Demand::read(run, body)).collect())
    }
}

fn intent(row: &rusqlite::Row<'_>) -> rusqlite::Result<Intent> {
    Ok(Intent {
        id: column::parsed(row, "id", str::parse)?,
        run: column::parsed(row, "run", str::parse)?,
        class: column::optional(row, "resource_class", str::parse)?,
        count: row.get("count")?,
        usage: column::parsed(row, "usage_class", str::parse)?,
        deadline: column::time(row, "deadline")?,
        outcome: row.get("outcome")?,
    })
}

/// Removes the terminated records that satisfy a condition, with what their agents wrote. Returns how
/// many records were removed.
fn remove_terminated(
    transaction: &Transaction<'_>,
    condition: &str,
    value: &str,
) -> rusqlite::Result<usize> {
    let these = format!("FROM instances WHERE state = 'terminated' AND {condition}");
    for table in ["heartbeats", "signals", "readiness"] {
        let sql = format!("DELETE FROM {table} WHERE id IN (SELECT id {these})");
        transaction.prepare_cached(&sql)?.execute([value])?;
    }
    transaction.prepare_cached(&format!("DELETE {these}"))?.execute([value])
}

/// Prunes what is older than `before`: terminated records, intents, events, summaries, what agents without a
/// record wrote, terminated machines, finished jobs with their output, and expired tickets of
/// classes that are no longer requested. A message that is not a ticket is as old as its last
/// receipt.
fn forget(transaction: &Transaction<'_>, before: &str) -> rusqlite::Result<usize> {
    let removed = remove_terminated(transaction, "updated_at < ?1", before)?;
    // They count as finished at `before`, so that the next call prunes them.
    jobs::cancel_abandoned(transaction, before)?;
    schema::add_later_tables(transaction)?;
    for sql in [
        "DELETE FROM intents WHERE outcome <> '' AND deadline < ?1",
        "DELETE FROM events WHERE at < ?1",
        "DELETE FROM summaries WHERE key < ?1",
        "DELETE FROM heartbeats WHERE at < ?1 AND id NOT IN (SELECT id FROM instances)",
        "DELETE FROM signals WHERE at < ?1 AND id NOT IN (SELECT id FROM instances)",
        "DELETE FROM readiness WHERE at < ?1 AND id NOT IN (SELECT id FROM instances)",
        "DELETE FROM machines WHERE ended_at <> '' AND ended_at < ?1",
        "DELETE FROM job_output WHERE job IN
            (SELECT id FROM jobs WHERE finished_at <> '' AND finished_at < ?1)",
        "DELETE FROM jobs WHERE finished_at <> '' AND finished_at < ?1",
        // Only a CASE keeps SQLite from evaluating JSON functions on invalid JSON.
        "DELETE FROM tickets WHERE CASE
            WHEN NOT json_valid(body) THEN visible_at
            WHEN json_type(body, '$.threshold') IS 'text' THEN json_extract(body, '$.threshold')
            ELSE visible_at END < ?1",
    ] {
        transaction.execute(sql, [before])?;
    }
    Ok(removed)
}

#[async_trait]
impl AgentStore for LocalStore {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        let id = id.to_string();
        let found = self.db.call(move |connection| rows::found(connection, &id)).await?;
        found.transpose().map_err(|unreadable| corrupt(&unreadable))
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.read_settings().await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        const SQL: &str = "SELECT registration, removal, expires_at FROM credentials";
        self.db
            .call(|connection| {
                let credentials = |row: &rusqlite::Row<'_>| {
                    Ok(Credentials {
                        registration: Secret::new(row.get::<_, String>("registration")?),
                        removal: Secret::new(row.get::<_, String>("removal")?),
                        expires_at: column::time(row, "expires_at")?,
                    })
                };
                connection.prepare_cached(SQL)?.query_row([], credentials).optional()
            })
            .await
            .map(|found| found.map(|credentials: Credentials| credentials.token(purpose)))
    }

    async fn news(&self, clock: &dyn Clock, poll: Duration, _patience: Duration) -> News {
        self.await_commit(clock, poll).await;
        News::Unheard(None)
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        const SQL: &str = "INSERT OR REPLACE INTO heartbeats
            (id, at, period_ms, protocol, registration_ms, ready_claim_ms, busy, interrupted)
            VALUES (?,?,?,?,?,?,?,?)";
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let beat = (
            id.to_string(),
            heartbeat.at.to_string(),
            millis(heartbeat.period),
            heartbeat.protocol,
            heartbeat.registration.map(millis),
            heartbeat.ready_claim.map(millis),
            heartbeat.busy,
            heartbeat.interrupted,
        );
        self.db
            .write(move |transaction| transaction.prepare_cached(SQL)?.execute(beat).map(drop))
            .await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        // A stored time that is invalid does not count.
        const SQL: &str =
            "INSERT INTO signals (id, signal, run, detail, at, generation, label) VALUES (?,?,?,?,?,?,?)
             ON CONFLICT (id) DO UPDATE
             SET signal=excluded.signal, run=excluded.run, detail=excluded.detail, at=excluded.at,
                generation=excluded.generation, label=excluded.label
             WHERE (at > excluded.at AND at <= '9999-12-31T23:59:59.999Z' AND length(at) = 24)
             IS NOT TRUE";
        let run = report.run.as_ref().map_or("", RunId::as_str).to_owned();
        let signal = report.signal.as_str();
        let (detail, at) = (report.detail.clone(), report.at.to_string());
        let label = report.stored_label();
        let said = (id.to_string(), signal, run, detail, at, report.generation, label);
        self.db
            .write(move |transaction| transaction.prepare_cached(SQL)?.execute(said).map(drop))
            .await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        const SQL: &str = "INSERT INTO readiness (id, body, at) VALUES (?,?,?)
             ON CONFLICT (id) DO UPDATE SET body=excluded.body, at=excluded.at
             WHERE (at > excluded.at AND at <= '9999-12-31T23:59:59.999Z' AND length(at) = 24)
             IS NOT TRUE";
        let said = (id.to_string(), note.readiness.stored(), note.at.to_string());
        self.db
            .write(move |transaction| Ok(transaction.prepare_cached(SQL)?.execute(said)? > 0))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tickets_and_messages_are_pruned() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        let transaction = connection.transaction().unwrap();
        schema::create(&transaction).unwrap();
        let (old, new) = ("2025-05-01T00:00:00.000Z", "2025-05-31T00:00:00.000Z");
        let threshold = |time: &str| serde_json::json!({ "threshold": time }).to_string();
        for (body, visible_at, class) in [
            (threshold(old).as_str(), new, "gone"),
            (threshold(new).as_str(), old, "kept"),
            ("no ticket", old, "gone"),
            ("no ticket", new, "kept"),
            (r#"{"threshold":7}"#, old, "gone"),
            (r#"{"threshold":7}"#, new, "kept"),
            ("[]", new, "kept"),
        ] {
            let sql = "INSERT INTO tickets (class, body, visible_at) VALUES (?,?,?)";
            transaction.execute(sql, (class, body, visible_at)).unwrap();
        }
        forget(&transaction, "2025-05-15T00:00:00.000Z").unwrap();
        let left = "SELECT count(*), count(*) FILTER (WHERE class = 'kept') FROM tickets";
        let left = transaction.query_row(left, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(left, Ok((4, 4)));
    }

    #[test]
    fn records_of_a_run_and_expired_records_are_found_by_index() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        let transaction = connection.transaction().unwrap();
        schema::create(&transaction).unwrap();
        for (condition, index) in
            [(OF_RUN, "instances_of_run"), (EXPIRED, "instances_by_threshold")]
        {
            let sql = format!("EXPLAIN QUERY PLAN SELECT * FROM instances WHERE {condition}");
            let plan: String = transaction.query_row(&sql, ["x"], |row| row.get(3)).unwrap();
            assert!(plan.starts_with("SEARCH") && plan.contains(index), "{plan}");
        }
    }
}
