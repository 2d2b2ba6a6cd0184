//! A control plane, a pool and machines with agents, all in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_agent::Agent;
use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::lifecycle::{Idle, Instance, Running};
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::provision::{self, Request, provision};
use ondeck_core::modes::refresh;
use ondeck_core::modes::release;
use ondeck_core::ports::{AgentStore, Clock, Host, ListedRunner, Machine, Pool, Runner};
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::{self, Memory, MemoryCompute, SeededRandom};
use tokio::sync::Notify;

pub(crate) struct World {
    pub(crate) plane: Plane,
    pub(crate) memory: Memory,
    behaviours: Arc<Mutex<BTreeMap<InstanceId, Behaviour>>>,
    /// Which labels are registered now, by machine.
    pub(crate) labels: Arc<Mutex<BTreeMap<InstanceId, RunId>>>,
    driver: tokio::task::JoinHandle<()>,
}

/// What is wrong with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Behaviour {
    #[default]
    Sound,
    /// Its agent never starts.
    NeverBoots,
    /// It beats, and never registers.
    NeverRegisters,
    /// It says that it cannot register.
    CannotRegister,
    /// The operator's script fails.
    ScriptFails,
    /// It cannot be cleaned after a run.
    CannotBeCleaned,
    /// It dies while it registers.
    DiesRegistering,
    /// The provider says that it will be taken away.
    Interrupted,
    /// The same, while it registers.
    InterruptedRegistering,
    /// Its clock is an hour behind until it has been read once.
    ClockBehind,
}

struct Behind {
    clock: Arc<dyn Clock>,
    read: AtomicBool,
}

#[async_trait]
impl Clock for Behind {
    fn now(&self) -> Timestamp {
        let behind = if self.read.swap(true, Ordering::Relaxed) { 0 } else { 3_600 };
        self.clock.now().before(Duration::from_secs(behind))
    }

    fn steady(&self) -> Duration {
        self.clock.steady()
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }
}

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

pub(crate) fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

pub(crate) fn large() -> ResourceClass {
    ResourceClass::new("large").unwrap()
}

pub(crate) fn spec(instance_type: &str) -> MachineSpec {
    MachineSpec {
        resource_class: large(),
        instance_type: instance_type.into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mem: 4096,
    }
}

pub(crate) fn request(run_id: &str, count: u32) -> Request {
    let mut request = Request::of_run(run(run_id));
    request.options.count = count;
    request
}

impl World {
    /// Set up with default settings.
    pub(crate) async fn new() -> World {
        World::with(&[]).await
    }

    pub(crate) async fn with(given: &[(&str, &str)]) -> World {
        let (plane, memory) = testkit::plane();
        let behaviours = Arc::new(Mutex::new(BTreeMap::new()));
        let labels = Arc::new(Mutex::new(BTreeMap::new()));
        let crew = Crew {
            plane: plane.clone(),
            store: memory.store.clone(),
            compute: memory.compute.clone(),
            behaviours: behaviours.clone(),
            labels: labels.clone(),
        };
        let driver = tokio::spawn(crew.drive());
        let world = World { plane, memory, behaviours, labels, driver };
        world.refresh_with(given).await;
        world
    }

    /// Launches get ids in order, so a machine's behaviour can be said before it is there.
    pub(crate) fn expect(&self, machine: &str, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(id(machine), behaviour);
    }

    pub(crate) async fn refresh_with(&self, given: &[(&str, &str)]) -> refresh::Outcome {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let outcome = refresh::refresh(&self.plane, &given, &StopSignal::never()).await.unwrap();
        assert_eq!(outcome.failure, None);
        outcome
    }

    pub(crate) async fn refresh(&self) -> refresh::Outcome {
        self.refresh_with(&[]).await
    }

    pub(crate) async fn provision(&self, request: &Request) -> provision::Outcome {
        provision(&self.plane, request, &StopSignal::never()).await
    }

