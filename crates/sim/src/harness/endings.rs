//! What must hold when a call of a mode has come to its end.

use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;

use super::{Act, Harness, PROBE, run_id};
use crate::audit::{Invariant, SKEW};
use crate::plan::SECOND;
use crate::process::{Exit, Task};

impl Harness {
    pub(super) fn exited(&mut self, task: &Task, exit: Exit) {
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
                self.world.audit().broken(Invariant::Repaired, how);
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
        let must = run == PROBE || self.plan.is_clear();
        let late = self.plan.is_late();
        match &outcome.failure {
            None => {
                self.tally.provisioned += 1;
                self.tally.warm +=
                    outcome.count(ondeck_core::modes::provision::MachineSource::Warm) as u64;
                if alone {
                    self.world.audit().succeeded(outcome, late, (began, now));
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
                    self.world.audit().broken(Invariant::Succeeds, how);
                }
                let held = self.world.audit().held_by(&run_id(run), now);
                if alone && !late && outcome.clean_up_failures.is_empty() && !held.is_empty() {
                    let how = format!("run {run} was refused, and still has {held:?}");
                    self.world.audit().broken(Invariant::AllOrNothing, how);
                }
                self.leave(run, 1..10);
            }
        }
    }
}
