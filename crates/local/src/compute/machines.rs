//! The table of machines: what was launched, as which process it runs, and when it was terminated.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::model::ids::{InstanceId, IntentId, RunId};
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Machine, PortError, PortResult};
use ondeck_processes::{Boot, Process};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::forge::jobs;
use crate::store::column;
use crate::store::db::Db;

/// How long a machine may be listed before its process is recorded: the time between inserting its
/// row and starting the process.
const STARTING: Duration = Duration::from_secs(10);

/// Records the calling process as the agent of a machine. The launcher records it too, but may be
/// killed before. Fails if the machine does not exist or is terminated.
pub async fn announce(db: &Db, id: &InstanceId) -> PortResult<()> {
    let name = id.to_string();
    let recorded = db
        .write(move |transaction| match Process::current() {
            Some(me) => record_process(transaction, &name, me),
            None => Ok(false),
        })
        .await?;
    if recorded {
        return Ok(());
    }
    Err(PortError::Unusable {
        service: "compute",
        reason: format!("no such machine, or it was terminated already: {id}"),
        hint: "start agents by ondeck provision or ondeck refresh only".to_owned(),
    })
}

/// Returns the simulated boot time of a machine.
pub async fn boot_time(db: &Db, id: &InstanceId) -> PortResult<Duration> {
    let id = id.to_string();
    let boot_ms = db
        .call(move |connection| {
            let sql = "SELECT boot_ms FROM machines WHERE id = ?1";
            connection.query_row(sql, [id], |row| row.get::<_, u32>(0)).optional()
        })
        .await?;
    Ok(Duration::from_millis(boot_ms.unwrap_or(0).into()))
}

/// Returns the pid of a machine's agent, or `None` if it has not been recorded.
pub async fn pid(db: &Db, id: &InstanceId) -> PortResult<Option<i32>> {
    let id = id.clone();
    let process = db.call(move |connection| process_of(connection, &id)).await?;
    Ok(process.map(|process| process.pid))
}

/// A row of the table of machines.
#[derive(Debug, Clone)]
pub(crate) struct ListedMachine {
    pub(crate) machine: Machine,
    pub(crate) process: Option<Process>,
    pub(crate) ended: bool,
}

impl ListedMachine {
    /// Whether its process runs, or may still be starting.
    pub(crate) fn is_up(&self, now: Timestamp) -> bool {
        match self.process {
            Some(process) => process.is_alive(),
            None => now.since(self.machine.launched_at) < STARTING,
        }
    }

    /// Whether it may still exist. `false` if it was terminated, or if its launcher was killed before
    /// it started a process.
    pub(crate) fn may_be_there(&self, now: Timestamp) -> bool {
        !self.ended && (self.process.is_some() || self.is_up(now))
    }

    /// Whether it was ever started. A terminated machine without a process was not.
    pub(crate) fn was_started(&self) -> bool {
        self.process.is_some() || !self.ended
    }
}

/// Returns the machines that are not terminated. Corrupt rows are logged and skipped.
pub(crate) fn not_ended(connection: &Connection) -> rusqlite::Result<Vec<ListedMachine>> {
    let sql = "SELECT * FROM machines WHERE ended_at = '' ORDER BY id";
    column::readable(connection.prepare_cached(sql)?.query_map([], listed)?)
}

/// Returns the ids of the machines that are not terminated, including those of corrupt rows.
pub(crate) fn not_ended_ids(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let sql = "SELECT CAST(id AS TEXT) FROM machines WHERE ended_at = ''";
    let mut statement = connection.prepare_cached(sql)?;
    let ids = statement.query_map([], |row| row.get(0))?;
    ids.collect()
}

/// Returns the ids of all machines in the table, terminated ones included.
pub(crate) fn all_ids(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare_cached("SELECT id FROM machines")?;
    let ids = statement.query_map([], |row| row.get(0))?;
    ids.collect()
}

/// Returns the machines of one launch, terminated ones included.
pub(crate) fn of_intent(
    connection: &Connection,
    intent: &IntentId,
) -> rusqlite::Result<Vec<ListedMachine>> {
    let sql = "SELECT * FROM machines WHERE intent = ?1 ORDER BY id";
    column::readable(connection.prepare_cached(sql)?.query_map([intent.as_str()], listed)?)
}

/// Returns the process of a machine, or `None` if it has not been recorded.
pub(crate) fn process_of(
    connection: &Connection,
    id: &InstanceId,
) -> rusqlite::Result<Option<Process>> {
    let sql = "SELECT pid, start_time, boot FROM machines WHERE id = ?1";
    let found =
        connection.prepare_cached(sql)?.query_row([id.as_str()], column::process).optional()?;
    Ok(found.flatten())
}

/// Inserts a machine before its process is started.
pub(crate) fn insert(
    transaction: &Transaction<'_>,
    machine: &Machine,
    run: &RunId,
    boot_ms: u32,
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO machines (id, resource_class, instance_type, usage_class, cpu,
        mem, intent, run, launched_at, boot_ms) VALUES (?,?,?,?,?,?,?,?,?,?)";
    let spec = &machine.spec;
    transaction.prepare_cached(SQL)?.execute(params![
        machine.id.as_str(),
        spec.resource_class.as_str(),
        spec.instance_type,
        spec.usage_class.as_str(),
        spec.cpu,
        spec.mem,
        machine.intent.as_str(),
        run.as_str(),
        machine.launched_at.to_string(),
        boot_ms,
    ])?;
    Ok(())
}

/// Records the process of a machine. Returns `false` if the machine is terminated.
pub(crate) fn record_process(
    transaction: &Transaction<'_>,
    id: &str,
    process: Process,
) -> rusqlite::Result<bool> {
    const SQL: &str =
        "UPDATE machines SET pid = ?2, start_time = ?3, boot = ?4 WHERE id = ?1 AND ended_at = ''";
    let values = (id, process.pid, process.start_time, Boot::name());
    let changed = transaction.prepare_cached(SQL)?.execute(values)?;
    Ok(changed > 0)
}

/// Marks a machine as terminated and records its running jobs as failed. The caller must have killed
/// its processes. Its runner stays listed as an offline runner, as on GitHub.
pub(crate) fn mark_terminated(
    transaction: &Transaction<'_>,
    id: &InstanceId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE machines SET ended_at = ?2 WHERE id = ?1 AND ended_at = ''";
    const GROUPS: &str = "DELETE FROM process_groups WHERE instance = ?1";
    transaction.prepare_cached(SQL)?.execute((id.as_str(), now.to_string()))?;
    transaction.prepare_cached(GROUPS)?.execute([id.as_str()])?;
    jobs::fail_jobs_of(transaction, id, now)
}

fn listed(row: &rusqlite::Row<'_>) -> rusqlite::Result<ListedMachine> {
    let machine = Machine {
        id: column::parsed(row, "id", str::parse)?,
        spec: MachineSpec {
            resource_class: column::parsed(row, "resource_class", str::parse)?,
            instance_type: row.get("instance_type")?,
            usage_class: column::parsed(row, "usage_class", str::parse)?,
            cpu: row.get("cpu")?,
            mem: row.get("mem")?,
        },
        intent: column::parsed(row, "intent", str::parse)?,
        launched_at: column::time(row, "launched_at")?,
        image: None,
    };
    let ended: String = row.get("ended_at")?;
    Ok(ListedMachine { machine, process: column::process(row)?, ended: !ended.is_empty() })
}
