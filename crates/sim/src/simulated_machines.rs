//! The true state of machines, jobs and the forge's list of runners, which the records of
//! the store may contradict.

mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{FailedJob, ListedRunner, Machine, OpenRun, OpenRuns, Rerun, WaitingJobs};

pub(crate) use self::seat::{HOOK_WAITS, Hooked, SeatView};
use self::seat::{OwnRunner, Seat};
use crate::kernel::{Micros, Pid, timestamp};

#[derive(Debug, Default)]
pub(crate) struct SimulatedMachines {
    machines: BTreeMap<InstanceId, SimulatedMachine>,
    launched: Vec<InstanceId>,
    /// When each machine that is gone was removed.
    removed: BTreeMap<InstanceId, Micros>,
    terminating: Vec<InstanceId>,
    runners: Vec<Runner>,
    /// Those that are registered with a label of their machine.
    own_runners: Vec<OwnRunner>,
    /// When the forge is out of reach for all machines.
    forge_outages: Vec<(Micros, Micros)>,
    /// Until when the forge refuses the version of the runners.
    refuses_version_until: Micros,
    jobs: Vec<Job>,
    /// The runs that have begun, and whether each has completed.
    completed: BTreeMap<RunId, bool>,
    registrations: u32,
    /// The machines whose agents know that the provider will take them away.
    interrupted: BTreeSet<InstanceId>,
    /// The runs whose jobs the forge was asked to run again.
    rerun: Vec<RunId>,
    changed: bool,
}

/// The true state of one machine.
#[derive(Debug, Default, Clone)]
pub(crate) struct SimulatedMachine {
    pub(crate) agent: Option<Pid>,
    /// The label that its agent serves, from before it registers until it has deregistered.
    pub(crate) serving: Option<Label>,
    pub(crate) job: Option<usize>,
    pub(crate) restarts: u32,
    /// When the provider announces that it will take the machine away, if it does.
    pub(crate) interruption_at: Option<Micros>,
    heartbeats_stopped_until: Micros,
    denied_until: Micros,
    seat: Seat,
    pub(crate) condition: Condition,
}

/// What is true of one machine, by which the auditor judges how it is treated.
#[derive(Default, Clone)]
pub(crate) struct Condition {
    /// When a heartbeat last reached the store.
    pub(crate) last_beat: Option<Micros>,
    /// The last registration of a runner: with which label, and when.
    pub(crate) registered: Option<(Label, Micros)>,
    /// Whether its runner has taken a job since it was told to register. The explored scenes reuse
    /// machines, so it does not change their course.
    pub(crate) has_worked: bool,
    /// Whether a run has worked on it since it was cleaned.
    pub(crate) is_dirty: bool,
    /// Until when a failure of its own may have consequences.
    pub(crate) troubled_until: Micros,
    /// Whether its agent has reported that it cannot serve any run.
    pub(crate) is_broken: bool,
    /// How many registrations in a row were slow.
    pub(crate) slow_registrations: u32,
    /// How long the last registration took.
    pub(crate) registration_took: Option<Duration>,
    /// Whether its runner was installed.
    pub(crate) is_prepared: bool,
    /// The operator's script that it ran last.
    pub(crate) script: String,
    /// When the provider announced that it will take the machine away.
    pub(crate) notice_at: Option<Micros>,
    /// Until when its agent is frozen.
    pub(crate) frozen_until: Micros,
    /// The run that its agent has named last as the owner of a registration, and when.
    pub(crate) named: Option<(RunId, Micros)>,
    /// What its runner is registered with, if that is a label of the machine.
    pub(crate) own_label: Option<MachineLabel>,
    /// Since when no listener of the idle machine listens; `None` while one does.
    pub(crate) silent_since: Option<Micros>,
    /// How many listeners have been started under labels of the machine.
    pub(crate) listeners: u32,
}

/// Shows only what may change the course of a history, so that the exhaustive search does not tell
/// apart what only the auditor can.
impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.is_dirty, self.is_broken)
    }
}

#[derive(Debug)]
struct Runner {
    name: String,
    instance: InstanceId,
    label: Label,
    online: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Its run, and what it asks for, unless that is the label of a machine.
    pub(crate) label: Label,
    /// The label of a machine that it asks for.
    pub(crate) own: Option<MachineLabel>,
    pub(crate) takes: Micros,
    pub(crate) queued_at: Micros,
    pub(crate) state: JobState,
    /// The machine on which it failed, if it did.
    failed_on: Option<InstanceId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    Queued,
    /// A runner has taken it, and its first step waits until the agent has named the owner.
    InHook(InstanceId, Micros),
    On(InstanceId),
    Over,
}

