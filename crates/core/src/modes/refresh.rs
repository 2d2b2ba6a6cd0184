//! Refresh: brings everything to what the operator wants, then clears up whatever went wrong.
//! Idempotent, and safe beside everything else, itself included.

mod credentials;
mod intents;
mod keep_warm;
mod offline_runners;
mod prune;
mod reap;
mod rescue;
mod reticket;
mod set_up;
mod survey;
mod sweep;

use std::collections::BTreeMap;

use self::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::settings::Settings;
use crate::modes::plane::Plane;
use crate::runtime::stop::StopSignal;

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
    /// Runs with jobs waiting and no machine to take them, that were not rescued.
    pub stranded: Vec<RunId>,
    /// Such runs that were given machines again.
    pub rescued: Vec<RunId>,
    /// What went wrong without stopping the rest.
    pub warnings: Vec<String>,
    /// The first thing that makes the whole a failure, although the rest was done.
    pub failure: Option<Failure>,
}

/// Refreshes, with `given` over the settings that are in force. Fails only where nothing could be
/// done at all, or where it was told to stop; whatever else fails is part of the outcome.
pub async fn refresh(
    plane: &Plane,
    given: &BTreeMap<String, String>,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    plane.progress.stage("setting up");
    let (settings, mut failure) = stop.unless_raised(set_up::bring_about(plane, given)).await??;
    outcome.warnings = settings.times.contradictions();

    plane.progress.stage("clearing up");
    let cleared = clear_up(plane, &settings, &mut outcome);
    let (survey, not_cleared) = stop.unless_raised(cleared).await?;
    note(&mut failure, not_cleared.map_or(Ok(()), Err));

    // Whoever launches hears the signal itself, because it must clear up what it has launched.
    if let Some(survey) = survey {
        let rescued = rescue::rescue(plane, &settings, &survey, stop, &mut outcome).await;
        note(&mut failure, rescued);
    }
    let warmed = keep_warm::keep_warm(plane, &settings, stop, &mut outcome).await;
    note(&mut failure, warmed);
    outcome.failure = failure;
    Ok(outcome)
}

/// Every step, whatever became of the others: a provider that does not answer must not keep old
/// records from being removed. Gives what was seen, and the first failure.
async fn clear_up(
    plane: &Plane,
    settings: &Settings,
    outcome: &mut Outcome,
) -> (Option<Survey>, Option<Failure>) {
    let (mut seen, mut failure) = (None, None);
    note(&mut failure, reap::reap(plane, outcome).await);
    match Survey::take(plane, outcome, &mut failure).await {
        Ok(survey) => {
            note(&mut failure, sweep::sweep(plane, settings, &survey, outcome).await);
            note(&mut failure, intents::settle(plane, &survey, outcome).await);
            note(&mut failure, reticket::reticket(plane, settings, &survey, outcome).await);
            note(&mut failure, prune::prune(plane, settings, &survey, outcome).await);
            note(&mut failure, offline_runners::strike(plane, &survey, outcome).await);
            seen = Some(survey);
        }
        Err(unseen) => note(&mut failure, Err(unseen)),
    }
    note(&mut failure, forget(plane, settings, outcome).await);
    (seen, failure)
}

/// Keeps the first failure, and says the others at once: those that say something else.
fn note(first: &mut Option<Failure>, result: Result<(), Failure>) {
    match (result, &first) {
        (Ok(()), _) => {}
        (Err(failure), None) => *first = Some(failure),
        (Err(failure), Some(known)) if failure == *known => {}
        (Err(failure), Some(_)) => tracing::warn!("{failure}"),
    }
}

async fn forget(plane: &Plane, settings: &Settings, outcome: &mut Outcome) -> Result<(), Failure> {
    let before = plane.now().before(settings.times.retention);
    outcome.forgotten = plane.retried(|| plane.store.forget(before)).await?;
    Ok(())
}
