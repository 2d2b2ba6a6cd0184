//! The count of machines: one row, whose body is the count as JSON. Core decides how it changes; the
//! transaction around each change keeps other processes out.

use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::column;

/// Reads the count. A corrupt one is logged and counts as none: then no launch is admitted until
/// refresh has counted again.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<MachineCount>> {
    const SQL: &str = "SELECT body FROM machine_count";
    let body: Option<String> =
        connection.prepare_cached(SQL)?.query_row([], column::lossy_text).optional()?;
    let parse = |body: String| {
        let warn = |error: &serde_json::Error| {
            tracing::warn!("unreadable count of machines: {error}; skipped");
        };
        serde_json::from_str(&body).inspect_err(warn).ok()
    };
    Ok(body.and_then(parse))
}

pub(super) fn reserve(
    transaction: &Transaction<'_>,
    reservation: &Reservation,
    limits: &Limits,
) -> rusqlite::Result<ReservationVerdict> {
    let found = read(transaction)?;
    match found.clone().and_then(|found| found.reserve(reservation, limits)) {
        None => Ok(ReservationVerdict::Refused(found)),
        Some(count) => {
            write(transaction, &count)?;
            Ok(ReservationVerdict::Granted)
        }
    }
}

pub(super) fn settle(
    transaction: &Transaction<'_>,
    settlement: &Settlement,
) -> rusqlite::Result<()> {
    match read(transaction)?.and_then(|found| found.settle(settlement)) {
        None => Ok(()),
        Some(count) => write(transaction, &count),
    }
}

pub(super) fn replace(
    transaction: &Transaction<'_>,
    version: Option<u64>,
    count: &MachineCount,
) -> rusqlite::Result<bool> {
    let unchanged = read(transaction)?.map(|found| found.version) == version;
    if unchanged {
        write(transaction, count)?;
    }
    Ok(unchanged)
}

fn write(transaction: &Transaction<'_>, count: &MachineCount) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO machine_count (id, body) VALUES (1, ?)";
    let body = serde_json::json!(count).to_string();
    transaction.prepare_cached(SQL)?.execute([body]).map(drop)
}
