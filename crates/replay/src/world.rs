//! The world around the modes: machines with their price, and agents that answer their records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, IntentId, InvalidId, ProviderName};
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::{ClassSize, Requirements, TypePatterns, UsageClass};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{
    AgentStore, Clock, Compute, Launched, Machine, Order, PortResult, Random,
};
use ondeck_core::testkit::{MemoryPool, MemoryStore, PlayedAgents, SeededRandom, VirtualTime};

use crate::model::Model;

/// The period that heartbeats announce.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long past its threshold a machine terminates itself, and how long it waits for a record: the
/// defaults of `self-termination-grace-sec` and `boot-deadline-sec`.
const GRACE: Duration = Duration::from_secs(60);
const BOOT_DEADLINE: Duration = Duration::from_secs(180);
/// The instance types of a request that names none.
const TYPES: &str = "c* m* r*";

/// The life of a machine, as it is paid for.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) spec: MachineSpec,
    pub(crate) from: Timestamp,
    /// `None` while it lasts.
    pub(crate) to: Option<Timestamp>,
    /// When it entered its states, in order.
    pub(crate) states: Vec<(Timestamp, State)>,
    /// When it is interrupted if it lasts so long.
    interrupted: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Machines {
    alive: BTreeMap<InstanceId, Machine>,
    lives: BTreeMap<InstanceId, Life>,
    launched: BTreeMap<IntentId, Launched>,
    /// The last idle state that each agent has answered, by its generation.
    answered: BTreeMap<InstanceId, u32>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) time: Arc<VirtualTime>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) pool: Arc<MemoryPool>,
    model: Model,
    machines: Mutex<Machines>,
    own: Weak<World>,
}

impl World {
    /// A world without machines, whose time begins at `began`.
    pub(crate) fn new(began: Timestamp, model: Model) -> Arc<World> {
        let time = Arc::new(VirtualTime::starting_at(began));
        let world = Arc::new_cyclic(|own: &Weak<World>| World {
            store: Arc::new(MemoryStore::default()),
            pool: Arc::new(MemoryPool::new(time.clone())),
            machines: Mutex::default(),
            own: own.clone(),
            time,
            model,
        });
        world.store.play_agents(Arc::new(Agents(world.own.clone())));
        world
    }

    fn machines(&self) -> MutexGuard<'_, Machines> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every machine that there was, in the order of their launches.
    pub(crate) fn lives(&self) -> Vec<Life> {
        self.machines().lives.values().cloned().collect()
    }

    /// When the first of these machines is interrupted.
    pub(crate) fn interruption_of<'a>(
        &self,
        ids: impl Iterator<Item = &'a InstanceId>,
    ) -> Option<Timestamp> {
        let machines = self.machines();
        ids.filter_map(|id| machines.lives.get(id)?.interrupted).min()
    }

    fn is_alive(&self, id: &InstanceId) -> bool {
        self.machines().alive.contains_key(id)
    }

    fn end(&self, id: &InstanceId) {
        let now = self.time.now();
        let mut machines = self.machines();
        if machines.alive.remove(id).is_some()
            && let Some(life) = machines.lives.get_mut(id)
        {
            life.to = Some(now);
        }
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(Arc<World>) -> F) {
        if let Some(world) = self.own.upgrade() {
            self.time.spawn(task(world));
        }
    }

    fn start(&self, order: &Order, number: usize) -> Machine {
        let now = self.time.now();
        let requirements = &order.requirements;
        let spec = MachineSpec {
            resource_class: requirements.class.clone(),
            instance_type: type_of(requirements.size),
            usage_class: requirements.usage,
            cpu: requirements.size.cpu,
            mem: requirements.size.mem,
        };
        let id = InstanceId::new(format!("i-{number:08}")).expect("a sound id");
        let interrupted = self.interruption(number, spec.usage_class).map(|span| now + span);
        if let Some(at) = interrupted {
            let id = id.clone();
            self.spawn(|world| async move {
                world.time.sleep(at.since(now)).await;
                world.end(&id);
            });
        }
        let watched = id.clone();
        self.spawn(|world| async move {
            world.time.sleep(BOOT_DEADLINE).await;
            if matches!(world.store.record(&watched).await, Ok(None)) {
                world.end(&watched);
            }
        });
        let life =
            Life { spec: spec.clone(), from: now, to: None, states: Vec::new(), interrupted };
        let intent = order.intent.clone();
        let machine = Machine { id, spec, intent, launched_at: now, image: None };
        let mut machines = self.machines();
        machines.lives.insert(machine.id.clone(), life);
        machines.alive.insert(machine.id.clone(), machine.clone());
        machine
    }

    /// After which time a machine is interrupted: exponential, and drawn from its number.
    fn interruption(&self, number: usize, usage: UsageClass) -> Option<Duration> {
        const THOUSAND_HOURS: f64 = 1_000.0 * 3_600.0;
        const LONGEST: f64 = 1e9;
        if usage != UsageClass::Spot || self.model.interruptions == 0 {
            return None;
        }
        let random = SeededRandom::new(self.model.seed.wrapping_add((number as u64) << 20));
        let drawn = (random.number() >> 11) as f64 / (1_u64 << 53) as f64;
        let mean = THOUSAND_HOURS / f64::from(self.model.interruptions);
        let seconds = (-mean * (1.0 - drawn).ln()).min(LONGEST);
        Some(Duration::from_millis((seconds * 1_000.0) as u64))
    }

    /// What the agent of a machine does when its record changes.
    fn answer(&self, record: &Record) {
        let (id, now) = (record.id.clone(), self.time.now());
        let generation = record.counts.generation;
        let mut machines = self.machines();
        if let Some(life) = machines.lives.get_mut(&id) {
            life.states.push((now, record.state));
        }
        if record.state == State::Terminated {
            return;
        }
        let is_new_idle = record.state == State::Idle
            && machines.answered.insert(id.clone(), generation) != Some(generation);
        drop(machines);
        let answers_after = match record.state {
            State::Created => Some(self.model.boot),
            State::Claimed => Some(self.model.registration),
            State::Idle => is_new_idle.then_some(self.model.leaving),
            State::Running | State::Terminated => None,
        };
        if let Some(pause) = answers_after {
            let record = record.clone();
            self.spawn(|world| async move { world.signal(&record, pause).await });
        }
        if let Some(threshold) = record.threshold {
            let span = (threshold + GRACE).since(now);
            self.spawn(|world| async move { world.end_at(&id, threshold, span).await });
        }
    }

    async fn signal(&self, record: &Record, pause: Duration) {
        self.time.sleep(pause).await;
        let found = self.store.record(&record.id).await.ok().flatten();
        let is_same = found.is_some_and(|found| {
            let place = |it: &Record| (it.state, it.run.clone(), it.counts.generation);
            place(&found) == place(record)
        });
        if !is_same || !self.is_alive(&record.id) {
            return;
        }
        let (signal, generation) = match record.state {
            State::Idle => (Signal::Deregistered, Some(record.counts.generation)),
            _ => (Signal::Registered, None),
        };
        let now = self.time.now();
        let report = Report {
            signal,
            run: record.run.clone(),
            suffix: record.suffix.clone(),
            detail: String::new(),
            at: now,
            generation,
            machine_label: None,
        };
        // A store in memory does not fail.
        let beat = self.store.beat(&record.id, &Heartbeat::new(now, HEARTBEAT)).await;
        let reported = self.store.report(&record.id, &report).await;
        debug_assert!(beat.is_ok() && reported.is_ok());
    }

    /// Ends a machine whose record still has this threshold when the grace is over.
    async fn end_at(&self, id: &InstanceId, threshold: Timestamp, span: Duration) {
        self.time.sleep(span).await;
        let found = self.store.record(id).await.ok().flatten();
        if found.is_none_or(|found| found.threshold.is_none_or(|now| now <= threshold)) {
            self.end(id);
        }
    }
}

