//! Interruptions: re-runs the jobs whose machines were taken away, once, after their run has completed.
//! The forge refuses it earlier. The machines are gone by then, so refresh notes them beforehand.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{Record, State};
use crate::model::settings::{OnInterruption, Settings, interrupted_machines};
use crate::modes::plane::{Plane, readable};
use crate::modes::refresh::Outcome;
use crate::ports::{FailedJob, PortResult, RequestBudget, Rerun};

/// The machines that were taken away, by the run that had them.
type Interrupted = BTreeMap<RunId, BTreeSet<InstanceId>>;

/// Notes the machines among the expired ones that were taken away from runs. Does nothing unless their
/// jobs are to be re-run. Fails if the store does not answer.
pub(in crate::modes::refresh) async fn note_expired(
    plane: &Plane,
    settings: &Settings,
) -> Result<(), Failure> {
    if settings.on_interruption == OnInterruption::None {
        return Ok(());
    }
    let expired = readable(plane.retried(|| plane.store.expired(plane.now())).await?);
    let expired: Vec<Record> =
        expired.into_iter().filter(|it| it.state == State::Running).collect();
    if expired.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = expired.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let taken = expired.iter().zip(status).filter(|(_, status)| status.is_interrupted());
    // What an earlier step of this refresh has noted is not among the settings that were read.
    note(plane, settings, taken.map(|(record, _)| record)).await.map(drop)
}

/// Adds these machines to what is noted, and returns all that is. Returns nothing unless jobs are to be
/// re-run.
pub(super) async fn note<'a>(
    plane: &Plane,
    settings: &Settings,
    taken: impl Iterator<Item = &'a Record>,
) -> Result<Interrupted, Failure> {
    if settings.on_interruption == OnInterruption::None {
        return Ok(Interrupted::new());
    }
    let stored = plane.settings().await?.interrupted;
    let mut all = stored.clone();
    for record in taken {
        if let Some(run) = &record.run {
            all.entry(run.clone()).or_default().insert(record.id.clone());
        }
    }
    let news = all.iter().filter(|(run, machines)| stored.get(*run) != Some(*machines));
    let news: BTreeMap<String, String> =
        news.map(|(run, machines)| interrupted_machines(run, machines)).collect();
    if !news.is_empty() {
        plane.retried(|| plane.store.put_settings(&news)).await?;
    }
    Ok(all)
}

/// Re-runs the jobs of a completed run that failed on one of these machines, and forgets the machines.
/// Several jobs can be re-run only together with all others that failed. A run whose jobs cannot be
/// re-run is a warning. Fails if the store or the forge does not answer before anything was re-run;
/// then a later refresh tries again.
pub(super) async fn rerun(
    plane: &Plane,
    run: &RunId,
    machines: &BTreeSet<InstanceId>,
    budget: &RequestBudget,
    outcome: &mut Outcome,
) -> PortResult<()> {
    let Some(failed) = plane.retried(|| plane.forge.failed_jobs(run, budget)).await? else {
        return Ok(());
    };
    let cut_off = |job: &&FailedJob| job.instance.as_ref().is_some_and(|id| machines.contains(id));
    let cut_off: Vec<u64> = failed.iter().filter(cut_off).map(|job| job.id).collect();
    let what = match cut_off.as_slice() {
        [] => return forget(plane, run).await,
        [job] => Rerun::Job(*job),
        _ => Rerun::FailedJobs,
    };
    if !budget.spend() {
        return Ok(());
    }
    // Written first: if this process is killed, the jobs stay failed instead of being re-run twice.
    if remember(plane, run).await? {
        match plane.forge.rerun(run, what).await {
            Ok(()) => {
                tracing::warn!(%run, jobs = cut_off.len(), "re-run: their machines were taken away");
                outcome.rerun.push(run.clone());
            }
            Err(error) => {
                let jobs = cut_off.len();
                let problem = format!("{jobs} jobs of run {run} could not be re-run: {error}");
                outcome.warnings.push(problem);
            }
        }
    }
    forget(plane, run).await
}

/// Notes on a demand of the run that its jobs are re-run. Returns `false` if they were before, or if
/// another refresh has done so at the same time.
async fn remember(plane: &Plane, run: &RunId) -> PortResult<bool> {
    let demands = plane.retried(|| plane.store.demands(std::slice::from_ref(run))).await?;
    let again = demands.iter().any(|demand| demand.rerun_at.is_some());
    let Some(demand) = demands.first().filter(|_| !again) else { return Ok(false) };
    let mut next = demand.clone();
    next.rerun_at = Some(plane.now());
    plane.store.replace_demand(demand, &next).await
}

async fn forget(plane: &Plane, run: &RunId) -> PortResult<()> {
    let change = BTreeMap::from([interrupted_machines(run, &BTreeSet::new())]);
    plane.retried(|| plane.store.put_settings(&change)).await
}
