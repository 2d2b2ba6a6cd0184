//! The ports of one simulated process. Every port call passes through here to the kernel, which
//! decides when it takes effect; the policy decides which fault is injected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::lifecycle::{Change, Verdict};
use ondeck_core::model::credentials::{Credentials, Token, TokenPurpose};
use ondeck_core::model::demand::Demand;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, InvalidId, ProviderName, ResourceClass, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::Record;
use ondeck_core::model::requirements::TypePatterns;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{AgentStatus, Report};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{
    AgentStore, Clock, Compute, Depth, Forge, Launched, ListedRunner, Listing, Machine, Order,
    Pool, PortError, PortResult, Receipt, ReceivedMessage, RecordScope, Store, WaitingRun,
};
use ondeck_core::testkit::PartialLaunch;

use crate::faults::{CallBehaviour, CrashPoint, Fault};
use crate::kernel::{CallEnd, Micros, Pid, digest, timestamp};
use crate::policy::{CallRequest, Policy};
use crate::world::{World, at_once};

pub(crate) struct ProcessPorts {
    pub(crate) world: Arc<World>,
    pub(crate) pid: Pid,
    pub(crate) name: String,
    policy: Arc<Policy>,
    skew: Duration,
    random: Mutex<fastrand::Rng>,
    calls: AtomicU32,
    crash_at: Option<(u32, CrashPoint)>,
    /// The version of the agent's record when it was last read.
    read_version: AtomicU64,
}

/// The faults of one process that are decided when it starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessFaults {
    pub(crate) skew: Duration,
    /// The number of the call at which it dies.
    pub(crate) crash_at: Option<(u32, CrashPoint)>,
}

impl ProcessPorts {
    pub(crate) fn new(
        world: &Arc<World>,
        policy: &Arc<Policy>,
        name: &str,
        faults: ProcessFaults,
    ) -> ProcessPorts {
        ProcessPorts {
            world: world.clone(),
            pid: world.kernel.add_process(name),
            name: name.to_owned(),
            policy: policy.clone(),
            skew: faults.skew,
            random: Mutex::new(policy.random_for(name)),
            calls: AtomicU32::new(0),
            crash_at: faults.crash_at,
            read_version: AtomicU64::new(0),
        }
    }

    pub(crate) fn random(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws whether a fault that does not concern a single call is injected now, and counts it.
    pub(crate) fn injects(&self, fault: Fault) -> bool {
        let injected = self.policy.injects(fault, self.world.kernel.now(), &mut self.random());
        if injected {
            self.world.kernel.count(fault);
        }
        injected
    }

    /// Decides whether the provider throttles an order. The decision is derived from the intent,
    /// because a draw from the process's random source would change all later ones.
    fn throttled_part(&self, order: &Order) -> Option<PartialLaunch> {
        let seed = digest(&[&self.policy.seed, &order.intent.as_str()]);
        let mut random = fastrand::Rng::with_seed(seed);
        let now = self.world.kernel.now();
        let busy = self.policy.injects(Fault::Busy, now, &mut random);
        busy.then(|| {
            self.world.kernel.count(Fault::Busy);
            PartialLaunch::Throttled(random.u32(0..order.count))
        })
    }

    /// Makes one call to `service`. `what` names the request and `text` describes it; `effect` is
    /// what the service does. Fails if the answer is lost.
    pub(crate) async fn call<T: Debug + Send + 'static>(
        &self,
        service: &'static str,
        what: &'static str,
        text: impl FnOnce() -> String,
        mut effect: impl FnMut() -> PortResult<T> + Send + 'static,
    ) -> PortResult<T> {
        let kernel = &self.world.kernel;
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let needs_words = self.policy.needs_words(&self.name);
        let text = if kernel.records_requests() || needs_words { text() } else { String::new() };
        let words = if needs_words { format!("{what} {text}") } else { String::new() };
        let behaviour = self.behaviour(service, number, &words);
        let answer = Arc::new(Mutex::new(None));
        let slot = answer.clone();
        let recorder = kernel.clone();
        let effect = move || {
            let answered = effect();
            let shown = if recorder.records_answers() { shown(&answered) } else { String::new() };
            // If the request arrives twice, the caller gets the answer to the first.
            slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answered);
            shown
        };
        match kernel.begin(self.pid, (what, text), behaviour, effect).await {
            CallEnd::Answered => {
                let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.unwrap_or_else(|| Err(lost(service)))
            }
            CallEnd::Lost => Err(lost(service)),
        }
    }

    fn behaviour(&self, service: &'static str, number: u32, words: &str) -> CallBehaviour {
        let now = self.world.kernel.now();
        let request = CallRequest { process: &self.name, number, service, words };
        let behaviour = self.policy.behaviour(request, now, &mut self.random());
        match self.crash_at {
            Some((at, crash)) if at == number => behaviour.with_crash(crash),
            _ => behaviour,
        }
    }

    fn ask<T: Debug + Send + 'static>(
        &self,
        service: &'static str,
        what: &'static str,
        text: impl FnOnce() -> String,
        mut ask: impl FnMut(&World) -> PortResult<T> + Send + 'static,
    ) -> impl Future<Output = PortResult<T>> {
        let world = self.world.clone();
        self.call(service, what, text, move || ask(&world))
    }
}

