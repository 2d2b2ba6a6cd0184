//! What an attempt holds, kept where every ending can see it: success, rollback and dump each
//! need to know, also when the flow was dropped in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::outcome::{MachineSource, Phase, Stopwatch};
use super::pool_search::PoolSearch;
use crate::lifecycle::{Claimed, Created, Instance, Running};
use crate::model::ids::{InstanceId, IntentId};
use crate::model::intent::Intent;
use crate::model::timestamp::Timestamp;
use crate::ports::Receipt;

#[derive(Debug)]
pub(super) struct Holdings(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    adopted: Vec<Holding<Running>>,
    claimed: Vec<Holding<Claimed>>,
    created: Vec<Holding<Created>>,
    /// Every instance that a write of ours may have reached, whether or not we know the answer,
    /// and how many writes: two workers may meet the same one by two tickets.
    touched: BTreeMap<InstanceId, u32>,
    /// Tickets that are done with, and may still be in their queue.
    spent: Vec<Receipt>,
    intents: Vec<Intent>,
    /// The launches of which the provider has said what came.
    answered: BTreeSet<IntentId>,
    stopwatch: Stopwatch,
    search: PoolSearch,
}

/// An instance that is ours, and when it came to be what it is.
#[derive(Debug, Clone)]
pub(super) struct Holding<S> {
    pub(super) instance: Instance<S>,
    pub(super) moments: Moments,
    pub(super) source: MachineSource,
}

/// When an instance reached what, as far as it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    /// Its ticket was received.
    pub(super) found: Option<Timestamp>,
    /// It became ours.
    pub(super) owned: Timestamp,
    /// Its agent said that it is registered, by the agent's clock.
    pub(super) registered: Option<Timestamp>,
    /// It passed the checks.
    pub(super) ready: Option<Timestamp>,
}

impl Holdings {
    pub(super) fn new(now: Timestamp) -> Holdings {
        Holdings(Mutex::new(Inner {
            adopted: Vec::new(),
            claimed: Vec::new(),
            created: Vec::new(),
            touched: BTreeMap::new(),
            spent: Vec::new(),
            intents: Vec::new(),
            answered: BTreeSet::new(),
            stopwatch: Stopwatch::new(now),
            search: PoolSearch::default(),
        }))
    }

    pub(super) fn enter(&self, phase: Phase, now: Timestamp) {
        self.inner().stopwatch.enter(phase, now);
    }

    pub(super) fn stopwatch(&self) -> Stopwatch {
        self.inner().stopwatch.clone()
    }

    /// Notes what the search comes across.
    pub(super) fn searching(&self, note: impl FnOnce(&mut PoolSearch)) {
        note(&mut self.inner().search);
    }

    pub(super) fn search(&self) -> PoolSearch {
        self.inner().search.clone()
    }

    /// To be called before the write, since its answer may never come.
    pub(super) fn about_to_touch(&self, id: &InstanceId) {
        *self.inner().touched.entry(id.clone()).or_default() += 1;
    }

    /// One write was refused: on its account, the instance is not ours to end.
    pub(super) fn not_touched(&self, id: &InstanceId) {
        let mut inner = self.inner();
        let writes = inner.touched.remove(id).unwrap_or_default();
        if writes > 1 {
            inner.touched.insert(id.clone(), writes - 1);
        }
    }

    /// To be called before they are deleted, since nobody may live to do it.
    pub(super) fn about_to_delete(&self, tickets: &[Receipt]) {
        self.inner().spent.extend_from_slice(tickets);
    }

    /// They are gone, or will come round and be deleted by whoever meets them.
    pub(super) fn deleted(&self, tickets: &[Receipt]) {
        self.inner().spent.retain(|receipt| !tickets.contains(receipt));
    }

    pub(super) fn spent(&self) -> Vec<Receipt> {
        self.inner().spent.clone()
    }

    pub(super) fn about_to_launch(&self, intent: &Intent) {
        self.inner().intents.push(intent.clone());
    }

    /// From here on the provider's list can be trusted to have all of them.
    pub(super) fn launch_answered(&self, intent: &Intent) {
        self.inner().answered.insert(intent.id.clone());
    }

    /// Whether it is known what came of a launch.
    pub(super) fn is_answered(&self, intent: &Intent) -> bool {
        self.inner().answered.contains(&intent.id)
    }

    pub(super) fn adopt(&self, instance: Instance<Running>, now: Timestamp) {
        let moments = Moments { found: None, owned: now, registered: Some(now), ready: Some(now) };
        self.inner().adopted.push(Holding { instance, moments, source: MachineSource::Adopted });
    }

    pub(super) fn claim(&self, instance: Instance<Claimed>, moments: Moments) {
        let mut inner = self.inner();
        inner.search.claimed += 1;
        inner.claimed.push(Holding { instance, moments, source: MachineSource::Warm });
    }

    pub(super) fn create(&self, instance: Instance<Created>, now: Timestamp) {
        let moments = Moments { found: None, owned: now, registered: None, ready: None };
        self.inner().created.push(Holding { instance, moments, source: MachineSource::Cold });
    }

    pub(super) fn validated(&self, id: &InstanceId, registered: Timestamp, now: Timestamp) {
        let mut inner = self.inner();
        for held in inner.created.iter_mut().filter(|held| held.instance.id() == id) {
            held.moments.registered = Some(registered);
            held.moments.ready = Some(now);
        }
    }

    /// Adopted and claimed: those that no launch is needed for.
    pub(super) fn ready_count(&self) -> usize {
        let inner = self.inner();
        inner.adopted.len() + inner.claimed.len()
    }

    pub(super) fn adopted(&self) -> Vec<Holding<Running>> {
        self.inner().adopted.clone()
    }

    pub(super) fn claimed(&self) -> Vec<Holding<Claimed>> {
        self.inner().claimed.clone()
    }

    pub(super) fn created(&self) -> Vec<Holding<Created>> {
        self.inner().created.clone()
    }

    pub(super) fn touched(&self) -> BTreeSet<InstanceId> {
        self.inner().touched.keys().cloned().collect()
    }

    pub(super) fn intents(&self) -> Vec<Intent> {
        self.inner().intents.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
