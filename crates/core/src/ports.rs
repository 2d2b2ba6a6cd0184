//! Everything that core needs from outside, on one page.
//!
//! Adapters implement these traits and decide nothing. Control plane and agent have separate
//! traits: the control plane cannot write what an agent reports, and an agent cannot write an
//! instance's state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::lifecycle::{Change, Verdict};
use crate::model::ceiling::{Limits, MachineCount, Reservation, ReservationVerdict, Settlement};
use crate::model::credentials::{Credentials, Token, TokenPurpose};
use crate::model::demand::Demand;
use crate::model::finding::Notice;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::{InstanceId, IntentId, InvalidId, ProviderName, ResourceClass, RunId};
use crate::model::intent::Intent;
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::readiness::ReadinessNote;
use crate::model::record::{EventRow, MachineSpec, Record, Unreadable};
use crate::model::requirements::{Requirements, TypePatterns};
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Report};
use crate::model::summary::ProvisionSummary;
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::modes::doctor::facts::{Caller, Facts, Told};

/// Why a port did not answer. A refused conditional write is an answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The outcome is unknown: the call may have taken effect. It may succeed when it is repeated.
    #[error("{service} is out of reach: {reason}")]
    Unavailable {
        service: &'static str,
        /// The service's own message.
        reason: String,
    },
    /// It fails until a person changes something.
    #[error("{service} cannot be used: {reason}")]
    Unusable {
        service: &'static str,
        /// The service's own message.
        reason: String,
        hint: String,
    },
    /// A setting is missing or malformed, in the view of the adapter that it is for.
    #[error("{0}")]
    Setting(crate::model::settings::InvalidSetting),
    /// Refresh has not created this yet.
    #[error("not set up: {what}")]
    NotSetUp { what: String },
    /// The forge has refused, and will until a person changes something.
    #[error("{reason}")]
    Forge { reason: String, hint: String },
    /// The forge limits how many requests it answers.
    #[error("{reason}")]
    Limited {
        reason: String,
        hint: String,
        /// Whether the limit is over by now, so that the call may be repeated.
        is_over: bool,
    },
}

impl PortError {
    /// Whether the same call may succeed when it is repeated now.
    pub fn is_passing(&self) -> bool {
        matches!(self, PortError::Unavailable { .. } | PortError::Limited { is_over: true, .. })
    }
}

pub type PortResult<T> = Result<T, PortError>;

/// The records of a listing. A row that cannot be read does not hide the others.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub records: Vec<Record>,
    /// The rows that could not be read, each with its id and the problem.
    pub unreadable: Vec<Unreadable>,
}

/// The store, as the control plane may use it.
#[async_trait]
pub trait Store: Send + Sync {
    /// Creates the table if it is missing.
    async fn set_up(&self) -> PortResult<()>;
    /// The settings that refresh has stored, and the configuration that was applied for it. Fails with
    /// [`PortError::NotSetUp`] if there is neither.
    async fn settings(&self) -> PortResult<BTreeMap<String, String>>;
    /// Stores the given settings atomically and leaves the others as they are. An empty value
    /// removes its setting.
    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()>;
    /// Stores `next` as this setting if it still is `current`. An empty text stands for a setting that
    /// is not stored. Returns whether it was stored.
    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool>;