fn lost(service: &'static str) -> PortError {
    PortError::Unavailable { service, reason: "no answer".to_owned() }
}

/// The answer for the journal.
fn shown<T: Debug>(answer: &PortResult<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.to_string(),
    }
}

fn listed<T: ToString>(things: &[T]) -> String {
    things.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn named(tickets: &[Ticket]) -> String {
    let ticket = |t: &Ticket| format!("{} until {}", t.instance_id, t.threshold);
    tickets.iter().map(ticket).collect::<Vec<_>>().join(", ")
}

/// When the store's index shows a write that is made now.
fn shown_at(policy: &Policy, world: &World, item: &str, write: u64) -> Micros {
    let now = world.kernel.now();
    let lag = policy.index_lag(item, write, now);
    if lag > 0 {
        world.kernel.count(Fault::IndexLags);
    }
    now + lag
}

#[async_trait]
impl Store for ProcessPorts {
    async fn set_up(&self) -> PortResult<()> {
        self.ask("store", "set up store", String::new, |w| at_once(Store::set_up(&w.store))).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.ask("store", "settings", String::new, |w| at_once(Store::settings(&w.store))).await
    }

    async fn put_settings(&self, changes: &BTreeMap<String, String>) -> PortResult<()> {
        let changes = changes.clone();
        let put = move |w: &World| at_once(w.store.put_settings(&changes));
        self.ask("store", "put settings", String::new, put).await
    }

    async fn write(&self, change: &Change) -> PortResult<Verdict> {
        let change = change.clone();
        let text = {
            let change = change.clone();
            move || format!("{} {}", change.transition(), change.id())
        };
        let policy = self.policy.clone();
        let write = move |w: &World| {
            let before = w.store.select(|record| record.id == *change.id()).pop();
            let verdict = at_once(w.store.write(&change))?;
            if let Verdict::Agreed(after) = &verdict {
                let when = (change.at(), w.kernel.true_time());
                w.audit().wrote(change.transition(), before.as_ref(), after, when);
                w.kernel.record_changed(&after.id);
                let number = w.index().record_writes(&after.id);
                let shown_at = shown_at(&policy, w, after.id.as_str(), number);
                w.index().write_record(after, shown_at);
            }
            Ok(verdict)
        };
        self.ask("store", "write", text, write).await
    }

    async fn of_run(&self, run: &RunId) -> PortResult<Listing> {
        let (run, shown) = (run.clone(), run.clone());
        let ask = move |w: &World| at_once(w.store.of_run(&run));
        self.ask("store", "of run", move || shown.to_string(), ask).await
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Listing> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let ask = move |w: &World| at_once(w.store.records(&ids));
        self.ask("store", "records", move || listed(&shown), ask).await
    }

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        let ask = move |w: &World| {
            let mut listing = at_once(w.store.expired(now))?;
            let (index, at) = (w.index(), w.kernel.now());
            listing.records.retain(|record| index.lists_expired(record, now, at));
            Ok(listing)
        };
        self.ask("store", "expired", String::new, ask).await
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        let ask = move |w: &World| {
            let mut listing = at_once(w.store.list(scope))?;
            let (index, at) = (w.index(), w.kernel.now());
            listing.records.retain(|record| index.lists_live(record, at));
            Ok(listing)
        };
        self.ask("store", "list", String::new, ask).await
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let ask = move |w: &World| at_once(w.store.agent_status(&ids));
        self.ask("store", "agent status", move || listed(&shown), ask).await
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        let (tickets, shown) = (tickets.to_vec(), tickets.to_vec());
        let mark = move |w: &World| {
            w.audit().marked_ticketed(&tickets);
            at_once(w.store.mark_ticketed(&tickets, at))
        };
        self.ask("store", "mark ticketed", move || named(&shown), mark).await
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let remove = move |w: &World| {
            let removed = at_once(w.store.remove(&ids));
            ids.iter().for_each(|id| w.kernel.record_changed(id));
            removed
        };
        self.ask("store", "remove", move || listed(&shown), remove).await
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        self.ask("store", "forget", String::new, move |w| at_once(w.store.forget(before))).await
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        let (intent, shown) = (intent.clone(), intent.clone());
        let policy = self.policy.clone();
        let put = move |w: &World| {
            w.audit().intended(&intent.id);
            let write = u64::from(!intent.is_open());
            let shown_at = shown_at(&policy, w, intent.id.as_str(), write);
            w.index().write_intent(&intent.id, intent.is_open(), shown_at);
            at_once(w.store.put_intent(&intent))
        };
        self.ask("store", "put intent", move || format!("{} {}", shown.id, shown.outcome), put)
            .await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        let ask = |w: &World| {
            let mut intents = at_once(w.store.open_intents())?;
            let (index, at) = (w.index(), w.kernel.now());
            intents.retain(|intent| index.lists_open(&intent.id, at));
            Ok(intents)
        };
        self.ask("store", "open intents", String::new, ask).await
    }

    async fn put_credentials(&self, credentials: &Credentials) -> PortResult<()> {
        let credentials = credentials.clone();
        let put = move |w: &World| at_once(w.store.put_credentials(&credentials));
        self.ask("store", "put credentials", String::new, put).await
    }

    async fn put_demand(&self, demand: &Demand) -> PortResult<()> {
        let demand = demand.clone();
        let put = move |w: &World| at_once(w.store.put_demand(&demand));
        self.ask("store", "put demand", String::new, put).await
    }

    async fn demand(&self, run: &RunId) -> PortResult<Option<Demand>> {
        let (run, shown) = (run.clone(), run.clone());
        let ask = move |w: &World| at_once(w.store.demand(&run));
        self.ask("store", "demand", move || shown.to_string(), ask).await
    }
}

