//! Machines: how they come up, go, and what becomes of their jobs.

use std::sync::Arc;

use ondeck_agent::Agent;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::testkit::SeededRandom;

use super::{Act, Harness, run_id};
use crate::faults::Fault;
use crate::kernel::{Pid, digest};
use crate::machine::Rig;
use crate::plan::SECOND;
use crate::process::{Ending, Exit, Process, Task};

impl Harness {
    pub(super) fn boot(&mut self, id: &InstanceId) {
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
            let at = self.kernel.now() + self.random.u64(0..200) * SECOND;
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
            random: Arc::new(SeededRandom::new(digest(&[&self.plan.seed, &wire.name]))),
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

    pub(super) fn die(&mut self, id: &InstanceId) {
        self.world.compute.kill(id);
        let agent = self.world.yard().expire_and_reap(id);
        self.kernel.note("the world", || format!("{id} is gone"));
        // Outside of every lock, since what it was waiting for is cancelled with it.
        let Some((pid, process)) = agent.and_then(|pid| Some((pid, self.processes.remove(&pid)?)))
        else {
            return;
        };
        drop(process);
        self.watch(pid, Ending::GaveUp);
    }

    pub(super) fn crash(&mut self, pid: Pid) {
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
    pub(super) fn leave(&mut self, run: &str, seconds: std::ops::Range<u64>) {
        if self.runs.entry(run.to_owned()).or_default().leaving {
            return;
        }
        if self.befalls(Fault::NeverReleased) {
            return;
        }
        self.runs.entry(run.to_owned()).or_default().leaving = true;
        self.soon(seconds, Act::ReleaseOf(run.to_owned()));
    }

    pub(super) fn job_over(&mut self, job: usize) {
        let run = {
            let mut yard = self.world.yard();
            yard.job_over(job);
            yard.job(job).run.to_string()
        };
        if self.world.yard().is_done(&run_id(&run)) {
            self.leave(&run, 1..5);
        }
    }
}
