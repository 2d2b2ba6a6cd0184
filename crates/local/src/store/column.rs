//! Reading columns as the types they stand for.

use std::error::Error;
use std::fmt;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::timestamp::{InvalidTime, Timestamp};
use ondeck_processes::{Boot, Process};
use rusqlite::Row;
use rusqlite::types::Type;

/// A text that must be a `T`.
pub(crate) fn parsed<T, E: Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).map_err(|error| unfit(row, column, error))
}

/// A text that is empty or must be a `T`.
pub(crate) fn optional<T, E: Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<Option<T>> {
    parsed(row, column, |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
}

/// A moment.
pub(crate) fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    parsed::<_, InvalidTime>(row, column, Timestamp::parse)
}

/// A moment, or none yet.
pub(crate) fn optional_time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    optional::<_, InvalidTime>(row, column, Timestamp::parse)
}

/// A process by the columns that name it, if it has been noted.
pub(crate) fn process(row: &Row<'_>) -> rusqlite::Result<Option<Process>> {
    let (pid, start_time): (Option<i32>, Option<i64>) = (row.get("pid")?, row.get("start_time")?);
    let boot = Boot::named(row.get_ref("boot")?.as_str()?);
    Ok(pid.zip(start_time).map(|(pid, start_time)| Process { pid, start_time, boot }))
}

/// A text that must be one of the words for something.
pub(crate) fn word<T>(text: &str, find: impl FnOnce(&str) -> Option<T>) -> Result<T, UnknownWord> {
    find(text).ok_or_else(|| UnknownWord(text.to_owned()))
}

/// A text that is none of them.
#[derive(Debug)]
pub(crate) struct UnknownWord(String);

impl Error for UnknownWord {}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown word: {}", quoted(&self.0))
    }
}

/// A setting of which that cannot be said.
#[derive(Debug)]
pub(crate) struct NotText(pub(crate) String);

impl Error for NotText {}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the setting is not text: {}", quoted(&self.0))
    }
}

/// The first column, whatever it holds, for somebody who makes sense of it or not.
pub(crate) fn words(row: &Row<'_>) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned())
}

/// The rows that could be read; the others are named in the log, and spoil none of them.
pub(crate) fn sound<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
) -> rusqlite::Result<Vec<T>> {
    let mut sound = Vec::new();
    for row in rows {
        match row {
            // What SQLite itself complains of concerns more than this row.
            Err(error) if error.sqlite_error_code().is_none() => {
                tracing::warn!("unreadable row: {error}; skipped");
            }
            row => sound.push(row?),
        }
    }
    Ok(sound)
}

/// A column that holds something else.
pub(crate) fn unfit(
    row: &Row<'_>,
    column: &str,
    error: impl Error + Send + Sync + 'static,
) -> rusqlite::Error {
    let index = row.as_ref().column_index(column).unwrap_or_default();
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}
