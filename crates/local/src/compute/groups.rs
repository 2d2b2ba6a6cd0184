//! The process groups that were made on a machine, in the shared file: whoever ends the machine
//! may be another process than the one that made them.
//!
//! A row stands from the moment its group is made until somebody has seen that nothing is left of
//! the group, or seen to it. One of another boot stands for nothing: its number may be anybody's.

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::PortResult;
use ondeck_processes::{Boot, Ending, Process, end_all, is_group_gone, kill_group};
use rusqlite::Connection;

use crate::store::column;
use crate::store::db::Db;

/// Notes a group by its leader. What cannot be noted is ended again, because nobody could find
/// all of it later.
pub(crate) async fn note(db: &Db, instance: &InstanceId, leader: Process) -> PortResult<()> {
    const SQL: &str =
        "INSERT OR REPLACE INTO process_groups (instance, pid, start_time, boot) VALUES (?,?,?,?)";
    let row = (instance.to_string(), leader.pid, leader.start_time, Boot::name());
    let noted =
        db.write(move |transaction| transaction.prepare_cached(SQL)?.execute(row).map(drop)).await;
    if noted.is_err() {
        kill_group(leader);
    }
    noted
}

/// Drops the note about a group that has ended by itself: as soon as it is gone, its number may be
/// given to a stranger.
pub(crate) async fn drop_if_gone(db: &Db, instance: &InstanceId, leader: Process) {
    const SQL: &str =
        "DELETE FROM process_groups WHERE instance = ?1 AND pid = ?2 AND start_time = ?3";
    if !is_group_gone(leader) {
        return;
    }
    let row = (instance.to_string(), leader.pid, leader.start_time);
    let dropped = db.write(move |tx| tx.prepare_cached(SQL)?.execute(row).map(drop)).await;
    if let Err(error) = dropped {
        // It stays until the machine is cleaned or ended.
        tracing::warn!(group = leader.pid, "cannot drop the note about a group: {error}");
    }
}

/// The leaders of the groups of a machine.
pub(crate) fn of(connection: &Connection, instance: &InstanceId) -> rusqlite::Result<Vec<Process>> {
    let sql = "SELECT pid, start_time, boot FROM process_groups WHERE instance = ?1";
    let leader = |row: &rusqlite::Row<'_>| {
        let boot = Boot::named(row.get_ref("boot")?.as_str()?);
        Ok(Process { pid: row.get("pid")?, start_time: row.get("start_time")?, boot })
    };
    column::sound(connection.prepare_cached(sql)?.query_map([instance.as_str()], leader)?)
}

/// Ends whatever runs on a machine beside the calling process, which is its agent and so the only
/// one that makes groups on it, and drops the notes about them.
pub(crate) async fn end_others(db: &Db, instance: &InstanceId) -> Result<(), String> {
    const SQL: &str = "DELETE FROM process_groups WHERE instance = ?1";
    let id = instance.clone();
    let groups = db.call(move |conn| of(conn, &id)).await.map_err(|e| e.to_string())?;
    let machine = Ending { groups, ..Ending::of(instance) };
    if let Some(undying) = end_all(&[machine]).await.map_err(|e| e.to_string())?.first() {
        return Err(undying.to_string());
    }
    let id = instance.to_string();
    let dropped = db.write(move |transaction| transaction.execute(SQL, [id]).map(drop)).await;
    dropped.map_err(|e| e.to_string())
}