#[async_trait]
impl AgentStore for ProcessPorts {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        let (id, agent) = (id.clone(), self.pid);
        let version = self.world.kernel.version(&id);
        self.read_version.store(version, Ordering::Relaxed);
        self.world.audit().asks(agent, self.world.kernel.now());
        let ask = move |w: &World| {
            let record = at_once(w.store.record(&id))?;
            if let Some(arrives) = w.kernel.answer_at() {
                w.audit().answered(agent, record.as_ref(), (w.kernel.now(), arrives));
            }
            Ok(record)
        };
        self.ask("store", "record", String::new, ask).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.ask("store", "settings", String::new, |w| at_once(Store::settings(&w.store))).await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        self.ask("store", "token", String::new, move |w| at_once(w.store.token(purpose))).await
    }

    async fn news(&self, clock: &dyn Clock, at_most: Duration) {
        let Some(id) = self.name.strip_prefix("agent ").filter(|_| self.policy.store_notifies())
        else {
            return clock.sleep(at_most).await;
        };
        let id = id.split('#').next().and_then(|id| InstanceId::new(id).ok());
        let Some(id) = id else { return clock.sleep(at_most).await };
        if self.world.kernel.version(&id) == self.read_version.load(Ordering::Relaxed) {
            self.world.kernel.sleep(self.pid, at_most, Some(&id)).await;
        }
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        let (id, heartbeat) = (id.clone(), *heartbeat);
        let beat = move |w: &World| {
            if w.machines().has_stopped_heartbeats(&id, w.kernel.now()) {
                return Err(lost("store"));
            }
            at_once(w.store.beat(&id, &heartbeat))
        };
        self.ask("store", "beat", String::new, beat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        let (id, report, shown) = (id.clone(), report.clone(), report.clone());
        let write = move |w: &World| at_once(w.store.report(&id, &report));
        let text = move || {
            let run = shown.run.as_ref().map_or("", RunId::as_str);
            format!("{} {run} {}", shown.signal, shown.detail)
        };
        self.ask("store", "report", text, write).await
    }
}