    /// Makes one conditional write and records its event. Returns whether the guard admitted it.
    async fn write(&self, change: &Change) -> PortResult<Verdict>;
    /// Makes several writes of different instances, each as [`write`](Store::write) does, and returns
    /// their answers in the same order. Each comes with the record that the caller has just read,
    /// which its guard admits. A store may use that to make them at less cost; the answers are the
    /// same.
    async fn write_all(&self, writes: &[(Change, Record)]) -> Vec<PortResult<Verdict>> {
        join_all(writes.iter().map(|(change, _)| self.write(change))).await
    }
    /// Makes all of these writes of different instances, at least one, with their events, or none of
    /// them. Returns `false` if a guard does not admit its record, or if the store cannot do this.
    async fn write_all_or_none(&self, _changes: &[Change]) -> PortResult<bool> {
        Ok(false)
    }
    /// The instances that belong to a run now, read consistently, at a cost that does not grow with
    /// the fleet.
    async fn of_run(&self, run: &RunId) -> PortResult<Listing>;
    /// The current records of these instances, read consistently and in no order. An instance
    /// without a record is left out.
    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing>;
    /// The live records whose threshold is at or before `now`. Like [`list`](Store::list), it may
    /// miss records that have just changed.
    async fn expired(&self, now: Timestamp) -> PortResult<Listing>;
    /// The records of a scope, each as it is now. A record that was written within the last moments
    /// may be missing, because a store may find them by an index that lags. So absence from this
    /// list proves nothing: ask [`records`](Store::records) before acting on it.
    async fn list(&self, scope: RecordScope) -> PortResult<Listing>;
    /// What the agents of these instances have written, in the order of `ids`.
    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>>;
    /// Notes on the records of these tickets that they were announced. Skips a record that is no
    /// longer in the idle period that its ticket is about.
    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()>;
    /// Deletes terminated records, and what their agents wrote unless the store expires that by
    /// itself.
    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()>;
    /// Deletes what was terminated or settled before this moment: records with what their agents
    /// wrote, and intents. Returns the number of records. Events, intents and what agents wrote are
    /// not deleted here if the store expires them by itself.
    async fn forget(&self, before: Timestamp) -> PortResult<usize>;

    /// The shell command by which a person deletes these records. It is for those that cannot be read:
    /// no mode touches them. `None` if there is no such command.
    fn deletion_command(&self, _ids: &[InstanceId]) -> Option<String> {
        None
    }

    /// Writes an intent, in place of an earlier version of it.
    async fn put_intent(&self, intent: &Intent) -> PortResult<()>;
    /// The intents that have no outcome now. One that was written within the last moments may be
    /// missing, as in [`list`](Store::list).
    async fn open_intents(&self) -> PortResult<Vec<Intent>>;

    /// Counts a launch before it happens, if [`MachineCount::admits`] it.
    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict>;
    /// Gives back the places that a launch does not need, see [`MachineCount::settle`]. A
    /// settlement without effect is no error.
    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()>;
    /// The count of machines, read consistently; `None` if refresh has never counted.
    async fn machine_count(&self) -> PortResult<Option<MachineCount>>;
    /// Replaces the count if its version is still `version`, or if there still is none. Returns
    /// whether it was replaced.
    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool>;

    /// The events by which runs were given machines in this span, both ends included, see
    /// [`Transition::HAND_OVERS`](crate::lifecycle::Transition::HAND_OVERS): the latest of them, at
    /// most `most`, the newest first, at a cost that does not grow with the number of older ones. Some
    /// may be missing, because a store may write events late or lose them.
    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>>;

    /// Stores what agents register with, in place of earlier credentials, and changes settings as
    /// [`put_settings`](Store::put_settings) does. Both happen, or neither.
    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()>;
    /// Stores what a run asks for under a label, in place of what it asked for under this label
    /// before. Keeps it for at least [`RETENTION`](crate::model::demand::RETENTION), also when older
    /// records are deleted.
    async fn put_demand(&self, demand: &Demand) -> PortResult<()>;
    /// Stores `next` if the demand under its label still is `current`, or if there still is none.
    /// Returns whether it was stored. Both have the same label. The demand is kept as if it had been
    /// put at the later of the times that the two name, for
    /// [`RETENTION`](crate::model::demand::RETENTION) at least.
    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool>;
    /// The latest demand under each label of these runs, ordered by label, at a cost that does not
    /// grow with the number of labels.
    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>>;

    /// Stores what a call of provision did, for people, in place of an earlier version of the same
    /// summary. The caller does not repeat it: a lost summary does no harm.
    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()>;

    /// Tells the agents of these machines that their records have changed, and returns without waiting
    /// for that. Best effort: a wake-up may be lost, late or repeated, and its failure is only logged.
    /// Not needed by a store whose agents see changes by themselves.
    fn wake(&self, _ids: &[InstanceId]) {}
    /// Deletes what the store keeps to wake agents whose machines are not among `existing`, if it is
    /// older than `grace`. Returns how many machines that was kept for.
    async fn prune_wake_ups(
        &self,
        _existing: &[InstanceId],
        _grace: Duration,
    ) -> PortResult<usize> {
        Ok(0)
    }

