//! Rescue: provisions again for runs whose jobs are queued while no machine carries their label.
//! "Re-run failed jobs" causes this: the job that calls provision is not among the failed ones, and
//! GitHub leaves the others queued for a day without telling the user.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;

use super::Outcome;
use super::survey::Survey;
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::RunId;
use crate::model::record::Record;
use crate::model::settings::{Rescue, Settings};
use crate::modes::plane::{Plane, readable};
use crate::modes::provision::provision;
use crate::ports::{PortResult, WaitingRun};
use crate::runtime::stop::StopSignal;

/// Provisions for stranded runs what they asked for at first, or reports them, as the `rescue`
/// setting says. A failed rescue is a warning; the error is that the store or the forge did not
/// answer, or that `stop` was raised.
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
        let provisioned = provision(plane, &demand.again(jobs), stop).await;
        match provisioned.failure {
            None => {
                if demand.failed_rescues.is_some() {
                    store_result(plane, Demand { failed_rescues: None, ..demand }).await;
                }
                outcome.rescued.push(run);
            }
            Some(failure)
                if matches!(failure.kind, FailureKind::Interrupted | FailureKind::Stopped) =>
            {
                return Err(failure);
            }
            Some(failure) => {
                // Each attempt claims idle machines and returns them, or launches new ones. Only a
                // request that is refused as it stands reaches no machine: it is tried again as
                // soon as the operator has corrected the settings.
                let refused_as_it_stands =
                    failure.kind == FailureKind::InvalidInput && !provisioned.search.asked;
                // Nor does one for which there is no room, unless it found idle machines.
                let no_room =
                    failure.kind == FailureKind::AtCeiling && provisioned.search.claimed == 0;
                if !refused_as_it_stands && !no_room {
                    store_result(plane, demand.failed_again(plane.now())).await;
                }
                outcome.warnings.push(format!("run {run} cannot be rescued: {failure}"));
                outcome.stranded.push(run);
            }
        }
    }
    Ok(())
}

/// Stores the result of a rescue, unless the run has stored another request meanwhile.
async fn store_result(plane: &Plane, demand: Demand) {
    let noted = async {
        let found = plane.retried(|| plane.store.demand(&demand.run)).await?;
        if found.is_some_and(|found| found.at == demand.at) {
            plane.retried(|| plane.store.put_demand(&demand)).await?;
        }
        PortResult::Ok(())
    };
    if let Err(error) = noted.await {
        tracing::warn!(run = %demand.run, "the result of its rescue was not stored: {error}");
    }
}

/// The runs with queued jobs that no live instance belongs to. The store is read again after the
/// forge has answered, because a provision may have finished meanwhile; and run by run, because the
/// list of live records may lag.
async fn stranded(plane: &Plane, survey: &Survey) -> Result<Vec<WaitingRun>, Failure> {
    let served = served(plane, &survey.live);
    let waiting = plane.retried(|| plane.forge.waiting_runs(&served)).await?;
    if waiting.is_empty() {
        return Ok(waiting);
    }
    let machines = waiting.iter().map(|waiting| async {
        let listing = plane.retried(|| plane.store.of_run(&waiting.run)).await?;
        PortResult::Ok(self::served(plane, &readable(listing)).is_empty())
    });
    let unserved = try_join_all(machines).await?;
    Ok(waiting
        .into_iter()
        .zip(unserved)
        .filter(|(_, it)| *it)
        .map(|(waiting, _)| waiting)
        .collect())
}

fn served(plane: &Plane, live: &[Record]) -> BTreeSet<RunId> {
    let now = plane.now();
    live.iter().filter(|record| !record.is_expired(now)).filter_map(|r| r.run.clone()).collect()
}