    pub(crate) async fn release(&self, run_id: &str) -> release::Outcome {
        release::release(&self.plane, &run(run_id), &TimeOverrides::default()).await.unwrap()
    }

    pub(crate) async fn pass(&self, span: Duration) {
        self.plane.clock.sleep(span).await;
    }

    /// A sound idle machine with an agent, and its ticket in the pool.
    pub(crate) async fn idle(&self, name: &str, instance_type: &str) -> Record {
        self.put_idle(name, spec(instance_type), Duration::from_secs(300)).await
    }

    pub(crate) async fn put_idle(&self, name: &str, spec: MachineSpec, left: Duration) -> Record {
        let now = self.plane.now();
        let record = Record {
            id: id(name),
            state: State::Idle,
            run: None,
            threshold: Some(now + left),
            spec: spec.clone(),
            created_at: now,
            updated_at: now,
            ticketed_at: Some(now),
        };
        self.memory.store.plant(record.clone());
        self.memory.compute.plant(Machine {
            id: id(name),
            spec,
            intent: IntentId::new("planted").unwrap(),
            launched_at: now,
        });
        self.ticket(&record).await;
        // Until the agent is up.
        if !matches!(self.behaviour(name), Behaviour::NeverBoots) {
            while self.plane.store.agent_status(&[id(name)]).await.unwrap()[0].report.is_none() {
                tokio::task::yield_now().await;
            }
        }
        record
    }

    pub(crate) async fn ticket(&self, record: &Record) {
        let idle: Instance<Idle> = Instance::believe(record).unwrap();
        self.memory.pool.send(&[idle.ticket()], Duration::ZERO).await.unwrap();
    }

    pub(crate) fn behaviour(&self, name: &str) -> Behaviour {
        self.behaviours.lock().unwrap().get(&id(name)).copied().unwrap_or_default()
    }

    pub(crate) fn record(&self, name: &str) -> Option<Record> {
        self.memory.store.select(|record| record.id == id(name)).pop()
    }

    pub(crate) fn state(&self, name: &str) -> State {
        self.record(name).expect("there is such a record").state
    }

    pub(crate) fn alive(&self) -> Vec<String> {
        self.memory.compute.alive().iter().map(ToString::to_string).collect()
    }

    pub(crate) async fn depth(&self) -> usize {
        self.memory.pool.depth(&large()).await.unwrap().total()
    }

    pub(crate) async fn visible(&self) -> usize {
        self.memory.pool.depth(&large()).await.unwrap().visible
    }

    /// Puts words into an agent's mouth.
    pub(crate) async fn say(&self, name: &str, signal: Signal, of: &str) {
        let at = self.plane.now();
        let report = Report { signal, run: Some(run(of)), detail: String::new(), at };
        AgentStore::report(&*self.memory.store, &id(name), &report).await.unwrap();
        AgentStore::beat(&*self.memory.store, &id(name), at).await.unwrap();
    }

