//! Runs: reports machines that have fallen silent, releases the machines of completed runs, and
//! rescues runs whose jobs wait for machines that they lack.
//!
//! The forge limits requests, so a refresh sends at most [`REQUESTS`] of them about runs. It lists the
//! open runs, and asks only about those that have asked this pool for machines and lack some, and about
//! those that own machines and are not on the list. What it has no request left for comes first next
//! time.

mod interruptions;
mod machines;
mod rescue;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

pub(super) use self::interruptions::note_expired;
use self::machines::Machines;
use self::rescue::Rescuer;
use super::survey::Survey;
use super::{Outcome, keep_warm};
use crate::inputs::times::TimeOverrides;
use crate::model::demand::Demand;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::settings::{RUNS_MARKER, Rescue, RunsMarker, Settings};
use crate::modes::plane::Plane;
use crate::modes::release;
use crate::ports::{OpenRun, OpenRuns, PortError, PortResult, RequestBudget, WaitingJobs};
use crate::runtime::stop::StopSignal;

/// How many requests about runs one refresh may send. Refresh runs twelve times an hour, and a
/// workflow's own token may send a thousand requests an hour, which other workflows share.
const REQUESTS: u32 = 10;

/// Looks after the runs that own machines or wait for some. A run that cannot be helped is a warning,
/// and so is a rate limit of the forge. Fails if the store or the forge does not answer, or if `stop`
/// is raised.
pub(super) async fn attend(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let machines =
        stop.unless_raised(Machines::look(plane, &settings.times, &survey.live)).await??;
    report_silent(plane, &machines, outcome);
    let noted = interruptions::note(plane, settings, machines.interrupted());
    let interrupted = stop.unless_raised(noted).await??;
    let owners: BTreeSet<&RunId> =
        machines.owners().into_iter().filter(|run| !keep_warm::is_own_run(run)).collect();
    if settings.rescue == Rescue::Off && owners.is_empty() && interrupted.is_empty() {
        return Ok(());
    }
    let budget = RequestBudget::new(REQUESTS);
    let turn = settings.runs_marker.turn;
    let listed = stop.unless_raised(plane.retried(|| plane.forge.open_runs(turn, &budget))).await?;
    let Some(open) = unless_limited(listed, outcome)? else { return Ok(()) };
    let runs: Vec<RunId> = open.runs.iter().map(|open| open.run.clone()).collect();
    let demands = match settings.rescue {
        Rescue::Off => Vec::new(),
        Rescue::Provision | Rescue::Report => {
            stop.unless_raised(plane.retried(|| plane.store.demands(&runs))).await??
        }
    };
    let mut tasks = tasks(&open, demands, &owners, &machines);
    for (run, machines) in interrupted {
        if !open.runs.iter().any(|open| open.run == run) {
            tasks.insert(run, Task::WasInterrupted(machines));
        }
    }
    let after = settings.runs_marker.after.as_ref();
    let rescuer = Rescuer { plane, settings, stop };
    let last = work_through(&rescuer, in_turn(tasks, after), &budget, outcome).await?;
    let turn = if open.is_partial { turn.wrapping_add(1) } else { turn };
    store_marker(plane, settings, RunsMarker { turn, after: last }).await
}

fn report_silent(plane: &Plane, machines: &Machines, outcome: &mut Outcome) {
    for (record, age) in machines.silent(plane.now()) {
        let (id, since) = (&record.id, age.as_secs());
        let label = record.label().map_or_else(String::new, |label| label.to_string());
        let problem = format!("machine {id} of run {label} has sent no heartbeat for {since} s");
        outcome.warnings.push(problem);
        outcome.silent.push(id.clone());
    }
}

/// What there is to find out about a run.
enum Task {
    /// It owns machines and is not on the list of open runs.
    MayHaveCompleted,
    /// It lacks machines, and its jobs may wait for them. Carries its waiting jobs, if they are known.
    LacksMachines(Vec<Demand>, Option<WaitingJobs>),
    /// Its jobs wait, and it has asked this pool for nothing.
    NeverAsked,
    /// It is not on the list of open runs, and these machines were taken away from it.
    WasInterrupted(BTreeSet<InstanceId>),
}

fn tasks(
    open: &OpenRuns,
    demands: Vec<Demand>,
    owners: &BTreeSet<&RunId>,
    machines: &Machines,
) -> BTreeMap<RunId, Task> {
    let mut tasks = BTreeMap::new();
    let is_open = |run: &RunId| open.runs.iter().any(|open| open.run == *run);
    for run in owners.iter().filter(|run| !is_open(run)) {
        tasks.insert((*run).clone(), Task::MayHaveCompleted);
    }
    let mut asked: BTreeMap<RunId, Vec<Demand>> = BTreeMap::new();
    for demand in demands {
        asked.entry(demand.run.clone()).or_default().push(demand);
    }
    for OpenRun { run, waiting } in &open.runs {
        let nothing_waits = waiting.as_ref().is_some_and(WaitingJobs::is_empty);
        let task = match asked.remove(run) {
            _ if nothing_waits => continue,
            None if waiting.is_some() && !owners.contains(run) => Task::NeverAsked,
            None => continue,
            Some(mut asked) => {
                asked.retain(|demand| machines.serving(&demand.label()).lacks(demand));
                if asked.is_empty() {
                    continue;
                }
                Task::LacksMachines(asked, waiting.clone())
            }
        };
        tasks.insert(run.clone(), task);
    }
    tasks
}

