//! Refresh: brings everything to what the operator wants, then clears up whatever went wrong.
//! Idempotent, and safe beside everything else, itself included.

mod ghosts;
mod intents;
mod keep_warm;
mod prune;
mod reap;
mod reticket;
mod set_up;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::Failure;
use crate::ids::{InstanceId, RunId};
use crate::plane::{Plane, readable};
use crate::ports::Scope;
use crate::settings::Settings;
use crate::stop::StopSignal;

/// What a refresh did.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Instances past their threshold that were ended.
    pub reaped: Vec<InstanceId>,
    /// Tickets of such that were dropped.
    pub pruned: usize,
    /// Machines without a live record that were ended.
    pub swept: Vec<InstanceId>,
    /// Idle machines that were announced in the pool again.
    pub ticketed: Vec<InstanceId>,
    /// Idle machines that never said they were free, and were expired.
    pub silent: Vec<InstanceId>,
    /// Launches that nobody had accounted for.
    pub intents: usize,
    /// Runners that were struck from the forge's list.
    pub ghosts: Vec<String>,
    /// Old records that were removed.
    pub forgotten: usize,
    /// Machines that were launched to keep the pool warm.
    pub warmed: usize,
    /// Runs with jobs waiting and no machine to take them.
    pub stranded: Vec<RunId>,
    /// What went wrong without stopping the rest.
    pub warnings: Vec<String>,
}

/// Refreshes, with `given` over the settings that are in force. Hears the signal to stop itself,
/// because what it launches it must also clear up.
pub async fn refresh(
    plane: &Plane,
    given: &BTreeMap<String, String>,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let work = set_up_and_clear_up(plane, given, &mut outcome);
    let settings = stop.unless_raised(work).await.unwrap_or_else(|stop| Err(stop.into()))?;
    keep_warm::keep_warm(plane, &settings, stop, &mut outcome).await?;
    Ok(outcome)
}

/// All of it may be dropped half-way, and done again by the next refresh.
async fn set_up_and_clear_up(
    plane: &Plane,
    given: &BTreeMap<String, String>,
    outcome: &mut Outcome,
) -> Result<Settings, Failure> {
    plane.progress.stage("setting up");
    let settings = set_up::bring_about(plane, given).await?;

    plane.progress.stage("clearing up");
    let emptied = reap::reap(plane, outcome).await?;
    prune::prune(plane, &settings, &emptied, outcome).await?;
    sweep::sweep(plane, &settings, outcome).await?;
    intents::settle(plane, outcome).await?;
    reticket::reticket(plane, &settings, outcome).await?;
    ghosts::strike(plane, outcome).await?;
    forget(plane, &settings, outcome).await?;
    report_stranded(plane, outcome).await?;
    Ok(settings)
}

async fn forget(plane: &Plane, settings: &Settings, outcome: &mut Outcome) -> Result<(), Failure> {
    let before = plane.now().before(settings.times.retention);
    outcome.forgotten = plane.retried(|| plane.store.forget(before)).await?;
    Ok(())
}

/// A job whose label nobody carries waits for a day without a word, so somebody must say it.
async fn report_stranded(plane: &Plane, outcome: &mut Outcome) -> Result<(), Failure> {
    let waiting = plane.retried(|| plane.forge.waiting_runs()).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    let live = readable(plane.retried(|| plane.store.list(Scope::Live)).await?);
    let served: BTreeSet<&RunId> = live.iter().filter_map(|record| record.run.as_ref()).collect();
    outcome.stranded = waiting.iter().filter(|run| !served.contains(run)).cloned().collect();
    for run in &outcome.stranded {
        outcome.warnings.push(format!("jobs wait for a run that has no machine: {run}"));
    }
    Ok(())
}
