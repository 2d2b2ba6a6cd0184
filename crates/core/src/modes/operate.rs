//! What operators do to machines: drain, retire and terminate them, by the transitions that the other
//! modes use.
//!
//! ```text
//! select → decide for each machine → change its record → terminate those that were reaped here
//! ```
//!
//! Runs claim and release machines meanwhile. A change that the store refuses is decided again by the
//! record that it found, so a machine that was claimed in between is treated as one that is in use.

mod decision;
mod selection;
pub mod tickets;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

pub use self::decision::{Action, Command};
use self::decision::{Decision, decide};
pub use self::selection::Selection;
use self::selection::{Selected, select};
use crate::lifecycle::{Instance, Live, Pending};
use crate::model::excerpt::one_line;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{MachineSpec, Record, State};
use crate::model::signal::AgentStatus;
use crate::modes::plane::{NotCommitted, Plane, Reaped};
use crate::ports::{PortError, PortResult};
use crate::runtime::poll::{PollInterval, Wait, wait_until};
use crate::runtime::stop::StopSignal;

/// How many machines are changed at a time.
const AT_A_TIME: usize = 16;
/// How often a machine is decided about again because another process has changed it.
const ROUNDS: usize = 5;
/// How often a drain looks whether machines are left, after the first seconds.
const LOOK: Duration = Duration::from_secs(2);
/// The longest reason that is stored with an event.
const LONGEST_REASON: usize = 200;

/// What an operator asks for.
#[derive(Debug, Clone)]
pub struct Order {
    pub command: Command,
    pub selection: Selection,
    /// Lets [`Command::Terminate`] take machines from their runs.
    pub force: bool,
    /// How long a drain waits until the machines are gone.
    pub wait: Duration,
    /// Who asks, for the events.
    pub actor: String,
    /// Why, in the operator's words. May be empty.
    pub reason: String,
}

impl Order {
    /// The reason in the events.
    fn why(&self) -> String {
        let who = format!("{} by {}", self.command.past(), one_line(&self.actor));
        let text = match self.reason.trim() {
            "" => who,
            reason => format!("{who}: {}", one_line(&reason)),
        };
        text.chars().take(LONGEST_REASON).collect()
    }
}

/// What was done, or what would be.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Whether nothing was changed.
    pub is_plan: bool,
    /// Every machine that was selected, ordered by id.
    pub machines: Vec<Affected>,
    /// Ids that were asked for and have no record.
    pub unknown: Vec<InstanceId>,
    /// Ids that were asked for and whose records cannot be read.
    pub unreadable: Vec<InstanceId>,
    /// Problems that did not stop the rest.
    pub warnings: Vec<String>,
    /// Why not everything was done.
    pub failure: Option<Failure>,
}

/// One machine that was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    pub id: InstanceId,
    pub spec: MachineSpec,
    /// The state and the owner that the decision was made by.
    pub state: State,
    pub run: Option<RunId>,
    pub action: Action,
    /// Whether another process changed the machine first, so that it was decided about again.
    pub changed_meanwhile: bool,
    /// Whether the machine is gone, as far as this call can tell.
    pub is_gone: bool,
    /// Why the store or the provider could not be reached for this machine.
    pub error: Option<PortError>,
}

impl Outcome {
    /// The machines that this order changes, or would change.
    pub fn affected(&self) -> impl Iterator<Item = &Affected> {
        self.machines.iter().filter(|machine| machine.action.is_change())
    }

    /// Those among them that a run has.
    pub fn busy(&self) -> impl Iterator<Item = &Affected> {
        self.affected().filter(|machine| machine.run.is_some())
    }
}

/// Says what [`carry_out`] would do now. Changes nothing.
pub async fn plan(plane: &Plane, order: &Order, stop: &StopSignal) -> Result<Outcome, Failure> {
    stop.unless_raised(async {
        let Selected { machines, unknown, unreadable, warnings } = select(plane, order).await?;
        let affected = |(record, status): &(Record, AgentStatus)| {
            let decision = decide(order, record, status, plane.now());
            affected(record, decision.action, false)
        };
        let machines: Vec<Affected> = machines.iter().map(affected).collect();
        let (is_plan, failure) = (true, None);
        let mut outcome = Outcome { is_plan, machines, unknown, unreadable, warnings, failure };
        outcome.failure = self::failure(order, &outcome);
        Ok(outcome)
    })
    .await?
}

