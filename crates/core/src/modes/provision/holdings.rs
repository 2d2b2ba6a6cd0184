//! The machines that an attempt holds. They are kept outside the flow, so that success, rollback and
//! dump know them even when the flow was dropped half-way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::outcome::{MachineSource, Phase, Stopwatch};
use super::pool_search::PoolSearch;
use crate::lifecycle::{Claimed, Created, Instance, Running};
use crate::model::ids::{InstanceId, IntentId};
use crate::model::intent::Intent;
use crate::model::machine_label::MachineLabel;
use crate::model::readiness::ClaimWay;
use crate::ports::Receipt;

#[derive(Debug)]
pub(super) struct Holdings(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    adopted: Vec<Holding<Running>>,
    claimed: Vec<Holding<Claimed>>,
    created: Vec<Holding<Created>>,
    /// Every instance that a write of this attempt may have reached, answered or not, with the
    /// number of writes: two tickets may lead two workers to the same instance.
    touched: BTreeMap<InstanceId, u32>,
    /// Machines that a clean-up does not touch.
    left_alone: BTreeSet<InstanceId>,
    /// Tickets that are no longer needed and may still be in their queue.
    spent: Vec<Receipt>,
    /// The intents that have no outcome in the store yet.
    intents: Vec<Intent>,
    /// The launches that the provider has answered.
    answered: BTreeSet<IntentId>,
    stopwatch: Stopwatch,
    search: PoolSearch,
    /// When the attempt first found no room below the ceiling, in steady time.
    without_room: Option<Duration>,
    /// Whether the attempt has begun to hand its machines to the run.
    hands_over: bool,
}

/// An instance that this attempt holds.
#[derive(Debug, Clone)]
pub(super) struct Holding<S> {
    pub(super) instance: Instance<S>,
    pub(super) moments: Moments,
    pub(super) source: MachineSource,
    /// What its runner is registered with, if that is a label of the machine.
    pub(super) label: Option<MachineLabel>,
    /// Whether it was registered when it was claimed; `None` if it was not claimed, or if machines register
    /// when they are claimed in any case.
    pub(super) way: Option<ClaimWay>,
}

/// When an instance reached each milestone, in steady time; `None` if it has not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    /// When its ticket was received.
    pub(super) found: Option<Duration>,
    /// When it was claimed, registered or adopted.
    pub(super) owned: Duration,
    /// When its agent reported that it is registered, derived from the time in the report.
    pub(super) registered: Option<Duration>,
    /// When it passed the checks.
    pub(super) ready: Option<Duration>,
}

impl Holdings {
    pub(super) fn new(now: Duration) -> Holdings {
        Holdings(Mutex::new(Inner {
            adopted: Vec::new(),
            claimed: Vec::new(),
            created: Vec::new(),
            touched: BTreeMap::new(),
            left_alone: BTreeSet::new(),
            spent: Vec::new(),
            intents: Vec::new(),
            answered: BTreeSet::new(),
            stopwatch: Stopwatch::new(now),
            search: PoolSearch::default(),
            without_room: None,
            hands_over: false,
        }))
    }

    /// Must be called before the machines are handed to the run.
    pub(super) fn hands_over(&self) {
        self.inner().hands_over = true;
    }

    /// Whether a machine of the run may be running because of this attempt.
    pub(super) fn has_handed_over(&self) -> bool {
        self.inner().hands_over
    }

    pub(super) fn enter(&self, phase: Phase, now: Duration) {
        self.inner().stopwatch.enter(phase, now);
    }

    /// The phase that was entered last.
    pub(super) fn phase(&self) -> Phase {
        self.inner().stopwatch.phase()
    }

    pub(super) fn stopwatch(&self) -> Stopwatch {
        self.inner().stopwatch.clone()
    }

    /// When the attempt first found no room below the ceiling: `now` at the first call.
    pub(super) fn waits_for_room_since(&self, now: Duration) -> Duration {
        *self.inner().without_room.get_or_insert(now)
    }

    pub(super) fn searching(&self, note: impl FnOnce(&mut PoolSearch)) {
        note(&mut self.inner().search);
    }

    pub(super) fn search(&self) -> PoolSearch {
        self.inner().search.clone()
    }

    /// Must be called before the write, because its answer may never arrive.
    pub(super) fn about_to_touch(&self, id: &InstanceId) {
        *self.inner().touched.entry(id.clone()).or_default() += 1;
    }

