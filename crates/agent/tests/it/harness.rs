//! The harness of the agent's tests: one machine with its agent, and an in-memory store. The tests
//! write the records that the control plane would write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_agent::Agent;
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::{AgentStore, Clock, Host, Machine, Runner};
use ondeck_core::testkit::{
    self, MachineDefect, MemoryMachine, MemoryPorts, RegisteredLabels, SeededRandom,
};

pub(crate) struct Harness {
    pub(crate) plane: Plane,
    pub(crate) memory: MemoryPorts,
    pub(crate) labels: RegisteredLabels,
    agents: tokio::task::JoinSet<String>,
    /// Shared by all agents: one that is started again does not draw the same numbers.
    random: Arc<SeededRandom>,
}

impl Harness {
    /// Creates a store with these settings and no machine.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Harness {
        let (plane, memory) = testkit::plane();
        let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        plane.store.put_settings(&settings).await.unwrap();
        let labels = RegisteredLabels::default();
        let random = Arc::new(SeededRandom::new(7));
        Harness { plane, memory, labels, agents: tokio::task::JoinSet::new(), random }
    }

    /// Adds a machine without a record and starts its agent, which uses `clock`.
    pub(crate) fn boot(&mut self, clock: Arc<dyn Clock>) {
        self.boot_with(MachineDefect::None, clock);
    }

    /// As [`Harness::boot`], on a machine with a defect.
    pub(crate) fn boot_with(&mut self, defect: MachineDefect, clock: Arc<dyn Clock>) {
        self.add_machine();
        self.start_agent(defect, clock, self.memory.store.clone());
    }

    /// As [`Harness::boot`], with an agent that uses `store`.
    pub(crate) fn boot_on(&mut self, store: Arc<dyn AgentStore>) {
        self.add_machine();
        self.start_agent(MachineDefect::None, self.plane.clock.clone(), store);
    }

    /// As [`Harness::boot`], with another runner than the machine's.
    pub(crate) fn boot_runner(&mut self, runner: Arc<dyn Runner>) {
        self.boot_runner_on(runner, self.memory.store.clone());
    }

    /// As [`Harness::boot_runner`], with an agent that uses `store`.
    pub(crate) fn boot_runner_on(&mut self, runner: Arc<dyn Runner>, store: Arc<dyn AgentStore>) {
        self.add_machine();
        let host = self.machine(MachineDefect::None);
        self.spawn(runner, host, self.plane.clock.clone(), store);
    }

    /// Starts an agent on a machine that is there, with this host.
    pub(crate) fn start_on_host(&mut self, host: Arc<dyn Host>) {
        let runner = self.machine(MachineDefect::None);
        let (clock, store) = (self.plane.clock.clone(), self.memory.store.clone());
        self.spawn(runner, host, clock, store);
    }

    /// Starts another agent on the machine, which uses `store`.
    pub(crate) fn start_another_on(&mut self, defect: MachineDefect, store: Arc<dyn AgentStore>) {
        self.start_agent(defect, self.plane.clock.clone(), store);
    }

    /// Kills the agent of the machine, which goes on.
    pub(crate) async fn kill_agents(&mut self) {
        self.agents.shutdown().await;
    }

    /// Starts another agent on the machine, as one that was killed is started again.
    pub(crate) fn start_another(&mut self, defect: MachineDefect) {
        self.start_agent(defect, self.plane.clock.clone(), self.memory.store.clone());
    }

    pub(crate) fn add_machine(&self) {
        self.memory.compute.insert(Machine {
            id: machine(),
            spec: spec(),
            intent: IntentId::new("test").unwrap(),
            launched_at: self.plane.now(),
            image: None,
        });
    }

    fn start_agent(
        &mut self,
        defect: MachineDefect,
        clock: Arc<dyn Clock>,
        store: Arc<dyn AgentStore>,
    ) {
        let machine = self.machine(defect);
        self.spawn(machine.clone(), machine, clock, store);
    }

    pub(crate) fn machine(&self, defect: MachineDefect) -> Arc<MemoryMachine> {
        let (compute, labels) = (self.memory.compute.clone(), self.labels.clone());
        Arc::new(MemoryMachine::new(machine(), defect, compute, labels))
    }

    fn spawn(
        &mut self,
        runner: Arc<dyn Runner>,
        host: Arc<dyn Host>,
        clock: Arc<dyn Clock>,
        store: Arc<dyn AgentStore>,
    ) {
        let random = self.random.clone();
        let agent = Agent { id: machine(), store, runner, host, clock, random };
        self.agents.spawn(async move { agent.live().await });
    }

    /// Adds a machine with a record in this state, which has `left` until its threshold. Waits for
    /// the first signal of its agent, and returns the record.
    pub(crate) async fn boot_in(&mut self, state: State, left: Duration) -> Record {
        self.boot_defective(MachineDefect::None, state, left).await
    }

    /// As [`Harness::boot_in`], on a machine with a defect.
    pub(crate) async fn boot_defective(
        &mut self,
        defect: MachineDefect,
        state: State,
        left: Duration,
    ) -> Record {
        let record = self.insert_record(state, left);
        self.boot_with(defect, self.plane.clock.clone());
        while self.status().await.report.is_none() {
            tokio::task::yield_now().await;
        }
        record
    }

    /// Writes a record of the machine in this state, which has `left` until its threshold.
    pub(crate) fn insert_record(&self, state: State, left: Duration) -> Record {
        let now = self.plane.now();
        let record = Record {
            requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
            id: machine(),
            state,
            run: state.is_owned().then(|| run("1")),
            threshold: Some(now + left),
            spec: spec(),
            created_at: now,
            updated_at: now,
            ticketed_at: None,
            settings_version: None,
            reuse: ondeck_core::model::reuse::Reuse::Always,
            departure: ondeck_core::model::departure::Departure::None,
            suffix: None,
            counts: Counts::default(),
        };
        self.memory.store.insert(record.clone());
        record
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        self.plane.clock.sleep(span).await;
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.memory.compute.machine(machine().as_str()).is_some()
    }

    pub(crate) async fn status(&self) -> AgentStatus {
        self.plane.store.agent_status(&[machine()]).await.unwrap().remove(0)
    }

    /// How old the machine's last heartbeat is.
    pub(crate) async fn heartbeat_age(&self) -> Duration {
        self.plane.now().since(self.status().await.heartbeat.unwrap().at)
    }
}

/// The only machine of a harness.
pub(crate) fn machine() -> InstanceId {
    InstanceId::new("i-a").unwrap()
}

pub(crate) fn run(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

/// The label of a run without a suffix.
pub(crate) fn label(id: &str) -> Label {
    Label::from(&run(id))
}

pub(crate) fn spec() -> MachineSpec {
    MachineSpec {
        resource_class: ResourceClass::new("large").unwrap(),
        instance_type: "c6i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mem: 4096,
    }
}

/// A clock that is an hour behind on the first read and correct after that.
pub(crate) struct ClockBehind {
    clock: Arc<dyn Clock>,
    was_read: AtomicBool,
}

impl ClockBehind {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> ClockBehind {
        ClockBehind { clock, was_read: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Clock for ClockBehind {
    fn now(&self) -> Timestamp {
        let behind = if self.was_read.swap(true, Ordering::Relaxed) { 0 } else { 3_600 };
        self.clock.now().before(Duration::from_secs(behind))
    }

    fn steady(&self) -> Duration {
        self.clock.steady()
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }
}
