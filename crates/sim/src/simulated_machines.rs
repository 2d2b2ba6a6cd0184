//! The machines themselves, what runs on them, and the forge's list of their runners. What is
//! here is the true state, which records may contradict.

use std::collections::{BTreeMap, BTreeSet};

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::ports::{ListedRunner, Machine, WaitingRun};

use crate::kernel::{Micros, Pid};

#[derive(Debug, Default)]
pub(crate) struct SimulatedMachines {
    machines: BTreeMap<InstanceId, Body>,
    born: Vec<InstanceId>,
    reaped: BTreeSet<InstanceId>,
    dying: Vec<InstanceId>,
    runners: Vec<Runner>,
    jobs: Vec<Job>,
    registrations: u32,
    changed: bool,
}

/// The true state of one machine.
#[derive(Debug, Default, Clone)]
pub(crate) struct Body {
    pub(crate) agent: Option<Pid>,
    /// The run that its agent is at work for, from before it registers until it has left.
    pub(crate) belief: Option<RunId>,
    pub(crate) job: Option<usize>,
    pub(crate) restarts: u32,
    heart_stands_until: Micros,
}

#[derive(Debug)]
struct Runner {
    name: String,
    instance: InstanceId,
    run: RunId,
    online: bool,
}

/// A job of a run.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) run: RunId,
    pub(crate) takes: Micros,
    pub(crate) state: JobState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    Queued,
    On(InstanceId),
    Over,
}

/// A machine as one sees it from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// The label under which jobs reach it.
    pub(crate) label: Option<RunId>,
    pub(crate) belief: Option<RunId>,
    /// Whose job is on it.
    pub(crate) job: Option<RunId>,
}

impl SimulatedMachines {
    /// New machines. Those of a repeated launch are there already.
    pub(crate) fn launched(&mut self, machines: &[Machine]) {
        for machine in machines {
            if !self.machines.contains_key(&machine.id) && !self.reaped.contains(&machine.id) {
                self.machines.insert(machine.id.clone(), Body::default());
                self.born.push(machine.id.clone());
            }
        }
    }

    pub(crate) fn newborn(&mut self) -> Vec<InstanceId> {
        std::mem::take(&mut self.born)
    }

    /// Marks existing machines, which the stage then terminates within seconds.
    pub(crate) fn doomed(&mut self, ids: &[InstanceId]) {
        self.dying.extend(ids.iter().filter(|id| self.machines.contains_key(id)).cloned());
    }

    pub(crate) fn dying(&mut self) -> Vec<InstanceId> {
        std::mem::take(&mut self.dying)
    }

    /// Gone: its runner is offline, its job lost. Gives its agent.
    pub(crate) fn expire_and_reap(&mut self, id: &InstanceId) -> Option<Pid> {
        self.lose_job(id);
        self.set_online(id, false);
        self.reaped.insert(id.clone());
        self.machines.remove(id).and_then(|body| body.agent)
    }

    pub(crate) fn alive(&self) -> Vec<InstanceId> {
        self.machines.keys().cloned().collect()
    }

    pub(crate) fn body(&mut self, id: &InstanceId) -> Option<&mut Body> {
        self.machines.get_mut(id)
    }

    pub(crate) fn view(&self, id: &InstanceId) -> Option<View> {
        let body = self.machines.get(id)?;
        let label = self.runners.iter().find(|r| r.instance == *id && r.online);
        Some(View {
            label: label.map(|runner| runner.run.clone()),
            belief: body.belief.clone(),
            job: body.job.map(|job| self.jobs[job].run.clone()),
        })
    }

