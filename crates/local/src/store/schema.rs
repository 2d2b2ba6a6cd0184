//! The tables of the file, and how to recognise a file of ondeck.

use std::path::Path;

use ondeck_core::ports::PortError;
use rusqlite::{Connection, Transaction};

use crate::error::SERVICE;

/// "ONDK", in SQLite's header field that identifies the application.
const APPLICATION: i32 = 0x4F4E_444B;
/// Incremented whenever the tables change.
const VERSION: i32 = 7;

/// Times are RFC 3339 with milliseconds, so that text order is time order, or `''` for none. Columns
/// are not strictly typed, because a row that was corrupted by hand must not keep others from being
/// read.
const TABLES: &str = "
CREATE TABLE instances (
    id TEXT PRIMARY KEY NOT NULL, state TEXT, run TEXT, threshold TEXT, resource_class TEXT,
    instance_type TEXT, usage_class TEXT, cpu INTEGER, mem INTEGER, created_at TEXT,
    updated_at TEXT, ticketed_at TEXT, settings_version TEXT, generation INTEGER, runs INTEGER,
    missed_registrations INTEGER, label TEXT, reuse TEXT, departure TEXT DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX instances_of_run ON instances (run) WHERE run <> '';
CREATE INDEX instances_by_threshold ON instances (threshold) WHERE state <> 'terminated';
CREATE TABLE heartbeats (
    id TEXT PRIMARY KEY NOT NULL, at TEXT, period_ms INTEGER, protocol INTEGER,
    registration_ms INTEGER, busy INTEGER, interrupted INTEGER, ready_claim_ms INTEGER
) WITHOUT ROWID;
CREATE TABLE signals (
    id TEXT PRIMARY KEY NOT NULL, signal TEXT, run TEXT, detail TEXT, at TEXT, generation INTEGER,
    label TEXT
) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE intents (
    id TEXT PRIMARY KEY NOT NULL, run TEXT, resource_class TEXT, count INTEGER,
    usage_class TEXT, deadline TEXT, outcome TEXT
) WITHOUT ROWID;
CREATE INDEX intents_open ON intents (id) WHERE outcome = '';
CREATE TABLE machine_count (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL);
CREATE TABLE credentials (
    id INTEGER PRIMARY KEY CHECK (id = 1), registration TEXT NOT NULL, removal TEXT NOT NULL,
    expires_at TEXT NOT NULL
);
CREATE TABLE demands (
    run TEXT NOT NULL, label TEXT NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (run, label)
) WITHOUT ROWID;
CREATE INDEX demands_by_age ON demands (at);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT, at TEXT, transition TEXT,
    from_state TEXT, to_state TEXT, run TEXT, why TEXT
);
CREATE TABLE tickets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, class TEXT NOT NULL, body TEXT NOT NULL,
    visible_at TEXT NOT NULL, receipt TEXT NOT NULL DEFAULT '',
    received_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX tickets_in_turn ON tickets (class, visible_at, id);
CREATE INDEX tickets_by_receipt ON tickets (receipt) WHERE receipt <> '';
CREATE TABLE machines (
    id TEXT PRIMARY KEY NOT NULL, resource_class TEXT, instance_type TEXT, usage_class TEXT,
    cpu INTEGER, mem INTEGER, intent TEXT, run TEXT, launched_at TEXT,
    boot_ms INTEGER NOT NULL DEFAULT 0, pid INTEGER, start_time INTEGER,
    boot TEXT NOT NULL DEFAULT '', ended_at TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX machines_of_intent ON machines (intent);
CREATE INDEX machines_up ON machines (id) WHERE ended_at = '';
CREATE TABLE process_groups (
    instance TEXT NOT NULL, pid INTEGER NOT NULL, start_time INTEGER NOT NULL,
    boot TEXT NOT NULL, PRIMARY KEY (instance, pid, start_time)
) WITHOUT ROWID;
CREATE TABLE runners (
    name TEXT PRIMARY KEY NOT NULL, instance TEXT NOT NULL, label TEXT NOT NULL,
    registered_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runners_of_instance ON runners (instance);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT NOT NULL, argv TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued', runner TEXT NOT NULL DEFAULT '',
    instance TEXT NOT NULL DEFAULT '', exit_code INTEGER, cancel INTEGER NOT NULL DEFAULT 0,
    queued_at TEXT NOT NULL, started_at TEXT NOT NULL DEFAULT '',
    finished_at TEXT NOT NULL DEFAULT '', pid INTEGER, start_time INTEGER,
    boot TEXT NOT NULL DEFAULT '', run TEXT DEFAULT ''
);
CREATE INDEX jobs_queued ON jobs (label, id) WHERE state = 'queued';
CREATE INDEX jobs_running ON jobs (instance) WHERE state = 'running';
CREATE TABLE job_output (
    job INTEGER NOT NULL, seq INTEGER NOT NULL, stream TEXT NOT NULL, bytes BLOB NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
";

/// Tables that came after this version of the schema. A file without them is still ours, and gets them
/// when they are written to. The key of a summary begins with the time of its call.
const LATER_TABLES: &str = "
CREATE TABLE IF NOT EXISTS summaries (
    run TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS summaries_by_time ON summaries (key);
CREATE TABLE IF NOT EXISTS readiness (
    id TEXT PRIMARY KEY NOT NULL, body TEXT, at TEXT
) WITHOUT ROWID;
";

/// The columns that came later, each with its table and what it holds.
const LATER_COLUMNS: [(&str, &str, &str); 3] = [
    ("instances", "departure", "TEXT DEFAULT ''"),
    ("jobs", "run", "TEXT DEFAULT ''"),
    ("heartbeats", "ready_claim_ms", "INTEGER"),
];

/// Creates the tables that a file of an earlier version lacks.
pub(crate) fn add_later_tables(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(LATER_TABLES)
}

/// Whether the file has all tables.
pub(crate) fn has_later_tables(connection: &Connection) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'summaries')";
    connection.prepare_cached(SQL)?.query_row([], |row| row.get(0))
}

/// What a database file contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileContent {
    /// The tables of this version of ondeck.
    Ours,
    /// No tables, as in a new file.
    Nothing,
    /// Anything else. The file must not be changed.
    Other(SchemaProblem),
}

