//! Keep, before a rescue that failed is undone: the machines whose runners may have jobs stay with the
//! run. The run has waited for them, so its jobs start as soon as a runner is registered, which is
//! before the rescue is over.

use futures_util::future::join_all;

use crate::lifecycle::{Claimed, Created, Instance, Pending, Running};
use crate::model::ids::InstanceId;
use crate::model::record::{Record, State};
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::modes::plane::NotCommitted;
use crate::modes::provision::Attempt;
use crate::ports::PortResult;

use super::Progress;
use super::touched::recorded;

/// The reason in events and logs.
const WHY: &str = "its runner may have a job of the run";

/// Leaves the machines to the run that serve it already: those that are running, claimed ones whose
/// runner has a job, and new ones whose agent is up and has not failed. The others are left to the
/// clean-up: a claimed machine returns by a handshake, which does not interrupt a job, and a new one
/// without an agent has none.
///
/// A machine that may have a job is never left to the clean-up: if the store does not answer, it ends
/// at its threshold, or a later refresh finds it. Returns whether the clean-up may go on; `false` if it
/// is not known which machines these are.
pub(super) async fn keep_serving(attempt: &Attempt<'_>, done: &Progress) -> bool {
    let changes = match serving(attempt).await {
        Ok(changes) => changes,
        Err(error) => {
            done.failed(format!(
                "nothing was undone, because it is not known which machines have jobs: {error}"
            ));
            return false;
        }
    };
    for id in changes.running {
        attempt.holdings.kept(&id);
        done.kept(&id);
    }
    let writes = changes.pending.into_iter().map(|(id, change)| async move {
        match attempt.plane.apply(change.because(WHY)).await {
            Ok(_) => {
                attempt.holdings.kept(&id);
                done.kept(&id);
            }
            // The run was released meanwhile, or the threshold of the machine has passed.
            Err(NotCommitted::Refused(_)) => {}
            // It may be running by now.
            Err(NotCommitted::Unreachable(error)) => {
                attempt.holdings.left_alone(&id);
                done.failed(format!("{id} may have a job and is left to its threshold: {error}"));
            }
        }
    });
    join_all(writes).await;
    true
}

/// What serves the run.
#[derive(Default)]
struct Serving {
    /// The attempt has handed these to the run before it failed.
    running: Vec<InstanceId>,
    /// The changes that keep the others.
    pending: Vec<(InstanceId, Pending<Running>)>,
}

async fn serving(attempt: &Attempt<'_>) -> PortResult<Serving> {
    let touched = attempt.holdings.touched();
    if touched.is_empty() {
        return Ok(Serving::default());
    }
    let plane = attempt.plane;
    let records = recorded(attempt, &touched).await?;
    let ids: Vec<InstanceId> = records.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let mut serving = Serving::default();
    for (record, status) in records.iter().zip(&status) {
        let id = record.id.clone();
        match keeping(attempt, record, status) {
            Some(change) => serving.pending.push((id, change)),
            None if record.state == State::Running => serving.running.push(id),
            None => {}
        }
    }
    Ok(serving)
}

/// The change that keeps the machine; `None` if it has no job.
fn keeping(
    attempt: &Attempt<'_>,
    record: &Record,
    status: &AgentStatus,
) -> Option<Pending<Running>> {
    let (now, max_runtime) = (attempt.plane.now(), attempt.times.max_runtime);
    if status.pulse(now) != Pulse::Healthy {
        return None;
    }
    let report = status.report.as_ref();
    if let Some(created) = Instance::<Created>::believe(record) {
        let failed = report.is_some_and(|report| report.failure_for(&attempt.label).is_some());
        return (!failed).then(|| created.activate(now, max_runtime));
    }
    let claimed = Instance::<Claimed>::believe(record)?;
    let registered = report.is_some_and(|it| it.says(Signal::Registered, &attempt.label));
    let busy = status.heartbeat.is_some_and(|beat| beat.busy);
    (registered && busy).then(|| claimed.commit(now, max_runtime))
}
