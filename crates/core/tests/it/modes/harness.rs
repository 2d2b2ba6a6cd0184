//! What the tests of the modes set up: a control plane and a pool in memory, and an agent on every
//! machine that exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_agent::Agent;
use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::lifecycle::{Idle, Instance, Running};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::provision::{self, Request, provision};
use ondeck_core::modes::refresh;
use ondeck_core::modes::release;
use ondeck_core::ports::{AgentStore, Clock, ListedRunner, Machine, Pool};
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::{
    self, MachineDefect, MemoryCompute, MemoryMachine, MemoryPorts, MemoryStore, RegisteredLabels,
    SeededRandom,
};

type Defects = Arc<Mutex<BTreeMap<InstanceId, MachineDefect>>>;

pub(crate) struct Harness {
    pub(crate) plane: Plane,
    pub(crate) memory: MemoryPorts,
    pub(crate) labels: RegisteredLabels,
    defects: Defects,
    driver: tokio::task::JoinHandle<()>,
}

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

pub(crate) fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

/// The label of a run without a suffix.
pub(crate) fn label(text: &str) -> Label {
    Label::from(&run(text))
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

impl Harness {
    /// Refreshed with default settings.
    pub(crate) async fn new() -> Harness {
        Harness::with(&[]).await
    }

    /// Refreshed with the given settings.
    pub(crate) async fn with(given: &[(&str, &str)]) -> Harness {
        let harness = Harness::without_refresh();
        harness.refresh_with(given).await;
        harness
    }

    /// One that refresh has never seen.
    pub(crate) fn without_refresh() -> Harness {
        let (plane, memory) = testkit::plane();
        let (defects, labels) = (Defects::default(), RegisteredLabels::default());
        let agents = AgentDriver {
            plane: plane.clone(),
            store: memory.store.clone(),
            compute: memory.compute.clone(),
            defects: defects.clone(),
            labels: labels.clone(),
        };
        let driver = tokio::spawn(agents.drive());
        Harness { plane, memory, labels, defects, driver }
    }

    /// Refreshed with the given settings, and with agents that seldom poll, so that hours pass
    /// quickly.
    pub(crate) async fn patient(given: &[(&str, &str)]) -> Harness {
        let seldom = [
            ("agent-poll-waiting-sec", "20"),
            ("agent-poll-running-sec", "20"),
            ("heartbeat-period-sec", "30"),
        ];
        Harness::with(&[&seldom[..], given].concat()).await
    }

    /// The machines whose record is idle.
    pub(crate) fn idle_machines(&self) -> BTreeSet<String> {
        let idle = self.memory.store.select(|record| record.state == State::Idle);
        idle.iter().map(|record| record.id.to_string()).collect()
    }

    /// Gives a machine a defect before it exists. The ids of launched machines are known in
    /// advance: `i-0001`, `i-0002` and so on.
    pub(crate) fn make_defective(&self, machine: &str, defect: MachineDefect) {
        self.defects.lock().unwrap().insert(id(machine), defect);
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

    /// The control plane of a computer whose clock is 9 s ahead.
    pub(crate) fn plane_ahead(&self) -> Plane {
        let clock = Arc::new(ClockAhead(self.plane.clock.clone()));
        Plane { clock, ..self.plane.clone() }
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        self.plane.clock.sleep(span).await;
    }

    /// Adds an idle machine with its record and its ticket, and waits until its agent is up.
    pub(crate) async fn idle(&self, name: &str, instance_type: &str) -> Record {
        self.put_idle(name, spec(instance_type), Duration::from_secs(300)).await
    }

    pub(crate) async fn put_idle(&self, name: &str, spec: MachineSpec, left: Duration) -> Record {
        let now = self.plane.now();
        let record = Record {
            requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
            id: id(name),
            state: State::Idle,
            run: None,
            threshold: Some(now + left),
            spec: spec.clone(),
            created_at: now,
            updated_at: now,
            ticketed_at: Some(now),
            settings_version: None,
            reuse: ondeck_core::model::reuse::Reuse::Always,
            departure: ondeck_core::model::departure::Departure::None,
            suffix: None,
            counts: Counts::default(),
        };
        self.memory.store.insert(record.clone());
        self.memory.compute.insert(Machine {
            id: id(name),
            spec,
            intent: IntentId::new("test").unwrap(),
            launched_at: now,
            image: None,
        });
        self.ticket(&record).await;
        if self.defect(name) != MachineDefect::NeverBoots {
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

    fn defect(&self, name: &str) -> MachineDefect {
        self.defects.lock().unwrap().get(&id(name)).copied().unwrap_or_default()
    }

    pub(crate) fn record(&self, name: &str) -> Option<Record> {
        self.memory.store.select(|record| record.id == id(name)).pop()
    }

    pub(crate) async fn status(&self, name: &str) -> AgentStatus {
        self.plane.store.agent_status(&[id(name)]).await.unwrap().remove(0)
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

    /// Writes a signal and a heartbeat in the name of an agent.
    pub(crate) async fn signal_as_agent(&self, name: &str, signal: Signal, of: &str) {
        let at = self.plane.now();
        let report = Report {
            machine_label: None,
            signal,
            run: Some(run(of)),
            suffix: None,
            detail: String::new(),
            at,
            generation: None,
        };
        AgentStore::report(&*self.memory.store, &id(name), &report).await.unwrap();
        let beat = Heartbeat::new(at, Duration::from_secs(5));
        AgentStore::beat(&*self.memory.store, &id(name), &beat).await.unwrap();
    }

    /// Writes a heartbeat in the name of an agent whose clock is this many milliseconds ahead.
    pub(crate) async fn beat_by_another_clock(&self, name: &str, ahead: i64) {
        let at = self.plane.now().millis().saturating_add_signed(ahead);
        let beat = Heartbeat::new(Timestamp::from_millis(at), Duration::from_secs(5));
        AgentStore::beat(&*self.memory.store, &id(name), &beat).await.unwrap();
    }

    /// Asserts that no instance went from one run to another without having been idle in between.
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

impl Drop for Harness {
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

/// Runs an agent on every machine, and stops it when the machine is gone.
struct AgentDriver {
    plane: Plane,
    store: Arc<MemoryStore>,
    compute: Arc<MemoryCompute>,
    defects: Defects,
    labels: RegisteredLabels,
}

impl AgentDriver {
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
        let defect = self.defects.lock().unwrap().get(id).copied().unwrap_or_default();
        let mut task = tokio::task::JoinSet::new();
        if defect == MachineDefect::NeverBoots {
            return task;
        }
        let (compute, labels) = (self.compute.clone(), self.labels.clone());
        let machine = Arc::new(MemoryMachine::new(id.clone(), defect, compute, labels));
        // No two machines draw the same label.
        let seed =
            id.as_str().bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
        let agent = Agent {
            id: id.clone(),
            store: self.store.clone(),
            runner: machine.clone(),
            host: machine,
            clock: self.plane.clock.clone(),
            random: Arc::new(SeededRandom::new(seed)),
        };
        task.spawn(async move { agent.live().await });
        task
    }
}

pub(crate) fn listed(name: &str, instance: &str, online: bool) -> ListedRunner {
    let number = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1);
    ListedRunner { name: name.into(), instance: id(instance), number, online }
}

/// Shows 9 s more than another clock.
struct ClockAhead(Arc<dyn Clock>);

#[async_trait]
impl Clock for ClockAhead {
    fn now(&self) -> Timestamp {
        self.0.now() + Duration::from_secs(9)
    }

    fn steady(&self) -> Duration {
        self.0.steady()
    }

    async fn sleep(&self, span: Duration) {
        self.0.sleep(span).await;
    }
}
