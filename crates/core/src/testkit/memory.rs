//! Implementations of the ports in memory. They keep the contracts and are no mocks.

mod compute;
mod forge;
mod history;
mod machine;
mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use tokio::sync::Notify;

pub use self::compute::{MemoryCompute, PartialLaunch};
pub use self::forge::MemoryForge;
pub use self::machine::{MachineDefect, MemoryMachine, OwnRegistration, RegisteredLabels};
pub use self::pool::MemoryPool;
use super::{SeededRandom, VirtualClock};
use crate::lifecycle::{Change, Transition, Verdict};
use crate::model::ceiling::{Limits, MachineCount, Reservation, ReservationVerdict, Settlement};
use crate::model::credentials::{Credentials, Token, TokenPurpose};
use crate::model::demand::Demand;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::{InstanceId, IntentId, RunId};
use crate::model::intent::Intent;
use crate::model::label::Label;
use crate::model::readiness::ReadinessNote;
use crate::model::record::{EventRow, Record, State};
use crate::model::signal::{AgentStatus, Report};
use crate::model::summary::ProvisionSummary;
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::{KnownSettings, Plane};
use crate::ports::{
    AgentStore, Clock, Listing, News, PortError, PortResult, Progress, RecordScope, Store,
};

/// Every port call yields once to other tasks, as a call over a network would.
async fn turn() {
    tokio::task::yield_now().await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no port panics while it holds its data")
}

/// A clock with `Debug`, which `derive(Debug)` of the ports needs.
pub trait ClockAndDebug: Clock + std::fmt::Debug {}
impl<T: Clock + std::fmt::Debug> ClockAndDebug for T {}

/// What plays the agents of the machines of a [`MemoryStore`], where none of them runs.
pub trait PlayedAgents: std::fmt::Debug + Send + Sync {
    /// The control plane has written this record.
    fn written(&self, record: &Record);
    /// Adds to what a machine's agent has written what it would have written by now.
    fn complete(&self, id: &InstanceId, status: &mut AgentStatus);
}

/// How often each call was made.
pub type Calls = BTreeMap<&'static str, usize>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: InstanceId,
    pub transition: &'static str,
    pub from: Option<State>,
    pub to: State,
    pub run: Option<RunId>,
    pub why: String,
    pub at: Timestamp,
}

impl Event {
    fn row(&self) -> EventRow {
        let Event { id, transition, from, to, run, why, at } = self.clone();
        EventRow { instance: id, at, transition: transition.to_owned(), from, to, run, why }
    }
}

#[derive(Debug, Default)]
struct Tables {
    settings: Option<BTreeMap<String, String>>,
    records: BTreeMap<InstanceId, Record>,
    status: BTreeMap<InstanceId, AgentStatus>,
    intents: BTreeMap<IntentId, Intent>,
    /// Records that lists do not show, as an index that lags would not.
    unlisted: BTreeSet<InstanceId>,
    /// How many heartbeats will not arrive.
    lost_heartbeats: u32,
    /// Whether no setting can be written.
    settings_refused: bool,
    machine_count: Option<MachineCount>,
    credentials: Option<Credentials>,
    demands: BTreeMap<Label, Demand>,
    events: Vec<Event>,
    /// By run and key.
    summaries: BTreeMap<(RunId, String), ProvisionSummary>,
    calls: Calls,
    failing: BTreeSet<&'static str>,
    /// How many answers of a call are lost, after it has had its effect.
    lost_answers: BTreeMap<&'static str, u32>,
    /// Records that cannot be written.
    read_only: BTreeSet<InstanceId>,
    wake_ups: WakeUps,
    played: Option<Arc<dyn PlayedAgents>>,
}

#[derive(Debug, Default)]
struct WakeUps {
    /// Whether the store can be listened to; the reason if not.
    hearing: Hearing,
    /// The machine whose agent has begun to listen last.
    listener: Option<InstanceId>,
    /// The machines whose agents have begun to listen.
    kept: BTreeSet<InstanceId>,
    /// Every machine that was woken, in order.
    sent: Vec<InstanceId>,
    /// Whether a wake-up waits for the agent that listens.
    waits: bool,
    arrival: Arc<Notify>,
}

/// How a [`MemoryStore`] announces changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Hearing {
    /// It announces none, as if it could not.
    #[default]
    None,
    /// It cannot announce changes at present, for this reason.
    Fails(PortError),
    /// It announces changes if it is told to wake an agent.
    Works,
}

