//! Where a history is played: processes, machines and jobs come and go, one event at a time.

mod actions;
mod endings;
mod machines;
mod modes;
mod scene;

use std::collections::BTreeMap;
use std::sync::Arc;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::runtime::stop::StopSwitch;

use crate::faults::Fault;
use crate::kernel::{Event, Kernel, Micros, Pid, Told, digest};
use crate::plan::{Action, Plan, SECOND};
use crate::policy::Policy;
use crate::process::{Ending, Process, Task};
use crate::world::World;

pub(crate) use self::scene::IDLE_TIME;

/// The run that asks for machines after everything has calmed down.
pub(crate) const PROBE: &str = "probe";

pub(crate) struct Harness {
    pub(crate) world: Arc<World>,
    pub(crate) kernel: Arc<Kernel>,
    policy: Arc<Policy>,
    plan: Plan,
    processes: BTreeMap<Pid, Process>,
    acts: Vec<Act>,
    runs: BTreeMap<String, Run>,
    /// Decides what no process decides.
    random: fastrand::Rng,
    born: u32,
    pub(crate) tally: Tally,
    /// How the watched process came to its end.
    pub(crate) ending: Option<Ending>,
}

/// What came of the modes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many provisions succeeded.
    pub provisioned: u64,
    /// Provisions that did not.
    pub refused: u64,
    /// Machines that came from the pool.
    pub warm: u64,
    /// How many releases ended.
    pub released: u64,
    /// How many refreshes ended.
    pub refreshed: u64,
    /// Jobs that were taken.
    pub jobs: u64,
    /// Machines that were launched.
    pub machines: u64,
}

/// What is due at some time.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Planned(Action),
    Boot(InstanceId),
    Die(InstanceId),
    JobOver(usize),
    ReleaseOf(String),
}

#[derive(Default)]
struct Run {
    provisions: u32,
    /// When the last of its provisions began.
    began: Option<Timestamp>,
    releases: u32,
    leaving: bool,
    stop: Option<StopSwitch>,
    told_to_stop: bool,
    /// Whether refresh may provision for it as well.
    rerun: bool,
}

impl Harness {
    pub(crate) fn new(plan: &Plan, kernel: Arc<Kernel>) -> Harness {
        let world = Arc::new(World::new(kernel.clone()));
        world.audit().frugal = plan.is_clear();
        let policy = Arc::new(plan.policy());
        let random = policy.chance("the world");
        let mut stage = Harness {
            world,
            kernel,
            policy,
            plan: plan.clone(),
            processes: BTreeMap::new(),
            acts: Vec::new(),
            runs: BTreeMap::new(),
            random,
            born: 0,
            tally: Tally::default(),
            ending: None,
        };
        if let Some(capacity) = plan.capacity {
            stage.world.compute.set_capacity(capacity);
        }
        for (at, deed) in plan.deeds.clone() {
            stage.due(at, Act::Planned(deed));
        }
        stage
    }

    pub(crate) fn due(&mut self, at: Micros, act: Act) {
        self.acts.push(act);
        self.kernel.at(at, Event::Action(self.acts.len() - 1));
    }

    fn soon(&mut self, seconds: std::ops::Range<u64>, act: Act) {
        let wait = self.roll(seconds.start * SECOND..seconds.end * SECOND);
        self.due(self.kernel.now() + wait, act);
    }

    fn roll(&mut self, range: std::ops::Range<u64>) -> u64 {
        match self.plan.steady {
            true => range.start.midpoint(range.end),
            false => self.random.u64(range),
        }
    }

    /// The calls of the watched process.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.policy.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn struck(&self) -> Vec<crate::faults::Place> {
        self.policy.struck.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Plays on until then, or until a promise is broken.
    pub(crate) fn play(&mut self, until: Micros) {
        while let Some(event) = self.kernel.next(until) {
            let told = self.kernel.handle(event);
            self.told(told);
            if self.is_over() {
                return;
            }
        }
        self.kernel.pass(until);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.world.audit().violation().is_some()
    }

    pub(crate) fn told(&mut self, told: Told) {
        match told {
            Told::Nothing => {}
            Told::Poll(pid) => self.let_act(pid),
            Told::Crash(pid) => self.crash(pid),
            Told::Action(deed) => {
                let act = self.acts[deed].clone();
                self.perform(act);
            }
        }
        self.settle();
    }

    fn let_act(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some(exit) = process.act()
            && let Some(process) = self.processes.remove(&pid)
        {
            self.watch(pid, exit.ending());
            self.exited(&process.task, exit);
        }
    }

    fn watch(&mut self, pid: Pid, ending: Ending) {
        if self.plan.watched.as_ref() == Some(&self.kernel.name(pid)) {
            self.ending = Some(ending);
        }
    }

    /// What follows from an event by itself.
    fn settle(&mut self) {
        let newborn = self.world.yard().newborn();
        for id in newborn {
            self.tally.machines += 1;
            let stillborn = self.plan.stillborn.contains(&self.tally.machines)
                && self.kernel.now() < self.plan.calm_at;
            if stillborn || self.befalls(Fault::NeverBoots) {
                self.kernel.note("the world", || format!("{id} will never come up"));
            } else {
                self.soon(2..20, Act::Boot(id));
            }
        }
        let dying = self.world.yard().dying();
        for id in dying {
            self.soon(0..4, Act::Die(id));
        }
        let taken = self.world.yard().assign();
        for (job, id) in taken {
            self.tally.jobs += 1;
            let takes = self.world.yard().job(job).takes;
            self.kernel.note("the world", || format!("job {job} starts on {id}"));
            self.due(self.kernel.now() + takes, Act::JobOver(job));
        }
        let now = self.kernel.true_time();
        self.world.audit().compare(&mut self.world.yard(), now);
    }

    fn befalls(&mut self, fault: Fault) -> bool {
        let befallen = self.policy.befalls(fault, self.kernel.now(), &mut self.random);
        if befallen {
            self.kernel.count(fault);
        }
        befallen
    }

    /// A number that stands for all there is.
    pub(crate) fn digest(&self) -> u64 {
        let alive: Vec<Pid> = self.processes.keys().copied().collect();
        digest(&[&self.kernel.digest(), &self.world.digest(), &alive])
    }

    /// The modes that have not come to an end.
    pub(crate) fn unfinished(&self) -> Vec<Task> {
        let mode = |task: &&Task| !matches!(task, Task::Agent(_));
        self.processes.values().map(|process| &process.task).filter(mode).cloned().collect()
    }

    /// The machines whose agents are up.
    pub(crate) fn attended(&self) -> Vec<InstanceId> {
        let agents = self.processes.values().filter_map(|process| match &process.task {
            Task::Agent(id) => Some(id.clone()),
            _ => None,
        });
        agents.collect()
    }
}

pub(crate) fn run_id(run: &str) -> RunId {
    RunId::new(run).expect("a sound run id")
}
