//! The control plane: the ports that the modes work with, and the operations that they share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use crate::lifecycle::{Change, Instance, LiveState, Pending, Refused, TypedState, Verdict};
use crate::model::demand::Demand;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::Record;
use crate::model::settings::{Settings, SettingsVersion, is_set_up};
use crate::model::timestamp::Timestamp;
use crate::ports::{
    Clock, Compute, Forge, Listing, Pool, PortError, PortResult, Progress, Random, Store,
};
use crate::runtime::batcher::Batcher;
use crate::runtime::retry::{Retry, retry};

/// How often a demand may be changed by others while a call changes it.
const CHANGES: u32 = 20;

/// The ports that a mode works with. The program builds it once, for the backend it was told to
/// use.
#[derive(Clone)]
pub struct Plane {
    pub store: Arc<dyn Store>,
    pub pool: Arc<dyn Pool>,
    pub compute: Arc<dyn Compute>,
    /// GitHub, or its local substitute.
    pub forge: Arc<dyn Forge>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Receives what the mode is doing at the moment.
    pub progress: Arc<dyn Progress>,
    pub known_settings: KnownSettings,
}

/// The version of the settings that a mode goes by: those that it has read or stored last. Each
/// change carries it to the machine's agent.
#[derive(Debug, Clone, Default)]
pub struct KnownSettings(Arc<Mutex<Option<SettingsVersion>>>);

impl KnownSettings {
    pub(crate) fn are(&self, version: Option<SettingsVersion>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }

    pub(crate) fn version(&self) -> Option<SettingsVersion> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Changes of several instances that are made together, see [`Plane::apply_beside`].
#[derive(Debug, Default)]
pub struct ChangesTogether(Batcher<(Change, Record), PortResult<Verdict>>);

/// Why a change was not made.
#[derive(Debug, Clone)]
pub enum NotCommitted {
    /// The guard did not admit the record. This is an answer, not an error.
    Refused(Box<Refused>),
    /// The store did not answer within the retries. The change may have been made or not.
    Unreachable(PortError),
}

impl std::fmt::Display for NotCommitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotCommitted::Refused(refused) => refused.fmt(f),
            NotCommitted::Unreachable(error) => error.fmt(f),
        }
    }
}

impl Plane {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The steady time at which the time of day was `at`, as far as the clock can tell now.
    pub fn steady_at(&self, at: Timestamp) -> Duration {
        self.clock.steady().saturating_sub(self.now().since(at))
    }

    /// Reads the settings that refresh stored. Fails if there are none or one of them is invalid.
    pub async fn settings(&self) -> Result<Settings, Failure> {
        self.settings_once(true).await
    }

    /// The same, where a call that fails is repeated only if `retries`.
    pub(crate) async fn settings_once(&self, retries: bool) -> Result<Settings, Failure> {
        let map = match retries {
            true => self.retried(|| self.store.settings()).await?,
            false => self.store.settings().await?,
        };
        if !is_set_up(&map) {
            let what = "a configuration is applied, but refresh has not run yet".to_owned();
            return Err(PortError::NotSetUp { what }.into());
        }
        let settings = Settings::from_map(&map).map_err(|error| {
            Failure::invalid(format!("a stored setting cannot be read: {error}"))
                .hint("run ondeck refresh with a valid value for the setting")
        })?;
        self.known_settings.are(settings.version.clone());
        Ok(settings)
    }