    /// Waits until everything is written that the store may write late: events, if they cannot be
    /// part of the write that they record, and wake-ups, for a moment at most. Each mode calls it once,
    /// at its end.
    async fn finish(&self) -> PortResult<()> {
        Ok(())
    }
}

/// What has happened, for people. The modes have no access to it, so that no decision can depend on
/// what may be lost: events, unless the store writes them together with the change, and summaries.
#[async_trait]
pub trait History: Send + Sync {
    /// The events of a machine. At most the latest `limit` of them.
    async fn events_of_machine(&self, id: &InstanceId, limit: usize) -> PortResult<Events>;
    /// The events of machines while the run owned them, and those by which it lost them. At most
    /// `limit` of them, the latest.
    async fn events_of_run(&self, run: &RunId, limit: usize) -> PortResult<Events>;
    /// The events of all machines in this span, both ends included. At most `limit` of them, the latest,
    /// at a cost that grows with their number.
    async fn events_between(
        &self,
        since: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> PortResult<Events>;
    /// Since when no event and no summary has been deleted, of a pool with these settings. Earlier ones
    /// may be missing.
    fn kept_since(&self, settings: &Settings, now: Timestamp) -> Timestamp;
    /// What the calls of provision for this run did, the oldest first. At most the latest `limit`.
    async fn summaries_of_run(
        &self,
        run: &RunId,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>>;
    /// Summaries of any run that were made since the beginning of the day before `now`, in UTC: at most
    /// `limit`, and the latest of those that there are. One that was written within the last moments may
    /// be missing.
    async fn recent_summaries(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>>;
}

/// Events that were read, the oldest first. Those of the same millisecond may be in any order, and one
/// that was written within the last moments may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    pub rows: Vec<EventRow>,
    /// Whether there are earlier ones than those that were read.
    pub is_partial: bool,
}

impl Events {
    /// The latest `limit` of these, which are all and in order.
    pub fn latest(mut rows: Vec<EventRow>, limit: usize) -> Events {
        let is_partial = rows.len() > limit;
        Events { rows: rows.split_off(rows.len().saturating_sub(limit)), is_partial }
    }
}

/// Which records [`Store::list`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordScope {
    /// Those that are not terminated.
    Live,
    All,
}

/// What an agent has heard while it waited for news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The record may have changed. A wake-up may be false: only the record tells.
    Announced,
    /// Nothing was announced, and the store would have announced a change that it was told of.
    Quiet,
    /// The store announces no changes at present, so the agent has to look on its own: with the reason,
    /// if that is an error.
    Unheard(Option<PortError>),
}

/// The store, as an agent may use it.
#[async_trait]
pub trait AgentStore: Send + Sync {
    /// The record of this machine; `None` if it has none.
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>>;
    /// The settings that refresh has stored, or those of the version that this machine's record
    /// names. Fails with [`PortError::NotSetUp`] if refresh never stored any.
    async fn settings(&self) -> PortResult<BTreeMap<String, String>>;
    /// The token for registering or removing a runner; `None` if the forge asks for none. An agent
    /// reads it when it needs it and keeps no copy, so that no job shares a machine with one.
    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>>;
    /// Begins to listen for wake-ups of this machine, and returns without waiting for that. A further
    /// call does nothing.
    fn listen(&self, _id: &InstanceId) {}
    /// Returns when the record may have changed since the last call; after `poll`, if the store
    /// announces no changes at present; and after `patience` in any case. `patience` is not shorter
    /// than `poll`.
    async fn news(&self, clock: &dyn Clock, poll: Duration, _patience: Duration) -> News {
        clock.sleep(poll).await;
        News::Unheard(None)
    }
    /// Writes the heartbeat of this machine, in place of the last one.
    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()>;
    /// Writes a report in place of an earlier one. If a later report is already there, that one
    /// stays, and it is no error: a request that was given up on may arrive after the next.
    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()>;
    /// Writes what it says about the registration of this idle machine in place of what it said before,
    /// as [`report`](AgentStore::report) does. Heartbeat and signal stay. Returns whether the store has it
    /// now; `false` if a later one stays.
    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool>;
}

