//! Removing terminated records, settled intents and what belongs to them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use aws_sdk_dynamodb::types::WriteRequest;
use futures_util::future::{try_join, try_join5};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use super::keys::{Item, Kind, id_of, read_text, text};
use super::runs::members;
use super::table::{Table, delete};

/// How much longer a set of a run and the agent status of a machine without a record are kept: a
/// claim or a registration may be under way.
const EXTRA_RETENTION: Duration = Duration::from_secs(3_600);

/// Removes terminated records with their heartbeats and signals.
pub(super) async fn remove(table: &Table, ids: &[InstanceId]) -> PortResult<()> {
    let ids: Vec<&InstanceId> = ids.iter().collect::<HashSet<_>>().into_iter().collect();
    let statement = format!(r#"DELETE FROM "{}" WHERE PK=? AND SK=? AND "state"=?"#, table.name);
    let conditions = ids.iter().map(|id| {
        let key = Kind::Instance.key(id);
        vec![text(key.kind.pk()), text(key.sk), text(State::Terminated)]
    });
    let removed = table.execute_all(&statement, conditions.collect()).await?;
    let gone = ids.iter().zip(removed).filter(|(_, removed)| *removed).map(|(id, _)| id.as_str());
    table.write_all(&gone.flat_map(status_of).collect::<Vec<_>>()).await
}

fn status_of(id: &str) -> [WriteRequest; 2] {
    [Kind::Heartbeat, Kind::Signal].map(|kind| delete(&kind.key(id)))
}

/// Removes what ended before a moment, and returns the number of records. DynamoDB expires events.
pub(super) async fn forget(table: &Table, before: Timestamp) -> PortResult<usize> {
    let (text, early) = (before.to_string(), before.before(EXTRA_RETENTION).to_string());
    let old = "#updatedAt < :before";
    let settled = "#outcome <> :open AND #deadline < :before";
    let (open, long_ago) = ([(":open", ""), (":before", &*text)], [(":before", &*early)]);
    // Each is retried on its own: where one call in five fails, all five rarely succeed at once.
    let patience = &table.patience;
    let (instances, beats, signals, intents, runs) = try_join5(
        patience.retried(|| owners(table)),
        patience.retried(|| table.select(Kind::Heartbeat, old, &long_ago)),
        patience.retried(|| table.select(Kind::Signal, old, &long_ago)),
        patience.retried(|| table.select(Kind::Intent, settled, &open)),
        patience.retried(|| table.select(Kind::Run, old, &long_ago)),
    )
    .await?;

    let is_over = |item: &&Item| {
        read_text(item, "state") == Ok(State::Terminated.as_str())
            && read_text(item, "updatedAt").is_ok_and(|ended| ended < text.as_str())
    };
    let over: Vec<&str> = instances.iter().filter(is_over).filter_map(id_of).collect();
    let recorded: HashMap<&str, &Item> =
        instances.iter().filter_map(|item| Some((id_of(item)?, item))).collect();
    // Agents that outlived their records may have written since. A batch must not name an item
    // twice.
    let written = beats.iter().chain(&signals).filter_map(id_of);
    let orphaned: BTreeSet<&str> = written.filter(|id| !recorded.contains_key(id)).collect();

    // Terminated is final, and so is an outcome: neither needs a condition.
    let records = over.iter().map(|id| delete(&Kind::Instance.key(id)));
    let status = over.iter().copied().chain(orphaned).flat_map(status_of);
    let intents = intents.iter().filter_map(id_of).map(|id| delete(&Kind::Intent.key(id)));
    let deletes: Vec<WriteRequest> = records.chain(status).chain(intents).collect();
    let is_held = |run: &str, id: &str| {
        recorded.get(id).is_some_and(|item| read_text(item, "runId") == Ok(run))
    };
    let left = |set: &&Item| {
        let run = id_of(set).unwrap_or_default();
        !members(set).any(|id| is_held(run, id))
    };
    let runs: Vec<&Item> = runs.iter().filter(left).collect();
    let delete = patience.retried(|| table.write_all(&deletes));
    try_join(delete, patience.retried(|| remove_runs(table, &runs))).await?;
    Ok(over.len())
}

async fn owners(table: &Table) -> PortResult<Vec<Item>> {
    let query = table
        .query(Kind::Instance)
        .projection_expression("SK, #state, runId, updatedAt")
        .expression_attribute_names("#state", "state");
    table.all_pages(query).await
}

/// Removes sets of runs that have not changed since they were read.
async fn remove_runs(table: &Table, sets: &[&Item]) -> PortResult<()> {
    let statement = format!(r#"DELETE FROM "{}" WHERE PK=? AND SK=? AND updatedAt=?"#, table.name);
    let seen = |set: &&Item| {
        let key = Kind::Run.key(id_of(set)?);
        Some(vec![text(key.kind.pk()), text(key.sk), text(read_text(set, "updatedAt").ok()?)])
    };
    let conditions = sets.iter().filter_map(seen).collect();
    table.execute_all(&statement, conditions).await.map(drop)
}
