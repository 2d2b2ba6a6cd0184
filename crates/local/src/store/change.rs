//! The conditional write that applies a change.

use ondeck_core::lifecycle::{Change, Next, Verdict};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::{Counts, Record, RecordRow, State, Unreadable};
use rusqlite::types::Value;
use rusqlite::{Transaction, params, params_from_iter};

use super::guard::condition;
use super::rows;

/// Applies a change if its guard admits the row, and records the event. Otherwise returns the record
/// that the guard refused. The row is read in the same transaction as the write.
pub(super) fn apply(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<Verdict> {
    let id = change.id().as_str();
    let before = match rows::found(transaction, id)? {
        Some(Err(unreadable)) => return Ok(Verdict::Unreadable(unreadable)),
        Some(Ok(record)) => Some(record),
        None => None,
    };
    let changed = match change.next() {
        Next::Insert(record) => insert(transaction, record)?,
        Next::Update { .. } => update(transaction, change)?,
    };
    if changed == 0 {
        return Ok(Verdict::Refused(before));
    }
    // The row was read under the same lock, so what the write leaves follows from it.
    let Some(after) = change.applied_to(before.as_ref()) else {
        let problem = format!("{} was made against its guard", change.transition());
        return Ok(Verdict::Unreadable(Unreadable { id: id.to_owned(), problem }));
    };
    record_event(transaction, change, before.map(|record| record.state), &after)?;
    Ok(Verdict::Agreed(after))
}

fn insert(transaction: &Transaction<'_>, record: &Record) -> rusqlite::Result<usize> {
    let sql = format!(
        "INSERT INTO instances ({}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) \
         ON CONFLICT DO NOTHING",
        rows::COLUMNS
    );
    let row = RecordRow::from(record);
    transaction.prepare_cached(&sql)?.execute(params![
        row.instance_id,
        row.state,
        row.run_id,
        row.threshold,
        row.resource_class,
        row.instance_type,
        row.usage_class,
        row.cpu,
        row.mem,
        row.created_at,
        row.updated_at,
        row.ticketed_at,
        row.settings_version,
        row.generation,
        row.runs,
        row.missed_registrations,
        row.label,
        row.reuse,
        row.departure,
    ])
}

fn update(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<usize> {
    let Next::Update {
        state,
        run,
        suffix,
        requested,
        threshold,
        counts,
        reuse,
        departure,
        keep_ticketed,
    } = change.next()
    else {
        return Ok(0);
    };
    let ticketed = if *keep_ticketed { "ticketed_at" } else { "''" };
    let guard = condition(change.guard());
    let sql = format!(
        "UPDATE instances SET state = ?, run = ?, label = ?, threshold = ?, updated_at = ?, \
         ticketed_at = {ticketed}, settings_version = coalesce(?, settings_version), \
         generation = coalesce(?, generation), runs = coalesce(?, runs), \
         missed_registrations = coalesce(?, missed_registrations), reuse = coalesce(?, reuse), \
         departure = coalesce(?, departure) WHERE id = ? AND {}",
        guard.sql
    );
    let text = |text: &str| Value::from(text.to_owned());
    let count = |pick: fn(&Counts) -> u32| Value::from(counts.as_ref().map(pick));
    let mut values = vec![
        text(state.as_str()),
        text(run.as_ref().map_or("", RunId::as_str)),
        Value::from(requested.stored(run.as_ref(), suffix.as_ref())),
        Value::from(threshold.map(|at| at.to_string()).unwrap_or_default()),
        Value::from(change.at().to_string()),
        Value::from(change.settings_version().map(|version| version.as_str().to_owned())),
        count(|counts| counts.generation),
        count(|counts| counts.runs),
        count(|counts| counts.missed_registrations),
        Value::from(reuse.map(|reuse| reuse.stored().to_owned())),
        Value::from(departure.map(|departure| departure.stored().to_owned())),
        text(change.id().as_str()),
    ];
    values.extend(guard.values);
    transaction.prepare_cached(&sql)?.execute(params_from_iter(values))
}

fn record_event(
    transaction: &Transaction<'_>,
    change: &Change,
    from: Option<State>,
    after: &Record,
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO events
        (instance, at, transition, from_state, to_state, run, why) VALUES (?,?,?,?,?,?,?)";
    transaction.prepare_cached(SQL)?.execute(params![
        after.id.as_str(),
        change.at().to_string(),
        change.transition().as_str(),
        from.map_or("", State::as_str),
        after.state.as_str(),
        after.run.as_ref().map_or("", RunId::as_str),
        change.why(),
    ])?;
    Ok(())
}
