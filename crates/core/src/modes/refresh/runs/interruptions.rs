//! Interruptions: re-runs the jobs whose machines were taken away, once, after their run has completed.
//! The forge refuses it earlier. The machines are gone by then, so refresh notes them beforehand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::about_run;
use crate::model::demand::{JobsRerun, RETENTION};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{Record, State};
use crate::model::settings::{Interruption, OnInterruption, Settings};
use crate::modes::plane::{Plane, readable};
use crate::modes::refresh::Outcome;
use crate::ports::{FailedJob, PortResult, RequestBudget, Rerun};

/// The machines that were taken away, by the run that had them.
type Interrupted = BTreeMap<RunId, BTreeSet<InstanceId>>;

/// How many notes are written together. A store writes them at once, and may limit their number.
const TOGETHER: usize = 50;

/// How long a refresh may take to re-run jobs after it has taken the right to.
const UNDER_WAY: Duration = Duration::from_secs(120);

/// Notes the machines among the expired ones that were taken away from runs. If jobs are not to be
/// re-run, removes the notes of before. Fails if the store does not answer.
pub(in crate::modes::refresh) async fn note_expired(
    plane: &Plane,
    settings: &Settings,
) -> Result<(), Failure> {
    if settings.on_interruption == OnInterruption::None {
        return Ok(forget(plane, settings.interrupted.keys()).await?);
    }
    let expired = readable(plane.retried(|| plane.store.expired(plane.now())).await?);
    let expired: Vec<Record> =
        expired.into_iter().filter(|it| it.state == State::Running && !it.is_preserved()).collect();
    if expired.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = expired.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let taken = expired.iter().zip(status).filter(|(_, status)| status.is_interrupted());
    // What an earlier step of this refresh has noted is not among the settings that were read.
    note(plane, settings, taken.map(|(record, _)| record)).await.map(drop)
}

/// Notes these machines, removes notes that are too old for a re-run, and returns what is noted then.
/// Returns nothing unless jobs are to be re-run.
pub(super) async fn note<'a>(
    plane: &Plane,
    settings: &Settings,
    taken: impl Iterator<Item = &'a Record>,
) -> Result<Interrupted, Failure> {
    if settings.on_interruption == OnInterruption::None {
        return Ok(Interrupted::new());
    }
    let now = plane.now();
    let stored = plane.settings().await?.interrupted;
    let is_old = |noted: &Interruption| now.since(noted.at) > RETENTION;
    let (old, mut all): (BTreeMap<_, _>, BTreeMap<_, _>) =
        stored.into_iter().partition(|(_, noted)| is_old(noted));
    let mut news = Vec::new();
    for record in taken {
        if let Some(run) = &record.run
            && !all.contains_key(&record.id)
        {
            let noted = Interruption { run: run.clone(), at: now };
            news.push(noted.note(&record.id));
            all.insert(record.id.clone(), noted);
        }
    }
    put(plane, news).await?;
    forget(plane, old.keys().filter(|machine| !all.contains_key(machine))).await?;
    let mut by_run = Interrupted::new();
    for (machine, noted) in all {
        by_run.entry(noted.run).or_default().insert(machine);
    }
    Ok(by_run)
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
    let Some(failed) = about_run(plane, || plane.forge.failed_jobs(run, budget)).await? else {
        return Ok(());
    };
    let cut_off = |job: &&FailedJob| job.instance.as_ref().is_some_and(|id| machines.contains(id));
    let cut_off: Vec<u64> = failed.iter().filter(cut_off).map(|job| job.id).collect();
    let what = match cut_off.as_slice() {
        [] => return forget(plane, machines).await,
        [job] => Rerun::Job(*job),
        _ => Rerun::FailedJobs,
    };
    if !budget.spend() {
        return Ok(());
    }
    let jobs = cut_off.len();
    // Written first: if this process is killed, the jobs stay failed instead of being re-run twice.
    match take_right(plane, run).await? {
        Right::Taken => match plane.forge.rerun(run, what).await {
            Ok(()) => {
                tracing::warn!(%run, jobs, "re-run: their machines were taken away");
                outcome.rerun.push(run.clone());
            }
            Err(error) => {
                let problem = format!("{jobs} jobs of run {run} could not be re-run: {error}");
                outcome.warnings.push(problem);
            }
        },
        Right::OfAnother => {
            tracing::info!(%run, "another refresh re-runs its jobs");
            return Ok(());
        }
        Right::Spent(why) => {
            let problem = format!("{jobs} jobs of run {run} stay failed: {why}");
            outcome.warnings.push(problem);
        }
    }
    forget(plane, machines).await
}

/// The right to re-run jobs of a run.
enum Right {
    /// This refresh has it.
    Taken,
    /// Another refresh has it, and may be about to use it.
    OfAnother,
    /// There is none. Carries the reason.
    Spent(&'static str),
}

/// Notes on a demand of the run that this refresh re-runs its jobs.
async fn take_right(plane: &Plane, run: &RunId) -> PortResult<Right> {
    let now = plane.now();
    let demands = plane.retried(|| plane.store.demands(std::slice::from_ref(run))).await?;
    match demands.iter().find_map(|demand| demand.rerun) {
        Some(earlier) if now.since(earlier.at) < UNDER_WAY => return Ok(Right::OfAnother),
        Some(_) => return Ok(Right::Spent("jobs of the run are re-run once, and were before")),
        None => {}
    }
    let Some(demand) = demands.first() else {
        return Ok(Right::Spent("what the run asked for is no longer stored"));
    };
    let mut next = demand.clone();
    next.rerun = Some(JobsRerun { by: plane.random.number(), at: now });
    Ok(match plane.replace_demand(Some(demand), &next).await? {
        true => Right::Taken,
        false => Right::OfAnother,
    })
}

/// Removes the notes about these machines.
pub(super) async fn forget(
    plane: &Plane,
    machines: impl IntoIterator<Item = &InstanceId>,
) -> PortResult<()> {
    put(plane, machines.into_iter().map(Interruption::forget).collect()).await
}

async fn put(plane: &Plane, notes: Vec<(String, String)>) -> PortResult<()> {
    for part in notes.chunks(TOGETHER) {
        let change: BTreeMap<String, String> = part.iter().cloned().collect();
        plane.retried(|| plane.store.put_settings(&change)).await?;
    }
    Ok(())
}