    /// Calls a port and repeats the call by [`Retry::SHORT`] while the error is a passing one.
    /// Not for conditional writes: use [`Plane::apply`] and [`Plane::replace_demand`].
    pub async fn retried<T, F>(&self, mut call: impl FnMut() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &*self.random, Retry::SHORT, |_| call()).await
    }

    /// Asks the store to make a change. Every state change passes through here and is logged here, and
    /// the machine's agent is woken if it has to act on it.
    ///
    /// If the answer to a write is lost, the write is repeated. When the first write had been made,
    /// the repetition is refused with exactly the record that the change leaves, and that counts as
    /// agreement.
    pub async fn apply<S: TypedState>(
        &self,
        pending: Pending<S>,
    ) -> Result<Instance<S>, NotCommitted> {
        let pending = pending.under(self.known_settings.version());
        let verdict = self.write(pending.change(), 0).await.map_err(NotCommitted::Unreachable)?;
        self.settled(pending, verdict)
    }

    /// Like [`Plane::apply`], for several instances. Each comes with its record as it was just read.
    /// The store is asked for all of them together, and once more for each whose answer is missing.
    pub async fn apply_all<S: TypedState>(
        &self,
        pending: Vec<(Pending<S>, Record)>,
    ) -> Vec<Result<Instance<S>, NotCommitted>> {
        let version = self.known_settings.version();
        let pending: Vec<(Pending<S>, Record)> =
            pending.into_iter().map(|(it, record)| (it.under(version.clone()), record)).collect();
        let writes: Vec<(Change, Record)> =
            pending.iter().map(|(it, record)| (it.change().clone(), record.clone())).collect();
        let answers = self.store.write_all(&writes).await;
        let applied = pending.into_iter().zip(answers).map(|((pending, _), answer)| async move {
            let verdict = match answer {
                Err(error) if error.is_passing() => self.write(pending.change(), 1).await,
                answer => answer,
            };
            self.settled(pending, verdict.map_err(NotCommitted::Unreachable)?)
        });
        join_all(applied).await
    }

    /// Like [`Plane::apply`], for an instance whose record was just read. Changes that are asked for at
    /// the same moment are made together.
    pub async fn apply_beside<S: TypedState>(
        &self,
        others: &ChangesTogether,
        pending: Pending<S>,
        record: &Record,
    ) -> Result<Instance<S>, NotCommitted> {
        let pending = pending.under(self.known_settings.version());
        let make = |writes: Vec<(Change, Record)>| async move {
            Ok(match writes.as_slice() {
                [(change, _)] => vec![self.store.write(change).await],
                writes => self.store.write_all(writes).await,
            })
        };
        let asked = (pending.change().clone(), record.clone());
        let verdict = match others.0.ask(asked, make).await {
            Ok(Err(error)) if error.is_passing() => self.write(pending.change(), 1).await,
            Ok(answer) => answer,
            Err(error) => Err(error),
        };
        self.settled(pending, verdict.map_err(NotCommitted::Unreachable)?)
    }

    /// Makes all of these changes, in one write if the store can do that and admits all of them, or else
    /// one by one.
    pub async fn apply_together<S: TypedState>(
        &self,
        pending: Vec<Pending<S>>,
    ) -> Vec<Result<(), NotCommitted>> {
        if pending.is_empty() {
            return Vec::new();
        }
        let version = self.known_settings.version();
        let pending: Vec<Pending<S>> =
            pending.into_iter().map(|it| it.under(version.clone())).collect();
        let changes: Vec<Change> = pending.iter().map(|it| it.change().clone()).collect();
        let made = match self.store.write_all_or_none(&changes).await {
            Ok(true) => {
                changes.iter().for_each(|change| self.announce(change));
                return changes.iter().map(|_| Ok(())).collect();
            }
            Ok(false) => 0,
            // It may have been made.
            Err(error) => {
                tracing::info!("changes are made one by one: {error}");
                1
            }
        };
        let applied = pending.into_iter().map(|pending| async move {
            let verdict = self.write(pending.change(), made).await;
            self.settled(pending, verdict.map_err(NotCommitted::Unreachable)?).map(drop)
        });
        join_all(applied).await
    }

    /// Makes a change, and repeats that while the error is a passing one. `made` says how often it may
    /// have been made before.
    async fn write(&self, change: &Change, made: u32) -> PortResult<Verdict> {
        retry(&*self.clock, &*self.random, Retry::SHORT, |attempt| async move {
            Ok(match self.store.write(change).await? {
                Verdict::Refused(Some(found))
                    if attempt + made > 0 && change.is_done_in(&found) =>
                {
                    Verdict::Agreed(found)
                }
                verdict => verdict,
            })
        })
        .await
    }

    /// What an answer of the store makes of a change. Wakes the agent if it has to act on it.
    fn settled<S: TypedState>(
        &self,
        pending: Pending<S>,
        verdict: Verdict,
    ) -> Result<Instance<S>, NotCommitted> {
        let change = pending.change().clone();
        match pending.settle(verdict) {
            Ok(instance) => {
                self.announce(&change);
                Ok(instance)
            }
            Err(refused) => {
                tracing::info!("{refused}");
                Err(NotCommitted::Refused(refused))
            }
        }
    }

    /// Logs a change that was made, and wakes the agent if it has to act on it.
    fn announce(&self, change: &Change) {
        let (id, transition, why) = (change.id(), change.transition(), change.why());
        let (state, run) = change.leaves();
        let run = run.map_or("", RunId::as_str);
        tracing::info!(instance = %id, %state, run, why, "{transition}");
        if transition.wakes_agent() {
            self.store.wake(std::slice::from_ref(id));
        }
    }

    /// Replaces a stored demand if it still is `current`, or stores one if there still is none. Returns
    /// whether that was done.
    ///
    /// If the answer to a write is lost, the write is repeated and refused, and the demand that is
    /// found tells whether it was made. So `next` must differ from what any other process may write.
    pub async fn replace_demand(
        &self,
        current: Option<&Demand>,
        next: &Demand,
    ) -> PortResult<bool> {
        if self.retried(|| self.store.replace_demand(current, next)).await? {
            return Ok(true);
        }
        let runs = std::slice::from_ref(&next.run);
        let found = self.retried(|| self.store.demands(runs)).await?;
        Ok(found.contains(next))
    }

    /// Replaces the demand of `asked` by what `change` makes of it, until no other process comes between.
    /// `known` is stored as far as the caller knows, and is not read for the first attempt. Returns what is
    /// stored then, or `None` if `change` makes nothing of what it finds. Fails if the demand keeps
    /// changing.
    pub(crate) async fn change_demand(
        &self,
        asked: &Demand,
        mut known: Option<Demand>,
        change: impl Fn(Option<&Demand>) -> Option<Demand>,
    ) -> PortResult<Option<Demand>> {
        let runs = std::slice::from_ref(&asked.run);
        for _ in 0..CHANGES {
            let found = match known.take() {
                Some(known) => Some(known),
                None => {
                    let demands = self.retried(|| self.store.demands(runs)).await?;
                    demands.into_iter().find(|demand| demand.label() == asked.label())
                }
            };
            let Some(next) = change(found.as_ref()) else { return Ok(None) };
            if found.as_ref() == Some(&next) || self.replace_demand(found.as_ref(), &next).await? {
                return Ok(Some(next));
            }
        }
        let reason = "the demand of the run keeps changing".to_owned();
        Err(PortError::Unavailable { service: "store", reason })
    }

    /// Expires and reaps instances, and terminates the machines whose reap this call has won, all in one
    /// call. The store comes first: a crash in between leaves machines that no run can claim and that
    /// refresh or their own deadlines terminate.
    pub async fn retire_all<S: LiveState>(&self, instances: &[Instance<S>], why: &str) -> Retired {
        let mut retired = Retired::default();
        let reaped =
            join_all(instances.iter().map(|instance| self.expire_and_reap(instance, why))).await;
        for (instance, reaped) in instances.iter().zip(reaped) {
            match reaped {
                Ok(Reaped::Here) => retired.reaped.push(instance.id().clone()),
                Ok(Reaped::NotHere(found)) => retired.alive.extend(found.map(|record| *record)),
                Err(error) => retired.failed.push((instance.id().clone(), error)),
            }
        }
        if let Err(error) = self.terminate(&retired.reaped).await {
            let reaped = retired.reaped.iter();
            retired.failed.extend(reaped.map(|id| (id.clone(), error.clone())));
        }
        retired
    }

    /// Terminates machines. Does nothing if `ids` is empty.
    pub async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.retried(|| self.compute.terminate(ids)).await?;
        tracing::info!(count = ids.len(), "terminated {}", listed(ids));
        Ok(())
    }

    /// Expires and reaps an instance. The caller terminates the machine if it was reaped here.
    pub async fn expire_and_reap<S: LiveState>(
        &self,
        instance: &Instance<S>,
        why: &str,
    ) -> PortResult<Reaped> {
        let now = self.now();
        match self.apply(instance.expire(now).because(why)).await {
            Ok(expired) => self.reap(&expired, why).await,
            Err(refused) => Reaped::elsewhere(refused, now),
        }
    }

    /// Reaps an instance if it is past its threshold by now.
    pub async fn reap<S: LiveState>(
        &self,
        instance: &Instance<S>,
        why: &str,
    ) -> PortResult<Reaped> {
        let now = self.now();
        match self.apply(instance.reap(now).because(why)).await {
            Ok(_) => Ok(Reaped::Here),
            Err(refused) => Reaped::elsewhere(refused, now),
        }
    }
}