/// The labels for which a machine works, as the auditor sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineView {
    /// That of its listening runner.
    pub(crate) label: Option<Label>,
    pub(crate) serving: Option<Label>,
    /// That of the job on it.
    pub(crate) job: Option<Label>,
    /// Its registration with a label of its own, if its runner listens under one.
    pub(crate) seat: Option<SeatView>,
    pub(crate) is_dirty: bool,
    pub(crate) notice_at: Option<Micros>,
}

impl SimulatedMachines {
    /// Adds launched machines. Those of a repeated launch exist already.
    pub(crate) fn launched(&mut self, machines: &[Machine]) {
        for machine in machines {
            if !self.machines.contains_key(&machine.id) && !self.removed.contains_key(&machine.id) {
                self.machines.insert(machine.id.clone(), SimulatedMachine::default());
                self.launched.push(machine.id.clone());
            }
        }
    }

    pub(crate) fn take_launched(&mut self) -> Vec<InstanceId> {
        std::mem::take(&mut self.launched)
    }

    /// Marks existing machines as terminating. The harness removes them within seconds.
    pub(crate) fn mark_terminating(&mut self, ids: &[InstanceId]) {
        self.terminating.extend(ids.iter().filter(|id| self.machines.contains_key(id)).cloned());
    }

    pub(crate) fn take_terminating(&mut self) -> Vec<InstanceId> {
        std::mem::take(&mut self.terminating)
    }

    /// Removes a machine: its runner goes offline, and its job is lost. Returns its agent.
    pub(crate) fn remove(&mut self, id: &InstanceId, now: Micros) -> Option<Pid> {
        self.leave_listed(id, now);
        self.lose_job(id);
        self.set_online(id, false);
        self.removed.entry(id.clone()).or_insert(now);
        self.machines.remove(id).and_then(|machine| machine.agent)
    }

    pub(crate) fn alive(&self) -> Vec<InstanceId> {
        self.machines.keys().cloned().collect()
    }

    /// The machines that exist, or did at this time or later.
    pub(crate) fn existed_since(&self, time: Timestamp) -> Vec<InstanceId> {
        let removed = self.removed.iter().filter(|(_, at)| timestamp(**at) >= time);
        self.machines.keys().chain(removed.map(|(id, _)| id)).cloned().collect()
    }

    /// When each machine that is gone was removed.
    pub(crate) fn removals(&self) -> BTreeMap<InstanceId, Timestamp> {
        self.removed.iter().map(|(id, at)| (id.clone(), timestamp(*at))).collect()
    }

    /// When a machine was removed; `None` if it exists or never did.
    pub(crate) fn removed_at(&self, id: &InstanceId) -> Option<Micros> {
        self.removed.get(id).copied()
    }

    /// Whether a machine has a job, or one that waits in its hook.
    pub(crate) fn is_busy(&self, id: &InstanceId) -> bool {
        self.machines.get(id).is_some_and(|machine| machine.job.is_some())
    }

    /// Whether a job has been let in on a machine.
    pub(crate) fn has_job(&self, id: &InstanceId) -> bool {
        self.machines.get(id).is_some_and(|machine| self.running_job(machine).is_some())
    }

    fn running_job(&self, machine: &SimulatedMachine) -> Option<&Job> {
        let job = machine.job.map(|job| &self.jobs[job])?;
        matches!(job.state, JobState::On(_)).then_some(job)
    }

    /// What is true of a machine that exists.
    pub(crate) fn condition(&self, id: &InstanceId) -> Option<&Condition> {
        self.machines.get(id).map(|machine| &machine.condition)
    }

    /// A failure of the machine itself may have consequences until `until`.
    pub(crate) fn trouble(&mut self, id: &InstanceId, until: Micros) {
        if let Some(machine) = self.machines.get_mut(id) {
            let condition = &mut machine.condition;
            condition.troubled_until = condition.troubled_until.max(until);
        }
    }

    pub(crate) fn machine_mut(&mut self, id: &InstanceId) -> Option<&mut SimulatedMachine> {
        self.machines.get_mut(id)
    }

    pub(crate) fn view(&self, id: &InstanceId) -> Option<MachineView> {
        let machine = self.machines.get(id)?;
        let label = self.runners.iter().find(|r| r.instance == *id && r.online);
        Some(MachineView {
            label: label.map(|runner| runner.label.clone()),
            serving: machine.serving.clone(),
            job: self.running_job(machine).map(|job| job.label.clone()),
            seat: self.seat_view(id),
            is_dirty: machine.condition.is_dirty,
            notice_at: machine.condition.notice_at,
        })
    }

