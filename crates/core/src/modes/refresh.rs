//! Refresh: creates missing infrastructure, then repairs what earlier runs left unfinished.
//!
//! ```text
//! create infrastructure → list live records → reap → survey → interrupted machines → orphans
//!   → intents → count machines → re-queue tickets → settings news → prune tickets
//!   → listed runners → prune wake-ups → index shards → prune records
//!   → runs (silent machines, completed runs, rescue) → keep warm
//! ```
//!
//! Refresh is idempotent. It may run beside every other mode and beside another refresh. If the
//! first step fails, no setting is changed, and the other steps go by the stored settings. In a pool
//! that a teardown has closed, the first step fails, no run is rescued and nothing is kept warm.

mod absent_forge;
mod ceiling;
mod credentials;
mod drained;
mod index_shards;
mod infrastructure;
mod intents;
mod interrupted;
pub(crate) mod keep_warm;
mod limit;
mod listed_runners;
pub(crate) mod orphans;
mod prune_records;
mod prune_tickets;
mod reap;
mod registration_time;
mod requeue;
mod runs;
mod settings_news;
mod spend;
pub(crate) mod survey;
mod unready;
mod wake_ups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join3;

pub use self::absent_forge::AbsentForge;
pub use self::ceiling::CeilingUse;
use self::ceiling::Earlier;
use self::infrastructure::InForce;
pub use self::infrastructure::check_together;
use self::limit::Limit;
pub use self::limit::{SHORTEST as SHORTEST_LIMIT, TIME_LIMIT, time_limit};
pub(in crate::modes) use self::spend::Shortfall;
pub use self::spend::SpendUse;
use self::survey::{Lists, Survey};
use crate::model::failure::{Failure, FailureKind};
use crate::model::finding::{FindingKind, Findings};
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::label::Label;
use crate::model::settings::Settings;
use crate::modes::plane::Plane;
use crate::ports::RecordScope;
use crate::runtime::stop::StopSignal;

/// What a refresh did.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Whether the infrastructure is complete and the given settings are stored. Otherwise no
    /// setting was changed, and everything below was done under the settings stored before.
    pub set_up: bool,
    /// Instances that were past their threshold and were terminated.
    pub reaped: Vec<InstanceId>,
    /// How many expired or malformed tickets were deleted.
    pub pruned_tickets: usize,
    /// Machines without a live record that were terminated.
    pub orphans: Vec<InstanceId>,
    /// How long ago the oldest machine without a live record was launched, as far as this refresh has
    /// not reaped it itself.
    pub oldest_orphan: Option<Duration>,
    /// Idle instances that had no ticket and got one.
    pub requeued: Vec<InstanceId>,
    /// Idle instances that were expired because their agent never signalled that it is free.
    pub unresponsive: Vec<InstanceId>,
    /// Idle instances that were terminated because their provider takes them away.
    pub interrupted: Vec<InstanceId>,
    /// How many overdue intents were closed because their provision did not close them.
    pub settled_intents: usize,
    /// Names of the runners that were removed from GitHub: their machine was gone, or had registered
    /// again.
    pub offline_runners: Vec<String>,
    /// How many terminated records were deleted after the retention time.
    pub pruned_records: usize,
    /// How many machines were launched to reach the configured minimum of idle ones.
    pub warmed: usize,
    /// How many machines for the minimum were launched or are starting, and are left to the next
    /// refresh. Only with a time limit.
    pub starting: usize,
    /// Idle instances of the minimum that were given more time.
    pub renewed: Vec<InstanceId>,
    /// Idle instances that were terminated because they had reached a limit of their lifetime, or
    /// because an operator has drained or retired them.
    pub rotated: Vec<InstanceId>,
    /// How many machine-hours a week the minimum asks for, by class.
    pub minimum_hours: BTreeMap<ResourceClass, f64>,
    /// Running instances whose agents have stopped sending heartbeats. They are left as they are
    /// until their threshold, because their jobs may go on.
    pub silent: Vec<InstanceId>,
    /// Instances of runs whose agents have reported that they cannot serve. They are left as they are,
    /// too; a warning has the agent's reason.
    pub failing: Vec<InstanceId>,
    /// Runs that had completed without a release, and whose machines were released.
    pub completed: Vec<RunId>,
    /// Runs whose jobs were re-run because their machines were taken away.
    pub rerun: Vec<RunId>,
    /// Labels under which jobs are queued while a run lacks machines, and that were not rescued.
    pub stranded: Vec<Label>,
    /// Labels under which jobs were queued while a run lacked machines, and that got machines again.
    pub rescued: Vec<Label>,
    /// For each number of `max-machines`, how many machines there are. Empty if there is none, or if
    /// they could not be counted.
    pub ceilings: Vec<CeilingUse>,
    /// What machines cost today. `None` if there is no cap, or if they could not be counted.
    pub spend: Option<SpendUse>,
    /// Machines that were drained because what they may still cost today does not fit below the cap.
    pub drained: Vec<InstanceId>,
    /// How many machines the provider listed at the beginning. `None` if it did not answer.
    pub machines: Option<usize>,
    /// What operators should hear of, see [`announce`](crate::modes::notices::announce).
    pub findings: Findings,
    /// Problems that did not stop any step.
    pub warnings: Vec<String>,
    /// The first failure of a step. The other steps were carried out nevertheless.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// Adds a label under which jobs are queued, and why they have no machine.
    fn strand(&mut self, label: Label, problem: String) {
        self.findings.add(FindingKind::StrandedRun, &label, &problem);
        self.warnings.push(problem);
        self.stranded.push(label);
    }
}

