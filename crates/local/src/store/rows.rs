//! Reads records and agent status. A corrupt row is reported with its id and does not keep other rows
//! from being read.

use std::time::Duration;

use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::readiness::{Readiness, ReadinessNote};
use ondeck_core::model::record::{Record, RecordRow, Unreadable};
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Listing;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params};

/// The columns of `instances`, in the order that [`record`] expects.
pub(crate) const COLUMNS: &str = "id, state, run, threshold, resource_class, instance_type, \
     usage_class, cpu, mem, created_at, updated_at, ticketed_at, settings_version, \
     generation, runs, missed_registrations, label, reuse, departure";

/// Returns the records that satisfy a condition, ordered by id, and the corrupt rows among them.
pub(crate) fn listing(
    connection: &Connection,
    condition: &str,
    params: impl Params,
) -> rusqlite::Result<Listing> {
    let sql = format!("SELECT {COLUMNS} FROM instances WHERE {condition} ORDER BY id");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let mut listing = Listing::default();
    while let Some(row) = rows.next()? {
        match record(row) {
            Ok(record) => listing.records.push(record),
            Err(unreadable) => listing.unreadable.push(unreadable),
        }
    }
    Ok(listing)
}

/// Reads one record. `None` if there is no row with this id, `Err` if the row is corrupt.
pub(crate) fn found(
    connection: &Connection,
    id: &str,
) -> rusqlite::Result<Option<Result<Record, Unreadable>>> {
    let sql = format!("SELECT {COLUMNS} FROM instances WHERE id = ?1");
    connection.prepare_cached(&sql)?.query_row([id], |row| Ok(record(row))).optional()
}

/// Reads a row of [`COLUMNS`].
pub(crate) fn record(row: &rusqlite::Row<'_>) -> Result<Record, Unreadable> {
    let id = text(row, 0).unwrap_or_else(|_| "?".to_owned());
    let row = wire(row).map_err(|problem| Unreadable { id, problem })?;
    Record::try_from(row)
}

fn wire(row: &rusqlite::Row<'_>) -> Result<RecordRow, String> {
    Ok(RecordRow {
        instance_id: text(row, 0)?,
        state: text(row, 1)?,
        run_id: text(row, 2)?,
        threshold: text(row, 3)?,
        resource_class: text(row, 4)?,
        instance_type: text(row, 5)?,
        usage_class: text(row, 6)?,
        cpu: number(row, 7)?,
        mem: number(row, 8)?,
        created_at: text(row, 9)?,
        updated_at: text(row, 10)?,
        ticketed_at: text(row, 11)?,
        settings_version: text(row, 12)?,
        generation: number(row, 13)?,
        runs: number(row, 14)?,
        missed_registrations: number(row, 15)?,
        label: text(row, 16)?,
        reuse: text(row, 17)?,
        departure: text(row, 18)?,
    })
}

fn text(row: &rusqlite::Row<'_>, column: usize) -> Result<String, String> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(text)) => match std::str::from_utf8(text) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(format!("{} is not UTF-8", name(row, column))),
        },
        Ok(other) => Err(format!("{} is not text but {}", name(row, column), other.data_type())),
        Err(error) => Err(error.to_string()),
    }
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> Result<i64, String> {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(number)) => Ok(number),
        Ok(other) => {
            Err(format!("{} is not a number but {}", name(row, column), other.data_type()))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn name<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> &'a str {
    row.as_ref().column_name(column).unwrap_or("a column")
}

/// Returns the agent status of each id in a JSON array, in the same order.
pub(crate) fn agent_status(
    connection: &Connection,
    ids: &str,
) -> rusqlite::Result<Vec<AgentStatus>> {
    const SQL: &str = "SELECT s.signal, s.run, s.detail, s.at,
            h.at, h.period_ms, h.protocol, h.registration_ms, h.busy, s.generation, s.label,
            h.interrupted, r.body, r.at, h.ready_claim_ms
         FROM json_each(?1) AS wanted
         LEFT JOIN heartbeats AS h ON h.id = wanted.value
         LEFT JOIN signals AS s ON s.id = wanted.value
         LEFT JOIN readiness AS r ON r.id = wanted.value
         ORDER BY wanted.key";
    let mut statement = connection.prepare_cached(SQL)?;
    let rows = statement.query_map([ids], |row| {
        Ok(AgentStatus {
            heartbeat: heartbeat(row),
            report: report(row),
            readiness: readiness(row),
        })
    })?;
    rows.collect()
}

/// Reads a heartbeat. A corrupt one counts as none; the agent's next one replaces it.
fn heartbeat(row: &rusqlite::Row<'_>) -> Option<Heartbeat> {
    let millis = |column| Some(Duration::from_millis(number(row, column).ok()?.try_into().ok()?));
    Some(Heartbeat {
        at: Timestamp::parse(&text(row, 4).ok()?).ok()?,
        period: millis(5)?,
        protocol: number(row, 6).ok()?.try_into().ok()?,
        registration: millis(7),
        ready_claim: millis(14),
        busy: number(row, 8).ok()? != 0,
        interrupted: number(row, 11).is_ok_and(|it| it != 0),
    })
}

fn readiness(row: &rusqlite::Row<'_>) -> Option<ReadinessNote> {
    let body = text(row, 12).ok()?;
    let at = Timestamp::parse(&text(row, 13).ok()?).ok()?;
    Some(ReadinessNote { readiness: Readiness::read(&body)?, at })
}

/// Reads a signal. A corrupt one is logged and counts as none; the agent's next signal replaces it.
fn report(row: &rusqlite::Row<'_>) -> Option<Report> {
    let word = text(row, 0).ok()?;
    let run = text(row, 1).ok()?;
    let read = || {
        let run = if run.is_empty() { None } else { Some(RunId::new(run.as_str()).ok()?) };
        let (suffix, machine_label) = Report::read_label(run.as_ref(), &text(row, 10).ok()?);
        Some(Report {
            signal: Signal::parse(&word)?,
            suffix,
            machine_label,
            run,
            detail: text(row, 2).ok()?,
            at: Timestamp::parse(&text(row, 3).ok()?).ok()?,
            generation: number(row, 9).ok().and_then(|number| number.try_into().ok()),
        })
    };
    let report = read();
    if report.is_none() {
        tracing::warn!(signal = word, "unreadable signal; skipped");
    }
    report
}
