//! Reads columns as domain types.

use std::error::Error;
use std::fmt;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::timestamp::{InvalidTime, Timestamp};
use ondeck_processes::{Boot, Process};
use rusqlite::Row;
use rusqlite::types::Type;

/// Parses a text column. Fails if it is not text or does not parse.
pub(crate) fn parsed<T, E: Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).map_err(|error| invalid(row, column, error))
}

/// Parses a text column in which an empty text stands for `None`.
pub(crate) fn optional<T, E: Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<Option<T>> {
    parsed(row, column, |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
}

pub(crate) fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    parsed::<_, InvalidTime>(row, column, Timestamp::parse)
}

pub(crate) fn optional_time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    optional::<_, InvalidTime>(row, column, Timestamp::parse)
}

/// Reads a process from the columns `pid`, `start_time` and `boot`. `None` if they are empty.
pub(crate) fn process(row: &Row<'_>) -> rusqlite::Result<Option<Process>> {
    let (pid, start_time): (Option<i32>, Option<i64>) = (row.get("pid")?, row.get("start_time")?);
    let boot = Boot::named(row.get_ref("boot")?.as_str()?);
    Ok(pid.zip(start_time).map(|(pid, start_time)| Process { pid, start_time, boot }))
}

/// Looks up a keyword. Fails if `find` does not know it.
pub(crate) fn word<T>(text: &str, find: impl FnOnce(&str) -> Option<T>) -> Result<T, UnknownWord> {
    find(text).ok_or_else(|| UnknownWord(text.to_owned()))
}

/// The error for a text that is not one of the keywords of its column.
#[derive(Debug)]
pub(crate) struct UnknownWord(String);

impl Error for UnknownWord {}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown word: {}", quoted(&self.0))
    }
}

/// The error for a setting, by name, whose value is not text.
#[derive(Debug)]
pub(crate) struct NotText(pub(crate) String);

impl Error for NotText {}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the setting is not text: {}", quoted(&self.0))
    }
}

/// Reads the first column, text or bytes, and replaces invalid UTF-8. For values that the caller
/// checks itself.
pub(crate) fn lossy_text(row: &Row<'_>) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned())
}

/// Returns the rows that can be read and logs the others. Fails only if SQLite fails.
pub(crate) fn readable<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
) -> rusqlite::Result<Vec<T>> {
    let mut readable = Vec::new();
    for row in rows {
        match row {
            // An error of SQLite itself concerns more than this row.
            Err(error) if error.sqlite_error_code().is_none() => {
                tracing::warn!("unreadable row: {error}; skipped");
            }
            row => readable.push(row?),
        }
    }
    Ok(readable)
}

/// The error for a column with an invalid value.
pub(crate) fn invalid(
    row: &Row<'_>,
    column: &str,
    error: impl Error + Send + Sync + 'static,
) -> rusqlite::Error {
    let index = row.as_ref().column_index(column).unwrap_or_default();
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}
