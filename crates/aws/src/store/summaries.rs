//! What calls of provision did, for people.

use futures_util::future::try_join_all;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::summary::{ProvisionSummary, RETENTION};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use super::keys::{Item, Key, List, id_of, item, read_text, text, ttl};
use super::set_up::LISTS;
use super::table::Table;

/// The item of a summary, to be found by its run and its day.
pub(super) fn item_of(summary: &ProvisionSummary, shards: u32) -> Item {
    let key = summary.key();
    let mut written = Key::summary(&summary.run, &key).attributes();
    let listed = format!("{key}#{}", summary.run);
    let list = List::Summaries(summary.began);
    written.extend(item(list.entry(summary.run.as_str(), listed, shards)));
    written.extend(item([("summary", text(summary.stored())), ttl(summary.at + RETENTION)]));
    written
}

/// The latest summaries of a run, the oldest first. Takes one query.
pub(super) async fn of_run(
    table: &Table,
    run: &RunId,
    limit: usize,
) -> PortResult<Vec<ProvisionSummary>> {
    let query = table.query(&Key::summary(run, "").pk);
    let items = table.latest(query, limit).await?;
    Ok(items.iter().rev().filter_map(read).collect())
}

/// The latest summaries of the day that `now` is in and the day before, the oldest first. Takes a query
/// for each day and shard, and one batched read for each hundred.
pub(super) async fn recent(
    table: &Table,
    now: Timestamp,
    limit: usize,
    shards: u32,
) -> PortResult<Vec<ProvisionSummary>> {
    let days = [now.start_of_day_before(), now].map(List::Summaries);
    let keys = days.iter().flat_map(|day| (0..shards.max(1)).map(|shard| day.key(shard)));
    let keys: Vec<String> = keys.collect();
    let found = try_join_all(keys.iter().map(|key| table.latest_indexed(&LISTS, key, limit)));
    let mut found = found.await?.concat();
    found.sort_by(|a, b| a.sk.cmp(&b.sk));
    // One that has changed its shard is found twice.
    found.dedup();
    let found = found.split_off(found.len().saturating_sub(limit));
    let items = table.get_all(&found).await?;
    let mut summaries: Vec<ProvisionSummary> = items.iter().filter_map(read).collect();
    summaries.sort_by_key(ProvisionSummary::key);
    Ok(summaries)
}

fn read(item: &Item) -> Option<ProvisionSummary> {
    let run = id_of(item)?.parse().ok()?;
    ProvisionSummary::read(&run, read_text(item, "summary").ok()?)
}
