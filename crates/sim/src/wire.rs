//! One process's way to the world: every port call of it passes here, takes its time, and may go
//! wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::lifecycle::{Change, Verdict};
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::demand::Demand;
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

use crate::faults::{Crash, Fault, FaultSource};
use crate::kernel::{Ended, Pid, digest, timestamp};
use crate::policy::{Asked, Policy};
use crate::world::{World, at_once};

pub(crate) struct Wire {
    pub(crate) world: Arc<World>,
    pub(crate) pid: Pid,
    pub(crate) name: String,
    policy: Arc<Policy>,
    skew: Duration,
    chance: Mutex<fastrand::Rng>,
    calls: AtomicU32,
    doom: Option<(u32, Crash)>,
    /// The version of the record that was looked at last.
    seen: AtomicU64,
}

/// What a process brings along.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    pub(crate) skew: Duration,
    /// At which of its calls it dies.
    pub(crate) doom: Option<(u32, Crash)>,
}

impl Wire {
    pub(crate) fn new(world: &Arc<World>, policy: &Arc<Policy>, name: &str, is: Traits) -> Wire {
        Wire {
            world: world.clone(),
            pid: world.kernel.enter(name),
            name: name.to_owned(),
            policy: policy.clone(),
            skew: is.skew,
            chance: Mutex::new(policy.chance(name)),
            calls: AtomicU32::new(0),
            doom: is.doom,
            seen: AtomicU64::new(0),
        }
    }

    pub(crate) fn chance(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something goes wrong here that is not about a call as such.
    pub(crate) fn befalls(&self, fault: Fault) -> bool {
        let befallen = self.policy.befalls(fault, self.world.kernel.now(), &mut self.chance());
        if befallen {
            self.world.kernel.count(fault);
        }
        befallen
    }

    /// Whether the provider is too busy for an order. Told by its intent: dice that were rolled
    /// for this would shift all others.
    fn busy_for(&self, order: &Order) -> Option<PartialLaunch> {
        let told = digest(&[&self.policy.seed, &order.intent.as_str()]);
        let mut chance = fastrand::Rng::with_seed(told);
        let now = self.world.kernel.now();
        let busy = self.policy.befalls(Fault::Busy, now, &mut chance);
        busy.then(|| {
            self.world.kernel.count(Fault::Busy);
            PartialLaunch::Throttled(chance.u32(0..order.count))
        })
    }

    /// One call: `service` is who answers it, `what` and `text` what it asks.
    pub(crate) async fn call<T: Debug + Send + 'static>(
        &self,
        service: &'static str,
        what: &'static str,
        text: impl FnOnce() -> String,
        mut effect: impl FnMut() -> PortResult<T> + Send + 'static,
    ) -> PortResult<T> {
        let kernel = &self.world.kernel;
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let minds = self.policy.minds(&self.name);
        let text = if kernel.listens() || minds { text() } else { String::new() };
        let words = if minds { format!("{what} {text}") } else { String::new() };
        let fate = self.fate(service, number, &words);
        let answer = Arc::new(Mutex::new(None));
        let slot = answer.clone();
        let listener = kernel.clone();
        let effect = move || {
            let told = effect();
            let shown = if listener.listens_to_answers() { shown(&told) } else { String::new() };
            // The answer to the first request is the one that gets back.
            slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(told);
            shown
        };
        match kernel.begin(self.pid, (what, text), fate, effect).await {
            Ended::Answered => {
                let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.unwrap_or_else(|| Err(lost(service)))
            }
            Ended::Lost => Err(lost(service)),
        }
    }