/// Refreshes the pool. The settings in `given` replace the stored ones; an empty value restores
/// the default.
///
/// Returns an error if `stop` is raised, and if set-up fails and there are no stored settings to go
/// by. Any other failure is [`Outcome::failure`].
pub async fn refresh(
    plane: &Plane,
    given: &BTreeMap<String, String>,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    refresh_from(plane, None, given, stop).await
}

/// The same, where the caller has just read the stored settings, so that they are not read twice.
pub async fn refresh_from(
    plane: &Plane,
    stored: Option<BTreeMap<String, String>>,
    given: &BTreeMap<String, String>,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    work(plane, stored, Ok(given), None, stop).await
}

/// Refreshes the pool like [`refresh_from`], or like [`refresh_unchanged`] if the given settings cannot
/// be used, and ends within `limit`, which is not shorter than [`SHORTEST_LIMIT`].
///
/// It waits for no machine that it launches: a later refresh with a limit hands those over that have
/// become ready. What it has no time for is left to the next refresh; that is a warning, unless it has
/// not come to the end of its repairs.
pub async fn refresh_within(
    plane: &Plane,
    stored: Option<BTreeMap<String, String>>,
    given: Result<&BTreeMap<String, String>, Failure>,
    limit: Duration,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let limited =
        async |limit: Limit, stop: &StopSignal| work(plane, stored, given, Some(limit), stop).await;
    limit::within(plane, limit, stop, limited).await
}

/// Refreshes the pool under the stored settings, because `failure` keeps the given ones from being
/// used. It becomes [`Outcome::failure`], or the error if there are no stored settings.
pub async fn refresh_unchanged(
    plane: &Plane,
    failure: Failure,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    work(plane, None, Err(failure), None, stop).await
}

async fn work(
    plane: &Plane,
    stored: Option<BTreeMap<String, String>>,
    given: Result<&BTreeMap<String, String>, Failure>,
    limit: Option<Limit>,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let set_up = async {
        match given {
            Ok(given) => {
                plane.progress.stage("setting up");
                infrastructure::create_missing(plane, stored, given).await
            }
            Err(failure) => infrastructure::keep_stored(plane, failure).await,
        }
    };
    match stop.unless_raised(set_up).await {
        Ok(in_force) => carry_out(plane, in_force?, limit, stop).await,
        Err(_) if stop.is_time_up() => Err(limit::too_short()),
        Err(stop) => Err(stop.into()),
    }
}

async fn carry_out(
    plane: &Plane,
    in_force: InForce,
    limit: Option<Limit>,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let InForce { settings, mut failure, has_forge, checks_all, is_noted } = in_force;
    let mut outcome = Outcome { set_up: failure.is_none(), ..Outcome::default() };
    outcome.minimum_hours = settings.min_idle.machine_hours_a_week(plane.now());
    outcome.warnings = settings.times.contradictions().iter().map(ToString::to_string).collect();
    if settings.closed.is_none()
        && let Some(shortfall) = Shortfall::of(&*plane.compute, &settings, plane.now())
    {
        let enough = shortfall.sufficient();
        let remedy = format!("max-spend-per-day {enough} is enough; or lower min-idle");
        outcome.warnings.push(format!("{shortfall}; {remedy}"));
    }
    look_at_deadline(plane, has_forge, &mut outcome);
    outcome.warnings.extend(plane.compute.notice(&settings));
    // The list of another forge says nothing about the machines of these settings.
    let plane = &match has_forge {
        true => plane.clone(),
        false => Plane { forge: Arc::new(AbsentForge), ..plane.clone() },
    };

    plane.progress.stage("cleaning up");
    let repairs = repair(plane, &settings, checks_all, &mut outcome);
    let (survey, not_repaired) = match stop.unless_raised(repairs).await {
        Err(_) if stop.is_time_up() => (None, Some(limit::too_short())),
        repaired => repaired?,
    };
    keep_first(&mut failure, not_repaired.map_or(Ok(()), Err));

    // The steps that launch machines watch the stop signal themselves: they have to terminate
    // what they launched before they return.
    if let Some(survey) = &survey {
        let attended = runs::attend(plane, &settings, survey, limit, stop, &mut outcome).await;
        keep_first(&mut failure, unless_time_up(attended, stop, &mut outcome));
    }
    if settings.closed.is_none() {
        let survey = survey.as_ref();
        let warmed =
            keep_warm::keep_warm(plane, &settings, survey, limit, stop, &mut outcome).await;
        keep_first(&mut failure, unless_time_up(warmed, stop, &mut outcome));
    }
    // Inputs that cannot be used say nothing about what exists.
    let is_in_doubt = |failure: &Failure| failure.kind != FailureKind::InvalidInput;
    if is_noted && failure.as_ref().is_some_and(is_in_doubt) {
        infrastructure::check_next_time(plane).await;
    }
    outcome.failure = failure;
    Ok(outcome)
}

