//! Which instances may be a run's: one item for each run, with the set of them.
//!
//! An instance is added to the set before the write that makes it the run's, or by it. So the set may name
//! instances that never were the run's, or are no longer, but it never misses one that is; and
//! each is looked at before it counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use futures_util::future::try_join_all;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Listing, PortResult};
use ondeck_core::runtime::batcher::Batcher;

use super::keys::{Item, Key, number, read_text, text};
use super::rows;
use super::table::Table;

/// How long this process relies on a note that it has made. DynamoDB keeps an unchanged set far
/// longer, so a note that is relied on still exists.
const RELIED_ON: Duration = Duration::from_secs(60);

/// How long DynamoDB keeps a set that has not changed: longer than any run may last. A run of GitHub
/// ends after 35 days.
const KEPT: Duration = Duration::from_secs(60 * 24 * 3_600);

#[derive(Debug, Clone)]
struct Note {
    run: RunId,
    id: InstanceId,
    at: Timestamp,
}

/// Notes under way, and those that were made.
#[derive(Debug, Default)]
pub(super) struct Runs {
    notes: Batcher<Note, ()>,
    noted: Mutex<HashMap<(RunId, InstanceId), Timestamp>>,
}

impl Runs {
    /// Notes that an instance is about to become a run's. All who do so at the same time share
    /// one write for each run.
    pub(super) async fn note(
        &self,
        table: &Table,
        run: &RunId,
        id: &InstanceId,
        at: Timestamp,
    ) -> PortResult<()> {
        let place = (run.clone(), id.clone());
        if self.noted().get(&place).is_some_and(|noted| at.since(*noted) < RELIED_ON) {
            return Ok(());
        }
        let note = Note { run: run.clone(), id: id.clone(), at };
        self.notes.ask(note, |notes| write(table, notes)).await?;
        self.noted().insert(place, at);
        Ok(())
    }

    /// Remembers notes that were made otherwise, see [`part`].
    pub(super) fn are_noted(&self, run: &RunId, ids: &BTreeSet<&InstanceId>, at: Timestamp) {
        let places = ids.iter().map(|id| ((run.clone(), (*id).clone()), at));
        self.noted().extend(places);
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<(RunId, InstanceId), Timestamp>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(table: &Table, notes: Vec<Note>) -> PortResult<Vec<()>> {
    let answers = vec![(); notes.len()];
    let mut runs: BTreeMap<RunId, (BTreeSet<String>, Timestamp)> = BTreeMap::new();
    for Note { run, id, at } in notes {
        let (ids, latest) = runs.entry(run).or_insert((BTreeSet::new(), at));
        ids.insert(id.into());
        *latest = at.max(*latest);
    }
    let writes = runs.into_iter().map(|(run, (ids, at))| async move {
        let update = table
            .client
            .update_item()
            .table_name(&table.name)
            .set_key(Some(Key::run(&run).attributes()))
            .update_expression(ADDITION)
            .expression_attribute_names("#ttl", "ttl")
            .set_expression_attribute_values(Some(added(ids.into_iter().collect(), at)));
        table.call("UpdateItem", update.send()).await
    });
    try_join_all(writes).await?;
    Ok(answers)
}

/// The part of a transaction that adds instances to the set of a run.
pub(super) fn part(
    table: &Table,
    run: &RunId,
    ids: &BTreeSet<&InstanceId>,
    at: Timestamp,
) -> TransactWriteItem {
    let ids = ids.iter().map(ToString::to_string).collect();
    let update = Update::builder()
        .table_name(&table.name)
        .set_key(Some(Key::run(run).attributes()))
        .update_expression(ADDITION)
        .expression_attribute_names("#ttl", "ttl")
        .set_expression_attribute_values(Some(added(ids, at)));
    TransactWriteItem::builder().update(update.build().expect("a table and a key")).build()
}

/// Adds instances to a set, which is created if it is missing.
const ADDITION: &str = "ADD instances :ids SET updatedAt = :at, #ttl = :ttl";

fn added(ids: Vec<String>, at: Timestamp) -> HashMap<String, AttributeValue> {
    let values = [
        (":ttl", number((at + KEPT).millis() / 1_000)),
        (":ids", AttributeValue::Ss(ids)),
        (":at", text(at)),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The records that belong to a run now: a look at its set, and one at each that it names.
pub(super) async fn of_run(table: &Table, run: &RunId) -> PortResult<Listing> {
    let Some(set) = table.get(&Key::run(run), true).await? else {
        return Ok(Listing::default());
    };
    let keys: Vec<Key> = members(&set).map(Key::record).collect();
    let mut items = table.get_all(&keys).await?;
    // A record without a readable owner may be the run's: it is listed as unreadable.
    items.retain(|item| read_text(item, "runId").map_or(true, |owner| owner == run.as_str()));
    Ok(rows::listing(&items))
}

/// The instances in a run's set.
fn members(set: &Item) -> impl Iterator<Item = &String> {
    set.get("instances").and_then(|ids| ids.as_ss().ok()).into_iter().flatten()
}
