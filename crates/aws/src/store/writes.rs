//! Changes of records: one by itself, several in batches, and claims that are made at the same moment.
//!
//! A run of fifty machines would make fifty claims, each a call of its own, after the write of the run's
//! set. The set and all claims of the moment are one transaction instead, in which each claim has its guard.
//! If a machine was lost, none of them is made, and the answer says which were lost. The others, and claims
//! that do not fit into one transaction, go 25 in a call after the set is written, as reaps and releases do.
//! Each statement of a batch requires that the record still is the one that its guard has admitted. Where
//! that is not so, the change is made by itself, and its guard decides.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::CancellationReason;
use futures_util::future::{join, join_all};
use ondeck_core::lifecycle::{Change, Next, Verdict};
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{Record, Unreadable};
use ondeck_core::ports::{PortError, PortResult, Store};
use ondeck_core::runtime::batcher::Batcher;

use super::change::{self, joined_run};
use super::keys::Item;
use super::{DynamoStore, TRANSACTION_ITEMS, runs};
use crate::error::{DYNAMODB, unavailable};

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

/// What came of a transaction of claims.
enum Transaction {
    Made,
    /// Nothing was written. The verdicts on those that were lost.
    Undone(Vec<Option<Verdict>>),
    /// It may have been made.
    Failed(PortError),
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
            Ok(self.claim_all(&changes).await)
        };
        let verdict = self.claims.ask(change.clone(), make).await?;
        self.claimed.note(&verdict);
        verdict
    }

    async fn claim_all(&self, changes: &[&Change]) -> Vec<PortResult<Verdict>> {
        let (made, known) = join(self.claim_with_set(changes), self.known(changes)).await;
        let answers = match made {
            Transaction::Made => {
                let verdicts = changes.iter().map(|change| self.claimed_now(change, &known));
                return join_all(verdicts).await;
            }
            Transaction::Failed(error) => return vec![Err(error); changes.len()],
            Transaction::Undone(answers) => answers,
        };
        // Those that were not lost are made after the set is written.
        let rest = changes.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let rest: Vec<&Change> = rest.map(|(change, _)| *change).collect();
        let noted = join_all(rest.iter().map(|change| self.note(change))).await;
        let known = if rest.len() > 1 { known } else { HashMap::new() };
        let mut made = self.write_together(&rest, noted, known).await.into_iter();
        let verdict = |answer: Option<Verdict>| match answer {
            Some(lost) => Some(Ok(lost)),
            None => made.next(),
        };
        answers.into_iter().filter_map(verdict).collect()
    }

    /// Adds the machines to the run's set and makes all claims, or does nothing. So there is no moment in
    /// which a machine is the run's and is missing in its set.
    async fn claim_with_set(&self, changes: &[&Change]) -> Transaction {
        let none = || Transaction::Undone(changes.iter().map(|_| None).collect());
        let runs: HashSet<&RunId> =
            changes.iter().filter_map(|change| joined_run(change)).collect();
        let ids: BTreeSet<&InstanceId> = changes.iter().map(|change| change.id()).collect();
        let run = match (runs.into_iter().collect::<Vec<_>>().as_slice(), changes.first()) {
            ([run], Some(first)) if ids.len() == changes.len() => (*run, first.at()),
            // A transaction must not name an item twice.
            _ => return none(),
        };
        if changes.len() >= TRANSACTION_ITEMS {
            return none();
        }
        let shards = self.layout.shards();
        let claims = changes.iter().map(|change| change::part(&self.table, change, None, shards));
        let set = runs::part(&self.table, run.0, &ids, run.1);
        let write = self.table.client.transact_write_items();
        let write = write.set_transact_items(Some(std::iter::once(set).chain(claims).collect()));
        let written = self.table.ask(write.send()).await;
        self.seen.forget();
        let error = match written {
            Ok(_) => {
                self.runs.are_noted(run.0, &ids, run.1);
                return Transaction::Made;
            }
            Err(error) => error,
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(undone)) =
            error.as_service_error()
        else {
            return Transaction::Failed(self.table.port_error("TransactWriteItems", &error));
        };
        // The first reason is about the set.
        let reasons = undone.cancellation_reasons().iter().skip(1).map(Some);
        let reasons = reasons.chain(std::iter::repeat(None));
        let answer = |(change, reason): (&&Change, Option<&CancellationReason>)| {
            let lost = reason.filter(|it| it.code() == Some("ConditionalCheckFailed"))?;
            let (verdict, event) = change::refused(change, lost.item(), shards);
            event.into_iter().for_each(|event| self.outbox.add(event));
            Some(verdict)
        };
        Transaction::Undone(changes.iter().zip(reasons).map(answer).collect())
    }

    /// What a claim has left that was made a moment ago, while the records were read.
    async fn claimed_now(
        &self,
        change: &Change,
        known: &HashMap<InstanceId, Record>,
    ) -> PortResult<Verdict> {
        let left = |read: &Record| match change.is_done_in(read) {
            true => Some(read.clone()),
            false => change.applied_to(Some(read)),
        };
        let record = match known.get(change.id()).and_then(left) {
            Some(record) => record,
            None => match self.read_claimed(change).await? {
                Ok(record) => record,
                Err(unreadable) => return Ok(Verdict::Unreadable(unreadable)),
            },
        };
        self.outbox.add(change::event_of(change, self.layout.shards()));
        Ok(Verdict::Agreed(record))
    }

    /// Reads the record that a claim has left. If that fails, the caller repeats the claim, and recognises
    /// what it has done.
    async fn read_claimed(&self, change: &Change) -> PortResult<Result<Record, Unreadable>> {
        let listing = self.records(std::slice::from_ref(change.id())).await?;
        if let Some(unreadable) = listing.unreadable.into_iter().next() {
            return Ok(Err(unreadable));
        }
        let found = listing.records.into_iter().find(|record| change.is_done_in(record));
        let gone =
            || unavailable(DYNAMODB, "TransactWriteItems", &"the claimed record has changed");
        found.map(Ok).ok_or_else(gone)
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
