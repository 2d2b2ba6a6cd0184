//! What happens to machines that are registered under labels of their own.

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::{provision, refresh};
use ondeck_core::ports::Store;

use super::{Harness, PROBE, ScheduledAction, run_id};
use crate::agent_machine::TROUBLE;
use crate::audit::Listed;
use crate::faults::Fault;
use crate::kernel::{Micros, Pid, digest, timestamp};
use crate::plan::SECOND;
use crate::process_ports::{TOO_MANY_REQUESTS, demand_of, has_a_job, status_of};
use crate::simulated_machines::{HOOK_WAITS, Hooked, SimulatedMachines};
use crate::world::at_once;

/// The run whose jobs name labels of machines that it was not given.
pub(super) const INTRUDER: &str = "intruder";

impl Harness {
    /// Lets machines register while they are idle, from now on.
    pub(crate) fn register_idle_machines(&self) {
        let setting = [("runner-label".to_owned(), "machine".to_owned())].into();
        at_once(self.world.store.put_settings(&setting)).expect("an in-memory store");
    }

    /// Queues a job under the label of a machine, or else under that of its run.
    pub(super) fn queue(&mut self, own: Option<MachineLabel>, label: Label, takes: Micros) {
        let now = self.kernel.now();
        match own {
            Some(own) => self.world.machines().queue_for(own, label, takes, now),
            None => self.world.machines().queue(label, takes, now),
        }
    }

    /// One of the labels that a run was given before; `None` if it was given none.
    pub(super) fn old_label(&mut self, run: &str) -> Option<MachineLabel> {
        let labels = self.runs.get(run).map(|known| &known.own_labels)?;
        let drawn = digest(&[&self.plan.seed, &"old label", &run, &self.kernel.now()]);
        let at = usize::try_from(drawn).unwrap_or_default().checked_rem(labels.len())?;
        self.kernel.count(Fault::OldLabel);
        labels.get(at).cloned()
    }

    /// The labels of machines that a provision was given. They are remembered.
    pub(super) fn given_labels(
        &mut self,
        run: &str,
        outcome: &provision::Outcome,
    ) -> Vec<MachineLabel> {
        let labels = outcome.instances.iter();
        let labels: Vec<MachineLabel> =
            labels.filter_map(|one| MachineLabel::new(one.label.as_str()).ok()).collect();
        if !labels.is_empty() {
            let stored = demand_of(&self.world, &outcome.label);
            self.world.audit().gives_labels(&labels, stored.as_ref());
        }
        let known = self.runs.entry(run.to_owned()).or_default();
        known.own_labels.extend(labels.iter().cloned());
        labels
    }

    /// Lets listeners end, gives jobs to those that listen, and lets jobs in or refuses them.
    pub(super) fn assign_own(&mut self) {
        self.world.end_dead_listeners();
        let now = self.kernel.now();
        if self.world.machines().assign_own(now) {
            self.schedule(now + HOOK_WAITS, ScheduledAction::EndWait);
        }
        let settled = self.world.machines().settle_hooks(now);
        for hooked in settled {
            match hooked {
                Hooked::LetIn(job, id) => self.let_in(job, &id),
                Hooked::Refused(job, id) => self.refused(job, &id),
            }
        }
    }

    fn let_in(&mut self, job: usize, id: &InstanceId) {
        self.tally.jobs += 1;
        let status = status_of(&self.world, id);
        let (takes, label) = {
            let machines = self.world.machines();
            (machines.job(job).takes, machines.job(job).label.clone())
        };
        let now = self.kernel.true_time();
        self.world.audit().let_in(id, &label, &status);
        self.world.audit().job_starts(id, &self.world.machines(), now);
        self.kernel.note("the world", || format!("job {job} of {label} is let in on {id}"));
        self.schedule(self.kernel.now() + takes, ScheduledAction::EndJob(job));
    }

    fn refused(&mut self, job: usize, id: &InstanceId) {
        let refused = self.world.machines().job(job).clone();
        self.kernel.note("the world", || format!("job {job} of {} is refused", refused.label));
        if let Some(own) = &refused.own {
            self.world.audit().refused(id, &refused.label, own);
        }
        self.end_job(job);
    }

