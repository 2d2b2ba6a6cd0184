//! Performs the actions that the harness has scheduled.

use std::collections::BTreeMap;

use ondeck_core::model::ids::{InstanceId, ResourceClass};
use ondeck_core::model::record::State;
use ondeck_core::modes::operate::Command;
use ondeck_core::runtime::stop::Stop;

use super::{Harness, ScheduledAction, run_id};
use crate::agent_machine::TROUBLE;
use crate::faults::Fault;
use crate::kernel::Pid;
use crate::plan::{Action, Ask, SECOND};

impl Harness {
    pub(super) fn perform(&mut self, action: ScheduledAction) {
        match action {
            ScheduledAction::Planned(action) => self.perform_planned(action),
            ScheduledAction::FirstRefresh => self.refresh(self.plan.settings.clone()),
            ScheduledAction::Boot(id) => self.boot(&id),
            ScheduledAction::RemoveMachine(id) => self.remove_machine(&id),
            ScheduledAction::EndJob(job) => self.end_job(job),
            ScheduledAction::EndWait => {}
            ScheduledAction::Release(run) => self.release(&run),
        }
    }

    pub(super) fn perform_planned(&mut self, action: Action) {
        let now = self.kernel.now();
        self.kernel.note("the plan", || format!("{action:?}"));
        match action {
            Action::Provision { run, ask } => self.provision(&run, &ask),
            Action::Release { run } => self.release(&run),
            Action::Refresh => self.refresh(BTreeMap::new()),
            Action::RefreshWith(given) => {
                let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
                self.refresh(given.iter().map(owned).collect());
            }
            Action::Stop { run } => {
                if let Some(run) = self.runs.get_mut(&run)
                    && let Some(switch) = &run.stop
                {
                    run.told_to_stop = true;
                    run.disturbances += 1;
                    if let Some(call) = run.last_provision.and_then(|pid| self.calls.get_mut(&pid))
                    {
                        call.told_to_stop_at.get_or_insert(self.kernel.true_time());
                    }
                    switch.raise(Stop::Interrupted);
                    self.kernel.count(Fault::ToldToStop);
                    self.poll_all();
                }
            }
            Action::StopRefresh => self.stop_refreshes(),
            Action::CorruptTicket(class) => {
                let class = ResourceClass::new(class).expect("a sound name");
                self.world.pool.send_raw(&class, "not a ticket");
            }
            Action::Rerun { run } => {
                let suffix = self.runs.get(&run).and_then(|known| known.suffix);
                let label = Ask { suffix, ..Ask::of(1) }.label(&run_id(&run));
                let takes = self.random_in(3..60) * SECOND;
                let own = self.old_label(&run);
                self.queue(own, label, takes);
                self.rerun_by_forge(&run);
            }
            Action::Kill(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::MachineDies);
                    self.world.compute.kill(&id);
                    self.remove_machine(&id);
                }
            }
            Action::Hang(nth, span) => {
                let Some(id) = self.nth(nth) else { return };
                let agent = self.world.machines().machine_mut(&id).and_then(|found| found.agent);
                if let Some(pid) = agent {
                    self.kernel.count(Fault::Hang);
                    self.world.machines().trouble(&id, now + span + TROUBLE);
                    if let Some(machine) = self.world.machines().machine_mut(&id) {
                        machine.condition.frozen_until = now + span;
                    }
                    self.kernel.freeze(pid, now + span);
                }
            }
            Action::StopHeartbeats(nth, span) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::HeartbeatsStop);
                    self.world.machines().stop_heartbeats(&id, now + span);
                    self.world.machines().trouble(&id, now + span + TROUBLE);
                }
            }
            Action::Deny(nth, span) => {
                if let Some(id) = self.nth(nth) {
                    self.kernel.count(Fault::AgentDenied);
                    self.world.machines().deny(&id, now + span);
                    self.world.machines().trouble(&id, now + span + TROUBLE);
                }
            }
            Action::Reassign(nth) => self.reassign(nth),
            Action::DeleteRunner(nth) => self.delete_runner(nth),
            Action::KillListener(nth) => self.kill_listener(nth),
            Action::StopNotes(nth, span) => self.stop_notes(nth, span),
            Action::CutOff(nth, span) => self.cut_off(nth, span),
            Action::RefuseVersion(span) => self.refuse_version(span),
            Action::ForeignJob(nth) => self.queue_foreign_job(nth),
            Action::Drain(None) => self.operate(Command::Drain, Vec::new()),
            Action::Drain(Some(nth)) => {
                if let Some(id) = self.nth(nth) {
                    self.operate(Command::Drain, vec![id]);
                }
            }
            Action::Retire(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.operate(Command::Retire, vec![id]);
                }
            }
            Action::Terminate(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.operate(Command::Terminate, vec![id]);
                }
            }
        }
    }

    /// Jobs of a run are queued again.
    pub(super) fn rerun_by_forge(&mut self, run: &str) {
        let known = self.runs.entry(run.to_owned()).or_default();
        known.rerun = true;
        known.will_release = false;
        known.disturbances += 1;
        self.open(run);
    }

    /// Tells every refresh to stop that is at work, by the other of the two signals.
    fn stop_refreshes(&mut self) {
        let now = self.kernel.true_time();
        for (pid, (switch, told)) in &mut self.refresh_stops {
            if self.processes.contains_key(pid) {
                told.get_or_insert(now);
                switch.raise(Stop::Terminated);
                self.kernel.count(Fault::ToldToStop);
            }
        }
        self.poll_all();
    }

    /// Polls every process, so that a mode that was told to stop notices at once.
    pub(super) fn poll_all(&mut self) {
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.poll_process(pid);
        }
    }

    /// Selects a live machine by a number of any size; `None` if there is none.
    pub(super) fn nth(&self, nth: usize) -> Option<InstanceId> {
        let alive = self.world.machines().alive();
        let at = nth.checked_rem(alive.len())?;
        alive.get(at).cloned()
    }

    /// The operator gives a running machine to another run by editing its record. Does nothing if
    /// its runner does not listen for the owner's jobs, or if its threshold is near.
    pub(super) fn reassign(&mut self, nth: usize) {
        let running = self.world.store.select(|record| {
            let left = record.threshold.map(|t| t.since(self.kernel.true_time()));
            record.state == State::Running
                && !record.is_preserved()
                && left.is_some_and(|left| left.as_secs() > 100)
        });
        let Some(mut record) = running.get(nth % running.len().max(1)).cloned() else { return };
        let serves = self.world.machines().view(&record.id).is_some_and(|view| match view.seat {
            Some(seat) => seat.owner == record.run,
            None => view.label == record.label(),
        });
        if !serves {
            return;
        }
        self.kernel.count(Fault::Reassigned);
        (record.run, record.suffix) = (Some(run_id("by-hand")), None);
        record.updated_at = self.kernel.true_time();
        self.world.store.insert(record.clone());
        self.world.audit().reassigned_by_hand(&record, self.kernel.true_time());
        self.kernel.record_changed(&record.id);
    }
}