/// Carries the order out. May be stopped or killed anywhere: each machine is then as it was, marked, or
/// expired, and refresh finishes what was begun. The same order again does what is left.
pub async fn carry_out(
    plane: &Plane,
    order: &Order,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let work = async {
        let selected = select(plane, order).await?;
        outcome.unknown = selected.unknown;
        outcome.unreadable = selected.unreadable;
        outcome.warnings = selected.warnings;
        outcome.machines = change_all(plane, order, selected.machines).await;
        if order.command == Command::Drain && !order.wait.is_zero() {
            wait_for(plane, order, &mut outcome).await?;
        }
        Ok::<(), Failure>(())
    };
    match stop.unless_raised(work).await {
        Ok(done) => done?,
        Err(stop) => {
            outcome.failure = Some(stop.into());
            return Ok(outcome);
        }
    }
    outcome.failure = failure(order, &outcome);
    Ok(outcome)
}

/// Changes each machine, then terminates all that were reaped here in one call. The store comes first.
async fn change_all(
    plane: &Plane,
    order: &Order,
    machines: Vec<(Record, AgentStatus)>,
) -> Vec<Affected> {
    let doing = match order.command {
        Command::Drain => "draining",
        Command::Retire => "retiring",
        Command::Terminate => "terminating",
    };
    plane.progress.stage(&format!("{doing} machines: {}", machines.len()));
    let changes = machines
        .into_iter()
        .map(|(record, status)| async move { change(plane, order, record, status).await });
    let changed: Vec<Changed> = stream::iter(changes).buffered(AT_A_TIME).collect().await;
    let won: Vec<InstanceId> =
        changed.iter().filter(|it| it.reaped_here).map(|it| it.machine.id.clone()).collect();
    let terminated = plane.terminate(&won).await;
    let told = changed.into_iter().map(|Changed { mut machine, reaped_here }| {
        if reaped_here {
            machine.is_gone = terminated.is_ok();
            machine.error = terminated.as_ref().err().cloned();
        }
        machine
    });
    told.collect()
}

struct Changed {
    machine: Affected,
    /// The caller terminates the machine.
    reaped_here: bool,
}

/// Decides about a machine and changes its record, and again by what the store found instead.
async fn change(
    plane: &Plane,
    order: &Order,
    mut record: Record,
    mut status: AgentStatus,
) -> Changed {
    let mut changed_meanwhile = false;
    for _ in 0..ROUNDS {
        let Decision { action, change } = decide(order, &record, &status, plane.now());
        let mut machine = affected(&record, action, changed_meanwhile);
        let made = match change {
            None => return Changed { machine, reaped_here: false },
            Some(decision::Change::Mark(mark)) => apply_mark(plane, order, mark).await,
            Some(decision::Change::End(live)) => end(plane, order, &live).await,
        };
        match made {
            Ok(Made::Marked) => return Changed { machine, reaped_here: false },
            Ok(Made::Reaped) => return Changed { machine, reaped_here: true },
            Ok(Made::Gone) => {
                machine.action = Action::None("another process terminates it".to_owned());
                machine.is_gone = true;
                return Changed { machine, reaped_here: false };
            }
            Ok(Made::Found(found)) => {
                changed_meanwhile = true;
                record = *found;
                let ids = std::slice::from_ref(&record.id);
                let read = plane.retried(|| plane.store.agent_status(ids)).await;
                match read.map(|read| read.into_iter().next()) {
                    Ok(read) => status = read.unwrap_or_default(),
                    Err(error) => return unreached(machine, error),
                }
            }
            Err(error) => return unreached(machine, error),
        }
    }
    let why = format!("it changed {ROUNDS} times meanwhile; try again");
    let machine = affected(&record, Action::None(why), true);
    Changed { machine, reaped_here: false }
}

fn unreached(mut machine: Affected, error: PortError) -> Changed {
    machine.error = Some(error);
    Changed { machine, reaped_here: false }
}

/// What became of one change.
enum Made {
    Marked,
    /// The caller terminates the machine.
    Reaped,
    /// There is no live record any more.
    Gone,
    Found(Box<Record>),
}

async fn apply_mark(plane: &Plane, order: &Order, mark: Pending<Live>) -> PortResult<Made> {
    match plane.apply(mark.because(order.why())).await {
        Ok(_) => Ok(Made::Marked),
        Err(NotCommitted::Unreachable(error)) => Err(error),
        Err(NotCommitted::Refused(refused)) => Ok(match refused.found {
            Some(found) if found.state.is_live() => Made::Found(Box::new(found)),
            _ => Made::Gone,
        }),
    }
}

