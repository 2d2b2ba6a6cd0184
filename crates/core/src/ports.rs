//! Everything that core needs from the outside, on one page.
//!
//! Adapters implement these and decide nothing. Control plane and agent have separate traits:
//! the one cannot write what an agent says, the other cannot write an instance's state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;

use crate::lifecycle::{Change, Verdict};
use crate::model::credentials::Credentials;
use crate::model::demand::Demand;
use crate::model::ids::{InstanceId, IntentId, InvalidId, ProviderName, ResourceClass, RunId};
use crate::model::intent::Intent;
use crate::model::record::{MachineSpec, Record, Unreadable};
use crate::model::requirements::{Requirements, TypePatterns};
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Report};
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;

/// Why a port did not answer. Losing a conditional write is an answer, and not among these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// It may work if tried again, and may already have worked: the answer is not known.
    #[error("{service} is out of reach: {reason}")]
    Unavailable {
        /// Which one.
        service: &'static str,
        /// In its own words.
        reason: String,
    },
    /// It will not work until a person does something.
    #[error("{service} cannot be used: {reason}")]
    Unusable {
        /// Which one.
        service: &'static str,
        /// In its own words.
        reason: String,
        /// What that person might do.
        hint: String,
    },
    /// A setting makes no sense to the backend that it is for.
    #[error("{0}")]
    Setting(crate::model::settings::InvalidSetting),
    /// Refresh has not set this up yet.
    #[error("not set up: {what}")]
    NotSetUp {
        /// What is missing.
        what: String,
    },
    /// GitHub, or what stands in for it, has refused, and will until a person does something.
    #[error("{reason}")]
    Forge {
        /// What was refused, and why.
        reason: String,
        /// What that person might do.
        hint: String,
    },
}

/// What a port call gives.
pub type PortResult<T> = Result<T, PortError>;

/// Records that could be read, and those that could not. One bad row spoils no other.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The sound ones.
    pub records: Vec<Record>,
    /// The others, by name and problem.
    pub unreadable: Vec<Unreadable>,
}

/// The store, as the control plane may use it.
#[async_trait]
pub trait Store: Send + Sync {
    /// Makes the table, if it is not there.
    async fn set_up(&self) -> PortResult<()>;
    /// What refresh wrote down last. [`PortError::NotSetUp`] if it never has.
    async fn settings(&self) -> PortResult<BTreeMap<String, String>>;
    /// Writes down the ones that are given, in one go, and leaves the others as they are. An
    /// empty value removes its setting.
    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()>;

    /// One conditional write, and the event that records it.
    async fn write(&self, change: &Change) -> PortResult<Verdict>;
    /// The instances that belong to a run now: strongly consistent, at a cost that does not
    /// grow with the fleet.
    async fn of_run(&self, run: &RunId) -> PortResult<Listing>;
    /// The live records that are past their threshold.
    async fn expired(&self, now: Timestamp) -> PortResult<Listing>;
    /// Every record, or the live ones only.
    async fn list(&self, scope: Scope) -> PortResult<Listing>;
    /// What agents have written about these instances, in the same order.
    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>>;
    /// Notes on idle records that they were announced, where they still stand in the very idle
    /// state that was.
    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()>;
    /// Removes terminated records, with what their agents wrote.
    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()>;
    /// Removes whatever ended before this moment: terminated records with what their agents
    /// wrote, and settled intents. Gives the number of records. Events may go with them, or by
    /// themselves where the store sees to that.
    async fn forget(&self, before: Timestamp) -> PortResult<usize>;

    /// Writes an intent, or what came of it.
    async fn put_intent(&self, intent: &Intent) -> PortResult<()>;
    /// The intents of which nobody has said what came.
    async fn open_intents(&self) -> PortResult<Vec<Intent>>;

    /// Writes down what agents are to register with, in place of what stood there.
    async fn put_credentials(&self, credentials: &Credentials) -> PortResult<()>;
    /// Notes what a run asks for, in place of what it asked for before. Kept for
    /// [`RETENTION`](crate::model::demand::RETENTION) at least, whatever else is forgotten.
    async fn put_demand(&self, demand: &Demand) -> PortResult<()>;
    /// What a run has asked for last.
    async fn demand(&self, run: &RunId) -> PortResult<Option<Demand>>;

    /// Waits for what a store may write late: events, where they cannot be part of the write
    /// that they record. To be called once, at the end of a mode.
    async fn finish(&self) -> PortResult<()> {
        Ok(())
    }
}

/// Which records to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Without the terminated ones.
    Live,
    /// All of them.
    All,
}

/// The store, as an agent may use it.
#[async_trait]
pub trait AgentStore: Send + Sync {
    /// What the control plane has written about this machine.
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>>;
    /// The operator's choices.
    async fn settings(&self) -> PortResult<BTreeMap<String, String>>;
    /// What to register with, at this moment; nothing where the forge asks for nothing.
    async fn credentials(&self) -> PortResult<Option<Credentials>>;
    /// Waits until the record may have changed, and for `at_most` if the store cannot tell. To be
    /// called between one look and the next.
    async fn news(&self, clock: &dyn Clock, at_most: Duration) {
        clock.sleep(at_most).await;
    }
    /// "I am alive."
    async fn beat(&self, id: &InstanceId, at: Timestamp) -> PortResult<()>;
    /// Says something, in place of what was said last. What was said later stays, and that is no
    /// error: a request that was given up on may arrive long after the next.
    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()>;
}

/// A message taken from the pool. It stays in the queue, hidden from others, until it is
/// deleted, put back, or held for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Proof of having received it; worthless once somebody else has.
    pub receipt: Receipt,
    /// The ticket's text, unread.
    pub body: String,
}