/// A message received from the pool. It stays in its queue, hidden from other receivers, until it is
/// deleted, put back, or its hold is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Stale once another receiver has received the message.
    pub receipt: Receipt,
    /// The text of the ticket, not yet parsed.
    pub body: String,
}

/// Proof of having received a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Can be received now.
    pub visible: usize,
    /// Hidden by a receiver.
    pub held: usize,
    /// Sent with a delay that is not over.
    pub delayed: usize,
}

impl Depth {
    pub fn total(self) -> usize {
        self.visible + self.held + self.delayed
    }
}

/// The pool: one queue of tickets per resource class. It delivers at least once, in no guaranteed
/// order.
#[async_trait]
pub trait Pool: Send + Sync {
    /// Creates the queues that are missing.
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()>;
    /// Looks up where the queue is, if that takes a call, so that a receive soon after needs only
    /// one. A failure is not reported: the receive meets it again.
    async fn locate(&self, _class: &ResourceClass) {}
    /// Receives up to `max` messages and hides them from other receivers for `hold`. It answers at
    /// once, and may miss messages that are visible.
    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>>;
    /// Like [`receive`](Pool::receive), but misses none: an empty answer proves that no message was
    /// visible. It may take a second.
    async fn receive_thoroughly(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        self.receive(class, max, hold).await
    }
    /// Hides received messages for `hold` from now on. A stale receipt does nothing.
    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()>;
    /// Makes received messages visible again at once. A stale receipt does nothing.
    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()>;
    /// Deletes received messages. A stale receipt does nothing.
    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()>;
    /// Sends each ticket to the queue of its class, visible after `delay`.
    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()>;
    /// How many messages a queue holds. The numbers may be out of date.
    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth>;
}

#[derive(Debug, Clone)]
pub struct Order {
    /// The idempotency token: the same order under the same intent launches once.
    pub intent: IntentId,
    pub run: RunId,
    pub count: u32,
    pub requirements: Requirements,
}

/// A machine, as its provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub id: InstanceId,
    /// What was launched, which may exceed what was ordered.
    pub spec: MachineSpec,
    /// The order that it was launched under.
    pub intent: IntentId,
    pub launched_at: Timestamp,
    /// The image that it was booted from, if the provider has images and says which.
    pub image: Option<String>,
}

/// The outcome of an order. A caller must read all three lists.
#[derive(Debug, Clone, Default)]
pub struct Launched {
    pub machines: Vec<Machine>,
    /// Why the rest was not launched, in the provider's words: there is no capacity.
    pub shortfalls: Vec<String>,
    /// The same for errors that say nothing about capacity: the provider was too busy, or failed. A
    /// new order may succeed; repeating this one returns the same answer.
    pub passing: Vec<String>,
}

/// The provider of machines.
#[async_trait]
pub trait Compute: Send + Sync {
    /// Looks up what the settings only name and what may change without them, such as the image behind
    /// an alias. Refresh calls it before `set_up` when it checks everything, and adds the returned
    /// settings to those that `set_up` gets. Fails as `set_up` does.
    async fn look_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }
    /// Creates or updates what launches need, such as a launch template. The caller stores the
    /// returned settings. Fails with [`PortError::Setting`] if a setting of this provider is missing
    /// or malformed.
    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>>;
    /// What the operator should know about these settings, such as that machines cannot work under
    /// them. Refresh reports it as a warning.
    fn notice(&self, _settings: &Settings) -> Option<String> {
        None
    }
    /// The instance types to accept where a request names none.
    fn default_types(&self) -> TypePatterns;
    /// Which of these instance types an order with these requirements may launch, going by their names
    /// and the settings: each that it may launch, and perhaps others.
    fn launchable(
        &self,
        requirements: &Requirements,
        settings: &Settings,
        types: &[&str],
    ) -> Vec<String>;
    /// The id under which records, tickets and runners know the machine that the provider calls
    /// `name`. The agent on that machine derives the same id from the same name, so the two agree
    /// without having met. Different machines of one set of records have different ids.
    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId>;
    /// Launches up to `order.count` machines in one attempt. The same order again launches nothing
    /// new and returns what the first one launched.
    async fn launch(&self, order: &Order, settings: &Settings) -> PortResult<Launched>;
    /// Terminates machines. One that is unknown or already terminated is no error.
    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()>;
    /// The machines of this pool that are not terminated. One that was launched less than
    /// [`listing_lag`](Compute::listing_lag) ago may be missing.
    async fn machines(&self) -> PortResult<Vec<Machine>>;
    /// The image that a launch would boot now; `None` if the provider has none. Machines that are
    /// listed with another one are out of date.
    async fn current_image(&self, _settings: &Settings) -> PortResult<Option<String>> {
        Ok(None)
    }
    /// How long after its launch a machine is in the list at the latest.
    fn listing_lag(&self) -> Duration {
        Duration::ZERO
    }
}

