//! The harness: plays a history, one event at a time. It starts and crashes processes, boots and
//! removes machines, and assigns jobs.

mod actions;
mod exits;
mod labels;
mod machines;
mod modes;
mod preset;

use std::collections::BTreeMap;
use std::sync::Arc;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::runtime::stop::StopSwitch;

use crate::audit::Invariant;
use crate::faults::Fault;
use crate::kernel::{Event, Instruction, Kernel, Micros, Pid, digest};
use crate::plan::{Action, Ask, Plan, SECOND};
use crate::policy::{Outage, Policy};
use crate::process::{Process, ProcessKind, ProcessOutcome};
use crate::world::World;

pub(crate) use self::preset::IDLE_TIME;

/// The run that provisions after faults have ended.
pub(crate) const PROBE: &str = "probe";

/// More events than any history has whose processes wait between their calls.
const MAX_STEPS: u64 = 2_000_000;

pub(crate) struct Harness {
    pub(crate) world: Arc<World>,
    pub(crate) kernel: Arc<Kernel>,
    policy: Arc<Policy>,
    plan: Plan,
    processes: BTreeMap<Pid, Process>,
    scheduled: Vec<ScheduledAction>,
    runs: BTreeMap<String, Run>,
    /// The provisions that have not exited.
    calls: BTreeMap<Pid, ProvisionCall>,
    /// How to stop each refresh, and when it was told to.
    refresh_stops: BTreeMap<Pid, (StopSwitch, Option<Timestamp>)>,
    /// Random numbers for everything outside of processes.
    random: fastrand::Rng,
    processes_started: u32,
    pub(crate) tally: Tally,
    /// The outcome of the watched process, once it has ended.
    pub(crate) watched_outcome: Option<ProcessOutcome>,
}

/// How often modes succeeded and failed, and what they worked with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub provisioned: u64,
    /// Provisions that failed, for any reason.
    pub refused: u64,
    /// Machines that provisions took from the pool.
    pub warm: u64,
    /// Releases that ended, successfully or not.
    pub released: u64,
    /// Refreshes that ended, successfully or not.
    pub refreshed: u64,
    /// Jobs that started on a runner.
    pub jobs: u64,
    /// Machines that were launched.
    pub machines: u64,
}

/// An action of the harness that is due at a scheduled time.
#[derive(Debug, Clone)]
pub(crate) enum ScheduledAction {
    Planned(Action),
    FirstRefresh,
    Boot(InstanceId),
    RemoveMachine(InstanceId),
    EndJob(usize),
    /// A job has waited in a hook for as long as it does.
    EndWait,
    Release(String),
}

#[derive(Default)]
struct Run {
    provisions: u32,
    releases: u32,
    /// How many of its provisions and releases have not exited.
    at_work: u32,
    /// How many provisions, releases, stops and re-runs there have been.
    disturbances: u32,
    will_release: bool,
    stop: Option<StopSwitch>,
    last_provision: Option<Pid>,
    told_to_stop: bool,
    /// Whether its jobs were re-run, so that refresh may provision for it.
    rerun: bool,
    /// Whether its last request allows to launch machines.
    may_launch: bool,
    /// That of its last request.
    suffix: Option<&'static str>,
    /// The labels of machines that its provisions were given.
    own_labels: Vec<MachineLabel>,
}

/// One call of provision.
#[derive(Debug, Clone)]
struct ProvisionCall {
    ask: Ask,
    began: Timestamp,
    /// Whether nothing had happened to the run before.
    is_first: bool,
    /// Whether no other process of the run was at work when it began.
    is_alone: bool,
    /// The disturbances of the run up to this call.
    disturbances: u32,
    told_to_stop_at: Option<Timestamp>,
}

impl Harness {
    pub(crate) fn new(plan: &Plan, kernel: Arc<Kernel>) -> Harness {
        let world = Arc::new(World::new(kernel.clone()));
        world.audit().expect(plan, kernel.is_by_choice());
        let policy = Arc::new(plan.policy());
        let random = policy.random_for("the world");
        let mut harness = Harness {
            world,
            kernel,
            policy,
            plan: plan.clone(),
            processes: BTreeMap::new(),
            scheduled: Vec::new(),
            runs: BTreeMap::new(),
            calls: BTreeMap::new(),
            refresh_stops: BTreeMap::new(),
            random,
            processes_started: 0,
            tally: Tally::default(),
            watched_outcome: None,
        };
        if let Some(capacity) = plan.capacity {
            harness.world.compute.set_capacity(capacity);
        }
        let of_forge = plan.outages.iter().filter(|outage| outage.service == "forge");
        let ends = |outage: &Outage| (outage.from, outage.to.min(plan.faults_end_at));
        let outages = of_forge.map(ends).collect();
        harness.world.machines().set_forge_outages(outages);
        for (at, action) in plan.actions.clone() {
            harness.schedule(at, ScheduledAction::Planned(action));
        }
        harness
    }

    pub(crate) fn schedule(&mut self, at: Micros, action: ScheduledAction) {
        self.scheduled.push(action);
        self.kernel.schedule(at, Event::Action(self.scheduled.len() - 1));
    }