/// The error of a service that is out of reach.
fn out_of_reach(service: &'static str) -> PortError {
    PortError::Unavailable { service, reason: "it is down".to_owned() }
}

/// A store in memory; both the control plane's and the agents' side of it.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Tables>);

impl MemoryStore {
    /// Has these play the agents from now on.
    pub fn play_agents(&self, agents: Arc<dyn PlayedAgents>) {
        lock(&self.0).played = Some(agents);
    }

    fn played(&self) -> Option<Arc<dyn PlayedAgents>> {
        lock(&self.0).played.clone()
    }

    /// Makes the next `count` heartbeats fail.
    pub fn lose_heartbeats(&self, count: u32) {
        lock(&self.0).lost_heartbeats = count;
    }

    /// Fails a call of the control plane from now on: the name of a method, or for conditional
    /// writes that of a transition. `record of an agent` is the read that agents make.
    pub fn fail(&self, call: &'static str) {
        lock(&self.0).failing.insert(call);
    }

    /// Fails every conditional write of this record from now on.
    pub fn fail_writes_of(&self, id: &InstanceId) {
        lock(&self.0).read_only.insert(id.clone());
    }

    /// Loses the next `count` answers of a conditional write: the name of a transition, or
    /// `replace_demand`. The write is made.
    pub fn lose_answers(&self, call: &'static str, count: u32) {
        lock(&self.0).lost_answers.insert(call, count);
    }

    /// No call fails from now on.
    pub fn repair(&self) {
        let mut tables = lock(&self.0);
        tables.failing.clear();
        tables.lost_answers.clear();
        tables.read_only.clear();
    }

    fn answer(&self, call: &'static str) -> PortResult<()> {
        match lock(&self.0).failing.contains(call) {
            true => Err(out_of_reach("store")),
            false => Ok(()),
        }
    }

    fn change(&self, change: &Change) -> PortResult<Verdict> {
        let mut tables = lock(&self.0);
        if tables.read_only.contains(change.id()) {
            return Err(out_of_reach("store"));
        }
        let found = tables.records.get(change.id()).cloned();
        let Some(next) = change.applied_to(found.as_ref()) else {
            return Ok(Verdict::Refused(found));
        };
        tables.events.push(Event {
            id: next.id.clone(),
            transition: change.transition().as_str(),
            from: found.map(|record| record.state),
            to: next.state,
            run: next.run.clone(),
            why: change.why().to_owned(),
            at: change.at(),
        });
        tables.records.insert(next.id.clone(), next.clone());
        Ok(Verdict::Agreed(next))
    }