/// What became of an instance that was to be retired.
#[derive(Debug)]
pub enum Reaped {
    /// This call has reaped it, and must terminate the machine.
    Here,
    /// It was changed meanwhile. Carries its record if it is alive.
    NotHere(Option<Box<Record>>),
}

impl Reaped {
    /// Of an instance that was not changed, because of its record at `now`. By the time of the answer, a
    /// threshold may have passed that had not when the store refused.
    fn elsewhere(why: NotCommitted, now: Timestamp) -> PortResult<Reaped> {
        let is_alive = |found: &Record| found.state.is_live() && !found.is_expired(now);
        match why {
            NotCommitted::Refused(refused) => {
                Ok(Reaped::NotHere(refused.found.filter(is_alive).map(Box::new)))
            }
            NotCommitted::Unreachable(error) => Err(error),
        }
    }
}

/// What became of the machines given to [`Plane::retire_all`].
#[derive(Debug, Default)]
pub struct Retired {
    /// Those that this call has reaped. Others may have been terminated by another process.
    pub reaped: Vec<InstanceId>,
    pub failed: Vec<(InstanceId, PortError)>,
    /// Machines that were changed meanwhile and live on.
    pub alive: Vec<Record>,
}

impl Retired {
    /// Whether the machine is terminated, as far as this process can tell.
    pub fn ended(&self, id: &InstanceId) -> bool {
        let failed = self.failed.iter().any(|(failed, _)| failed == id);
        !failed && !self.alive.iter().any(|record| record.id == *id)
    }
}

/// Returns the readable records of a listing, and logs the unreadable ones.
pub fn readable(listing: Listing) -> Vec<Record> {
    for row in listing.unreadable {
        tracing::warn!("{row}; skipped");
    }
    listing.records
}

/// Joins ids with blanks, for a message.
pub fn listed(ids: &[InstanceId]) -> String {
    ids.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(" ")
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plane")
    }
}