    /// Whether anything has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn stop_heartbeats(&mut self, id: &InstanceId, until: Micros) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.heartbeats_stopped_until = until;
        }
    }

    pub(crate) fn deny(&mut self, id: &InstanceId, until: Micros) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.denied_until = until;
        }
    }

    /// Whether the store refuses the agent of a machine.
    pub(crate) fn is_denied(&self, id: &InstanceId, now: Micros) -> bool {
        self.machines.get(id).is_some_and(|machine| now < machine.denied_until)
    }

    pub(crate) fn has_stopped_heartbeats(&self, id: &InstanceId, now: Micros) -> bool {
        self.machines.get(id).is_some_and(|machine| now < machine.heartbeats_stopped_until)
    }

    pub(crate) fn set_serving(&mut self, id: &InstanceId, label: Option<&Label>) {
        self.changed = true;
        if let Some(machine) = self.machines.get_mut(id) {
            machine.serving = label.cloned();
            machine.condition.is_dirty |= label.is_some();
        }
    }

    /// Lists a runner, in place of an earlier one of the same machine. It listens for jobs if the
    /// machine's agent still serves that label.
    pub(crate) fn register(&mut self, id: &InstanceId, label: &Label, now: Micros) {
        self.changed = true;
        let Some(machine) = self.machines.get_mut(id) else { return };
        // One that its agent has given up meanwhile may still be listed, beside the runner that follows it.
        let online = machine.serving.as_ref() == Some(label);
        if online {
            machine.condition.registered = Some((label.clone(), now));
            machine.condition.own_label = None;
            self.remove_own(id);
            self.runners.retain(|runner| runner.instance != *id);
        }
        self.registrations += 1;
        let name = format!("{id}-{}", self.registrations);
        self.runners.push(Runner { name, instance: id.clone(), label: label.clone(), online });
    }

    pub(crate) fn set_online(&mut self, id: &InstanceId, online: bool) {
        self.changed = true;
        for runner in self.runners.iter_mut().filter(|runner| runner.instance == *id) {
            runner.online = online;
        }
    }

    /// Whether the machine's runner listens for jobs.
    pub(crate) fn is_online(&self, id: &InstanceId) -> bool {
        self.runners.iter().any(|runner| runner.instance == *id && runner.online)
    }

    pub(crate) fn deregister(&mut self, id: &InstanceId) {
        self.runners.retain(|runner| runner.instance != *id);
        self.remove_own(id);
    }

    /// Removes a runner from the list, unless it has a job. Returns whether it is gone.
    pub(crate) fn remove_runner(&mut self, name: &str, now: Micros) -> bool {
        self.runners.retain(|runner| runner.name != name);
        self.remove_own_runner(name, now)
    }

    pub(crate) fn runners(&self, now: Micros) -> Vec<ListedRunner> {
        let listed = |runner: &Runner| ListedRunner {
            name: runner.name.clone(),
            instance: runner.instance.clone(),
            number: runner.name.rsplit('-').next().and_then(|it| it.parse().ok()).unwrap_or(0),
            online: runner.online,
        };
        self.runners.iter().map(listed).chain(self.own_runners_listed(now)).collect()
    }

    pub(crate) fn queue(&mut self, label: impl Into<Label>, takes: Micros, now: Micros) {
        let (label, own, state) = (label.into(), None, JobState::Queued);
        self.jobs.push(Job { label, own, takes, queued_at: now, state, failed_on: None });
    }

    /// Starts queued jobs on listening runners. Returns them with their machines.
    pub(crate) fn assign(&mut self) -> Vec<(usize, InstanceId)> {
        let mut taken = Vec::new();
        for at in 0..self.jobs.len() {
            if self.jobs[at].state != JobState::Queued || self.jobs[at].own.is_some() {
                continue;
            }
            let free = |runner: &&Runner| {
                let machine = self.machines.get(&runner.instance);
                runner.online
                    && runner.label == self.jobs[at].label
                    && machine.is_some_and(|machine| machine.job.is_none())
            };
            let Some(runner) = self.runners.iter().find(free) else { continue };
            let id = runner.instance.clone();
            self.jobs[at].state = JobState::On(id.clone());
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.job = Some(at);
                machine.condition.has_worked = true;
            }
            self.changed = true;
            taken.push((at, id));
        }
        taken
    }

    pub(crate) fn job(&self, at: usize) -> &Job {
        &self.jobs[at]
    }

    pub(crate) fn end_job(&mut self, at: usize) {
        if let JobState::On(id) | JobState::InHook(id, _) = &self.jobs[at].state
            && let Some(machine) = self.machines.get_mut(id)
        {
            machine.job = None;
        }
        self.jobs[at].state = JobState::Over;
    }

    /// Ends the job of a machine whose runner is gone. It is not queued again.
    pub(crate) fn lose_job(&mut self, id: &InstanceId) {
        if let Some(at) = self.machines.get(id).and_then(|machine| machine.job) {
            self.end_job(at);
            self.jobs[at].failed_on = Some(id.clone());
        }
    }

    /// The agent of a machine knows that the provider will take the machine away.
    pub(crate) fn interrupt(&mut self, id: &InstanceId, now: Micros) {
        self.interrupted.insert(id.clone());
        if let Some(machine) = self.machines.get_mut(id) {
            machine.condition.notice_at.get_or_insert(now);
        }
    }

    pub(crate) fn is_interrupted(&self, id: &InstanceId) -> bool {
        self.interrupted.contains(id)
    }

    /// The jobs of a run that have failed, with their numbers and machines.
    pub(crate) fn failed_jobs(&self, run: &RunId) -> Vec<FailedJob> {
        let failed = (0..).zip(&self.jobs).filter(|(_, job)| job.label.run == *run);
        let failed = failed.filter(|(_, job)| job.failed_on.is_some());
        failed.map(|(id, job)| FailedJob { id, instance: job.failed_on.clone() }).collect()
    }

    /// Runs jobs of a completed run again. Returns whether the run has completed.
    pub(crate) fn rerun(&mut self, run: &RunId, what: Rerun, now: Micros) -> bool {
        if !self.has_completed(run) {
            return false;
        }
        for (id, job) in (0..).zip(&mut self.jobs) {
            let is_meant = what == Rerun::FailedJobs || what == Rerun::Job(id);
            if job.label.run == *run && is_meant && job.failed_on.take().is_some() {
                (job.state, job.queued_at) = (JobState::Queued, now);
            }
        }
        self.rerun.push(run.clone());
        true
    }

    pub(crate) fn take_rerun(&mut self) -> Vec<RunId> {
        std::mem::take(&mut self.rerun)
    }

    /// Cancels the queued jobs of a run, or of all runs.
    pub(crate) fn cancel(&mut self, run: Option<&RunId>) {
        for job in self.jobs.iter_mut().filter(|job| job.state == JobState::Queued) {
            if run.is_none_or(|run| job.label.run == *run) {
                job.state = JobState::Over;
            }
        }
    }

    pub(crate) fn is_done(&self, run: &RunId) -> bool {
        self.jobs.iter().filter(|job| job.label.run == *run).all(|job| job.state == JobState::Over)
    }

    /// Whether a run has ever had a job.
    pub(crate) fn has_jobs(&self, run: &RunId) -> bool {
        self.jobs.iter().any(|job| job.label.run == *run)
    }

    /// The labels of runs with jobs that have been queued since before `time`.
    pub(crate) fn waiting_since(&self, time: Timestamp) -> BTreeSet<Label> {
        let waits = |job: &&Job| {
            job.own.is_none() && job.state == JobState::Queued && timestamp(job.queued_at) < time
        };
        self.jobs.iter().filter(waits).map(|job| job.label.clone()).collect()
    }

    /// The workflow of a run has begun, or begins again.
    pub(crate) fn open(&mut self, run: &RunId) {
        self.completed.insert(run.clone(), false);
    }

    /// The workflow of a run has completed. A run with a queued job is open nevertheless.
    pub(crate) fn complete(&mut self, run: &RunId) {
        self.completed.insert(run.clone(), true);
    }

    /// Whether a run has completed. One that the forge does not know has not.
    pub(crate) fn has_completed(&self, run: &RunId) -> bool {
        self.completed.get(run) == Some(&true) && self.is_done(run)
    }

    /// The open runs, with or without their waiting jobs.
    pub(crate) fn open_runs(&self, lists_waiting_jobs: bool) -> OpenRuns {
        let open = self.completed.iter().filter(|(_, completed)| !**completed);
        let mut runs: BTreeSet<RunId> = open.map(|(run, _)| run.clone()).collect();
        let unfinished = self.jobs.iter().filter(|job| job.state != JobState::Over);
        runs.extend(unfinished.map(|job| job.label.run.clone()));
        let open = |run| {
            let waiting = lists_waiting_jobs.then(|| self.waiting_jobs(&run));
            OpenRun { run, waiting }
        };
        OpenRuns { runs: runs.into_iter().map(open).collect(), is_partial: false }
    }

    pub(crate) fn waiting_jobs(&self, run: &RunId) -> WaitingJobs {
        let mut waiting = WaitingJobs::new();
        let waits = |job: &&Job| job.state == JobState::Queued && job.label.run == *run;
        for job in self.jobs.iter().filter(waits) {
            *match &job.own {
                None => waiting.labels.entry(job.label.clone()).or_default(),
                Some(own) => waiting.machine_labels.entry(own.clone()).or_default(),
            } += 1;
        }
        waiting
    }
}
