//! What an order means for one machine.

use super::Order;
use crate::lifecycle::{Instance, Live, Pending};
use crate::model::departure::Departure;
use crate::model::record::{Record, State};
use crate::model::signal::{AgentStatus, Report};
use crate::model::timestamp::Timestamp;

/// What an operator wants of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Idle ones are terminated. Those that runs have leave after their runs.
    Drain,
    /// They leave as those do that have reached the limit of their lifetime.
    Retire,
    /// They are terminated now.
    Terminate,
}

impl Command {
    pub(super) fn past(self) -> &'static str {
        match self {
            Command::Drain => "drained",
            Command::Retire => "retired",
            Command::Terminate => "terminated",
        }
    }
}

/// What is done to one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// No run has it, and it is terminated.
    Terminate,
    /// It is terminated, and the run that has it loses it.
    TakeFromRun,
    /// No further run gets it. It leaves after its present run.
    LeaveAfterRun,
    /// It leaves after its present run, or when it is idle and others are idle in its place.
    Replace,
    /// It is left as it is, for this reason.
    None(String),
    /// It is left as it is, because a run has it and the order does not say `force`.
    Refuse(String),
}

impl Action {
    /// Whether the machine's record is changed.
    pub fn is_change(&self) -> bool {
        !matches!(self, Action::None(_) | Action::Refuse(_))
    }
}

pub(super) struct Decision {
    pub(super) action: Action,
    pub(super) change: Option<Change>,
}

pub(super) enum Change {
    Mark(Pending<Live>),
    End(Instance<Live>),
}

/// Whether a run may have a job on the machine.
enum Use {
    /// It is idle, and its agent has left the last run.
    Free,
    /// It is idle, and its agent is leaving its last run, or still has a job of it.
    Leaving,
    Owned,
}

impl Use {
    fn of(record: &Record, status: &AgentStatus) -> Use {
        let free = |report: &Report| report.is_free_in(record.counts.generation, None);
        // A record is marked as announced only after its agent has left the last run.
        let is_free = record.ticketed_at.is_some() || status.report.as_ref().is_some_and(free);
        match record.state {
            State::Idle if is_free => Use::Free,
            State::Idle => Use::Leaving,
            _ => Use::Owned,
        }
    }
}

pub(super) fn decide(
    order: &Order,
    record: &Record,
    status: &AgentStatus,
    now: Timestamp,
) -> Decision {
    let Some(live) = Instance::<Live>::believe(record) else {
        return left("it is terminated already");
    };
    let is_expired = record.is_expired(now);
    let used = Use::of(record, status);
    match (order.command, used) {
        (Command::Drain | Command::Terminate, Use::Free) => end(Action::Terminate, live),
        (Command::Drain | Command::Terminate, Use::Leaving) if is_expired => {
            end(Action::Terminate, live)
        }
        (Command::Terminate, _) if order.force => end(Action::TakeFromRun, live),
        (Command::Terminate, Use::Leaving) => refused("its agent is leaving its last run"),
        (Command::Terminate, Use::Owned) => match &record.run {
            Some(run) => refused(&format!("it belongs to run {run}")),
            None => refused("it is in use"),
        },
        (Command::Drain | Command::Retire, _) if is_expired => {
            left("its time is up, and refresh terminates it")
        }
        (Command::Drain | Command::Retire, _) if record.is_preserved() => {
            left("it is kept for debugging, and does not return to the pool")
        }
        (Command::Drain, _) => match record.departure {
            Departure::Drained => left("it is drained already"),
            Departure::None | Departure::Retired => mark(Action::LeaveAfterRun, live.drain(now)),
        },
        (Command::Retire, _) => match record.departure {
            Departure::None => mark(Action::Replace, live.retire(now)),
            Departure::Retired => left("it is retired already"),
            Departure::Drained => left("it is drained already"),
        },
    }
}

fn left(why: &str) -> Decision {
    Decision { action: Action::None(why.to_owned()), change: None }
}

fn refused(why: &str) -> Decision {
    Decision { action: Action::Refuse(why.to_owned()), change: None }
}

fn mark(action: Action, mark: Pending<Live>) -> Decision {
    Decision { action, change: Some(Change::Mark(mark)) }
}

fn end(action: Action, live: Instance<Live>) -> Decision {
    Decision { action, change: Some(Change::End(live)) }
}
