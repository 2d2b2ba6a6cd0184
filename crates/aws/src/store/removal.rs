//! Removing terminated records. What belongs to them (events, settled intents, agent status, the sets
//! of runs) carries a `ttl`, and DynamoDB deletes it.

use std::collections::HashSet;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use super::keys::{Key, List, text};
use super::table::Table;

/// Removes those of the records that are terminated, and returns their number.
pub(super) async fn remove(table: &Table, records: Vec<Key>) -> PortResult<usize> {
    let statement = format!(r#"DELETE FROM "{}" WHERE PK=? AND SK=? AND "state"=?"#, table.name);
    let records: HashSet<Key> = records.into_iter().collect();
    let conditions =
        records.into_iter().map(|key| vec![text(key.pk), text(key.sk), text(State::Terminated)]);
    let removed = table.execute_all(&statement, conditions.collect()).await?;
    Ok(removed.into_iter().filter(|removed| *removed).count())
}

/// The command of the AWS CLI by which a person deletes these records.
pub(super) fn command(table: &str, ids: &[InstanceId]) -> String {
    let one = |id: &InstanceId| {
        let Key { pk, sk } = Key::record(id);
        let key = serde_json::json!({ "PK": { "S": pk }, "SK": { "S": sk } });
        format!("aws dynamodb delete-item --table-name {table} --key '{key}'")
    };
    ids.iter().map(one).collect::<Vec<_>>().join(" && ")
}

/// Removes the records that were terminated before a moment, and returns their number. The list of
/// them is a hint; each delete requires that the record is terminated.
pub(super) async fn forget(table: &Table, shards: u32, before: Timestamp) -> PortResult<usize> {
    let over = table.listed(List::Terminated, shards, Some(&before.to_string())).await?;
    remove(table, over).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_is_deleted_by_its_key() {
        let ids = ["i-1", "i-2"].map(|id| id.parse().unwrap());
        let one = |id: &str| {
            let key = format!(r#"{{"PK":{{"S":"INSTANCE#{id}"}},"SK":{{"S":"RECORD"}}}}"#);
            format!("aws dynamodb delete-item --table-name ondeck-web --key '{key}'")
        };
        assert_eq!(command("ondeck-web", &ids[..1]), one("i-1"));
        assert_eq!(command("ondeck-web", &ids), [one("i-1"), one("i-2")].join(" && "));
    }
}