/// A runner, as the forge lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRunner {
    /// Its name, which is unique in the forge.
    pub name: String,
    /// The machine that it registered from.
    pub instance: InstanceId,
    /// Which registration of this machine it is. A later one has a higher number.
    pub number: u32,
    pub online: bool,
}

/// How many jobs of a run wait for a machine, by the label that they ask for. Labels of other runs do not
/// count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitingJobs {
    /// By label of the run.
    pub labels: BTreeMap<Label, u32>,
    /// By label of a machine. Whether the run was given such a machine is not known here.
    pub machine_labels: BTreeMap<MachineLabel, u32>,
}

impl WaitingJobs {
    pub fn new() -> WaitingJobs {
        WaitingJobs::default()
    }

    /// Whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.machine_labels.is_empty()
    }
}

/// A run that is queued or in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    pub run: RunId,
    /// Its waiting jobs, if the forge lists them together with the runs. Otherwise
    /// [`Forge::waiting_jobs`] asks for them.
    pub waiting: Option<WaitingJobs>,
}

/// How far a run is, as the forge tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    /// It has not completed.
    Open,
    Completed,
    /// The forge does not know it: it was deleted, or it is of another repository.
    Unknown,
    /// The forge may not tell, or the budget is spent.
    Untold,
}

/// A job of a completed run that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedJob {
    /// The forge's id of it.
    pub id: u64,
    /// The machine of this pool that it ran on, if any.
    pub instance: Option<InstanceId>,
}

/// What [`Forge::rerun`] runs again. A forge starts a new attempt of the run for it, and admits no
/// second request before that has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rerun {
    /// The job with this id, and those that depend on it.
    Job(u64),
    /// Every job that did not succeed.
    FailedJobs,
}

/// The runs that are queued or in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenRuns {
    pub runs: Vec<OpenRun>,
    /// Whether there may be more of them.
    pub is_partial: bool,
}

/// How many requests about runs a refresh may still send to the forge. An adapter spends one before
/// each request that the forge counts against its rate limit, and sends none after the last.
#[derive(Debug)]
pub struct RequestBudget(AtomicU32);

impl RequestBudget {
    pub fn new(requests: u32) -> RequestBudget {
        RequestBudget(AtomicU32::new(requests))
    }