    /// Whether anything has changed since the last time of asking.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn stop_heart(&mut self, id: &InstanceId, until: Micros) {
        if let Some(body) = self.machines.get_mut(id) {
            body.heart_stands_until = until;
        }
    }

    pub(crate) fn heart_stands_still(&self, id: &InstanceId, now: Micros) -> bool {
        self.machines.get(id).is_some_and(|body| now < body.heart_stands_until)
    }

    pub(crate) fn believe(&mut self, id: &InstanceId, run: Option<&RunId>) {
        self.changed = true;
        if let Some(body) = self.machines.get_mut(id) {
            body.belief = run.cloned();
        }
    }

    /// A runner appears on the list, in place of an earlier one of the machine. It listens if
    /// its machine still has a use for it.
    pub(crate) fn register(&mut self, id: &InstanceId, run: &RunId) {
        self.changed = true;
        let Some(body) = self.machines.get(id) else { return };
        let online = body.belief.as_ref() == Some(run);
        self.runners.retain(|runner| runner.instance != *id);
        self.registrations += 1;
        let name = format!("{id}-{}", self.registrations);
        self.runners.push(Runner { name, instance: id.clone(), run: run.clone(), online });
    }

    pub(crate) fn set_online(&mut self, id: &InstanceId, online: bool) {
        self.changed = true;
        for runner in self.runners.iter_mut().filter(|runner| runner.instance == *id) {
            runner.online = online;
        }
    }

    pub(crate) fn deregister(&mut self, id: &InstanceId) {
        self.runners.retain(|runner| runner.instance != *id);
    }

    pub(crate) fn strike(&mut self, name: &str) {
        self.runners.retain(|runner| runner.name != name);
    }

    pub(crate) fn runners(&self) -> Vec<ListedRunner> {
        let listed = |runner: &Runner| ListedRunner {
            name: runner.name.clone(),
            instance: runner.instance.clone(),
            online: runner.online,
        };
        self.runners.iter().map(listed).collect()
    }

    pub(crate) fn queue(&mut self, run: &RunId, takes: Micros) {
        self.jobs.push(Job { run: run.clone(), takes, state: JobState::Queued });
    }

    /// Jobs that a listening runner takes now.
    pub(crate) fn assign(&mut self) -> Vec<(usize, InstanceId)> {
        let mut taken = Vec::new();
        for at in 0..self.jobs.len() {
            if self.jobs[at].state != JobState::Queued {
                continue;
            }
            let free = |runner: &&Runner| {
                let body = self.machines.get(&runner.instance);
                runner.online
                    && runner.run == self.jobs[at].run
                    && body.is_some_and(|body| body.job.is_none())
            };
            let Some(runner) = self.runners.iter().find(free) else { continue };
            let id = runner.instance.clone();
            self.jobs[at].state = JobState::On(id.clone());
            if let Some(body) = self.machines.get_mut(&id) {
                body.job = Some(at);
            }
            self.changed = true;
            taken.push((at, id));
        }
        taken
    }

    pub(crate) fn job(&self, at: usize) -> &Job {
        &self.jobs[at]
    }

    pub(crate) fn job_over(&mut self, at: usize) {
        if let JobState::On(id) = &self.jobs[at].state
            && let Some(body) = self.machines.get_mut(id)
        {
            body.job = None;
        }
        self.jobs[at].state = JobState::Over;
    }

    /// A job whose machine or runner goes fails, and is not queued again.
    pub(crate) fn lose_job(&mut self, id: &InstanceId) {
        if let Some(at) = self.machines.get(id).and_then(|body| body.job) {
            self.job_over(at);
        }
    }

    /// Cancels the queued jobs of a run, or of all runs: no runner takes them any more.
    pub(crate) fn cancel(&mut self, run: Option<&RunId>) {
        for job in self.jobs.iter_mut().filter(|job| job.state == JobState::Queued) {
            if run.is_none_or(|run| job.run == *run) {
                job.state = JobState::Over;
            }
        }
    }

    pub(crate) fn is_done(&self, run: &RunId) -> bool {
        self.jobs.iter().filter(|job| job.run == *run).all(|job| job.state == JobState::Over)
    }

    pub(crate) fn waiting(&self, served: &BTreeSet<RunId>) -> Vec<WaitingRun> {
        let mut waiting: BTreeMap<RunId, u32> = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.state == JobState::Queued) {
            if !served.contains(&job.run) {
                *waiting.entry(job.run.clone()).or_default() += 1;
            }
        }
        waiting.into_iter().map(|(run, jobs)| WaitingRun { run, jobs }).collect()
    }
}
