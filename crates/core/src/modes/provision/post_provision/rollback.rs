//! Rollback, after a failure that is not the fault of the claimed machines: new machines are
//! terminated. Claimed ones return to the pool by the same handshake as in release, because their
//! runners may be registered for this run.
//!
//! The store tells which machines these are. The flow may have been dropped, by a signal or by
//! another worker's failure, while a claim was on its way or its checks were not over.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::lifecycle::{Claimed, Created, Idle, Instance, Pending, Running};
use crate::model::ids::InstanceId;
use crate::model::record::Record;
use crate::model::signal::INTERRUPTED;
use crate::modes::handshake::{Handshake, Returned, give_back, idle_time_given_back};
use crate::modes::plane::NotCommitted;
use crate::modes::provision::Attempt;

use super::Progress;
use super::touched::{drop_spent_tickets, recorded, undo_launches};

/// The reason in events and logs.
const WHY: &str = "the run could not be served";

/// How long a write whose answer was not awaited may take to arrive.
const LATE_WRITE: Duration = Duration::from_millis(200);

/// Returns claimed machines to the pool and terminates created ones. Never fails: what could not be
/// done is among the failures of the result.
pub(super) async fn roll_back(attempt: &Attempt<'_>, done: &Progress) {
    let handshake = Handshake::new(attempt.plane, &attempt.times, attempt.holdings.touched().len());
    let undo = Undo { attempt, handshake, done };
    join(undo.all(), drop_spent_tickets(attempt)).await;
}

struct Undo<'a> {
    attempt: &'a Attempt<'a>,
    handshake: Handshake<'a>,
    done: &'a Progress,
}

impl Undo<'_> {
    /// Looks a second time for touched machines that do not belong to the run: the write that claims
    /// one may still be on its way.
    async fn all(&self) {
        let touched = self.attempt.holdings.touched();
        let records = self.of_run(&touched).await;
        let seen: BTreeSet<InstanceId> = records.iter().flatten().map(|r| r.id.clone()).collect();
        let launches = undo_launches(self.attempt, "rolled back", &seen, self.done);
        let undo = self.undo(records.as_deref().unwrap_or_default());
        let ((), handed_over) = join(undo, launches).await;
        join_all(handed_over.iter().map(|record| self.give_back(record))).await;
        let missing: BTreeSet<InstanceId> = touched.difference(&seen).cloned().collect();
        if records.is_some() && !missing.is_empty() {
            self.attempt.plane.clock.sleep(LATE_WRITE).await;
            self.undo(&self.of_run(&missing).await.unwrap_or_default()).await;
        }
    }

    /// The records of these machines that the run owns; `None` if the store does not answer.
    async fn of_run(&self, touched: &BTreeSet<InstanceId>) -> Option<Vec<Record>> {
        if touched.is_empty() {
            return Some(Vec::new());
        }
        recorded(self.attempt, touched)
            .await
            .inspect_err(|error| {
                self.done.failed(format!(
                    "claimed machines were not returned, the run's release does that: {error}"
                ));
            })
            .ok()
    }

    async fn undo(&self, records: &[Record]) {
        let returns = join_all(records.iter().map(|record| self.give_back(record)));
        join(returns, self.terminate_created(records)).await;
    }

    /// One that an activation on its way has made running meanwhile goes to the pool instead.
    async fn terminate_created(&self, records: &[Record]) {
        let created: Vec<Instance<Created>> =
            records.iter().filter_map(Instance::believe).collect();
        let retired = self.attempt.plane.retire_all(&created, WHY).await;
        let ended = created.iter().map(Instance::id).filter(|id| retired.ended(id));
        self.done.terminated(ended.cloned());
        self.done.not_terminated(&retired.failed);
        let run = Some(&self.attempt.request.run);
        let ours = retired.alive.iter().filter(|record| record.run.as_ref() == run);
        join_all(ours.map(|record| self.give_back(record))).await;
    }

    /// Returns one machine to the pool, if it is claimed or, by a commit of this attempt, running.
    async fn give_back(&self, record: &Record) {
        let Some(change) = self.idle_again(record).await else { return };
        match self.attempt.plane.apply(change).await {
            Ok(idle) => self.hand_over(&idle).await,
            Err(NotCommitted::Refused(refused)) => {
                let ours = refused.found.as_ref().filter(|found| found.run == record.run);
                match ours {
                    // A commit that was on its way has arrived.
                    Some(found) if found.state != record.state => {
                        Box::pin(self.give_back(found)).await;
                    }
                    // Its threshold has passed.
                    Some(_) => self.done.failed(refused.to_string()),
                    // The run's release was faster.
                    None => {}
                }
            }
            Err(NotCommitted::Unreachable(error)) => {
                self.done.failed(format!("{} was not given back: {error}", record.id));
            }
        }
    }

    async fn idle_again(&self, record: &Record) -> Option<Pending<Idle>> {
        let (plane, times) = (self.attempt.plane, &self.attempt.times);
        if let Some(claimed) = Instance::<Claimed>::believe(record) {
            let change = give_back(plane, &claimed, idle_time_given_back(times)).await;
            return Some(change.because(WHY));
        }
        let running = Instance::<Running>::believe(record)?;
        let now = plane.now();
        // A refresh may have handed it to the run before this attempt could, so that it had a job.
        let change = match self.attempt.holdings.has_handed_over() {
            true => running.release_unused(now, times.idle_time),
            false => running.release(now, times.idle_time),
        };
        Some(change.because(WHY))
    }

    async fn hand_over(&self, idle: &Instance<Idle>) {
        let id = idle.id();
        self.done.returning(id);
        let run = &self.attempt.request.run;
        let returned = self.handshake.take_back_unless_busy(idle, run).await;
        self.done.answered(id);
        match returned {
            Ok(Ok(Returned::Pooled { .. } | Returned::Superseded(_))) => self.done.returned(id),
            Ok(Ok(Returned::Terminated { .. })) => self.done.terminated([id.clone()]),
            Ok(Ok(Returned::Interrupted { .. })) => {
                self.done.failed(format!("{id} was expired: {INTERRUPTED}"));
            }
            Ok(Ok(Returned::Expired(why))) => {
                self.done.failed(format!("{id} was expired: {why}"));
            }
            // Refresh hands it to the run again, which its release then ends.
            Ok(Err(_)) => self.done.failed(format!("{id} has a job of the run, which keeps it")),
            Err(error) => self.done.failed(format!("{id} is not in the pool yet: {error}")),
        }
    }
}