    /// Selects a machine that listens under a label of its own, by a number of any size.
    fn nth_seat(&self, nth: usize) -> Option<InstanceId> {
        let machines = self.world.machines();
        let has_seat = |id: &InstanceId| machines.view(id).is_some_and(|it| it.seat.is_some());
        let all: Vec<InstanceId> = machines.alive().into_iter().filter(has_seat).collect();
        all.get(nth.checked_rem(all.len())?).cloned()
    }

    pub(super) fn delete_runner(&mut self, nth: usize) {
        let Some(id) = self.nth_seat(nth) else { return };
        let until = self.kernel.now() + TROUBLE;
        if self.world.machines().delete_own(&id) {
            self.kernel.count(Fault::RunnerDeleted);
            self.world.machines().trouble(&id, until);
        }
    }

    pub(super) fn kill_listener(&mut self, nth: usize) {
        let Some(id) = self.nth_seat(nth) else { return };
        self.kernel.count(Fault::RunnerDies);
        let now = self.kernel.now();
        self.world.machines().trouble(&id, now + TROUBLE);
        self.world.machines().kill_listener(&id, now);
    }

    /// When a fault that begins now and lasts for `span` ends: with all other faults at the latest.
    fn end_of_fault(&self, span: Micros) -> Micros {
        (self.kernel.now() + span).min(self.plan.faults_end_at)
    }

    pub(super) fn stop_notes(&mut self, nth: usize, span: Micros) {
        let Some(id) = self.nth_seat(nth) else { return };
        self.kernel.count(Fault::NotesStop);
        let until = self.end_of_fault(span);
        self.world.machines().stop_notes(&id, until);
        self.world.machines().trouble(&id, until + TROUBLE);
    }

    pub(super) fn cut_off(&mut self, nth: usize, span: Micros) {
        let Some(id) = self.nth(nth) else { return };
        self.kernel.count(Fault::ForgeUnreachable);
        let until = self.end_of_fault(span);
        self.world.machines().cut_off(&id, until);
        self.world.machines().trouble(&id, until + TROUBLE);
        // Its listener may have been deleted meanwhile, and learns it then.
        self.schedule(until, ScheduledAction::EndWait);
    }

    pub(super) fn refuse_version(&mut self, span: Micros) {
        self.kernel.count(Fault::VersionRefused);
        let until = self.end_of_fault(span);
        let mut machines = self.world.machines();
        machines.refuse_version(until);
        for id in machines.alive() {
            machines.trouble(&id, until + TROUBLE);
        }
    }

    /// A job names the label of a machine that its run was not given: a run that has asked for nothing, or
    /// one that has machines of its own.
    pub(super) fn queue_foreign_job(&mut self, nth: usize) {
        let Some(id) = self.nth_seat(nth) else { return };
        let seat = self.world.machines().view(&id).and_then(|view| view.seat);
        let owner = seat.as_ref().and_then(|seat| seat.owner.clone());
        let known = self.runs.keys().map(|run| run_id(run));
        let others: Vec<RunId> =
            known.filter(|run| Some(run) != owner.as_ref() && run.as_str() != PROBE).collect();
        let drawn = digest(&[&self.plan.seed, &"foreign job", &self.kernel.now()]);
        let at = usize::try_from(drawn / 2).unwrap_or_default().checked_rem(others.len());
        let other = at.filter(|_| drawn.is_multiple_of(2)).and_then(|at| others.get(at));
        let run = other.cloned().unwrap_or_else(|| run_id(INTRUDER));
        self.kernel.count(Fault::ForeignJob);
        self.queue(seat.map(|seat| seat.label), Label::from(&run), 10 * SECOND);
    }

