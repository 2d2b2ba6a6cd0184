//! What the harness checks and schedules when a mode exits.

use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;

use super::{Harness, PROBE, ScheduledAction, run_id};
use crate::audit::{Invariant, SKEW};
use crate::plan::SECOND;
use crate::process::{Exit, ProcessKind};

impl Harness {
    pub(super) fn exited(&mut self, kind: &ProcessKind, exit: Exit) {
        let name = format!("{kind:?}");
        match (kind, exit) {
            (ProcessKind::Provision(run), Exit::Provisioned(outcome)) => {
                self.kernel.note(&name, || match &outcome.failure {
                    None => "succeeded".to_owned(),
                    Some(failure) => format!("failed: {failure}"),
                });
                self.provisioned(run, &outcome);
            }
            (ProcessKind::Release(_), Exit::Released(result)) => {
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

    /// Checks that a successful refresh left no idle machine without a ticket. Machines
    /// that a release may still have been waiting for when the refresh began, by any
    /// clock, are not counted.
    pub(super) fn must_be_repaired(&self, began: Timestamp) {
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
                self.world.audit().violated(Invariant::Repaired, how);
            }
        }
    }

    pub(super) fn provisioned(
        &mut self,
        run: &str,
        outcome: &ondeck_core::modes::provision::Outcome,
    ) {
        let known = self.runs.entry(run.to_owned()).or_default();
        let alone =
            known.provisions == 1 && known.releases == 0 && !known.told_to_stop && !known.rerun;
        let now = self.kernel.true_time();
        let began = known.began.unwrap_or(now);
        let must_succeed = run == PROBE || self.plan.is_clear();
        let late = self.plan.has_late_requests();
        match &outcome.failure {
            None => {
                self.tally.provisioned += 1;
                self.tally.warm +=
                    outcome.count(ondeck_core::modes::provision::MachineSource::Warm) as u64;
                if alone {
                    self.world.audit().succeeded(outcome, late, (began, now));
                }
                for _ in 0..outcome.requested {
                    let takes = self.random_in(3..60) * SECOND;
                    self.world.machines().queue(&run_id(run), takes);
                }
                // A workflow ends even if its jobs fail.
                self.schedule_within(90..150, ScheduledAction::Release(run.to_owned()));
            }
            Some(failure) => {
                self.tally.refused += 1;
                if must_succeed {
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
        }
    }
}