/// Why a file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SchemaProblem {
    /// It is the database of another program.
    Foreign,
    /// An older ondeck created it, with this schema version.
    Older(i32),
    /// A newer ondeck created it, with this schema version.
    Newer(i32),
}

impl SchemaProblem {
    /// The error for this file, with a hint.
    pub(crate) fn error_for(&self, file: &Path) -> PortError {
        let file = file.display();
        let (reason, hint) = match self {
            SchemaProblem::Foreign => (
                format!("{file} is the database of another program"),
                "choose another --home".to_owned(),
            ),
            SchemaProblem::Older(version) => (
                format!(
                    "{file} was made by an older ondeck: it has schema version {version}, \
                     and this ondeck knows {VERSION}"
                ),
                "terminate its machines with that ondeck, move the file away, then run ondeck refresh"
                    .to_owned(),
            ),
            SchemaProblem::Newer(version) => (
                format!("{file} has schema version {version}, and this ondeck knows {VERSION}"),
                "use a newer ondeck, or choose another --home".to_owned(),
            ),
        };
        PortError::Unusable { service: SERVICE, reason, hint }
    }
}

/// Determines what the file contains.
pub(crate) fn inspect(connection: &Connection) -> rusqlite::Result<FileContent> {
    // One statement, so that no other process can create the tables in between.
    const HEADER: &str = "SELECT (SELECT application_id FROM pragma_application_id),
        (SELECT user_version FROM pragma_user_version),
        (SELECT count(*) FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*')";
    let (application, version, tables): (i32, i32, i64) =
        connection.query_row(HEADER, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(match (application, version) {
        (APPLICATION, VERSION) => FileContent::Ours,
        (APPLICATION, newer) if newer > VERSION => FileContent::Other(SchemaProblem::Newer(newer)),
        (APPLICATION, older) => FileContent::Other(SchemaProblem::Older(older)),
        (0, 0) if tables == 0 => FileContent::Nothing,
        _ => FileContent::Other(SchemaProblem::Foreign),
    })
}

/// Adds what files of this version did not have at first, unless it is there: the tables, and a column. A
/// program that does not know them names what it reads and writes, so it can still use the file.
pub(crate) fn complete(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    for (table, column, kind) in LATER_COLUMNS {
        if !has_column(transaction, table, column)? {
            let sql = format!("ALTER TABLE {table} ADD COLUMN {column} {kind}");
            transaction.execute_batch(&sql)?;
        }
    }
    add_later_tables(transaction)
}

/// Whether the file has all of that.
pub(crate) fn is_complete(connection: &Connection) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'readiness')";
    let has_tables: bool = connection.prepare_cached(SQL)?.query_row([], |row| row.get(0))?;
    for (table, column, _) in LATER_COLUMNS {
        if !has_tables || !has_column(connection, table, column)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_column(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    let count = connection.prepare_cached(SQL)?.query_row([table, column], |row| row.get(0));
    count.map(|count: i64| count > 0)
}

/// Drops all tables, so that the file is like a new one. Processes that have it open can then neither
/// read nor write.
pub(crate) fn drop_all(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    const NAMES: &str = "SELECT name FROM sqlite_schema
        WHERE type = 'table' AND name NOT GLOB 'sqlite_*'";
    let mut statement = transaction.prepare(NAMES)?;
    let names: Vec<String> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for name in names {
        transaction.execute_batch(&format!("DROP TABLE \"{name}\""))?;
    }
    transaction.pragma_update(None, "user_version", 0)?;
    transaction.pragma_update(None, "application_id", 0)
}

/// Creates the tables, unless another process has already done so. Returns why the file cannot be
/// used, if so.
pub(crate) fn create(transaction: &Transaction<'_>) -> rusqlite::Result<Option<SchemaProblem>> {
    match inspect(transaction)? {
        FileContent::Ours => add_later_tables(transaction).map(|()| None),
        FileContent::Other(problem) => Ok(Some(problem)),
        FileContent::Nothing => {
            transaction.execute_batch(TABLES)?;
            add_later_tables(transaction)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            Ok(None)
        }
    }
}