    fn fate(&self, service: &'static str, number: u32, words: &str) -> FaultSource {
        let now = self.world.kernel.now();
        let asked = Asked { process: &self.name, number, service, words };
        let fate = self.policy.fate(asked, now, &mut self.chance());
        match self.doom {
            Some((at, crash)) if at == number => fate.deadly(crash),
            _ => fate,
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

/// An answer in few words.
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

#[async_trait]
impl Store for Wire {
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
        let write = move |w: &World| {
            let before = w.store.select(|record| record.id == *change.id()).pop();
            let verdict = at_once(w.store.write(&change))?;
            if let Verdict::Agreed(after) = &verdict {
                let when = (change.at(), w.kernel.true_time());
                w.audit().wrote(change.transition(), before.as_ref(), after, when);
                w.kernel.ring(&after.id);
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

    async fn expired(&self, now: Timestamp) -> PortResult<Listing> {
        self.ask("store", "expired", String::new, move |w| at_once(w.store.expired(now))).await
    }

    async fn list(&self, scope: RecordScope) -> PortResult<Listing> {
        self.ask("store", "list", String::new, move |w| at_once(w.store.list(scope))).await
    }

    async fn agent_status(&self, ids: &[InstanceId]) -> PortResult<Vec<AgentStatus>> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let ask = move |w: &World| at_once(w.store.agent_status(&ids));
        self.ask("store", "signs", move || listed(&shown), ask).await
    }

    async fn mark_ticketed(&self, tickets: &[Ticket], at: Timestamp) -> PortResult<()> {
        let (tickets, shown) = (tickets.to_vec(), tickets.to_vec());
        let mark = move |w: &World| {
            w.audit().noted(&tickets);
            at_once(w.store.mark_ticketed(&tickets, at))
        };
        self.ask("store", "mark ticketed", move || named(&shown), mark).await
    }

    async fn remove(&self, ids: &[InstanceId]) -> PortResult<()> {
        let (ids, shown) = (ids.to_vec(), ids.to_vec());
        let remove = move |w: &World| {
            let removed = at_once(w.store.remove(&ids));
            ids.iter().for_each(|id| w.kernel.ring(id));
            removed
        };
        self.ask("store", "remove", move || listed(&shown), remove).await
    }

    async fn forget(&self, before: Timestamp) -> PortResult<usize> {
        self.ask("store", "forget", String::new, move |w| at_once(w.store.forget(before))).await
    }

    async fn put_intent(&self, intent: &Intent) -> PortResult<()> {
        let (intent, shown) = (intent.clone(), intent.clone());
        let put = move |w: &World| {
            w.audit().intended(&intent.id);
            at_once(w.store.put_intent(&intent))
        };
        self.ask("store", "put intent", move || format!("{} {}", shown.id, shown.outcome), put)
            .await
    }

    async fn open_intents(&self) -> PortResult<Vec<Intent>> {
        self.ask("store", "open intents", String::new, |w| at_once(w.store.open_intents())).await
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
impl AgentStore for Wire {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        let (id, agent) = (id.clone(), self.pid);
        let version = self.world.kernel.version(&id);
        self.seen.store(version, Ordering::Relaxed);
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

    async fn credentials(&self) -> PortResult<Option<Credentials>> {
        self.ask("store", "credentials", String::new, |w| at_once(w.store.credentials())).await
    }

    async fn news(&self, clock: &dyn Clock, at_most: Duration) {
        let Some(id) = self.name.strip_prefix("agent ").filter(|_| self.policy.store_tells())
        else {
            return clock.sleep(at_most).await;
        };
        let id = id.split('#').next().and_then(|id| InstanceId::new(id).ok());
        let Some(id) = id else { return clock.sleep(at_most).await };
        if self.world.kernel.version(&id) == self.seen.load(Ordering::Relaxed) {
            self.world.kernel.sleep(self.pid, at_most, Some(&id)).await;
        }
    }

    async fn beat(&self, id: &InstanceId, at: Timestamp) -> PortResult<()> {
        let id = id.clone();
        let beat = move |w: &World| {
            if w.yard().heart_stands_still(&id, w.kernel.now()) {
                return Err(lost("store"));
            }
            at_once(w.store.beat(&id, at))
        };
        self.ask("store", "beat", String::new, beat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        let (id, report, shown) = (id.clone(), report.clone(), report.clone());
        let say = move |w: &World| at_once(w.store.report(&id, &report));
        let text = move || {
            let run = shown.run.as_ref().map_or("", RunId::as_str);
            format!("{} {run} {}", shown.signal, shown.detail)
        };
        self.ask("store", "report", text, say).await
    }
}

#[async_trait]
impl Pool for Wire {
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
        let empty = self.befalls(Fault::FalselyEmpty);
        let twice = self.befalls(Fault::TicketTwice);
        let shuffled = self.befalls(Fault::Reordered).then(|| self.chance().u64(..));
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
                let machine = w.yard().view(&ticket.instance_id);
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
impl Compute for Wire {
    async fn set_up(&self, _settings: &Settings) -> PortResult<()> {
        self.call("compute", "set up compute", String::new, || Ok(())).await
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
        let short = self.befalls(Fault::NoCapacity).then(|| self.chance().u32(0..order.count));
        let scant = short.map(PartialLaunch::NoCapacity).or_else(|| self.busy_for(&order));
        let launch = move || {
            let launched = world.compute.launch_partially(&order, scant)?;
            world.yard().launched(&launched.machines);
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
            for id in ids.iter().filter(|id| world.yard().view(id).is_some()) {
                let machine = world.compute.machine(id.as_str());
                // One that the provider has forgotten takes its time to go.
                let age = machine.map_or(Duration::MAX, |m| now.since(m.launched_at));
                world.audit().terminated(id, age);
            }
            at_once(world.compute.terminate(&ids))?;
            world.yard().doomed(&ids);
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
impl Forge for Wire {
    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        let world = self.world.clone();
        self.call("forge", "runners", String::new, move || Ok(world.yard().runners())).await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        let (name, shown, world) = (name.to_owned(), name.to_owned(), self.world.clone());
        let strike = move || {
            world.yard().strike(&name);
            Ok(())
        };
        self.call("forge", "remove runner", move || shown, strike).await
    }

    async fn waiting_runs(&self, served: &BTreeSet<RunId>) -> PortResult<Vec<WaitingRun>> {
        let (served, world) = (served.clone(), self.world.clone());
        let ask = move || Ok(world.yard().waiting(&served));
        self.call("forge", "waiting runs", String::new, ask).await
    }
}

#[async_trait]
impl Clock for Wire {
    fn now(&self) -> Timestamp {
        timestamp(self.world.kernel.now()) + self.skew
    }

    /// A process's skew stays the same as long as it lives, so this is a fixed moment too.
    fn steady(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }

    async fn sleep(&self, span: Duration) {
        self.world.kernel.sleep(self.pid, span, None).await;
    }
}
