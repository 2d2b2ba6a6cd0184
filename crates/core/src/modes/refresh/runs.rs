//! Runs: reports machines that have fallen silent or cannot serve, releases the machines of completed
//! runs, and rescues runs whose jobs wait for machines that they lack.
//!
//! The forge limits requests, so a refresh sends at most [`REQUESTS`] of them about runs. It lists the
//! open runs, and asks only about those that have asked this pool for machines and lack some, and about
//! those that own machines and are not on the list. What it has no request left for comes first next
//! time.

mod completed;
mod interruptions;
mod machines;
mod ready;
mod rescue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use self::completed::Attended;
pub(super) use self::interruptions::note_expired;
use self::machines::Machines;
use self::rescue::Rescuer;
use super::limit::Limit;
use super::survey::Survey;
use super::{Outcome, keep_first, keep_warm};
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::finding::FindingKind;
use crate::model::ids::{InstanceId, RunId};
use crate::model::settings::{RUNS_MARKER, Rescue, RunsMarker, Settings};
use crate::modes::plane::Plane;
use crate::ports::{
    OpenRun, OpenRuns, PortError, PortResult, RequestBudget, RunStatus, WaitingJobs,
};
use crate::runtime::retry::{Retry, retry};
use crate::runtime::stop::StopSignal;

/// How many requests about runs one refresh may send. Refresh runs twelve times an hour, and a
/// workflow's own token may send a thousand requests an hour, which other workflows share.
const REQUESTS: u32 = 10;

