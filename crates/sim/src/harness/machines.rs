//! Boots machines, removes them, and ends their jobs.

use std::sync::{Arc, Mutex};

use ondeck_agent::Agent;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::testkit::SeededRandom;

use super::labels::INTRUDER;
use super::{Harness, ScheduledAction, run_id};
use crate::agent_machine::{AgentMachine, TROUBLE};
use crate::faults::Fault;
use crate::kernel::{Pid, digest};
use crate::plan::SECOND;
use crate::process::{Exit, Process, ProcessKind, ProcessOutcome};

impl Harness {
    pub(super) fn boot(&mut self, id: &InstanceId) {
        let restarts = match self.world.machines().machine_mut(id) {
            Some(machine) if machine.agent.is_none() => {
                machine.restarts += 1;
                machine.restarts
            }
            _ => return,
        };
        let crash_at = self.random_crash(Fault::AgentCrash, 300);
        let ports = self.process_ports(&format!("agent {id}#{restarts}"), id.as_str(), crash_at);
        // A restarted agent gets the same notice again.
        let known = self.world.machines().machine_mut(id).and_then(|it| it.interruption_at);
        let mut notice_at = known;
        if known.is_none() && self.injects(Fault::SpotNotice) {
            let at = self.kernel.now() + self.random.u64(0..200) * SECOND;
            notice_at = Some(at);
            self.schedule(at + 120 * SECOND, ScheduledAction::RemoveMachine(id.clone()));
        }
        let (machine_ports, served, own) = (ports.clone(), Mutex::default(), Mutex::default());
        let id_of_machine = id.clone();
        let machine = Arc::new(AgentMachine {
            ports: machine_ports,
            id: id_of_machine,
            notice_at,
            served,
            own,
        });
        let agent = Agent {
            id: id.clone(),
            store: ports.clone(),
            runner: machine.clone(),
            host: machine,
            clock: ports.clone(),
            random: Arc::new(SeededRandom::new(digest(&[&self.plan.seed, &ports.name]))),
        };
        if let Some(machine) = self.world.machines().machine_mut(id) {
            machine.agent = Some(ports.pid);
            machine.interruption_at = notice_at;
        }
        self.kernel.note(&ports.name, || "starts".to_owned());
        let work = async move {
            agent.live().await;
            Exit::Terminated
        };
        self.start(ports.pid, Process::new(ProcessKind::Agent(id.clone()), work));
    }

    pub(super) fn remove_machine(&mut self, id: &InstanceId) {
        self.world.compute.kill(id);
        let agent = self.world.machines().remove(id, self.kernel.now());
        self.kernel.note("the world", || format!("{id} is gone"));
        // The process is dropped without holding a lock, because that cancels its
        // calls in the kernel.
        let Some((pid, process)) = agent.and_then(|pid| Some((pid, self.processes.remove(&pid)?)))
        else {
            return;
        };
        drop(process);
        self.note_outcome(pid, ProcessOutcome::GaveUp);
    }

    pub(super) fn crash(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.note_outcome(pid, ProcessOutcome::Died);
        let kind = process.kind.clone();
        drop(process);
        self.calls.remove(&pid);
        self.no_longer_at_work(&kind);
        match kind {
            ProcessKind::Agent(id) => {
                self.kernel.count(Fault::AgentCrash);
                self.world.machines().trouble(&id, self.kernel.now() + 2 * TROUBLE);
                if let Some(machine) = self.world.machines().machine_mut(&id) {
                    machine.agent = None;
                }
                self.schedule_within(1..15, ScheduledAction::Boot(id));
            }
            ProcessKind::Provision(run) => {
                self.kernel.count(Fault::Crash);
                self.runs.entry(run.clone()).or_default().disturbances += 1;
                self.schedule_release(&run, 5..60);
            }
            ProcessKind::Release(run) => {
                self.kernel.count(Fault::Crash);
                self.complete(&run);
            }
            ProcessKind::Operator => self.kernel.count(Fault::Crash),
            ProcessKind::Refresh => {
                self.kernel.count(Fault::Crash);
                self.world.audit().refresh_is_gone(pid, self.kernel.true_time());
            }
        }
    }

    /// Schedules the release of a run, once. It may never happen, as a fault.
    pub(super) fn schedule_release(&mut self, run: &str, seconds: std::ops::Range<u64>) {
        if self.runs.entry(run.to_owned()).or_default().will_release {
            return;
        }
        if self.injects(Fault::NeverReleased) {
            return self.complete(run);
        }
        self.runs.entry(run.to_owned()).or_default().will_release = true;
        self.schedule_within(seconds, ScheduledAction::Release(run.to_owned()));
    }

    pub(super) fn end_job(&mut self, job: usize) {
        let run = {
            let mut machines = self.world.machines();
            machines.end_job(job);
            machines.job(job).label.run.to_string()
        };
        if run != INTRUDER && self.world.machines().is_done(&run_id(&run)) {
            self.schedule_release(&run, 1..5);
        }
    }
}
