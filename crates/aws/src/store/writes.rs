//! Changes of records: one by itself, several in batches, and claims that are made at the same moment.
//!
//! A run of fifty machines would make fifty claims, each a call of its own. Their records are read beside
//! the write of the run's set instead, and the claims go 25 in a call, as reaps and releases do. Each
//! statement of a batch requires that the record still is the one that its guard has admitted. Where that
//! is not so, the change is made by itself, and its guard decides.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{join, join_all};
use ondeck_core::lifecycle::{Change, Next, Verdict};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::Record;
use ondeck_core::ports::{PortResult, Store};
use ondeck_core::runtime::batcher::Batcher;

use super::DynamoStore;
use super::change::{self, joined_run};
use super::keys::Item;

/// Claims that wait for others.
pub(super) type Claims = Batcher<Change, PortResult<Verdict>>;

/// The records that claims of this process have left. They may have changed since.
#[derive(Debug, Default)]
pub(super) struct ClaimedRecords(Mutex<HashMap<InstanceId, Record>>);

impl ClaimedRecords {
    /// The records of the instances that these changes are about, as far as they are known.
    pub(super) fn of(&self, changes: &[Change]) -> Vec<Option<Record>> {
        let known = self.all();
        changes.iter().map(|change| known.get(change.id()).cloned()).collect()
    }

    fn note(&self, verdict: &PortResult<Verdict>) {
        if let Ok(Verdict::Agreed(record)) = verdict {
            self.all().insert(record.id.clone(), record.clone());
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<InstanceId, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a change gives a run a machine that has a record already.
pub(super) fn is_claim(change: &Change) -> bool {
    matches!(change.next(), Next::Update { .. }) && joined_run(change).is_some()
}

/// How one of several changes is made.
enum Way {
    /// It is not: the run's set could not be written.
    NotNoted(PortResult<Verdict>),
    /// In a batch. What it then leaves, with the item of its event.
    Batched(Verdict, Option<Item>),
    Alone,
}

impl DynamoStore {
    /// Makes a claim together with those that are asked for at the same moment.
    pub(super) async fn claim(&self, change: &Change) -> PortResult<Verdict> {
        let make = |changes: Vec<Change>| async move {
            let changes: Vec<&Change> = changes.iter().collect();
            let notes = join_all(changes.iter().map(|change| self.note(change)));
            if changes.len() == 1 {
                let noted = notes.await;
                return Ok(self.write_together(&changes, noted, HashMap::new()).await);
            }
            let (noted, known) = join(notes, self.known(&changes)).await;
            Ok(self.write_together(&changes, noted, known).await)
        };
        let verdict = self.claims.ask(change.clone(), make).await?;
        self.claimed.note(&verdict);
        verdict
    }

    /// The records that changes are about. Those that cannot be read are missing: the change by itself
    /// tells then what is wrong.
    async fn known(&self, changes: &[&Change]) -> HashMap<InstanceId, Record> {
        let ids: HashSet<&InstanceId> = changes.iter().map(|change| change.id()).collect();
        let ids: Vec<InstanceId> = ids.into_iter().cloned().collect();
        match self.records(&ids).await {
            Ok(listing) => {
                listing.records.into_iter().map(|record| (record.id.clone(), record)).collect()
            }
            Err(error) => {
                tracing::debug!("changes are made one by one: {error}");
                HashMap::new()
            }
        }
    }

    /// Notes that an instance is about to become a run's, if the change makes it that.
    pub(super) async fn note(&self, change: &Change) -> PortResult<()> {
        match joined_run(change) {
            Some(run) => self.runs.note(&self.table, run, change.id(), change.at()).await,
            None => Ok(()),
        }
    }

    /// Makes the changes that were `noted`: in batches if their records are `known`, else one by one.
    pub(super) async fn write_together(
        &self,
        changes: &[&Change],
        noted: Vec<PortResult<()>>,
        mut known: HashMap<InstanceId, Record>,
    ) -> Vec<PortResult<Verdict>> {
        let shards = self.layout.shards();
        let mut statements = Vec::new();
        let way = |(change, noted): (&&Change, PortResult<()>)| {
            if let Err(error) = noted {
                return Way::NotNoted(Err(error));
            }
            // A batch must not name an item twice, so a record is used once.
            let known = known.remove(change.id());
            let made = known.and_then(|it| change::statement(&self.table, change, &it, shards));
            let Some((statement, (verdict, event))) = made else { return Way::Alone };
            statements.push(statement);
            Way::Batched(verdict, event)
        };
        let ways: Vec<Way> = changes.iter().zip(noted).map(way).collect();
        let mut answers = self.table.execute_once(&statements).await.into_iter();
        self.seen.forget();
        let verdicts = changes.iter().zip(ways).map(|(change, way)| {
            let answered = match way {
                Way::NotNoted(error) => Some(error),
                Way::Alone => None,
                Way::Batched(verdict, event) => match answers.next() {
                    Some(Ok(true)) => {
                        event.into_iter().for_each(|event| self.outbox.add(event));
                        Some(Ok(verdict))
                    }
                    Some(Err(error)) => Some(Err(error)),
                    Some(Ok(false)) | None => None,
                },
            };
            async move {
                match answered {
                    Some(verdict) => verdict,
                    None => self.write_alone(change).await,
                }
            }
        });
        join_all(verdicts.collect::<Vec<_>>()).await
    }

    /// Makes a change by one write, whose guard decides.
    pub(super) async fn write_alone(&self, change: &Change) -> PortResult<Verdict> {
        let written = change::apply(&self.table, change, self.layout.shards()).await;
        self.seen.forget();
        let (verdict, event) = written?;
        if let Some(event) = event {
            self.outbox.add(event);
        }
        Ok(verdict)
    }
}