/// Looks after the runs that own machines or wait for some. A run that cannot be helped is a warning,
/// and so is a rate limit of the forge, or a run about which the forge fails. Fails if the store does
/// not answer or the forge does not list runs, or if `stop` is raised.
pub(super) async fn attend(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    limit: Option<Limit>,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let look = Machines::look(plane, &settings.times, limit, &survey.live);
    let machines = stop.unless_raised(look).await??;
    report_silent(plane, &machines, outcome);
    report_failing(&machines, outcome);
    if limit.is_some() {
        stop.unless_raised(ready::hand_over(plane, settings, &machines)).await??;
    }
    let noted = interruptions::note(plane, settings, machines.interrupted());
    let interrupted = stop.unless_raised(noted).await??;
    let owners: BTreeSet<&RunId> =
        machines.owners().into_iter().filter(|run| !keep_warm::is_own_run(run)).collect();
    // A closed pool has no machine for another run.
    let rescue = if settings.closed.is_some() { Rescue::Off } else { settings.rescue };
    if rescue == Rescue::Off && owners.is_empty() && interrupted.is_empty() {
        return Ok(());
    }
    let budget = RequestBudget::new(REQUESTS);
    let turn = settings.runs_marker.turn;
    let listed = stop.unless_raised(plane.retried(|| plane.forge.open_runs(turn, &budget))).await?;
    let Some(open) = unless_limited(listed, outcome)? else { return Ok(()) };
    let runs: Vec<RunId> = open.runs.iter().map(|open| open.run.clone()).collect();
    let demands = match rescue {
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
    let rescuer = Rescuer { plane, settings, limit, stop, is_undecided: AtomicBool::new(false) };
    let tasks = Turn::of(in_turn(tasks, after), budget.left());
    let (last, failure) = work_through(&rescuer, tasks, &budget, outcome).await?;
    let all_examined = rescue != Rescue::Off && !open.is_partial && last.is_none();
    if all_examined && failure.is_none() && !rescuer.is_undecided.load(Ordering::Relaxed) {
        outcome.findings.complete(FindingKind::StrandedRun);
    }
    let turn = if open.is_partial { turn.wrapping_add(1) } else { turn };
    let stored = store_marker(plane, settings, RunsMarker { turn, after: last }).await;
    failure.map_or(stored, Err)
}

fn report_silent(plane: &Plane, machines: &Machines, outcome: &mut Outcome) {
    for (record, age) in machines.silent(plane.now()) {
        let (id, since) = (&record.id, age.as_secs());
        let label = record.label().map_or_else(String::new, |label| label.to_string());
        let problem = format!("machine {id} of run {label} has sent no heartbeat for {since} s");
        outcome.findings.add(FindingKind::DeadMachine, id, &problem);
        outcome.warnings.push(problem);
        outcome.silent.push(id.clone());
    }
    outcome.findings.complete(FindingKind::DeadMachine);
}

fn report_failing(machines: &Machines, outcome: &mut Outcome) {
    for (record, why) in machines.failing() {
        let label = record.label().map_or_else(String::new, |label| label.to_string());
        let problem = format!("machine {} cannot serve run {label}: {why}", record.id);
        outcome.findings.add(FindingKind::FailingMachine, &record.id, &problem);
        outcome.warnings.push(problem);
        outcome.failing.push(record.id.clone());
    }
    outcome.findings.complete(FindingKind::FailingMachine);
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
                asked.retain(|demand| {
                    machines.serving(&demand.label()).lacks(demand)
                        || demand.labels.iter().any(|label| machines.is_unserved(label))
                });
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
    /// How many requests it may take; for waiting jobs, the first page.
    fn requests(&self) -> u32 {
        match self {
            Task::NeverAsked | Task::LacksMachines(_, Some(_)) => 0,
            Task::MayHaveCompleted | Task::LacksMachines(_, None) => 1,
            // Its status, its jobs, and the re-run.
            Task::WasInterrupted(_) => 3,
        }
    }

    /// Whether the run has to be released if it has completed.
    fn may_have_completed(&self) -> bool {
        matches!(self, Task::MayHaveCompleted | Task::WasInterrupted(_))
    }
}

/// The tasks of one refresh, in turn, and which of them were examined.
struct Turn {
    /// Those that the budget suffices for.
    tasks: Vec<(RunId, Task)>,
    /// The runs of all tasks that take requests.
    order: Vec<RunId>,
    examined: BTreeSet<RunId>,
}

impl Turn {
    fn of(tasks: Vec<(RunId, Task)>, budget: u32) -> Turn {
        let mut turn = Turn { tasks: Vec::new(), order: Vec::new(), examined: BTreeSet::new() };
        let mut left = Some(budget);
        for (run, task) in tasks {
            if task.requests() > 0 {
                turn.order.push(run.clone());
                left = left.and_then(|left| left.checked_sub(task.requests()));
                if left.is_none() {
                    continue;
                }
            }
            turn.tasks.push((run, task));
        }
        turn
    }

    /// The run after which the next refresh continues, if this one continued after `last`; `None` if
    /// all were examined.
    fn last_examined(&self, last: Option<&RunId>) -> Option<RunId> {
        let examined = self.order.iter().take_while(|run| self.examined.contains(*run));
        let examined: Vec<&RunId> = examined.collect();
        match examined.len() == self.order.len() {
            true => None,
            false => examined.last().copied().or(last).cloned(),
        }
    }
}

/// Carries out the tasks that the budget suffices for: releases first, because the answers that they
/// go by are soon out of date, then re-runs, then rescues, which take minutes. Returns the run after
/// which the next refresh continues, and the first failure of a store that did not answer for one of
/// the runs. Fails if the store does not answer at all, or if `stop` is raised.
async fn work_through(
    rescuer: &Rescuer<'_>,
    mut turn: Turn,
    budget: &RequestBudget,
    outcome: &mut Outcome,
) -> Result<(Option<RunId>, Option<Failure>), Failure> {
    let Rescuer { plane, settings, limit, stop, .. } = rescuer;
    let tasks = std::mem::take(&mut turn.tasks);
    let asked = tasks.iter().filter(|(_, task)| task.may_have_completed());
    let asked: Vec<&RunId> = asked.map(|(run, _)| run).collect();
    let attended = completed::attend(plane, &asked, budget, *limit, outcome);
    let Attended { status, failed, mut limited, mut failure } =
        stop.unless_raised(attended).await??;
    turn.examined.extend(status.keys().cloned().chain(failed));
    for (run, task) in &tasks {
        let (Task::WasInterrupted(machines), Some(status)) = (task, status.get(run)) else {
            continue;
        };
        let followed = async {
            match status {
                RunStatus::Completed if limited => Ok(()),
                RunStatus::Completed => {
                    interruptions::rerun(plane, run, machines, budget, outcome).await
                }
                RunStatus::Unknown => interruptions::forget(plane, machines).await,
                RunStatus::Open | RunStatus::Untold => Ok(()),
            }
        };
        let followed = stop.unless_raised(followed).await?;
        limited |= matches!(Asked::of(run, followed, outcome), Asked::Limited);
    }
    for (run, task) in tasks {
        let takes_request = task.requests() > 0;
        match task {
            Task::MayHaveCompleted | Task::WasInterrupted(_) => continue,
            Task::NeverAsked => {
                let problem = format!("jobs wait for a run that has not asked for machines: {run}");
                outcome.strand((&run).into(), problem);
            }
            Task::LacksMachines(_, None) if limited || budget.left() == 0 => continue,
            Task::LacksMachines(demands, known) => {
                let asked = async {
                    match known {
                        Some(waiting) => Ok(waiting),
                        None => about_run(plane, || plane.forge.waiting_jobs(&run, budget)).await,
                    }
                };
                let asked = stop.unless_raised(asked).await?;
                match Asked::of(&run, asked, outcome) {
                    Asked::Answered(waiting) => {
                        let rescued = rescuer.rescue_all(demands, &waiting, outcome).await;
                        keep_first(&mut failure, unless_stopped(rescued)?);
                    }
                    Asked::Failed => rescuer.is_undecided.store(true, Ordering::Relaxed),
                    Asked::Limited => {
                        limited = true;
                        continue;
                    }
                }
            }
        }
        if takes_request {
            turn.examined.insert(run);
        }
    }
    Ok((turn.last_examined(settings.runs_marker.after.as_ref()), failure))
}

/// Makes the stop signal an error of its own.
fn unless_stopped(result: Result<(), Failure>) -> Result<Result<(), Failure>, Failure> {
    match result {
        Err(stopped) if matches!(stopped.kind, FailureKind::Interrupted | FailureKind::Stopped) => {
            Err(stopped)
        }
        result => Ok(result),
    }
}

/// Asks the forge about one run. Few requests are left for each, so only one is repeated.
async fn about_run<T, F>(plane: &Plane, mut ask: impl FnMut() -> F) -> PortResult<T>
where
    F: Future<Output = PortResult<T>>,
{
    const TWICE: Retry = Retry { attempts: 2, ..Retry::PART };
    retry(&*plane.clock, &*plane.random, TWICE, |_| ask()).await
}

/// What a question about one run led to.
enum Asked<T> {
    Answered(T),
    /// It failed, and there is a warning.
    Failed,
    /// The forge limits requests, and there is a warning.
    Limited,
}

impl<T> Asked<T> {
    fn of(run: &RunId, answer: PortResult<T>, outcome: &mut Outcome) -> Asked<T> {
        match answer {
            Ok(answer) => Asked::Answered(answer),
            Err(PortError::Limited { reason, .. }) => {
                outcome.warnings.push(not_all(&reason));
                Asked::Limited
            }
            Err(error) => {
                outcome.warnings.push(not_examined(run, &error));
                Asked::Failed
            }
        }
    }
}

fn not_all(reason: &str) -> String {
    format!("not all runs were examined: {reason}")
}

fn not_examined(run: &RunId, error: &PortError) -> String {
    format!("run {run} was not examined: {error}")
}

/// Makes a rate limit of the forge a warning and `None`.
fn unless_limited<T>(answer: PortResult<T>, outcome: &mut Outcome) -> PortResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(PortError::Limited { reason, .. }) => {
            outcome.warnings.push(not_all(&reason));
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
    fn the_next_refresh_continues_after_what_was_examined() {
        let run = |text: &str| RunId::new(text).unwrap();
        let tasks = || {
            let interrupted = Task::WasInterrupted(BTreeSet::new());
            vec![
                (run("1"), Task::MayHaveCompleted),
                (run("2"), Task::NeverAsked),
                (run("3"), interrupted),
                (run("4"), Task::MayHaveCompleted),
            ]
        };
        for (budget, taken) in [(9, "1 2 3 4"), (5, "1 2 3 4"), (4, "1 2 3"), (3, "1 2"), (0, "2")]
        {
            let turn = Turn::of(tasks(), budget);
            let runs: Vec<&str> = turn.tasks.iter().map(|(run, _)| run.as_str()).collect();
            assert_eq!(runs.join(" "), taken, "{budget} requests");
        }
        for (examined, last) in [
            (&["1", "3", "4"][..], None),
            (&["1", "3"], Some("3")),
            (&["1", "4"], Some("1")),
            (&["3", "4"], Some("0")),
        ] {
            let mut turn = Turn::of(tasks(), 9);
            turn.examined.extend(examined.iter().map(|text| run(text)));
            assert_eq!(turn.last_examined(Some(&run("0"))), last.map(run), "{examined:?}");
        }
    }

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