    fn deliver<T>(&self, call: &'static str, answer: T) -> PortResult<T> {
        match lock(&self.0).lost_answers.get_mut(call).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                Err(out_of_reach("store"))
            }
            None => Ok(answer),
        }
    }

    /// Writes a record without any guard.
    pub fn insert(&self, record: Record) {
        lock(&self.0).records.insert(record.id.clone(), record);
    }

    /// Keeps a record out of lists from now on. It can still be read by its id and by its run.
    pub fn unlist(&self, id: &InstanceId) {
        lock(&self.0).unlisted.insert(id.clone());
    }

    /// Passes the tables to `to`, without the history of events.
    pub fn show(&self, to: &mut dyn FnMut(&dyn std::fmt::Debug)) {
        let tables = lock(&self.0);
        to(&(&tables.records, &tables.status, &tables.intents, &tables.machine_count));
    }

    /// Lets the agent that listens hear wake-ups from now on, or no longer.
    pub fn announce(&self, hearing: Hearing) {
        let mut tables = lock(&self.0);
        tables.wake_ups.hearing = hearing;
        tables.wake_ups.arrival.notify_one();
    }

    /// The machines that were woken so far, in order.
    pub fn woken(&self) -> Vec<InstanceId> {
        lock(&self.0).wake_ups.sent.clone()
    }

    /// Keeps what a machine needs to be woken, as if its agent had begun to listen.
    pub fn keep_wake_ups_of(&self, id: &InstanceId) {
        lock(&self.0).wake_ups.kept.insert(id.clone());
    }

    /// The machines for which it keeps what they need to be woken.
    pub fn wake_ups_kept(&self) -> Vec<InstanceId> {
        lock(&self.0).wake_ups.kept.iter().cloned().collect()
    }

    /// What an agent hears at this moment; `None` if it has to wait for it.
    fn heard(&self) -> Option<News> {
        let wake_ups = &mut lock(&self.0).wake_ups;
        match &wake_ups.hearing {
            Hearing::None => Some(News::Unheard(None)),
            Hearing::Fails(error) => Some(News::Unheard(Some(error.clone()))),
            Hearing::Works => std::mem::take(&mut wake_ups.waits).then_some(News::Announced),
        }
    }

    /// Every transition that was committed, in order.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.0).events.clone()
    }

    /// How often the control plane, or an agent, has made each call.
    pub fn calls(&self) -> Calls {
        lock(&self.0).calls.clone()
    }

    /// Fails every write of settings from now on, or no longer.
    pub fn refuse_settings(&self, refuse: bool) {
        lock(&self.0).settings_refused = refuse;
    }

    fn change_settings(
        &self,
        changes: &BTreeMap<String, String>,
        credentials: Option<&Credentials>,
    ) -> PortResult<()> {
        let mut tables = lock(&self.0);
        if tables.settings_refused {
            let reason = "it takes no settings".to_owned();
            return Err(PortError::Unavailable { service: "store", reason });
        }
        let settings = tables.settings.get_or_insert_default();
        settings.extend(changes.clone());
        settings.retain(|_, value| !value.is_empty());
        if let Some(credentials) = credentials {
            tables.credentials = Some(credentials.clone());
        }
        Ok(())
    }

    fn count(&self, call: &'static str) {
        *lock(&self.0).calls.entry(call).or_default() += 1;
    }

    /// The records that satisfy a condition.
    pub fn select(&self, condition: impl Fn(&Record) -> bool) -> Vec<Record> {
        lock(&self.0).records.values().filter(|record| condition(record)).cloned().collect()
    }

    fn indexed(&self, condition: impl Fn(&Record) -> bool) -> Listing {
        let unlisted = lock(&self.0).unlisted.clone();
        self.listing(|record| !unlisted.contains(&record.id) && condition(record))
    }

    fn listing(&self, condition: impl Fn(&Record) -> bool) -> Listing {
        Listing { records: self.select(condition), unreadable: Vec::new() }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn wake(&self, ids: &[InstanceId]) {
        let wake_ups = &mut lock(&self.0).wake_ups;
        wake_ups.sent.extend(ids.iter().cloned());
        if wake_ups.listener.as_ref().is_some_and(|listener| ids.contains(listener)) {
            wake_ups.waits = true;
            wake_ups.arrival.notify_one();
        }
    }

    async fn prune_wake_ups(&self, existing: &[InstanceId], _grace: Duration) -> PortResult<usize> {
        turn().await;
        self.answer("prune_wake_ups")?;
        let kept = &mut lock(&self.0).wake_ups.kept;
        let before = kept.len();
        kept.retain(|id| existing.contains(id));
        Ok(before - kept.len())
    }

    async fn set_up(&self) -> PortResult<()> {
        turn().await;
        Ok(())
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        turn().await;
        self.answer("settings")?;
        let settings = lock(&self.0).settings.clone();
        settings.ok_or_else(|| PortError::NotSetUp { what: "no settings in the store".into() })
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        self.count("put_settings");
        turn().await;
        self.change_settings(changes, None)
    }

    async fn replace_setting(&self, name: &str, current: &str, next: &str) -> PortResult<bool> {
        self.count("replace_setting");
        turn().await;
        self.answer("replace_setting")?;
        let stored = lock(&self.0).settings.as_ref().and_then(|all| all.get(name).cloned());
        if stored.unwrap_or_default() != current {
            return Ok(false);
        }
        self.change_settings(&BTreeMap::from([(name.to_owned(), next.to_owned())]), None)?;
        self.deliver("replace_setting", true)
    }

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        turn().await;
        self.count("write");
        self.answer("write")?;
        self.answer(change.transition().as_str())?;
        let verdict = self.change(change)?;
        if let (Verdict::Agreed(next), Some(agents)) = (&verdict, self.played()) {
            agents.written(next);
        }
        self.deliver(change.transition().as_str(), verdict)
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        turn().await;
        self.count("of_run");
        self.answer("of_run")?;
        Ok(self.listing(|record| record.run.as_ref() == Some(run)))
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        turn().await;
        self.count("records");
        self.answer("records")?;
        Ok(self.listing(|record| ids.contains(&record.id)))
    }

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        turn().await;
        self.count("expired");
        Ok(self.indexed(|record| record.state.is_live() && record.is_expired(now)))
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        turn().await;
        self.count("list");
        self.answer("list")?;
        Ok(self.indexed(|record| scope == RecordScope::All || record.state.is_live()))
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        turn().await;
        self.count("agent_status");
        self.answer("agent_status")?;
        let tables = lock(&self.0);
        let known = |id: &InstanceId| tables.status.get(id).cloned().unwrap_or_default();
        let mut found: Vec<AgentStatus> = ids.iter().map(known).collect();
        drop(tables);
        if let Some(agents) = self.played() {
            for (id, status) in ids.iter().zip(&mut found) {
                agents.complete(id, status);
            }
        }
        Ok(found)
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        turn().await;
        self.count("mark_ticketed");
        self.answer("mark_ticketed")?;
        let mut tables = lock(&self.0);
        for ticket in tickets {
            if let Some(record) = tables.records.get_mut(&ticket.instance_id)
                && record.state == State::Idle
                && record.threshold == Some(ticket.threshold)
            {
                record.ticketed_at = Some(at);
            }
        }
        Ok(())
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        turn().await;
        let mut tables = lock(&self.0);
        for id in ids {
            if tables.records.get(id).is_some_and(|record| !record.state.is_live()) {
                tables.records.remove(id);
                tables.status.remove(id);
            }
        }
        Ok(())
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        turn().await;
        let mut tables = lock(&self.0);
        let old = |record: &Record| !record.state.is_live() && record.updated_at < before;
        let ids: BTreeSet<InstanceId> =
            tables.records.values().filter(|r| old(r)).map(|r| r.id.clone()).collect();
        tables.records.retain(|id, _| !ids.contains(id));
        tables.status.retain(|id, _| !ids.contains(id));
        tables.intents.retain(|_, intent| intent.is_open() || intent.deadline >= before);
        tables.events.retain(|event| event.at >= before);
        tables.summaries.retain(|_, summary| summary.at >= before);
        Ok(ids.len())
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        turn().await;
        self.answer("put_intent")?;
        lock(&self.0).intents.insert(intent.id.clone(), intent.clone());
        Ok(())
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        turn().await;
        Ok(lock(&self.0).intents.values().filter(|intent| intent.is_open()).cloned().collect())
    }

    async fn reserve(
        &self,
        reservation: &Reservation,
        limits: &Limits,
    ) -> PortResult<ReservationVerdict> {
        turn().await;
        self.count("reserve");
        let mut tables = lock(&self.0);
        let found = tables.machine_count.clone();
        match found.clone().and_then(|found| found.reserve(reservation, limits)) {
            None => Ok(ReservationVerdict::Refused(found)),
            granted => {
                tables.machine_count = granted;
                Ok(ReservationVerdict::Granted)
            }
        }
    }

    async fn settle_reservation(&self, settlement: &Settlement) -> PortResult<()> {
        turn().await;
        self.count("settle_reservation");
        let mut tables = lock(&self.0);
        if let Some(settled) = tables.machine_count.clone().and_then(|it| it.settle(settlement)) {
            tables.machine_count = Some(settled);
        }
        Ok(())
    }

    async fn hand_overs(
        &self,
        since: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> PortResult<Vec<EventRow>> {
        turn().await;
        self.count("hand_overs");
        self.answer("hand_overs")?;
        let names = Transition::HAND_OVERS.map(Transition::as_str);
        let mut found: Vec<EventRow> = lock(&self.0)
            .events
            .iter()
            .filter(|event| {
                (since..=until).contains(&event.at) && names.contains(&event.transition)
            })
            .map(Event::row)
            .collect();
        found.sort_by_key(|event| std::cmp::Reverse(event.at));
        found.truncate(most);
        Ok(found)
    }

    async fn machine_count(&self) -> PortResult<Option<MachineCount>> {
        turn().await;
        self.count("machine_count");
        Ok(lock(&self.0).machine_count.clone())
    }

    async fn replace_machine_count(
        &self,
        version: Option<u64>,
        count: &MachineCount,
    ) -> PortResult<bool> {
        turn().await;
        self.count("replace_machine_count");
        let mut tables = lock(&self.0);
        let unchanged = tables.machine_count.as_ref().map(|it| it.version) == version;
        if unchanged {
            tables.machine_count = Some(count.clone());
        }
        Ok(unchanged)
    }

    async fn put_credentials(
        &self,
        credentials: &Credentials,
        changes: &BTreeMap<String, String>,
    ) -> PortResult<()> {
        turn().await;
        self.change_settings(changes, Some(credentials))
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        turn().await;
        lock(&self.0).demands.insert(demand.label(), demand.clone());
        Ok(())
    }

    async fn replace_demand(&self, current: Option<&Demand>, next: &Demand) -> PortResult<bool> {
        turn().await;
        self.count("replace_demand");
        self.answer("replace_demand")?;
        let mut tables = lock(&self.0);
        let is_current = tables.demands.get(&next.label()) == current;
        if is_current {
            tables.demands.insert(next.label(), next.clone());
        }
        drop(tables);
        self.deliver("replace_demand", is_current)
    }

    async fn put_summary(&self, summary: &ProvisionSummary) -> PortResult<()> {
        turn().await;
        self.count("put_summary");
        self.answer("put_summary")?;
        let key = (summary.run.clone(), summary.key());
        lock(&self.0).summaries.insert(key, summary.clone());
        Ok(())
    }

    async fn demands(&self, runs: &[RunId]) -> PortResult<Vec<Demand>> {
        turn().await;
        self.count("demands");
        let tables = lock(&self.0);
        let of_these = tables.demands.values().filter(|demand| runs.contains(&demand.run));
        Ok(of_these.cloned().collect())
    }
}