    /// Takes back one [`Holdings::about_to_touch`], because the store refused the write.
    pub(super) fn not_touched(&self, id: &InstanceId) {
        let mut inner = self.inner();
        let writes = inner.touched.remove(id).unwrap_or_default();
        if writes > 1 {
            inner.touched.insert(id.clone(), writes - 1);
        }
    }

    /// The run keeps the machine, so a clean-up leaves it alone.
    pub(super) fn kept(&self, id: &InstanceId) {
        self.inner().touched.remove(id);
    }

    /// It is not known whether the run keeps the machine, so a clean-up leaves it alone.
    pub(super) fn left_alone(&self, id: &InstanceId) {
        let mut inner = self.inner();
        inner.touched.remove(id);
        inner.left_alone.insert(id.clone());
    }

    /// Whether a clean-up must not touch the machine, also if it finds it at the provider.
    pub(super) fn is_left_alone(&self, id: &InstanceId) -> bool {
        self.inner().left_alone.contains(id)
    }

    /// Must be called before the tickets are deleted, because the flow may be dropped before that.
    pub(super) fn about_to_delete(&self, tickets: &[Receipt]) {
        self.inner().spent.extend_from_slice(tickets);
    }

    /// The tickets are gone, or another provision will receive and delete them.
    pub(super) fn deleted(&self, tickets: &[Receipt]) {
        self.inner().spent.retain(|receipt| !tickets.contains(receipt));
    }

    pub(super) fn spent(&self) -> Vec<Receipt> {
        self.inner().spent.clone()
    }

    pub(super) fn about_to_launch(&self, intent: &Intent) {
        self.inner().intents.push(intent.clone());
    }

    /// From here on the provider's list contains every machine of this launch.
    pub(super) fn launch_answered(&self, intent: &Intent) {
        self.inner().answered.insert(intent.id.clone());
    }

    /// Whether the provider has answered the launch.
    pub(super) fn is_answered(&self, intent: &Intent) -> bool {
        self.inner().answered.contains(&intent.id)
    }

    /// The intent has its outcome in the store, and every machine of the launch its record.
    pub(super) fn settled(&self, intent: &Intent) {
        self.inner().intents.retain(|open| open.id != intent.id);
    }

    pub(super) fn adopt(&self, instance: Instance<Running>, now: Duration) {
        let moments = Moments { found: None, owned: now, registered: Some(now), ready: Some(now) };
        let label = instance.requested().named().cloned();
        let source = MachineSource::Adopted;
        self.inner().adopted.push(Holding { instance, moments, source, label, way: None });
    }

    pub(super) fn claim(
        &self,
        instance: Instance<Claimed>,
        moments: Moments,
        (label, way): (Option<MachineLabel>, Option<ClaimWay>),
    ) {
        let mut inner = self.inner();
        // A release of the run may have given the machine back, so that it was found and claimed again.
        let before = inner.claimed.len();
        inner.claimed.retain(|held| held.instance.id() != instance.id());
        inner.search.claimed += usize::from(inner.claimed.len() == before);
        let source = MachineSource::Warm;
        inner.claimed.push(Holding { instance, moments, source, label, way });
    }

    pub(super) fn create(&self, instance: Instance<Created>, now: Duration) {
        let moments = Moments { found: None, owned: now, registered: None, ready: None };
        let source = MachineSource::Cold;
        let (label, way) = (None, None);
        self.inner().created.push(Holding { instance, moments, source, label, way });
    }

    pub(super) fn validated(
        &self,
        id: &InstanceId,
        (registered, now): (Duration, Duration),
        label: Option<&MachineLabel>,
    ) {
        let mut inner = self.inner();
        for held in inner.created.iter_mut().filter(|held| held.instance.id() == id) {
            held.moments.registered = Some(registered);
            held.moments.ready = Some(now);
            held.label = label.cloned();
        }
    }

    /// The labels of machines that the held ones are registered with.
    pub(super) fn machine_labels(&self) -> Vec<MachineLabel> {
        let inner = self.inner();
        let adopted = inner.adopted.iter().map(|held| &held.label);
        let claimed = inner.claimed.iter().map(|held| &held.label);
        let created = inner.created.iter().map(|held| &held.label);
        adopted.chain(claimed).chain(created).flatten().cloned().collect()
    }

    /// How many machines need no launch: the adopted and the claimed ones.
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

    /// The launches that are not settled.
    pub(super) fn open_intents(&self) -> Vec<Intent> {
        self.inner().intents.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
