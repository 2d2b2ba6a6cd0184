//! The list of machines in the shared file: what was launched, by which process it is embodied,
//! and when it ended.

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

/// How long a machine may be on the list before its process has been noted: the time between
/// writing the list and starting the process.
const STARTING: Duration = Duration::from_secs(10);

/// Called by an agent when it starts: notes that this process is the machine. The launcher notes
/// it as well, but may be killed before it does.
pub async fn announce(db: &Db, id: &InstanceId) -> PortResult<()> {
    let name = id.to_string();
    let noted = db
        .write(move |transaction| match Process::current() {
            Some(me) => embody(transaction, &name, me),
            None => Ok(false),
        })
        .await?;
    if noted {
        return Ok(());
    }
    Err(PortError::Unusable {
        service: "compute",
        reason: format!("no such machine, or it was ended already: {id}"),
        hint: "agents are started by ondeck provision and ondeck refresh".to_owned(),
    })
}

/// How long the machine pretends to boot.
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

/// The process that embodies a machine, if it has been noted.
pub async fn pid(db: &Db, id: &InstanceId) -> PortResult<Option<i32>> {
    let id = id.clone();
    let process = db.call(move |connection| process_of(connection, &id)).await?;
    Ok(process.map(|process| process.pid))
}

/// One row of the list.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) machine: Machine,
    pub(crate) process: Option<Process>,
    pub(crate) ended: bool,
}

impl Listed {
    /// Whether a process stands behind it, or may be about to.
    pub(crate) fn is_up(&self, now: Timestamp) -> bool {
        match self.process {
            Some(process) => process.is_alive(),
            None => now.since(self.machine.launched_at) < STARTING,
        }
    }

    /// Whether it may still be there: it has not ended, and is no row that a launcher left who
    /// was killed before he could start anything.
    pub(crate) fn may_be_there(&self, now: Timestamp) -> bool {
        !self.ended && (self.process.is_some() || self.is_up(now))
    }

    /// Whether there ever was a machine: one that ended without a process was never started.
    pub(crate) fn was_started(&self) -> bool {
        self.process.is_some() || !self.ended
    }
}

/// The machines that have not ended.
pub(crate) fn not_ended(connection: &Connection) -> rusqlite::Result<Vec<Listed>> {
    let sql = "SELECT * FROM machines WHERE ended_at = '' ORDER BY id";
    column::sound(connection.prepare_cached(sql)?.query_map([], listed)?)
}

/// The names of the machines that have not ended, also of those that cannot be read otherwise.
pub(crate) fn not_ended_ids(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let sql = "SELECT CAST(id AS TEXT) FROM machines WHERE ended_at = ''";
    let mut statement = connection.prepare_cached(sql)?;
    let ids = statement.query_map([], |row| row.get(0))?;
    ids.collect()
}

/// The name of every machine that has not been forgotten.
pub(crate) fn all_ids(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare_cached("SELECT id FROM machines")?;
    let ids = statement.query_map([], |row| row.get(0))?;
    ids.collect()
}

/// The machines of one launch, ended or not.
pub(crate) fn of_intent(
    connection: &Connection,
    intent: &IntentId,
) -> rusqlite::Result<Vec<Listed>> {
    let sql = "SELECT * FROM machines WHERE intent = ?1 ORDER BY id";
    column::sound(connection.prepare_cached(sql)?.query_map([intent.as_str()], listed)?)
}

/// The process of a machine, if it has been noted.
pub(crate) fn process_of(
    connection: &Connection,
    id: &InstanceId,
) -> rusqlite::Result<Option<Process>> {
    let sql = "SELECT pid, start_time, boot FROM machines WHERE id = ?1";
    let found =
        connection.prepare_cached(sql)?.query_row([id.as_str()], column::process).optional()?;
    Ok(found.flatten())
}

/// Puts a machine on the list, before there is one.
pub(crate) fn enlist(
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

/// Notes which process a machine is; `false` if the machine has ended meanwhile.
pub(crate) fn embody(
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

/// Takes a machine off the list, whose processes are gone, and settles the jobs that went with
/// it. Its runner stays listed, offline, as GitHub would have it.
pub(crate) fn strike(
    transaction: &Transaction<'_>,
    id: &InstanceId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE machines SET ended_at = ?2 WHERE id = ?1 AND ended_at = ''";
    const GROUPS: &str = "DELETE FROM process_groups WHERE instance = ?1";
    transaction.prepare_cached(SQL)?.execute((id.as_str(), now.to_string()))?;
    transaction.prepare_cached(GROUPS)?.execute([id.as_str()])?;
    jobs::settle_taken_away(transaction, id, now)
}

fn listed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Listed> {
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
    };
    let ended: String = row.get("ended_at")?;
    Ok(Listed { machine, process: column::process(row)?, ended: !ended.is_empty() })
}