#[async_trait]
impl AgentStore for MemoryStore {
    fn listen(&self, id: &InstanceId) {
        self.keep_wake_ups_of(id);
        lock(&self.0).wake_ups.listener = Some(id.clone());
    }

    async fn news(&self, clock: &dyn Clock, poll: Duration, patience: Duration) -> News {
        let arrival = lock(&self.0).wake_ups.arrival.clone();
        let mut over = clock.sleep(patience);
        loop {
            match self.heard() {
                Some(News::Announced) => return News::Announced,
                Some(unheard) => {
                    clock.sleep(poll).await;
                    return unheard;
                }
                None => {}
            }
            over = match select(over, pin!(arrival.notified())).await {
                Either::Left(_) => return News::Quiet,
                Either::Right((_, over)) => over,
            };
        }
    }

    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        turn().await;
        self.count("record of an agent");
        self.answer("record of an agent")?;
        Ok(lock(&self.0).records.get(id).cloned())
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.count("settings of an agent");
        Store::settings(self).await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        turn().await;
        Ok(lock(&self.0).credentials.as_ref().map(|credentials| credentials.token(purpose)))
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        turn().await;
        self.count("beat of an agent");
        let mut tables = lock(&self.0);
        if tables.lost_heartbeats > 0 {
            tables.lost_heartbeats -= 1;
            let reason = "the beat is lost".to_owned();
            return Err(PortError::Unavailable { service: "store", reason });
        }
        tables.status.entry(id.clone()).or_default().heartbeat = Some(*heartbeat);
        Ok(())
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        turn().await;
        let mut tables = lock(&self.0);
        let said = &mut tables.status.entry(id.clone()).or_default().report;
        if said.as_ref().is_none_or(|said| said.at <= report.at) {
            *said = Some(report.clone());
        }
        Ok(())
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        turn().await;
        self.count("readiness of an agent");
        self.answer("readiness of an agent")?;
        let mut tables = lock(&self.0);
        let noted = &mut tables.status.entry(id.clone()).or_default().readiness;
        let is_taken = noted.as_ref().is_none_or(|noted| noted.at <= note.at);
        if is_taken {
            *noted = Some(note.clone());
        }
        drop(tables);
        self.deliver("readiness of an agent", is_taken)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct SilentProgress;

impl Progress for SilentProgress {
    fn stage(&self, _doing: &str) {}
}

/// The ports in memory, and the clock that they share.
#[derive(Debug)]
pub struct MemoryPorts {
    pub store: Arc<MemoryStore>,
    pub pool: Arc<MemoryPool>,
    pub compute: Arc<MemoryCompute>,
    pub forge: Arc<MemoryForge>,
    pub clock: Arc<VirtualClock>,
}

/// Makes a control plane over in-memory ports.
pub fn plane() -> (Plane, MemoryPorts) {
    let clock = Arc::new(VirtualClock::new());
    let memory = MemoryPorts {
        store: Arc::new(MemoryStore::default()),
        pool: Arc::new(MemoryPool::new(clock.clone())),
        compute: Arc::new(MemoryCompute::new(clock.clone())),
        forge: Arc::new(MemoryForge::default()),
        clock: clock.clone(),
    };
    let plane = Plane {
        known_settings: KnownSettings::default(),
        store: memory.store.clone(),
        pool: memory.pool.clone(),
        compute: memory.compute.clone(),
        forge: memory.forge.clone(),
        clock,
        random: Arc::new(SeededRandom::new(1)),
        progress: Arc::new(SilentProgress),
    };
    (plane, memory)
}