    /// No instance was ever handed from one owner to another without having been idle.
    pub(crate) fn assert_never_shared(&self) {
        let mut owners: BTreeMap<InstanceId, RunId> = BTreeMap::new();
        for event in self.memory.store.events() {
            match event.run {
                None => drop(owners.remove(&event.id)),
                Some(run) => {
                    let before = owners.insert(event.id.clone(), run.clone());
                    assert!(before.is_none_or(|owner| owner == run), "{} was shared", event.id);
                }
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

pub(crate) fn names(instances: &[provision::Provisioned]) -> BTreeSet<String> {
    instances.iter().map(|instance| instance.id.to_string()).collect()
}

pub(crate) fn believe_running(record: &Record) -> Instance<Running> {
    Instance::believe(record).expect("it is running")
}

/// Gives every machine its agent, and takes it away with the machine.
struct Crew {
    plane: Plane,
    store: Arc<ondeck_core::testkit::MemoryStore>,
    compute: Arc<MemoryCompute>,
    behaviours: Arc<Mutex<BTreeMap<InstanceId, Behaviour>>>,
    labels: Arc<Mutex<BTreeMap<InstanceId, RunId>>>,
}

impl Crew {
    async fn drive(self) {
        let mut tasks: BTreeMap<InstanceId, tokio::task::JoinSet<String>> = BTreeMap::new();
        loop {
            let alive: BTreeSet<InstanceId> = self.compute.alive().into_iter().collect();
            tasks.retain(|id, _| alive.contains(id));
            for id in alive {
                tasks.entry(id.clone()).or_insert_with(|| self.boot(&id));
            }
            tokio::task::yield_now().await;
        }
    }

    fn boot(&self, id: &InstanceId) -> tokio::task::JoinSet<String> {
        let behaviour = self.behaviours.lock().unwrap().get(id).copied().unwrap_or_default();
        let mut task = tokio::task::JoinSet::new();
        if behaviour == Behaviour::NeverBoots {
            return task;
        }
        let machine = Arc::new(FakeMachine {
            id: id.clone(),
            behaviour,
            compute: self.compute.clone(),
            labels: self.labels.clone(),
            registering: Notify::new(),
        });
        let agent = Agent {
            id: id.clone(),
            store: self.store.clone(),
            runner: machine.clone(),
            host: machine,
            clock: match behaviour {
                Behaviour::ClockBehind => {
                    let (clock, read) = (self.plane.clock.clone(), AtomicBool::new(false));
                    Arc::new(Behind { clock, read })
                }
                _ => self.plane.clock.clone(),
            },
            random: Arc::new(SeededRandom::new(7)),
        };
        task.spawn(async move { agent.live().await });
        task
    }
}

struct FakeMachine {
    id: InstanceId,
    behaviour: Behaviour,
    compute: Arc<MemoryCompute>,
    labels: Arc<Mutex<BTreeMap<InstanceId, RunId>>>,
    registering: Notify,
}

#[async_trait]
impl Runner for FakeMachine {
    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }
    async fn register(&self, run: &RunId) -> Result<(), String> {
        match self.behaviour {
            Behaviour::NeverRegisters => std::future::pending().await,
            Behaviour::CannotRegister => Err("the token has expired".into()),
            Behaviour::DiesRegistering => {
                self.compute.kill(&self.id);
                std::future::pending().await
            }
            _ => {
                self.registering.notify_one();
                tokio::task::yield_now().await;
                self.labels.lock().unwrap().insert(self.id.clone(), run.clone());
                Ok(())
            }
        }
    }
    async fn work(&self, _run: &RunId) -> String {
        std::future::pending().await
    }
    async fn stop(&self) -> Result<(), String> {
        Ok(())
    }
    async fn deregister(&self) -> Result<(), String> {
        self.labels.lock().unwrap().remove(&self.id);
        Ok(())
    }
    async fn account(&self) -> String {
        format!("2 jobs on {}", self.id)
    }
    async fn clean(&self) -> Result<(), String> {
        match self.behaviour {
            Behaviour::CannotBeCleaned => Err("a file cannot be removed".into()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Host for FakeMachine {
    async fn run_script(&self, _script: &str) -> Result<(), String> {
        match self.behaviour {
            Behaviour::ScriptFails => Err("exit code 3".into()),
            _ => Ok(()),
        }
    }
    async fn interruption(&self) -> String {
        match self.behaviour {
            Behaviour::Interrupted => "spot interruption".into(),
            Behaviour::InterruptedRegistering => {
                self.registering.notified().await;
                "spot interruption".into()
            }
            _ => std::future::pending().await,
        }
    }
    async fn terminate(&self, _why: &str) {
        self.labels.lock().unwrap().remove(&self.id);
        self.compute.kill(&self.id);
    }
}

/// A runner that the forge lists.
pub(crate) fn listed(name: &str, instance: &str, online: bool) -> ListedRunner {
    ListedRunner { name: name.into(), instance: id(instance), online }
}
