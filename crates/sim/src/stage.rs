//! Where a history is played: processes, machines and jobs come and go, one event at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ondeck_agent::Agent;
use ondeck_core::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::plane::Plane;
use ondeck_core::ports::{Machine, Pool};
use ondeck_core::provision::{DEFAULT_TYPES, Request, TimeOverrides, provision};
use ondeck_core::record::{MachineSpec, Record, State};
use ondeck_core::refresh::refresh;
use ondeck_core::release::release;
use ondeck_core::requirements::UsageClass;
use ondeck_core::stop::{Stop, StopSignal, StopSwitch};
use ondeck_core::testkit::{SeededDice, Silent};
use ondeck_core::ticket::Ticket;
use ondeck_core::time::Timestamp;

use crate::audit::{Promise, SKEW};
use crate::fate::{Crash, Fault};
use crate::kernel::{Event, Kernel, Micros, Pid, Told, digest};
use crate::machine::Rig;
use crate::plan::{Deed, Plan, SECOND};
use crate::policy::Policy;
use crate::process::{Ending, Exit, Process, Task};
use crate::wire::{Traits, Wire};
use crate::world::{World, at_once};

/// The run that asks for machines after everything has calmed down.
pub(crate) const PROBE: &str = "probe";

pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    pub(crate) kernel: Arc<Kernel>,
    policy: Arc<Policy>,
    plan: Plan,
    processes: BTreeMap<Pid, Process>,
    acts: Vec<Act>,
    runs: BTreeMap<String, Run>,
    /// Decides what no process decides.
    dice: fastrand::Rng,
    born: u32,
    pub(crate) tally: Tally,
    /// How the watched process came to its end.
    pub(crate) ending: Option<Ending>,
}

/// What came of the modes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Provisions that succeeded.
    pub provisioned: u64,
    /// Provisions that did not.
    pub refused: u64,
    /// Machines that came from the pool.
    pub warm: u64,
    /// Releases.
    pub released: u64,
    /// Refreshes.
    pub refreshed: u64,
    /// Jobs that were taken.
    pub jobs: u64,
    /// Machines that were launched.
    pub machines: u64,
}

/// What is due at some time.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Planned(Deed),
    Boot(InstanceId),
    Die(InstanceId),
    JobOver(usize),
    ReleaseOf(String),
}

#[derive(Default)]
struct Run {
    provisions: u32,
    releases: u32,
    leaving: bool,
    stop: Option<StopSwitch>,
    told_to_stop: bool,
    /// Whether refresh may provision for it as well.
    rerun: bool,
}

impl Stage {
    pub(crate) fn new(plan: &Plan, kernel: Arc<Kernel>) -> Stage {
        let world = Arc::new(World::new(kernel.clone()));
        world.audit().frugal = plan.is_clear();
        let policy = Arc::new(plan.policy());
        let dice = policy.chance("the world");
        let mut stage = Stage {
            world,
            kernel,
            policy,
            plan: plan.clone(),
            processes: BTreeMap::new(),
            acts: Vec::new(),
            runs: BTreeMap::new(),
            dice,
            born: 0,
            tally: Tally::default(),
            ending: None,
        };
        if let Some(capacity) = plan.capacity {
            stage.world.compute.limit(capacity);
        }
        for (at, deed) in plan.deeds.clone() {
            stage.due(at, Act::Planned(deed));
        }
        stage
    }

    pub(crate) fn due(&mut self, at: Micros, act: Act) {
        self.acts.push(act);
        self.kernel.at(at, Event::Deed(self.acts.len() - 1));
    }

    fn soon(&mut self, seconds: std::ops::Range<u64>, act: Act) {
        let wait = self.roll(seconds.start * SECOND..seconds.end * SECOND);
        self.due(self.kernel.now() + wait, act);
    }

    fn roll(&mut self, range: std::ops::Range<u64>) -> u64 {
        match self.plan.steady {
            true => range.start.midpoint(range.end),
            false => self.dice.u64(range),
        }
    }

