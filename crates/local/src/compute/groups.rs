//! The table of process groups that were started on machines. The process that terminates a machine
//! may not be the one that started them.
//!
//! A row exists from the start of its group until the group is known to be gone. Rows of another boot
//! are ignored, because their pids may have been reused.

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::PortResult;
use ondeck_processes::{Boot, MachineProcesses, Process, is_group_gone, kill_group};
use rusqlite::Connection;

use crate::store::column;
use crate::store::db::{Db, in_transaction};

/// Records a group by its leader. If that fails, the group is killed, because it could not be found
/// later.
pub(crate) async fn record(db: &Db, instance: &InstanceId, leader: Process) -> PortResult<()> {
    const SQL: &str =
        "INSERT OR REPLACE INTO process_groups (instance, pid, start_time, boot) VALUES (?,?,?,?)";
    let row = (instance.to_string(), leader.pid, leader.start_time, Boot::name());
    let recorded =
        db.write(move |transaction| transaction.prepare_cached(SQL)?.execute(row).map(drop)).await;
    if recorded.is_err() {
        kill_group(leader);
    }
    recorded
}

/// Removes the row of a group if the group is gone, because its pid may be reused from then on. A
/// failure is logged.
pub(crate) async fn forget_if_gone(db: &Db, instance: &InstanceId, leader: Process) {
    const SQL: &str =
        "DELETE FROM process_groups WHERE instance = ?1 AND pid = ?2 AND start_time = ?3";
    if !is_group_gone(leader) {
        return;
    }
    let row = (instance.to_string(), leader.pid, leader.start_time);
    let dropped = db.write(move |tx| tx.prepare_cached(SQL)?.execute(row).map(drop)).await;
    if let Err(error) = dropped {
        // The row stays until the machine is cleaned or terminated.
        tracing::warn!(group = leader.pid, "cannot remove the record of a process group: {error}");
    }
}

/// Returns the leaders of the groups of a machine.
pub(crate) fn of(connection: &Connection, instance: &InstanceId) -> rusqlite::Result<Vec<Process>> {
    let sql = "SELECT pid, start_time, boot FROM process_groups WHERE instance = ?1";
    let leader = |row: &rusqlite::Row<'_>| {
        let boot = Boot::named(row.get_ref("boot")?.as_str()?);
        Ok(Process { pid: row.get("pid")?, start_time: row.get("start_time")?, boot })
    };
    column::readable(connection.prepare_cached(sql)?.query_map([instance.as_str()], leader)?)
}

/// Kills every process of a machine except the calling one. Only the machine's agent may call this,
/// because it is the only process that starts groups. Fails if a process survives. Writes nothing, so
/// that it works on a full disk.
pub(crate) async fn kill_others(db: &Db, instance: &InstanceId) -> Result<(), String> {
    let id = instance.clone();
    let groups = db.call(move |conn| of(conn, &id)).await.map_err(|e| e.to_string())?;
    let machine = MachineProcesses { groups, ..MachineProcesses::of(instance) };
    let survivors = ondeck_processes::kill_others(machine).await.map_err(|e| e.to_string())?;
    survivors.map_or(Ok(()), |survivors| Err(survivors.to_string()))
}

/// Removes the rows of a machine's groups, which must be gone.
pub(crate) async fn forget_all(db: &Db, instance: &InstanceId) -> PortResult<()> {
    const SQL: &str = "DELETE FROM process_groups WHERE instance = ?1";
    let id = instance.clone();
    db.call(move |connection| {
        // Writers block each other, and all machines of a run end their run at once.
        if of(connection, &id)?.is_empty() {
            return Ok(());
        }
        in_transaction(connection, |tx| tx.execute(SQL, [id.as_str()]).map(drop))
    })
    .await
}