    /// Checks what a successful refresh has left on the forge's list, unless it says that the forge limits
    /// requests.
    pub(super) fn must_unlist(&self, pid: Pid, outcome: &refresh::Outcome, began: Timestamp) {
        let is_limited = |warning: &String| warning.contains(TOO_MANY_REQUESTS);
        if outcome.failure.is_some() || outcome.warnings.iter().any(is_limited) {
            return;
        }
        let now = self.kernel.now();
        let machines = self.world.machines();
        let was = now.saturating_sub(now_since(self.kernel.true_time(), began));
        let free = machines.own_runners_free(was);
        let mut free: Vec<_> =
            machines.own_runners_free(now).into_iter().filter(|it| free.contains(it)).collect();
        // One that had a job in between, so that the forge refused to remove it.
        free.retain(|(name, ..)| !outcome.warnings.contains(&has_a_job(name)));
        let listed = free.into_iter().map(|(name, instance, number)| Listed {
            gone_since: machines.removed_at(&instance).map(timestamp),
            status: status_of(&self.world, &instance),
            name,
            instance,
            number,
        });
        let listed: Vec<Listed> = listed.collect();
        drop(machines);
        self.world.audit().refresh_unlists(pid, &listed, began);
    }

    /// Checks that jobs which were waiting when a refresh began for labels that their runs were given have
    /// machines.
    pub(super) fn labels_must_work(&self, began: Timestamp, can_be: impl Fn(&RunId) -> bool) {
        let mut waiting = self.waiting_for_own(&self.world.machines(), began);
        waiting.retain(|(_, label)| can_be(&label.run));
        self.world.audit().labels_work(&waiting);
    }

    /// The labels of machines that jobs have been waiting for since before `began`, of those that their runs
    /// were given, each with the label of the run.
    pub(super) fn waiting_for_own(
        &self,
        machines: &SimulatedMachines,
        began: Timestamp,
    ) -> Vec<(MachineLabel, Label)> {
        let is_given = |(own, label): &(MachineLabel, Label)| {
            let demand = demand_of(&self.world, label);
            demand.is_some_and(|demand| demand.labels.contains(own))
        };
        machines.waiting_for_machines_since(began).into_iter().filter(is_given).collect()
    }
}

/// The time between two moments.
fn now_since(now: Timestamp, began: Timestamp) -> Micros {
    Micros::try_from(now.since(began).as_micros()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ondeck_core::model::failure::{Failure, FailureKind};

    use super::*;
    use crate::audit::Invariant;
    use crate::kernel::Kernel;
    use crate::plan::Plan;

    /// Two refreshes have this outcome, and leave the runner of a machine on the list that is long gone.
    fn left(outcome: &refresh::Outcome) -> Option<Invariant> {
        let kernel = Arc::new(Kernel::new(1, false, false));
        let harness = Harness::new(&Plan::default(), kernel.clone());
        let id = InstanceId::new("i-1").unwrap();
        let label = MachineLabel::new(format!("m{}", "4".repeat(32))).unwrap();
        harness.world.machines().register_own(&id, &label, 4);
        harness.world.machines().remove(&id, 50 * SECOND);
        kernel.advance_to(300 * SECOND);
        for _ in 0..2 {
            harness.must_unlist(Pid(1), outcome, timestamp(200 * SECOND));
        }
        harness.world.audit().violation().map(|violation| violation.invariant)
    }

    #[test]
    fn a_refresh_that_warns_of_something_else_removes_runners_nevertheless() {
        let warns = |warning: &str| {
            let warnings = vec![warning.to_owned()];
            left(&refresh::Outcome { warnings, ..refresh::Outcome::default() })
        };
        let violated = Some(Invariant::Unlisted);
        assert_eq!(left(&refresh::Outcome::default()), violated);
        assert_eq!(warns("1 of 1 idle machines are not registered"), violated);
        assert_eq!(warns(&has_a_job("i-1-own-40")), violated, "another one has a job");
        assert_eq!(warns(&has_a_job("i-1-own-4")), None, "the forge refuses to remove it");
        assert_eq!(warns(TOO_MANY_REQUESTS), None, "the forge limits requests");
        let failure = Some(Failure::new(FailureKind::Unexpected, "the forge does not answer"));
        assert_eq!(left(&refresh::Outcome { failure, ..refresh::Outcome::default() }), None);
    }
}