    /// Takes one request from the budget. Returns `false` if none is left.
    pub fn spend(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// How many requests are left.
    pub fn left(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// GitHub, or what stands in for it.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Checks the settings and looks up what agents need in order to register. The caller stores
    /// the returned settings.
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }
    /// What the operator should know after the last call of `set_up`, such as a deadline. Refresh
    /// reports it as a warning.
    fn notice(&self) -> Option<String> {
        None
    }
    /// Where runners register; `None` if the forge asks for no credentials.
    fn target(&self) -> Option<String> {
        None
    }
    /// Creates new credentials; `None` if the forge asks for none.
    async fn mint(&self) -> PortResult<Option<Credentials>> {
        Ok(None)
    }
    /// The runners of this pool.
    async fn runners(&self) -> PortResult<Vec<ListedRunner>>;
    /// Removes a runner from the list. One that is not there is no error.
    async fn remove_runner(&self, name: &str) -> PortResult<()>;
    /// The runs that are queued or in progress. If there are more than the adapter reads at once, it
    /// returns the newest and one further part of the list, which `turn` chooses: consecutive turns
    /// go through the whole list. Returns what it has when the budget is spent.
    async fn open_runs(&self, _turn: u64, _budget: &RequestBudget) -> PortResult<OpenRuns> {
        Ok(OpenRuns::default())
    }
    /// Whether the forge lets this process read runs, as far as the requests so far have shown. If it
    /// does not, [`open_runs`](Forge::open_runs) returns none.
    fn reads_runs(&self) -> bool {
        true
    }
    /// The waiting jobs of a run. Returns those that it has found when the budget is spent.
    async fn waiting_jobs(&self, _run: &RunId, _budget: &RequestBudget) -> PortResult<WaitingJobs> {
        Ok(WaitingJobs::new())
    }
    /// How far the run is.
    async fn run_status(&self, _run: &RunId, _budget: &RequestBudget) -> PortResult<RunStatus> {
        Ok(RunStatus::Untold)
    }
    /// The jobs of a run's latest attempt that did not succeed. `None` if the budget does not suffice
    /// to list them all, or the forge may not tell.
    async fn failed_jobs(
        &self,
        _run: &RunId,
        _budget: &RequestBudget,
    ) -> PortResult<Option<Vec<FailedJob>>> {
        Ok(None)
    }
    /// Runs jobs of a completed run again. Sends one request, which the caller has spent. Must not be
    /// repeated if it fails.
    async fn rerun(&self, _run: &RunId, _what: Rerun) -> PortResult<()> {
        Ok(())
    }
}

/// The runner program on a machine, as the agent drives it. Errors are texts for people.
#[async_trait]
pub trait Runner: Send + Sync {
    /// Creates the user that jobs run as, if there is to be one of its own and it does not exist. The
    /// agent calls it before the operator's script, which may refer to the user.
    async fn make_user(&self) -> Result<(), String> {
        Ok(())
    }
    /// Installs the software. The other methods may be called after it has succeeded.
    async fn prepare(&self) -> Result<(), String>;
    /// Registers with this label only. The future may be dropped at any point; `stop` and
    /// `deregister` then undo what it did.
    async fn register(&self, label: &Label) -> Result<(), String>;
    /// Makes the runner listen under this label of the machine's own: registers it, unless the last call
    /// has registered it under the same label, and starts its listener, unless that listens. Jobs that
    /// arrive wait for [`name_owner`](Runner::name_owner), for a while, before their first step. Returns
    /// the number of the registration, which is higher than those of earlier ones. The future may be
    /// dropped at any point, as that of `register`.
    async fn listen_as(&self, _label: &MachineLabel) -> Result<u32, String> {
        Err("this runner cannot register before a run is known".to_owned())
    }
    /// Lets in jobs of this run on a runner that `listen_as` has registered, and refuses those of others.
    async fn name_owner(&self, _run: &RunId) -> Result<(), String> {
        Ok(())
    }
    /// Waits until a runner that `listen_as` has registered, and that no run owns, can take no job any
    /// more: its listener has died, its registration is lost, or it was drained. Returns why.
    async fn lapse(&self) -> String {
        std::future::pending().await
    }
    /// Makes a runner that has died ready to take jobs of the run with this label again. Fails with
    /// the reason if it cannot take any; a later call may succeed. Does nothing if the runner is
    /// ready. The future may be dropped at any point, as that of `register`.
    async fn revive(&self, _label: &Label) -> Result<(), String> {
        Ok(())
    }
    /// Takes jobs of the run with this label until the future is dropped. If the runner dies before
    /// that, returns why.
    async fn work(&self, label: &Label) -> String;
    /// Stops listening for jobs and returns when the runner has no job. One that runs goes on, so the
    /// future of [`work`](Runner::work) must be kept until then; it returns as well. `why` is shown
    /// in the job's log. Does nothing if the runner does not listen. A later call of `work` listens
    /// again.
    async fn drain(&self, why: &str);
    /// Whether it has a job at this moment.
    fn is_busy(&self) -> bool;
    /// Whether it has taken a job since `register` was called last. One that cannot tell says yes.
    fn has_worked(&self) -> bool;
    /// Stops all processes of the run.
    async fn stop(&self) -> Result<(), String>;
    /// Removes the runner from the forge's list.
    async fn deregister(&self) -> Result<(), String>;
    /// What was done for the run, in a few words for the report of a release. The agent asks before
    /// it cleans.
    async fn account(&self) -> String {
        String::new()
    }
    /// Removes everything that the run has left on the machine.
    async fn clean(&self) -> Result<(), String>;
}

/// The machine that an agent runs on.
#[async_trait]
pub trait Host: Send + Sync {
    /// Runs the operator's script. Fails with its last output if it does not exit with 0.
    async fn run_script(&self, script: &str) -> Result<(), String>;
    /// Returns the provider's notice that it will take the machine away. Most machines never get one.
    async fn interruption(&self) -> String;
    /// Terminates this machine. May return before it is gone.
    async fn terminate(&self, why: &str);
}

/// The only source of time in core. Every clock passes
/// [`clock_suite`](crate::testkit::contract::clock_suite).
#[async_trait]
pub trait Clock: Send + Sync {
    /// The time of day, for moments that other processes compare: thresholds, heartbeats, events.
    /// It may step in either direction when the clock is corrected.
    fn now(&self) -> Timestamp;
    /// The time since a fixed moment that each process has for itself. It never goes back, and a
    /// correction of [`now`](Clock::now) does not move it. Every span is a difference of two of
    /// these: timeouts, retry budgets, latencies.
    fn steady(&self) -> Duration;
    /// Returns after `span` of steady time.
    async fn sleep(&self, span: Duration);
}

/// The only source of randomness in core.
pub trait Random: Send + Sync {
    fn number(&self) -> u64;
}

/// Tells operators what refresh has found.
#[async_trait]
pub trait Notifier: Send + Sync {
    /// Sends a notice, within ten seconds. Fails with the reason, which contains no secret; the notice
    /// may have arrived nevertheless.
    async fn notify(&self, notice: &Notice) -> Result<(), String>;
}

/// Shows what a mode is doing, if a person may be watching.
pub trait Progress: Send + Sync {
    /// Announces what is being done from now on, in a few words.
    fn stage(&self, doing: &str);
}

/// What a resource is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
    /// No machine can be launched without it.
    LaunchTemplate,
    /// Tickets of one class.
    Queue,
    WakeUpQueue,
    /// Files of machines, or room that is kept for the records.
    Files,
    /// The records, or the list of machines.
    Table,
}

