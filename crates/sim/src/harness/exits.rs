//! What the harness checks and schedules when a mode exits.

use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::{self, MachineSource, SourcePolicy};
use ondeck_core::modes::{refresh, release};
use ondeck_core::ports::{Compute, Store};

use super::{Harness, PROBE, ProvisionCall, ScheduledAction, run_id};
use crate::audit::{HandOver, Invariant, SKEW};
use crate::faults::Fault;
use crate::kernel::Pid;
use crate::plan::SECOND;
use crate::process::{Exit, ProcessKind};
use crate::process_ports::registered;
use crate::world::at_once;

/// How long GitHub waits after it has told a step to stop, before it ends it.
const STOPS_WITHIN: Duration = Duration::from_millis(7_500);

impl Harness {
    pub(super) fn exited(&mut self, pid: Pid, kind: &ProcessKind, exit: Exit) {
        let name = format!("{kind:?}");
        match (kind, exit) {
            (ProcessKind::Provision(run), Exit::Provisioned(outcome)) => {
                self.kernel.note(&name, || match &outcome.failure {
                    None => "succeeded".to_owned(),
                    Some(failure) => format!("failed: {failure}"),
                });
                self.provisioned(pid, run, &outcome);
            }
            (ProcessKind::Release(run), Exit::Released(result, began, disturbances)) => {
                self.tally.released += 1;
                self.complete(run);
                if let Ok(outcome) = &*result {
                    let lasted = self.kernel.true_time().since(began);
                    self.world.audit().release_reports(pid, outcome, (began, lasted));
                    self.released(run, outcome, (began, disturbances));
                }
                self.kernel
                    .note(&name, || format!("{:?}", result.map(|outcome| outcome.instances)));
            }
            (_, Exit::Operated(result)) => {
                self.kernel.note(&name, || format!("{result:?}"));
                if let Ok(outcome) = &*result {
                    self.world.audit().operator_reports(pid, outcome);
                }
            }
            (_, Exit::Refreshed(result, began)) => {
                self.tally.refreshed += 1;
                let failure = match &*result {
                    Ok(outcome) => outcome.failure.as_ref(),
                    Err(failure) => Some(failure),
                };
                let is_refused = failure.is_some_and(|it| it.kind == FailureKind::InvalidInput);
                self.world.audit().judges_settings(pid, is_refused, failure.is_none());
                if failure.is_none() {
                    let registered = registered(&self.world).into_iter().map(|(id, _)| id);
                    let registered: Vec<InstanceId> = registered.collect();
                    self.world.audit().knows_usual_time(began, &registered);
                }
                self.refresh_must_stop_soon(pid);
                self.refresh_must_end_in_time(began);
                if result.is_err() {
                    self.world.audit().refresh_is_gone(pid, self.kernel.true_time());
                }
                if let Ok(outcome) = &*result {
                    let now = self.kernel.true_time();
                    self.world.audit().renews_credentials(pid, (began, now));
                    if failure.is_none() {
                        self.must_count_right(began);
                        self.must_end_orphans(began);
                    }
                    self.world.audit().refresh_reports(pid, outcome, (began, now));
                    self.world.audit().refresh_rotates(outcome, (began, now));
                    self.attended(outcome, (began, now));
                    self.world.audit().refresh_keeps(pid, &outcome.warnings, now);
                    self.must_unlist(pid, outcome, began);
                    let only_set_up = self.plan.only(Fault::SetUpRefused) && !outcome.set_up;
                    if outcome.failure.is_none() || only_set_up {
                        self.must_be_repaired(began);
                        self.must_be_rescued(outcome, began);
                    }
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

    /// Checks that a successful refresh left no idle machine without a ticket. Machines
    /// that a release may still have been waiting for when the refresh began, by any
    /// clock, are not counted.
    pub(super) fn must_be_repaired(&self, began: Timestamp) {
        let waits = self.plan.settings.get("release-timeout-sec").and_then(|s| s.parse().ok());
        // A call may state up to 50 s.
        let overdue = Duration::from_secs(waits.unwrap_or(120).max(50)) + 2 * SKEW;
        let now = self.kernel.true_time();
        let lost = self.world.store.select(|record| {
            let left = record.threshold.is_some_and(|threshold| threshold > now + SKEW);
            let silent = record.ticketed_at.is_none() && record.updated_at + overdue < began;
            record.state == State::Idle && left && silent
        });
        let longest_lag = Duration::from_micros(self.plan.index_lag);
        let overdue = self.world.store.select(|record| {
            let long_ago = |time: Timestamp| time + longest_lag + SKEW < began;
            let shown = self.world.audit().changed_at(&record.id).is_none_or(long_ago);
            record.state.is_live() && shown && record.threshold.is_some_and(long_ago)
        });
        if let Some(record) = overdue.first() {
            let how = format!("{} is {} past its threshold", record.id, record.state);
            self.world.audit().violated(Invariant::Repaired, how);
        }
        for record in lost {
            let Some(idle) = Instance::<Idle>::believe(&record) else { continue };
            if !self.world.pool.holds(&idle.ticket()) {
                let how = format!("nothing leads to {}, which is idle", record.id);
                self.world.audit().violated(Invariant::Repaired, how);
            }
        }
    }

    /// Checks that a successful refresh has not counted too many machines.
    fn must_count_right(&self, began: Timestamp) {
        let counted = at_once(Store::machine_count(&self.world.store)).ok().flatten();
        if let Some(counted) = counted {
            let existed = self.world.machines().existed_since(began);
            self.world.audit().counts_no_more(began, &counted, &existed);
            let removed = self.world.machines().removals();
            let now = self.kernel.true_time();
            self.world.audit().reserves_no_more(began, &counted, &removed, now);
            self.world.audit().reserves_enough(&counted, &removed, now);
            self.world.audit().drains_what_does_not_fit(began, &counted, now);
        }
    }

    /// Checks that a successful refresh left no machine that has no record and is older than the grace.
    fn must_end_orphans(&self, began: Timestamp) {
        let lag = Duration::from_micros(self.plan.listing_lag);
        let machines = at_once(Compute::machines(&self.world.compute)).unwrap_or_default();
        let orphan = machines.into_iter().find(|machine| {
            let is_old = machine.launched_at + self.plan.grace() + lag + SKEW < began;
            is_old && self.world.store.select(|record| record.id == machine.id).is_empty()
        });
        if let Some(machine) = orphan {
            let how = format!("{} has no record", machine.id);
            self.world.audit().violated(Invariant::Repaired, how);
        }
    }

    /// Checks what a refresh has done about runs.
    fn attended(&self, outcome: &refresh::Outcome, (began, now): (Timestamp, Timestamp)) {
        let machines = self.world.machines();
        let waiting = machines.waiting_since(began);
        let waiting_own = self.waiting_for_own(&machines, began);
        let has_no_job = |label: &&Label| !machines.has_jobs(&label.run);
        if let Some(label) = outcome.stranded.iter().find(has_no_job) {
            let how = format!("a refresh says that jobs of {label} wait, which has none");
            self.world.audit().violated(Invariant::TrueReport, how);
        }
        let waiting = (&waiting, waiting_own.as_slice());
        self.world.audit().refresh_attends(outcome, (began, now), waiting, &machines);
        self.world.audit().refresh_sees_silence(outcome, (began, now), &machines);
    }

    /// Checks that a successful refresh left no run without a machine whose jobs were waiting when
    /// it began. Without faults only, because a rescue may fail.
    fn must_be_rescued(&self, outcome: &refresh::Outcome, began: Timestamp) {
        // Another refresh may be at work for the run.
        let others = self.processes.values().any(|process| process.kind == ProcessKind::Refresh);
        if others || !self.plan.is_clear() || self.world.audit().has_ceiling_since(began) {
            return;
        }
        let now = self.kernel.true_time();
        let rescues = |text: &String| text.is_empty() || text == "provision";
        if !self.world.audit().texts_since("rescue", began).iter().all(rescues) {
            return;
        }
        let may_launch =
            |run: &RunId| self.runs.get(run.as_str()).is_some_and(|known| known.may_launch);
        // It may have been left to the next one.
        if outcome.warnings.is_empty() {
            self.labels_must_work(began, may_launch);
        }
        let waiting = self.world.machines().waiting_since(began);
        for label in waiting {
            let run = label.run.as_str();
            let can_be = self.runs.get(run).is_some_and(|known| known.may_launch);
            let (took, warnings) = (now.since(began), &outcome.warnings);
            let is_left = self.world.audit().has_no_time_for(&label, took, warnings);
            if can_be && !is_left && self.world.audit().held_under(&label, now).is_empty() {
                let how = format!("the jobs of run {label} wait, and no machine serves it");
                self.world.audit().violated(Invariant::Rescued, how);
            }
        }
    }

    fn provisioned(&mut self, pid: Pid, run: &str, outcome: &provision::Outcome) {
        let Some(call) = self.calls.remove(&pid) else { return };
        let known = self.runs.entry(run.to_owned()).or_default();
        let undisturbed = call.is_alone && known.disturbances == call.disturbances;
        let alone = call.is_first && undisturbed;
        let now = self.kernel.true_time();
        self.world.audit().provision_reports(pid, outcome, (call.began, now));
        if self.plan.calls_work() {
            self.must_stop_soon(&call, now);
            // One that is stopped leaves its tickets to the end of their hold.
            if call.told_to_stop_at.is_none() {
                self.must_put_back(pid);
            }
        }
        let late = self.plan.has_late_requests();
        let Some(failure) = &outcome.failure else {
            self.tally.provisioned += 1;
            self.tally.warm += outcome.count(MachineSource::Warm) as u64;
            if self.world.audit().is_contradictory(&call.ask, call.began) {
                let how = format!("run {run} was served with {:?}", call.ask.times);
                self.world.audit().violated(Invariant::Contradiction, how);
            }
            let hand_over = HandOver {
                outcome,
                ask: &call.ask,
                began: call.began,
                now,
                is_first: call.is_first,
                late,
            };
            if alone || undisturbed && !late {
                let machines = self.world.machines();
                self.world.audit().succeeded(hand_over);
                self.world.audit().handed_over(hand_over, &machines);
            }
            let (jobs, seconds, ends) = match (self.plan.long_runs, self.plan.long_jobs) {
                // Longer than the notice of an interruption.
                (_, true) => (outcome.requested * 2, 125..200, 430..450),
                (true, _) => (outcome.requested * 4, 40..100, 350..450),
                _ => (outcome.requested, 3..60, 90..150),
            };
            let own_labels = self.given_labels(run, outcome);
            let mut own_labels = own_labels.into_iter().cycle();
            for _ in 0..jobs {
                let takes = self.random_in(seconds.clone()) * SECOND;
                let label = call.ask.label(&run_id(run));
                self.queue(own_labels.next(), label, takes);
            }
            // A workflow ends even if its jobs fail.
            self.schedule_within(ends, ScheduledAction::Release(run.to_owned()));
            return;
        };
        self.tally.refused += 1;
        let is_contradictory = self.world.audit().is_contradictory(&call.ask, call.began);
        let is_refused = failure.kind == FailureKind::InvalidInput;
        if is_refused != is_contradictory && (is_refused || self.plan.is_clear()) {
            let how = format!("run {run} asked for {:?} and got: {failure}", call.ask.times);
            self.world.audit().violated(Invariant::Contradiction, how);
        }
        let at_ceiling = failure.kind == FailureKind::AtCeiling
            && self.world.audit().has_ceiling_since(call.began);
        let at_cap =
            failure.kind == FailureKind::AtSpendCap && self.world.audit().has_cap_since(call.began);
        if at_ceiling {
            let lasted = now.since(call.began);
            self.world.audit().waits_for_room(&call.ask, call.began, lasted);
            let counted = self.world.audit().counted_before(call.began);
            if let Some(counted) = counted {
                let existed = self.world.machines().existed_since(counted);
                self.world.audit().refused_without_room(&call.ask, call.began, &existed);
            }
        }
        // A run that is released while it asks again loses what it has.
        let is_served = run == PROBE || self.plan.is_clear() && undisturbed;
        let must_succeed = is_served && !is_contradictory && !at_ceiling && !at_cap;
        if must_succeed && call.ask.source != SourcePolicy::Pool {
            let how = format!("run {run} was refused without a fault: {failure}");
            self.world.audit().violated(Invariant::Succeeds, how);
        }
        let held = self.world.audit().held_by(&run_id(run), now);
        if alone && !late && outcome.clean_up_failures.is_empty() && !held.is_empty() {
            let how = format!("run {run} was refused, and still has {held:?}");
            self.world.audit().violated(Invariant::AllOrNothing, how);
        }
        self.schedule_release(run, 1..10);
    }

    /// Checks that a provision which was told to stop did so within the time that GitHub gives.
    fn must_stop_soon(&self, call: &ProvisionCall, now: Timestamp) {
        let took = call.told_to_stop_at.map(|told| now.since(told));
        if let Some(took) = took.filter(|took| *took > STOPS_WITHIN) {
            let how = format!("it took {took:?}");
            self.world.audit().violated(Invariant::StopsSoon, how);
        }
    }

    /// Checks the same of a refresh.
    fn refresh_must_stop_soon(&mut self, pid: Pid) {
        let told = self.refresh_stops.remove(&pid).and_then(|(_, told)| told);
        let took = told.map(|told| self.kernel.true_time().since(told));
        if let Some(took) = took.filter(|took| *took > STOPS_WITHIN && self.plan.calls_work()) {
            let how = format!("a refresh took {took:?}");
            self.world.audit().violated(Invariant::StopsSoon, how);
        }
    }

    /// Checks that a refresh has kept its time limit.
    fn refresh_must_end_in_time(&self, began: Timestamp) {
        let took = self.kernel.true_time().since(began);
        let limit = self.plan.time_limit.filter(|_| self.plan.calls_work());
        if let Some(limit) = limit.filter(|limit| took > *limit) {
            let how = format!("a refresh took {took:?} of {limit:?}");
            self.world.audit().violated(Invariant::StopsSoon, how);
        }
    }

    /// Checks that a provision which has ended hides no ticket.
    fn must_put_back(&self, pid: Pid) {
        let hidden = self.world.pool.hidden();
        self.world.audit().hides_nothing(pid, &hidden);
    }

    /// Checks a release that reached every machine: the run has none any more, unless another
    /// process has given it one meanwhile.
    fn released(
        &mut self,
        run: &str,
        outcome: &release::Outcome,
        (began, disturbances): (Timestamp, u32),
    ) {
        let known = self.runs.entry(run.to_owned()).or_default();
        let undisturbed = known.disturbances == disturbances && known.at_work == 0 && !known.rerun;
        if !undisturbed || self.plan.has_late_requests() {
            return;
        }
        // A clock that is ahead expires machines a little later than now.
        let mut held = self.world.audit().held_by(&run_id(run), self.kernel.true_time() + SKEW);
        // A rescue may have given it one since.
        held.retain(|id| self.world.audit().owned_since(id).is_none_or(|since| since < began));
        let is_excused = |one: &release::Released| {
            use release::Disposition::{NotReached, Superseded};
            matches!(one.disposition, Superseded(_) | NotReached(_))
        };
        if !held.is_empty() && !outcome.instances.iter().any(is_excused) {
            let how = format!("run {run} was released, and still has {held:?}");
            self.world.audit().violated(Invariant::AllOrNothing, how);
        }
    }
}