/// The agents, as the store reaches them. The store is part of the world, so they do not keep it.
#[derive(Debug)]
struct Agents(Weak<World>);

impl PlayedAgents for Agents {
    fn written(&self, record: &Record) {
        if let Some(world) = self.0.upgrade() {
            world.answer(record);
        }
    }

    fn complete(&self, id: &InstanceId, status: &mut AgentStatus) {
        if let (Some(world), Some(beat)) = (self.0.upgrade(), &mut status.heartbeat)
            && world.is_alive(id)
        {
            beat.at = world.time.now();
        }
    }
}

/// The world, as a mode reaches its provider.
#[derive(Debug)]
pub(crate) struct Provider(pub(crate) Arc<World>);

#[async_trait]
impl Compute for Provider {
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    fn default_types(&self) -> TypePatterns {
        TYPES.parse().expect("sound patterns")
    }

    fn launchable(
        &self,
        requirements: &Requirements,
        _settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        let admitted = types.iter().filter(|name| requirements.types.admit(name));
        admitted.map(|name| (*name).to_owned()).collect()
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        InstanceId::new(name.as_str())
    }

    async fn launch(&self, order: &Order, _settings: &Settings) -> PortResult<Launched> {
        let (known, first) = {
            let machines = self.0.machines();
            (machines.launched.get(&order.intent).cloned(), machines.lives.len() + 1)
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let count = order.count as usize;
        let started = (first..first + count).map(|number| self.0.start(order, number)).collect();
        let launched = Launched { machines: started, ..Launched::default() };
        self.0.machines().launched.insert(order.intent.clone(), launched.clone());
        Ok(launched)
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        for id in ids {
            self.0.end(id);
        }
        Ok(())
    }

    async fn machines(&self) -> PortResult<Vec<Machine>> {
        Ok(self.0.machines().alive.values().cloned().collect())
    }
}

/// The type whose price stands for machines of this size: of the sixth generation, by the memory for
/// each processor.
fn type_of(size: ClassSize) -> String {
    const GIB: u32 = 1_024;
    let family = match size.mem.div_ceil(size.cpu.max(1)) {
        0..=2_048 => "c6i",
        2_049..=4_096 => "m6i",
        _ => "r6i",
    };
    // The smallest of a family has two processors.
    let of_memory = if family == "r6i" { size.mem.div_ceil(8 * GIB) } else { 0 };
    match size.cpu.max(of_memory) {
        0..=2 => format!("{family}.large"),
        3..=4 => format!("{family}.xlarge"),
        cpu => format!("{family}.{}xlarge", cpu.div_ceil(4)),
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::prices::Prices;

    use super::*;

    #[test]
    fn every_class_of_a_new_pool_has_a_price() {
        let (settings, prices) = (Settings::default(), Prices::built_in());
        for class in settings.classes.names() {
            let size = settings.classes.get(class).unwrap();
            let name = type_of(size);
            assert!(prices.on_demand(&name).is_some(), "{class}: {name}");
        }
        for (cpu, mem, expected) in
            [(2, 4_096, "c6i.large"), (4, 16_384, "m6i.xlarge"), (2, 32_768, "r6i.xlarge")]
        {
            assert_eq!(type_of(ClassSize { cpu, mem }), expected);
        }
    }
}
