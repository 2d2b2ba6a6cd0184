//! What has happened, for people: events and summaries of provisions.

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{EventRow, State, concerning};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::summary::ProvisionSummary;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Events, History, PortResult};
use rusqlite::{Connection, Transaction, params};

use super::{LocalStore, column, schema};

/// The latest events of one machine. One more than asked for tells that there are others.
const OF_MACHINE: &str = "SELECT * FROM events WHERE instance = ?1 ORDER BY seq DESC LIMIT ?2";
/// The latest events of a span.
const BETWEEN: &str =
    "SELECT * FROM events WHERE at >= ?1 AND at <= ?2 ORDER BY at DESC, seq DESC LIMIT ?3";
/// All events of the machines that a run has owned.
const OF_MACHINES_OF_RUN: &str = "SELECT * FROM events
    WHERE instance IN (SELECT instance FROM events WHERE run = ?1) ORDER BY seq";
const SUMMARIES_OF_RUN: &str =
    "SELECT body, run FROM summaries WHERE run = ?1 ORDER BY key DESC LIMIT ?2";
const RECENT_SUMMARIES: &str =
    "SELECT body, run FROM summaries WHERE key >= ?1 ORDER BY key DESC LIMIT ?2";

pub(super) fn event(row: &rusqlite::Row<'_>) -> rusqlite::Result<EventRow> {
    let state = |text: &str| column::word(text, State::parse);
    Ok(EventRow {
        instance: column::parsed(row, "instance", str::parse)?,
        at: column::time(row, "at")?,
        transition: row.get("transition")?,
        from: column::optional(row, "from_state", state)?,
        to: column::parsed(row, "to_state", state)?,
        run: column::optional(row, "run", str::parse)?,
        why: row.get("why")?,
    })
}

/// Stores a summary, in place of an earlier version of it.
pub(super) fn put_summary(
    transaction: &Transaction<'_>,
    summary: &ProvisionSummary,
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO summaries (run, key, body) VALUES (?,?,?)";
    schema::add_later_tables(transaction)?;
    let row = params![summary.run.as_str(), summary.key(), summary.stored()];
    transaction.prepare_cached(SQL)?.execute(row).map(drop)
}

fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl LocalStore {
    /// The summaries that a query finds, the oldest first. A file that no refresh has touched since an
    /// older version made it has none.
    async fn summaries(
        &self,
        sql: &'static str,
        key: String,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        let read = move |connection: &mut Connection| {
            if !schema::has_later_tables(connection)? {
                return Ok(Vec::new());
            }
            let mut statement = connection.prepare_cached(sql)?;
            let row = |row: &rusqlite::Row<'_>| {
                Ok((column::lossy_text(row)?, column::parsed(row, "run", str::parse)?))
            };
            column::readable(statement.query_map(params![key, bounded(limit)], row)?)
        };
        let bodies: Vec<(String, RunId)> = self.db.call(read).await?;
        let read = |(body, run): &(String, RunId)| ProvisionSummary::read(run, body);
        Ok(bodies.iter().rev().filter_map(read).collect())
    }
}

#[async_trait]
impl History for LocalStore {
    fn kept_since(&self, settings: &Settings, now: Timestamp) -> Timestamp {
        now.before(settings.times.retention)
    }

    async fn events_of_machine(&self, id: &InstanceId, limit: usize) -> PortResult<Events> {
        let (id, most) = (id.to_string(), bounded(limit.saturating_add(1)));
        let read = move |connection: &mut Connection| {
            let mut statement = connection.prepare_cached(OF_MACHINE)?;
            column::readable(statement.query_map(params![id, most], event)?)
        };
        let mut rows: Vec<EventRow> = self.db.call(read).await?;
        rows.reverse();
        Ok(Events::latest(rows, limit))
    }

    async fn events_of_run(&self, run: &RunId, limit: usize) -> PortResult<Events> {
        let id = run.to_string();
        let read = move |connection: &mut Connection| {
            let mut statement = connection.prepare_cached(OF_MACHINES_OF_RUN)?;
            column::readable(statement.query_map([id], event)?)
        };
        let rows: Vec<EventRow> = self.db.call(read).await?;
        Ok(Events::latest(concerning(rows, run), limit))
    }

    async fn events_between(
        &self,
        since: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> PortResult<Events> {
        let (since, until) = (since.to_string(), until.to_string());
        let most = bounded(limit.saturating_add(1));
        let read = move |connection: &mut Connection| {
            let mut statement = connection.prepare_cached(BETWEEN)?;
            column::readable(statement.query_map(params![since, until, most], event)?)
        };
        let mut rows: Vec<EventRow> = self.db.call(read).await?;
        rows.reverse();
        Ok(Events::latest(rows, limit))
    }

    async fn summaries_of_run(
        &self,
        run: &RunId,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        self.summaries(SUMMARIES_OF_RUN, run.to_string(), limit).await
    }

    async fn recent_summaries(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        self.summaries(RECENT_SUMMARIES, now.start_of_day_before().to_string(), limit).await
    }
}