/// Reports until when the forge serves the configured runner. It has told that when it was set up.
fn look_at_deadline(plane: &Plane, has_forge: bool, outcome: &mut Outcome) {
    const KIND: FindingKind = FindingKind::RunnerDeadline;
    if let Some(deadline) = plane.forge.notice() {
        outcome.findings.add(KIND, &"", &deadline);
        outcome.warnings.push(deadline);
    }
    if outcome.set_up && has_forge {
        outcome.findings.complete(KIND);
    }
}

/// Carries out every step even if an earlier one fails: old records are pruned although the
/// provider does not answer. Returns the survey, if the store answered, and the first failure.
async fn repair(
    plane: &Plane,
    settings: &Settings,
    checks_all: bool,
    outcome: &mut Outcome,
) -> (Option<Survey>, Option<Failure>) {
    let (mut taken, mut failure) = (None, None);
    // What was taken away is noted before its record is reaped.
    keep_first(&mut failure, runs::note_expired(plane, settings).await);
    let mut live = plane.retried(|| plane.store.list(RecordScope::Live)).await;
    let mut emptied = BTreeSet::new();
    let reap = async {
        if let Ok(live) = &mut live {
            let reaped = reap::reap(plane, live, outcome).await;
            keep_first(&mut failure, reaped.map(|classes| emptied = classes));
        }
    };
    let intents = plane.retried(|| plane.store.open_intents());
    let lists = async {
        let earlier = Earlier::read(plane, settings).await;
        (earlier, Lists::read(plane).await)
    };
    let ((), intents, (earlier, lists)) = join3(reap, intents, lists).await;
    if settings.max_spend_per_day.is_none() {
        outcome.findings.complete(FindingKind::SpendNearCap);
    }
    match Survey::take(plane, live, lists, outcome, &mut failure).await {
        Ok(mut survey) => {
            let retired = interrupted::retire(plane, &mut survey, outcome).await;
            keep_first(&mut failure, retired);
            keep_first(&mut failure, drained::terminate(plane, &mut survey, outcome).await);
            keep_first(&mut failure, unready::attend(plane, settings, &mut survey, outcome).await);
            keep_first(&mut failure, orphans::terminate(plane, settings, &survey, outcome).await);
            keep_first(&mut failure, intents::settle(plane, &survey, intents, outcome).await);
            let counted = ceiling::recount(plane, settings, earlier, &mut survey, outcome).await;
            keep_first(&mut failure, counted);
            keep_first(&mut failure, requeue::requeue(plane, settings, &survey, outcome).await);
            keep_first(&mut failure, settings_news::tell(plane, &survey).await);
            let looked_at = |class: &ResourceClass| checks_all || emptied.contains(class);
            let pruned = prune_tickets::prune(plane, settings, &survey, looked_at, outcome);
            let recorded = registration_time::record(plane, settings, &survey);
            let kept = wake_ups::prune(plane, &survey);
            let (pruned, recorded, kept) = join3(pruned, recorded, kept).await;
            outcome.warnings.extend(kept);
            keep_first(&mut failure, pruned);
            keep_first(&mut failure, listed_runners::remove(plane, &survey, outcome).await);
            keep_first(&mut failure, index_shards::grow(plane, settings, &survey).await);
            keep_first(&mut failure, recorded);
            taken = Some(survey);
        }
        Err(error) => keep_first(&mut failure, Err(error)),
    }
    keep_first(&mut failure, prune_records::prune(plane, settings, checks_all, outcome).await);
    (taken, failure)
}

/// Makes it a warning that the time limit has ended a step: the next refresh continues.
fn unless_time_up(
    result: Result<(), Failure>,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    const LEFT: &str = "the time limit was reached, the next refresh continues";
    match result {
        Err(failure) if failure.kind == FailureKind::Stopped && stop.is_time_up() => {
            if !outcome.warnings.iter().any(|warning| warning == LEFT) {
                outcome.warnings.push(LEFT.to_owned());
            }
            Ok(())
        }
        result => result,
    }
}

/// Keeps the first failure. Logs a later one, unless it is the same failure again.
fn keep_first(first: &mut Option<Failure>, result: Result<(), Failure>) {
    match (result, &first) {
        (Ok(()), _) => {}
        (Err(failure), None) => *first = Some(failure),
        (Err(failure), Some(known)) if failure == *known => {}
        (Err(failure), Some(_)) => tracing::warn!("{failure}"),
    }
}