/// Proof of having received a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// To be had now.
    pub visible: usize,
    /// Held by somebody.
    pub held: usize,
    /// Not to be had yet.
    pub delayed: usize,
}

impl Depth {
    /// All of them.
    pub fn total(self) -> usize {
        self.visible + self.held + self.delayed
    }
}

/// The pool: one queue per resource class, at least once, in no order that may be relied on.
#[async_trait]
pub trait Pool: Send + Sync {
    /// Makes the queues that are missing.
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()>;
    /// Up to `max` messages, hidden from others for `hold`.
    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>>;
    /// Hides held messages for `hold` from now on. A stale receipt does nothing.
    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()>;
    /// Makes held messages visible again, at once. A stale receipt does nothing.
    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()>;
    /// Removes held messages. A stale receipt does nothing.
    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()>;
    /// Adds tickets, each to the queue of its class, visible after `delay`.
    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()>;
    /// How many messages there are, as far as is known.
    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth>;
}

/// What to launch.
#[derive(Debug, Clone)]
pub struct Order {
    /// Names the launch: the same order under the same intent launches once.
    pub intent: IntentId,
    /// For which run.
    pub run: RunId,
    /// How many.
    pub count: u32,
    /// What each must be.
    pub requirements: Requirements,
}

/// A machine, as its provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub id: InstanceId,
    /// What it really is.
    pub spec: MachineSpec,
    /// By which launch it came about.
    pub intent: IntentId,
    /// When.
    pub launched_at: Timestamp,
}

/// What came of an order: all three lists are to be read, always.
#[derive(Debug, Clone, Default)]
pub struct Launched {
    /// What started.
    pub machines: Vec<Machine>,
    /// Why the rest did not, in the provider's words: there is no more to be had.
    pub shortfalls: Vec<String>,
    /// The same, where it says nothing of what is to be had: the provider had too much to do, or
    /// trouble of its own. Another order may meet none of it; this one has its answer for good.
    pub passing: Vec<String>,
}

/// The provider of machines.
#[async_trait]
pub trait Compute: Send + Sync {
    /// Creates or updates what launches need, such as a launch template. Fails with
    /// [`PortError::Setting`] if a setting of this provider is missing or malformed.
    async fn set_up(&self, settings: &Settings) -> PortResult<()>;
    /// The instance types to accept where a request names none.
    fn default_types(&self) -> TypePatterns;
    /// The id under which records, tickets and runners know the machine that the provider calls
    /// `name`. The agent on that machine derives the same id from the same name, so the two agree
    /// without having met. Different machines of one set of records have different ids.
    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId>;
    /// Launches up to `order.count` machines in one attempt. The same order again launches nothing
    /// new and returns what the first one launched.
    async fn launch(&self, order: &Order, settings: &Settings) -> PortResult<Launched>;
    /// Terminates machines. One that is unknown or already terminated is no error.
    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()>;
    /// The machines of this pool that are not terminated.
    async fn machines(&self) -> PortResult<Vec<Machine>>;
}

/// A runner, as the forge lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRunner {
    /// Its unique name there.
    pub name: String,
    /// The machine it says it is on.
    pub instance: InstanceId,
    /// Whether it is connected.
    pub online: bool,
}

/// A run that waits for machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    /// Which.
    pub run: RunId,
    /// How many of its jobs wait under its own label.
    pub jobs: u32,
}

/// GitHub, or what stands in for it.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Checks the settings, and looks up what agents must know in order to register: to be kept
    /// among the settings.
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }
    /// Where runners register, for a forge that asks for credentials there.
    fn target(&self) -> Option<String> {
        None
    }
    /// Has new credentials made; nothing where the forge asks for none.
    async fn mint(&self) -> PortResult<Option<Credentials>> {
        Ok(None)
    }
    /// The runners of ours.
    async fn runners(&self) -> PortResult<Vec<ListedRunner>>;
    /// Strikes one from the list. One that is gone already is no error.
    async fn remove_runner(&self, name: &str) -> PortResult<()>;
    /// Runs that have jobs waiting under their own label, but for those that are `served`.
    async fn waiting_runs(&self, served: &BTreeSet<RunId>) -> PortResult<Vec<WaitingRun>>;
}

/// The runner program on a machine, as the agent drives it. Errors are reasons for a person.
#[async_trait]
pub trait Runner: Send + Sync {
    /// Makes the software ready.
    async fn prepare(&self) -> Result<(), String>;
    /// Registers with the run as the only label. The future may be dropped half way; stop and
    /// deregister then undo what was done.
    async fn register(&self, run: &RunId) -> Result<(), String>;
    /// Works until it dies or the future is dropped, taking jobs of the run; gives the reason
    /// why it has died.
    async fn work(&self, run: &RunId) -> String;
    /// Stops whatever still runs for the run.
    async fn stop(&self) -> Result<(), String>;
    /// Strikes the runner from the forge's list.
    async fn deregister(&self) -> Result<(), String>;
    /// What was done for the run, in a few words for whoever releases it; asked for before
    /// everything is cleaned away.
    async fn account(&self) -> String {
        String::new()
    }
    /// Removes whatever the run has left on the machine.
    async fn clean(&self) -> Result<(), String>;
}

/// The machine an agent lives on.
#[async_trait]
pub trait Host: Send + Sync {
    /// Runs the operator's script to its end.
    async fn run_script(&self, script: &str) -> Result<(), String>;
    /// Waits for the provider's notice that the machine will be taken away. Most never give one.
    async fn interruption(&self) -> String;
    /// Ends this machine.
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

/// Chance. Nothing in core knows another.
pub trait Random: Send + Sync {
    /// Any number.
    fn number(&self) -> u64;
}

/// Where somebody may be watching.
pub trait Progress: Send + Sync {
    /// What is being done from now on, in a few words.
    fn stage(&self, doing: &str);
}