    fn schedule_within(&mut self, seconds: std::ops::Range<u64>, action: ScheduledAction) {
        let wait = self.random_in(seconds.start * SECOND..seconds.end * SECOND);
        self.schedule(self.kernel.now() + wait, action);
    }

    fn random_in(&mut self, range: std::ops::Range<u64>) -> u64 {
        match self.plan.fixed_durations {
            true => range.start.midpoint(range.end),
            false => self.random.u64(range),
        }
    }

    /// The calls of the watched process.
    pub(crate) fn watched_calls(&self) -> Vec<String> {
        self.policy.watched_calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn faulty_calls(&self) -> Vec<crate::faults::CallSite> {
        self.policy.faulty_calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Plays until `until`, or until an invariant is violated.
    pub(crate) fn play(&mut self, until: Micros) {
        while let Some(event) = self.kernel.next(until) {
            let instruction = self.kernel.handle(event);
            self.follow(instruction);
            if self.kernel.steps() > MAX_STEPS {
                let how = "the history has too many events".to_owned();
                self.world.audit().violated(Invariant::EveryCallEnds, how);
            }
            if self.is_over() {
                return;
            }
        }
        self.kernel.advance_to(until);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.world.audit().violation().is_some()
    }

    pub(crate) fn follow(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Nothing => {}
            Instruction::Poll(pid) => self.poll_process(pid),
            Instruction::Crash(pid) => self.crash(pid),
            Instruction::Action(number) => {
                let action = self.scheduled[number].clone();
                self.perform(action);
            }
        }
        self.apply_consequences();
    }

    fn poll_process(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some(exit) = process.poll()
            && let Some(process) = self.processes.remove(&pid)
        {
            self.note_outcome(pid, exit.outcome());
            self.no_longer_at_work(&process.kind);
            self.exited(pid, &process.kind, exit);
        }
    }

    /// Counts a process of a run that has exited or died.
    fn no_longer_at_work(&mut self, kind: &ProcessKind) {
        if let ProcessKind::Provision(run) | ProcessKind::Release(run) = kind {
            self.runs.entry(run.clone()).or_default().at_work -= 1;
        }
    }

    fn note_outcome(&mut self, pid: Pid, outcome: ProcessOutcome) {
        if self.plan.watched.as_ref() == Some(&self.kernel.name(pid)) {
            self.watched_outcome = Some(outcome);
        }
    }

    /// Applies what follows from an event: boots, removals, started jobs, and the audit.
    fn apply_consequences(&mut self) {
        let launched = self.world.machines().take_launched();
        for id in launched {
            self.tally.machines += 1;
            let never_boots = self.plan.never_boot.contains(&self.tally.machines)
                && self.kernel.now() < self.plan.faults_end_at;
            if never_boots || self.injects(Fault::NeverBoots) {
                self.kernel.note("the world", || format!("{id} will never come up"));
            } else {
                self.schedule_within(2..20, ScheduledAction::Boot(id));
            }
        }
        let terminating = self.world.machines().take_terminating();
        for id in terminating {
            self.schedule_within(0..4, ScheduledAction::RemoveMachine(id));
        }
        let rerun = self.world.machines().take_rerun();
        for run in rerun {
            self.rerun_by_forge(run.as_str());
        }
        let started = self.world.machines().assign();
        for (job, id) in started {
            self.tally.jobs += 1;
            let takes = self.world.machines().job(job).takes;
            let now = self.kernel.true_time();
            self.world.audit().job_starts(&id, &self.world.machines(), now);
            self.kernel.note("the world", || format!("job {job} starts on {id}"));
            self.schedule(self.kernel.now() + takes, ScheduledAction::EndJob(job));
        }
        self.assign_own();
        let now = self.kernel.true_time();
        self.world.audit().compare(&mut self.world.machines(), now);
    }

    fn injects(&mut self, fault: Fault) -> bool {
        let injected = self.policy.injects(fault, self.kernel.now(), &mut self.random);
        if injected {
            self.kernel.count(fault);
        }
        injected
    }

    /// A digest of the whole state of the simulation.
    pub(crate) fn digest(&self) -> u64 {
        let alive: Vec<Pid> = self.processes.keys().copied().collect();
        digest(&[&self.kernel.digest(), &self.world.digest(), &alive])
    }

    /// The modes that have not exited.
    pub(crate) fn unfinished(&self) -> Vec<ProcessKind> {
        let mode = |kind: &&ProcessKind| !matches!(kind, ProcessKind::Agent(_));
        self.processes.values().map(|process| &process.kind).filter(mode).cloned().collect()
    }

    /// The machines whose agents are running.
    pub(crate) fn machines_with_agents(&self) -> Vec<InstanceId> {
        let agents = self.processes.values().filter_map(|process| match &process.kind {
            ProcessKind::Agent(id) => Some(id.clone()),
            _ => None,
        });
        agents.collect()
    }
}

pub(crate) fn run_id(run: &str) -> RunId {
    RunId::new(run).expect("a sound run id")
}