async fn end(plane: &Plane, order: &Order, live: &Instance<Live>) -> PortResult<Made> {
    match plane.expire_and_reap(live, &order.why()).await? {
        Reaped::Here => Ok(Made::Reaped),
        Reaped::NotHere(Some(found)) => Ok(Made::Found(found)),
        Reaped::NotHere(None) => Ok(Made::Gone),
    }
}

fn affected(record: &Record, action: Action, changed_meanwhile: bool) -> Affected {
    Affected {
        id: record.id.clone(),
        spec: record.spec.clone(),
        state: record.state,
        run: record.run.clone(),
        action,
        changed_meanwhile,
        is_gone: !record.state.is_live(),
        error: None,
    }
}

/// Waits until the machines are gone. One that has become idle is terminated here if no other process
/// does it.
async fn wait_for(plane: &Plane, order: &Order, outcome: &mut Outcome) -> Result<(), Failure> {
    let clock = &*plane.clock;
    let wait = Wait::begin(clock, order.wait, PollInterval::fixed(LOOK).prompt());
    let machines = Mutex::new(&mut outcome.machines);
    let locked = || machines.lock().unwrap_or_else(PoisonError::into_inner);
    wait_until(clock, wait, || async {
        let waits = |it: &&Affected| !it.is_gone && it.error.is_none();
        let ids: Vec<InstanceId> = locked().iter().filter(waits).map(|it| it.id.clone()).collect();
        if ids.is_empty() {
            return Ok(Some(()));
        }
        plane.progress.stage(&format!("waiting for machines in use: {}", ids.len()));
        let mut found = selection::with_status(plane, &ids).await?;
        found.retain(|(record, _)| record.state.is_live());
        let changed = change_all(plane, order, found).await;
        for machine in locked().iter_mut().filter(|it| ids.contains(&it.id)) {
            let now = changed.iter().find(|it| it.id == machine.id);
            machine.is_gone = now.is_none_or(|it| it.is_gone);
            machine.error = now.and_then(|it| it.error.clone());
        }
        Ok::<_, Failure>(None)
    })
    .await?;
    Ok(())
}

/// Why not everything was done, the worst first.
fn failure(order: &Order, outcome: &Outcome) -> Option<Failure> {
    let named = |ids: Vec<String>| {
        /// More would not fit into a line.
        const NAMED: usize = 5;
        let more = ids.len().saturating_sub(NAMED);
        let named = ids.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        if more > 0 { format!("{named}, and {more} more") } else { named }
    };
    let machine = |it: &Affected| match &it.run {
        Some(run) => format!("{} ({} of run {run})", it.id, it.state),
        None => format!("{} ({})", it.id, it.state),
    };
    let mut unreached = outcome.machines.iter().filter(|it| it.error.is_some()).peekable();
    if let Some(Affected { error: Some(error), .. }) = unreached.peek() {
        let error = Failure::from(error.clone());
        let ids = named(unreached.map(|it| it.id.to_string()).collect());
        let message = format!("not done for {ids}: {}", error.message);
        return Some(Failure { message, ..error });
    }
    if !outcome.unknown.is_empty() {
        let ids = named(outcome.unknown.iter().map(ToString::to_string).collect());
        return Some(
            Failure::invalid(format!("the pool has no record of these machines: {ids}")).hint(
                "ondeck status lists the machines; refresh terminates those without a record",
            ),
        );
    }
    if !outcome.unreadable.is_empty() {
        let ids = named(outcome.unreadable.iter().map(ToString::to_string).collect());
        let hint = "ondeck doctor gives the command that deletes them, after which refresh \
                    terminates the machines";
        let message = format!("the records of these machines cannot be read: {ids}");
        return Some(Failure::invalid(message).hint(hint));
    }
    let refused = outcome.machines.iter().filter(|it| matches!(it.action, Action::Refuse(_)));
    let refused: Vec<String> = refused.map(machine).collect();
    if !refused.is_empty() {
        let message = format!("machines are in use: {}", named(refused));
        let hint = "take them out after their runs with ondeck drain, or give --force";
        return Some(Failure::new(FailureKind::InUse, message).hint(hint));
    }
    if outcome.is_plan || order.command != Command::Drain || order.wait.is_zero() {
        return None;
    }
    let left: Vec<String> = outcome.machines.iter().filter(|it| !it.is_gone).map(machine).collect();
    (!left.is_empty()).then(|| {
        let message = format!("machines are still in use: {}", named(left));
        let hint = "they leave after their runs; call it again with a longer --wait-min to wait";
        Failure::new(FailureKind::InUse, message).hint(hint)
    })
}