/// Orders the tasks so that those after `last` come first.
fn in_turn(mut tasks: BTreeMap<RunId, Task>, last: Option<&RunId>) -> Vec<(RunId, Task)> {
    let later = match last {
        None => BTreeMap::new(),
        Some(last) => {
            let mut later = tasks.split_off(last);
            tasks.extend(later.remove_entry(last));
            later
        }
    };
    later.into_iter().chain(tasks).collect()
}

impl Task {
    fn needs_request(&self) -> bool {
        match self {
            Task::MayHaveCompleted | Task::WasInterrupted(_) | Task::LacksMachines(_, None) => true,
            Task::NeverAsked | Task::LacksMachines(_, Some(_)) => false,
        }
    }
}

/// Carries out the tasks that the budget suffices for. Returns the run after which the next refresh
/// continues; `None` if all were examined.
async fn work_through(
    rescuer: &Rescuer<'_>,
    tasks: Vec<(RunId, Task)>,
    budget: &RequestBudget,
    outcome: &mut Outcome,
) -> Result<Option<RunId>, Failure> {
    let Rescuer { plane, settings, stop } = rescuer;
    let mut last = settings.runs_marker.after.clone();
    let (mut completed, mut skipped, mut limited) = (Vec::new(), false, false);
    for (run, task) in tasks {
        let needs_request = task.needs_request();
        if needs_request && (limited || budget.left() == 0) {
            skipped = true;
            continue;
        }
        match task {
            Task::NeverAsked => {
                let problem = format!("jobs wait for a run that has not asked for machines: {run}");
                outcome.warnings.push(problem);
                outcome.stranded.push((&run).into());
            }
            Task::MayHaveCompleted => {
                let asked = plane.retried(|| plane.forge.has_completed(&run, budget));
                match unless_limited(stop.unless_raised(asked).await?, outcome)? {
                    Some(true) => completed.push(run.clone()),
                    Some(false) => {}
                    None => limited = true,
                }
            }
            Task::WasInterrupted(machines) => {
                let asked = plane.retried(|| plane.forge.has_completed(&run, budget));
                match unless_limited(stop.unless_raised(asked).await?, outcome)? {
                    Some(true) => {
                        completed.push(run.clone());
                        let rerun = interruptions::rerun(plane, &run, &machines, budget, outcome);
                        let rerun = stop.unless_raised(rerun).await?;
                        limited |= unless_limited(rerun, outcome)?.is_none();
                    }
                    Some(false) => {}
                    None => limited = true,
                }
            }
            Task::LacksMachines(demands, known) => {
                let asked = async {
                    match known {
                        Some(waiting) => Ok(waiting),
                        None => plane.retried(|| plane.forge.waiting_jobs(&run, budget)).await,
                    }
                };
                match unless_limited(stop.unless_raised(asked).await?, outcome)? {
                    Some(waiting) => rescuer.rescue_all(demands, &waiting, outcome).await?,
                    None => limited = true,
                }
            }
        }
        skipped |= limited;
        if needs_request && !skipped {
            last = Some(run);
        }
    }
    stop.unless_raised(release(plane, &completed, outcome)).await??;
    Ok(last.filter(|_| skipped))
}

/// Releases the machines of runs that have completed and never called release.
async fn release(plane: &Plane, runs: &[RunId], outcome: &mut Outcome) -> Result<(), Failure> {
    let times = TimeOverrides::default();
    let releases = join_all(runs.iter().map(|run| release::release(plane, run, &times))).await;
    for (run, released) in runs.iter().zip(releases) {
        let released = released?;
        if released.instances.is_empty() {
            continue;
        }
        tracing::warn!(%run, "the run has completed without a release; its machines were released");
        if let Some(failure) = released.failure() {
            outcome.warnings.push(format!("run {run} has completed without a release: {failure}"));
        }
        outcome.completed.push(run.clone());
    }
    Ok(())
}

/// Makes a rate limit of the forge a warning and `None`.
fn unless_limited<T>(answer: PortResult<T>, outcome: &mut Outcome) -> PortResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(PortError::Limited { reason, .. }) => {
            outcome.warnings.push(format!("not all runs were examined: {reason}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn store_marker(
    plane: &Plane,
    settings: &Settings,
    marker: RunsMarker,
) -> Result<(), Failure> {
    if marker == settings.runs_marker {
        return Ok(());
    }
    let change = BTreeMap::from([(RUNS_MARKER.to_owned(), marker.text())]);
    Ok(plane.retried(|| plane.store.put_settings(&change)).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_after_the_last_one_come_first() {
        let run = |text: &str| RunId::new(text).unwrap();
        let order = |last: Option<&str>| {
            let tasks = ["1", "2", "3"].map(|text| (run(text), Task::MayHaveCompleted)).into_iter();
            let last = last.map(run);
            let tasks = in_turn(tasks.collect(), last.as_ref());
            tasks.iter().map(|(run, _)| run.to_string()).collect::<Vec<_>>().join(" ")
        };
        for (last, expected) in [
            (None, "1 2 3"),
            (Some("1"), "2 3 1"),
            (Some("2"), "3 1 2"),
            (Some("25"), "3 1 2"),
            (Some("3"), "1 2 3"),
            (Some("0"), "1 2 3"),
        ] {
            assert_eq!(order(last), expected, "after {last:?}");
        }
    }
}