#[async_trait]
impl Pool for ProcessPorts {
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()> {
        let classes = classes.to_vec();
        self.ask("pool", "set up pool", String::new, move |w| at_once(w.pool.set_up(&classes)))
            .await
    }

    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let class = class.clone();
        let empty = self.injects(Fault::FalselyEmpty);
        let twice = self.injects(Fault::TicketTwice);
        let shuffled = self.injects(Fault::Reordered).then(|| self.random().u64(..));
        let receive = move |w: &World| {
            if empty {
                return Ok(Vec::new());
            }
            if let Some(seed) = shuffled {
                w.pool.shuffle(seed);
            }
            let held = at_once(w.pool.receive(&class, max, hold))?;
            if let Some(again) = held.first().filter(|_| twice) {
                w.pool.send_raw(&class, &again.body);
            }
            Ok(held)
        };
        self.ask("pool", "receive", move || format!("up to {max}"), receive).await
    }

    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        let (class, receipts) = (class.clone(), receipts.to_vec());
        let extend = move |w: &World| at_once(w.pool.extend(&class, &receipts, hold));
        self.ask("pool", "extend", String::new, extend).await
    }

    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        let (class, receipts, shown) = (class.clone(), receipts.to_vec(), receipts.to_vec());
        let put_back = move |w: &World| at_once(w.pool.put_back(&class, &receipts));
        self.ask("pool", "put back", move || format!("{shown:?}"), put_back).await
    }

    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        let (class, receipts, shown) = (class.clone(), receipts.to_vec(), receipts.to_vec());
        let delete = move |w: &World| {
            let now = w.kernel.true_time();
            for (body, others) in w.pool.would_delete(&class, &receipts) {
                if let Ok(ticket) = Ticket::from_json(&body) {
                    w.audit().deletes(&ticket, others, now);
                }
            }
            at_once(w.pool.delete(&class, &receipts))
        };
        self.ask("pool", "delete", move || format!("{shown:?}"), delete).await
    }

    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        let (tickets, shown) = (tickets.to_vec(), tickets.to_vec());
        let send = move |w: &World| {
            for ticket in &tickets {
                let machine = w.machines().view(&ticket.instance_id);
                w.audit().announced(ticket, machine.as_ref());
            }
            at_once(w.pool.send(&tickets, delay))
        };
        self.ask("pool", "send", move || named(&shown), send).await
    }

    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        let class = class.clone();
        self.ask("pool", "depth", String::new, move |w| at_once(w.pool.depth(&class))).await
    }
}

#[async_trait]
impl Compute for ProcessPorts {
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        self.call("compute", "set up compute", String::new, || Ok(BTreeMap::new())).await
    }

    fn default_types(&self) -> TypePatterns {
        self.world.compute.default_types()
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        self.world.compute.identity(name)
    }

    async fn launch(&self, order: &Order, _settings: &Settings) -> PortResult<Launched> {
        let (order, shown) = (order.clone(), order.clone());
        let (world, pid) = (self.world.clone(), self.pid);
        let short = self.injects(Fault::NoCapacity).then(|| self.random().u32(0..order.count));
        let partial = short.map(PartialLaunch::NoCapacity).or_else(|| self.throttled_part(&order));
        let launch = move || {
            let launched = world.compute.launch_partially(&order, partial)?;
            world.machines().launched(&launched.machines);
            world.audit().launched(pid, &order, &launched.machines);
            Ok(launched)
        };
        self.call("compute", "launch", move || format!("{} x{}", shown.intent, shown.count), launch)
            .await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        let (ids, shown, world) = (ids.to_vec(), ids.to_vec(), self.world.clone());
        let terminate = move || {
            let now = world.kernel.true_time();
            for id in ids.iter().filter(|id| world.machines().view(id).is_some()) {
                let machine = world.compute.machine(id.as_str());
                // A machine that compute no longer lists may still be shutting down.
                let age = machine.map_or(Duration::MAX, |m| now.since(m.launched_at));
                world.audit().terminated(id, age);
            }
            at_once(world.compute.terminate(&ids))?;
            world.machines().mark_terminating(&ids);
            Ok(())
        };
        self.call("compute", "terminate", move || listed(&shown), terminate).await
    }

    async fn machines(&self) -> PortResult<Vec<Machine>> {
        let world = self.world.clone();
        let ask = move || at_once(world.compute.machines());
        self.call("compute", "machines", String::new, ask).await
    }
}

#[async_trait]
impl Forge for ProcessPorts {
    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        let world = self.world.clone();
        self.call("forge", "runners", String::new, move || Ok(world.machines().runners())).await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        let (name, shown, world) = (name.to_owned(), name.to_owned(), self.world.clone());
        let remove = move || {
            world.machines().remove_runner(&name);
            Ok(())
        };
        self.call("forge", "remove runner", move || shown, remove).await
    }

    async fn waiting_runs(&self, served: &BTreeSet<RunId>) -> PortResult<Vec<WaitingRun>> {
        let (served, world) = (served.clone(), self.world.clone());
        let ask = move || Ok(world.machines().waiting(&served));
        self.call("forge", "waiting runs", String::new, ask).await
    }
}

#[async_trait]
impl Clock for ProcessPorts {
    fn now(&self) -> Timestamp {
        timestamp(self.world.kernel.now()) + self.skew
    }

    /// The skew of a process never changes, so the shifted time is steady, too.
    fn steady(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }

    async fn sleep(&self, span: Duration) {
        self.world.kernel.sleep(self.pid, span, None).await;
    }
}
