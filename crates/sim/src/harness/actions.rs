//! What the plan has in store.

use std::collections::BTreeMap;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use ondeck_core::runtime::stop::Stop;

use super::{Act, Harness, run_id};
use crate::faults::Fault;
use crate::kernel::Pid;
use crate::plan::{Action, SECOND};

impl Harness {
    pub(super) fn perform(&mut self, act: Act) {
        match act {
            Act::Planned(deed) => self.do_as_planned(deed),
            Act::Boot(id) => self.boot(&id),
            Act::Die(id) => self.die(&id),
            Act::JobOver(job) => self.job_over(job),
            Act::ReleaseOf(run) => self.release(&run),
        }
    }

    pub(super) fn do_as_planned(&mut self, deed: Action) {
        let now = self.kernel.now();
        self.kernel.note("the plan", || format!("{deed:?}"));
        match deed {
            Action::Provision { run, count } => self.provision(&run, count),
            Action::Release { run } => self.release(&run),
            Action::Refresh => self.refresh(BTreeMap::new()),
            Action::RefreshWith(name, value) => {
                self.refresh([(name.to_owned(), value.to_owned())].into());
            }
            Action::Stop { run } => {
                if let Some(run) = self.runs.get_mut(&run)
                    && let Some(switch) = &run.stop
                {
                    run.told_to_stop = true;
                    switch.raise(Stop::Interrupted);
                    self.kernel.count(Fault::ToldToStop);
                    self.wake_modes();
                }
            }
            Action::Rerun { run } => {
                self.runs.entry(run.clone()).or_default().rerun = true;
                let takes = self.roll(3..60) * SECOND;
                self.world.yard().queue(&run_id(&run), takes);
            }
            Action::Kill(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::MachineDies);
                    self.world.compute.kill(&id);
                    self.die(&id);
                }
            }
            Action::Hang(nth, span) => {
                if let Some(pid) = self.nth(nth).and_then(|id| self.world.yard().body(&id)?.agent) {
                    self.kernel.count(Fault::Hang);
                    self.kernel.freeze(pid, now + span);
                }
            }
            Action::StopHeart(nth, span) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::HeartStops);
                    self.world.yard().stop_heart(&id, now + span);
                }
            }
            Action::Reassign(nth) => self.reassign(nth),
        }
    }

    /// Lets every mode act now, so that one that was told to stop notices at once.
    pub(super) fn wake_modes(&mut self) {
        let modes: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in modes {
            self.let_act(pid);
        }
    }

    pub(super) fn nth(&self, nth: usize) -> Option<InstanceId> {
        let alive = self.world.yard().alive();
        let at = nth.checked_rem(alive.len())?;
        alive.get(at).cloned()
    }

    /// The operator edits a record by hand. Only a running machine's record has a visible effect.
    pub(super) fn reassign(&mut self, nth: usize) {
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
        self.world.store.insert(record.clone());
        self.world.audit().gave_by_hand(&record, self.kernel.true_time());
        self.kernel.ring(&record.id);
    }
}