    /// The calls of the watched process.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.policy.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn struck(&self) -> Vec<crate::fate::Place> {
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
            Told::Deed(deed) => {
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
        let befallen = self.policy.befalls(fault, self.kernel.now(), &mut self.dice);
        if befallen {
            self.kernel.count(fault);
        }
        befallen
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Planned(deed) => self.do_as_planned(deed),
            Act::Boot(id) => self.boot(&id),
            Act::Die(id) => self.die(&id),
            Act::JobOver(job) => self.job_over(job),
            Act::ReleaseOf(run) => self.release(&run),
        }
    }

    fn do_as_planned(&mut self, deed: Deed) {
        let now = self.kernel.now();
        self.kernel.note("the plan", || format!("{deed:?}"));
        match deed {
            Deed::Provision { run, count } => self.provision(&run, count),
            Deed::Release { run } => self.release(&run),
            Deed::Refresh => self.refresh(BTreeMap::new()),
            Deed::RefreshWith(name, value) => {
                self.refresh([(name.to_owned(), value.to_owned())].into());
            }
            Deed::Stop { run } => {
                if let Some(run) = self.runs.get_mut(&run)
                    && let Some(switch) = &run.stop
                {
                    run.told_to_stop = true;
                    switch.raise(Stop::Interrupted);
                    self.kernel.count(Fault::ToldToStop);
                    self.wake_modes();
                }
            }
            Deed::Rerun { run } => {
                self.runs.entry(run.clone()).or_default().rerun = true;
                let takes = self.roll(3..60) * SECOND;
                self.world.yard().queue(&run_id(&run), takes);
            }
            Deed::Kill(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::MachineDies);
                    self.world.compute.kill(&id);
                    self.die(&id);
                }
            }
            Deed::Hang(nth, span) => {
                if let Some(pid) = self.nth(nth).and_then(|id| self.world.yard().body(&id)?.agent) {
                    self.kernel.count(Fault::Hang);
                    self.kernel.freeze(pid, now + span);
                }
            }
            Deed::StopHeart(nth, span) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::HeartStops);
                    self.world.yard().stop_heart(&id, now + span);
                }
            }
            Deed::Reassign(nth) => self.reassign(nth),
        }
    }

    /// Whoever was told to stop hears it at once.
    fn wake_modes(&mut self) {
        let modes: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in modes {
            self.let_act(pid);
        }
    }

    fn nth(&self, nth: usize) -> Option<InstanceId> {
        let alive = self.world.yard().alive();
        let at = nth.checked_rem(alive.len())?;
        alive.get(at).cloned()
    }

    /// Somebody edits a record by hand, as only a running machine's can be seen to matter.
    fn reassign(&mut self, nth: usize) {
        let running = self.world.store.select(|record| {
            let left = record.threshold.map(|t| t.since(self.kernel.true_time()));
            record.state == State::Running && left.is_some_and(|left| left.as_secs() > 100)
        });
        let Some(mut record) = running.get(nth % running.len().max(1)).cloned() else { return };
        let serves = self.world.yard().view(&record.id).is_some_and(|v| v.label == record.run);
        if !serves {
            return;
        }
        self.kernel.count(Fault::Reassigned);
        record.run = Some(run_id("by-hand"));
        record.updated_at = self.kernel.true_time();
        self.world.store.plant(record.clone());
        self.world.audit().gave_by_hand(&record, self.kernel.true_time());
        self.kernel.ring(&record.id);
    }

    fn doom(&mut self, fault: Fault, calls: u32) -> Option<(u32, Crash)> {
        let befallen = self.policy.befalls(fault, self.kernel.now(), &mut self.dice);
        let (at, before) = (self.dice.u32(1..calls), self.dice.bool());
        befallen.then_some((at, if before { Crash::Before } else { Crash::After }))
    }

    fn wire(&mut self, name: &str, clock: &str, doom: Option<(u32, Crash)>) -> Arc<Wire> {
        let skew = match self.plan.skew {
            0 => 0,
            most => self.policy.chance(clock).u64(0..=most),
        };
        if skew > 0 {
            self.kernel.count(Fault::Skew);
        }
        let traits = Traits { skew: Duration::from_millis(skew), doom };
        Arc::new(Wire::new(&self.world, &self.policy, name, traits))
    }

    /// A process of the control plane, and all it works with.
    fn mode(&mut self, what: &str) -> (Arc<Wire>, Plane) {
        self.born += 1;
        let name = format!("{what}#{}", self.born);
        let doom = self.doom(Fault::Crash, 50);
        let wire = self.wire(&name, &name, doom);
        let seed = digest(&[&self.plan.seed, &name]);
        let plane = Plane {
            store: wire.clone(),
            pool: wire.clone(),
            compute: wire.clone(),
            forge: wire.clone(),
            clock: wire.clone(),
            dice: Arc::new(SeededDice::new(seed)),
            progress: Arc::new(Silent),
        };
        (wire, plane)
    }

    fn start(&mut self, pid: Pid, process: Process) {
        self.processes.insert(pid, process);
        self.let_act(pid);
    }

    pub(crate) fn provision(&mut self, run: &str, count: u32) {
        let (wire, plane) = self.mode(&format!("provision {run}"));
        let (switch, stop) = StopSignal::new();
        let known = self.runs.entry(run.to_owned()).or_default();
        known.provisions += 1;
        known.stop = Some(switch);
        let request = Request {
            run: run_id(run),
            count,
            class: ResourceClass::new("large").expect("a sound name"),
            usage: self.usage_of(run),
            types: DEFAULT_TYPES.parse().expect("sound patterns"),
            times: TimeOverrides::default(),
            fresh_only: false,
            again: false,
            capacity_fallback: false,
        };
        let work =
            async move { Exit::Provisioned(Box::new(provision(&plane, &request, &stop).await)) };
        self.start(wire.pid, Process::new(Task::Provision(run.to_owned()), work));
    }

    /// What a run wants is its own, whoever asks for it, and however often.
    fn usage_of(&self, run: &str) -> UsageClass {
        match self.plan.picky && digest(&[&self.plan.seed, &run]).is_multiple_of(3) {
            true => UsageClass::Spot,
            false => UsageClass::OnDemand,
        }
    }

    pub(crate) fn release(&mut self, run: &str) {
        let (wire, plane) = self.mode(&format!("release {run}"));
        self.runs.entry(run.to_owned()).or_default().releases += 1;
        self.world.yard().cancel(Some(&run_id(run)));
        let id = run_id(run);
        let work = async move {
            Exit::Released(Box::new(release(&plane, &id, &TimeOverrides::default()).await))
        };
        self.start(wire.pid, Process::new(Task::Release(run.to_owned()), work));
    }

    pub(crate) fn refresh(&mut self, given: BTreeMap<String, String>) {
        if self.processes.values().any(|process| process.task == Task::Refresh) {
            self.kernel.count(Fault::RefreshTwice);
        }
        let (wire, plane) = self.mode("refresh");
        let began = self.kernel.true_time();
        let work = async move {
            let outcome = refresh(&plane, &given, &StopSignal::never()).await;
            Exit::Refreshed(Box::new(outcome), began)
        };
        self.start(wire.pid, Process::new(Task::Refresh, work));
    }

    fn boot(&mut self, id: &InstanceId) {
        let restarts = match self.world.yard().body(id) {
            Some(body) if body.agent.is_none() => {
                body.restarts += 1;
                body.restarts
            }
            _ => return,
        };
        let doom = self.doom(Fault::AgentCrash, 300);
        let wire = self.wire(&format!("agent {id}#{restarts}"), id.as_str(), doom);
        let mut notice_at = None;
        if self.befalls(Fault::SpotNotice) {
            let at = self.kernel.now() + self.dice.u64(0..200) * SECOND;
            notice_at = Some(at);
            self.due(at + 120 * SECOND, Act::Die(id.clone()));
        }
        let rig = Arc::new(Rig { wire: wire.clone(), id: id.clone(), notice_at });
        let agent = Agent {
            id: id.clone(),
            store: wire.clone(),
            runner: rig.clone(),
            host: rig,
            clock: wire.clone(),
            dice: Arc::new(SeededDice::new(digest(&[&self.plan.seed, &wire.name]))),
        };
        if let Some(body) = self.world.yard().body(id) {
            body.agent = Some(wire.pid);
        }
        self.kernel.note(&wire.name, || "starts".to_owned());
        let work = async move {
            agent.live().await;
            Exit::Ended
        };
        self.start(wire.pid, Process::new(Task::Agent(id.clone()), work));
    }

    fn die(&mut self, id: &InstanceId) {
        self.world.compute.kill(id);
        let agent = self.world.yard().bury(id);
        self.kernel.note("the world", || format!("{id} is gone"));
        // Outside of every lock, since what it was waiting for is cancelled with it.
        let Some((pid, process)) = agent.and_then(|pid| Some((pid, self.processes.remove(&pid)?)))
        else {
            return;
        };
        drop(process);
        self.watch(pid, Ending::GaveUp);
    }

    fn crash(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.watch(pid, Ending::Died);
        let task = process.task.clone();
        drop(process);
        match task {
            Task::Agent(id) => {
                self.kernel.count(Fault::AgentCrash);
                if let Some(body) = self.world.yard().body(&id) {
                    body.agent = None;
                }
                self.soon(1..15, Act::Boot(id));
            }
            Task::Provision(run) => {
                self.kernel.count(Fault::Crash);
                self.leave(&run, 5..60);
            }
            Task::Release(_) | Task::Refresh => self.kernel.count(Fault::Crash),
        }
    }

    /// The last job of a workflow releases, unless it never comes to that.
    fn leave(&mut self, run: &str, seconds: std::ops::Range<u64>) {
        if self.runs.entry(run.to_owned()).or_default().leaving {
            return;
        }
        if self.befalls(Fault::NeverReleased) {
            return;
        }
        self.runs.entry(run.to_owned()).or_default().leaving = true;
        self.soon(seconds, Act::ReleaseOf(run.to_owned()));
    }

    fn job_over(&mut self, job: usize) {
        let run = {
            let mut yard = self.world.yard();
            yard.job_over(job);
            yard.job(job).run.to_string()
        };
        if self.world.yard().is_done(&run_id(&run)) {
            self.leave(&run, 1..5);
        }
    }

    fn exited(&mut self, task: &Task, exit: Exit) {
        let name = format!("{task:?}");
        match (task, exit) {
            (Task::Provision(run), Exit::Provisioned(outcome)) => {
                self.kernel.note(&name, || match &outcome.failure {
                    None => "succeeded".to_owned(),
                    Some(failure) => format!("failed: {failure}"),
                });
                self.provisioned(run, &outcome);
            }
            (Task::Release(_), Exit::Released(result)) => {
                self.tally.released += 1;
                self.kernel
                    .note(&name, || format!("{:?}", result.map(|outcome| outcome.instances)));
            }
            (_, Exit::Refreshed(result, began)) => {
                self.tally.refreshed += 1;
                if matches!(&*result, Ok(outcome) if outcome.failure.is_none()) {
                    self.must_be_repaired(began);
                }
                self.kernel.note(&name, || match &*result {
                    Ok(outcome) => {
                        format!("warnings {:?}, {:?}", outcome.warnings, outcome.failure)
                    }
                    Err(failure) => format!("failed: {failure}"),
                });
            }
            _ => {}
        }
    }

    /// Idle machines that no ticket leads to, although a release would have given them up before
    /// this refresh began, whichever of the clocks is ahead.
    fn must_be_repaired(&self, began: Timestamp) {
        let waits = self.plan.settings.get("release-timeout-sec").and_then(|s| s.parse().ok());
        let overdue = Duration::from_secs(waits.unwrap_or(120)) + 2 * SKEW;
        let now = self.kernel.true_time();
        let lost = self.world.store.select(|record| {
            let left = record.threshold.is_some_and(|threshold| threshold > now + SKEW);
            let silent = record.ticketed_at.is_none() && record.updated_at + overdue < began;
            record.state == State::Idle && left && silent
        });
        for record in lost {
            let Some(idle) = Instance::<Idle>::believe(&record) else { continue };
            if !self.world.pool.holds(&idle.ticket()) {
                let how = format!("nothing leads to {}, which is idle", record.id);
                self.world.audit().broken(Promise::Repaired, how);
            }
        }
    }

    fn provisioned(&mut self, run: &str, outcome: &ondeck_core::provision::Outcome) {
        let known = self.runs.entry(run.to_owned()).or_default();
        let alone =
            known.provisions == 1 && known.releases == 0 && !known.told_to_stop && !known.rerun;
        let now = self.kernel.true_time();
        let must = run == PROBE || self.plan.is_clear();
        let late = self.plan.is_late();
        match &outcome.failure {
            None => {
                self.tally.provisioned += 1;
                self.tally.warm += outcome.count(ondeck_core::provision::Source::Warm) as u64;
                if alone {
                    self.world.audit().succeeded(outcome, late, now);
                }
                for _ in 0..outcome.requested {
                    let takes = self.roll(3..60) * SECOND;
                    self.world.yard().queue(&run_id(run), takes);
                }
                // However its jobs fare, a workflow ends.
                self.soon(90..150, Act::ReleaseOf(run.to_owned()));
            }
            Some(failure) => {
                self.tally.refused += 1;
                if must {
                    let how = format!("run {run} was refused without a fault: {failure}");
                    self.world.audit().broken(Promise::Succeeds, how);
                }
                let held = self.world.audit().held_by(&run_id(run), now);
                if alone && !late && outcome.leftovers.is_empty() && !held.is_empty() {
                    let how = format!("run {run} was refused, and still has {held:?}");
                    self.world.audit().broken(Promise::AllOrNothing, how);
                }
                self.leave(run, 1..10);
            }
        }
    }

    /// A number that stands for all there is.
    pub(crate) fn digest(&self) -> u64 {
        let alive: Vec<Pid> = self.processes.keys().copied().collect();
        digest(&[&self.kernel.digest(), &self.world.digest(), &alive])
    }

    /// An idle machine whose agent is about to start, announced by so many tickets.
    pub(crate) fn plant_idle(&mut self, id: &str, tickets: usize) {
        let now = self.kernel.true_time();
        let record = Record {
            id: InstanceId::new(id).expect("a sound id"),
            state: State::Idle,
            run: None,
            threshold: Some(now + Duration::from_secs(300)),
            spec: MachineSpec {
                resource_class: ResourceClass::new("large").expect("a sound name"),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::OnDemand,
                cpu: 2,
                mem: 4096,
            },
            created_at: now,
            updated_at: now,
            ticketed_at: Some(now),
        };
        let machine = Machine {
            id: record.id.clone(),
            spec: record.spec.clone(),
            intent: IntentId::new("planted").expect("a sound id"),
            launched_at: now,
        };
        self.world.audit().planted(&record);
        self.world.store.plant(record.clone());
        self.world.compute.plant(machine.clone());
        self.world.yard().launched(&[machine]);
        self.world.yard().newborn();
        let idle: Instance<Idle> = Instance::believe(&record).expect("it is idle");
        for _ in 0..tickets {
            self.send(&idle.ticket());
        }
        self.boot(&record.id);
    }

    /// A ticket of an idle state that is over, and that did not last for its time.
    pub(crate) fn send_stale(&mut self, id: &str) {
        let record = self.world.store.select(|record| record.id.as_str() == id).pop();
        let idle: Option<Instance<Idle>> = record.as_ref().and_then(Instance::believe);
        if let Some(mut ticket) = idle.map(|idle| idle.ticket()) {
            ticket.threshold = ticket.threshold.before(Duration::from_secs(50));
            self.send(&ticket);
        }
    }

    fn send(&self, ticket: &Ticket) {
        let sent = at_once(self.world.pool.send(std::slice::from_ref(ticket), Duration::ZERO));
        sent.expect("a pool in memory");
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
