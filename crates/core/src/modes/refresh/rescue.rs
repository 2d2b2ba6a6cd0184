//! Rescue: runs whose jobs wait for their own label while no machine carries it. That is what
//! becomes of failed jobs that are run again, since nobody calls provision for them; such a job
//! waits for a day, and nobody is told.

use std::collections::BTreeSet;

use super::Outcome;
use super::survey::Survey;
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::RunId;
use crate::model::record::Record;
use crate::model::settings::{Rescue, Settings};
use crate::modes::plane::{Plane, readable};
use crate::modes::provision::provision;
use crate::ports::{PortResult, Scope, WaitingRun};
use crate::runtime::stop::StopSignal;

/// Gives such runs what they had asked for, or says that it does not.
pub(super) async fn rescue(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    if settings.rescue == Rescue::Off {
        return Ok(());
    }
    let waiting = stop.unless_raised(stranded(plane, survey)).await??;
    for WaitingRun { run, jobs } in waiting {
        if settings.rescue == Rescue::Report {
            outcome.warnings.push(format!("jobs wait for a run that has no machine: {run}"));
            outcome.stranded.push(run);
            continue;
        }
        let Some(demand) = plane.retried(|| plane.store.demand(&run)).await? else {
            let problem = format!("jobs wait for a run that has not asked for machines: {run}");
            outcome.warnings.push(problem);
            outcome.stranded.push(run);
            continue;
        };
        if let Some(failed_rescues) =
            demand.failed_rescues.filter(|it| plane.now() < it.not_before())
        {
            let (times, next) = (failed_rescues.times, failed_rescues.not_before());
            let problem =
                format!("run {run} was not rescued in {times} attempts, next attempt at {next}");
            outcome.warnings.push(problem);
            outcome.stranded.push(run);
            continue;
        }
        plane.progress.stage(&format!("rescuing run {run}: {jobs} jobs wait without a machine"));
        tracing::warn!(%run, jobs, "jobs wait without a machine; provisioning again");
        match provision(plane, &demand.again(jobs), stop).await.failure {
            None => {
                if demand.failed_rescues.is_some() {
                    note(plane, Demand { failed_rescues: None, ..demand }).await;
                }
                outcome.rescued.push(run);
            }
            Some(failure)
                if matches!(failure.kind, FailureKind::Interrupted | FailureKind::Stopped) =>
            {
                return Err(failure);
            }
            Some(failure) => {
                // The others fail before anything is launched, or pass by themselves.
                if matches!(
                    failure.kind,
                    FailureKind::NoCapacity | FailureKind::NotReady | FailureKind::Unexpected
                ) {
                    note(plane, demand.failed_again(plane.now())).await;
                }
                outcome.warnings.push(format!("run {run} cannot be rescued: {failure}"));
                outcome.stranded.push(run);
            }
        }
    }
    Ok(())
}

/// Writes down what became of a rescue, unless the run has asked for something else meanwhile.
async fn note(plane: &Plane, demand: Demand) {
    let noted = async {
        let found = plane.retried(|| plane.store.demand(&demand.run)).await?;
        if found.is_some_and(|found| found.at == demand.at) {
            plane.retried(|| plane.store.put_demand(&demand)).await?;
        }
        PortResult::Ok(())
    };
    if let Err(error) = noted.await {
        tracing::warn!(run = %demand.run, "what became of its rescue was not noted: {error}");
    }
}

/// Runs that wait, and that no live instance belongs to. The store is asked again after the
/// forge, since a provision may have finished meanwhile.
async fn stranded(plane: &Plane, survey: &Survey) -> Result<Vec<WaitingRun>, Failure> {
    let served = served(plane, &survey.live);
    let waiting = plane.retried(|| plane.forge.waiting_runs(&served)).await?;
    if waiting.is_empty() {
        return Ok(waiting);
    }
    let live = readable(plane.retried(|| plane.store.list(Scope::Live)).await?);
    let served = self::served(plane, &live);
    Ok(waiting.into_iter().filter(|waiting| !served.contains(&waiting.run)).collect())
}

fn served(plane: &Plane, live: &[Record]) -> BTreeSet<RunId> {
    let now = plane.now();
    live.iter().filter(|record| !record.is_expired(now)).filter_map(|r| r.run.clone()).collect()
}