impl ResourceKind {
    /// In one or two words for people.
    pub fn as_str(self) -> &'static str {
        match self {
            ResourceKind::LaunchTemplate => "launch template",
            ResourceKind::Queue => "queue",
            ResourceKind::WakeUpQueue => "wake-up queue",
            ResourceKind::Files => "files",
            ResourceKind::Table => "table",
        }
    }
}

/// Something that refresh, a launch or an agent has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    pub kind: ResourceKind,
    /// Its name or path, which finds it again.
    pub name: String,
}

/// What ondeck has created in one place. Only teardown uses it.
#[async_trait]
pub trait Infrastructure: Send + Sync {
    /// The resources that exist. One that was created within the last moments may be missing, unless
    /// it is a table or the queue of one of these classes; one that was just deleted may be there.
    async fn existing(&self, classes: &[ResourceClass]) -> PortResult<Vec<Resource>>;
    /// Deletes a resource. One that is gone already is no error.
    async fn delete(&self, resource: &Resource) -> PortResult<()>;
}

/// What a provider tells about the surroundings of a pool. Only doctor uses it. No method changes
/// anything.
#[async_trait]
pub trait Diagnosis: Send + Sync {
    /// Who this process is for the provider.
    async fn caller(&self) -> Told<Caller>;
    /// Everything that machines with these settings need, and the machines that there are.
    async fn facts(&self, settings: &Settings) -> Facts;
}
