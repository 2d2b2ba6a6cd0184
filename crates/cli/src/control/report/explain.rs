//! What `ondeck explain` shows: a timeline in sentences, the present state, and for a run how long each
//! phase of its provisions took.

mod json;
mod layout;
mod ledger;
mod machine;
mod run;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::explain::{Gap, Sight, Story};

pub(super) use self::json::ExplainJson;
#[cfg(feature = "watch")]
pub(crate) use self::layout::{Look, ShownLine};
use self::ledger::LedgerRow;
use self::words::span;
use super::Report;
use super::wire::to_json;

/// The story of a run or a machine, in words.
#[derive(Debug)]
pub(crate) struct ExplainReport {
    subject: SubjectKind,
    id: String,
    now: Timestamp,
    timeline: Vec<Line>,
    /// What is so at this moment, one sentence each.
    present: Vec<String>,
    ledger: Vec<LedgerRow>,
    /// How many calls of other runs the typical values come from.
    typical_calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubjectKind {
    Run,
    Machine,
}

/// One entry of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    at: Option<Timestamp>,
    kind: LineKind,
    text: String,
    machines: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// What was asked for.
    Request,
    /// What the search of the pool met.
    Search,
    Wait,
    Launch,
    /// A transition of machines.
    Event,
    /// How a call ended.
    Ending,
    /// Something that the records do not tell.
    Unknown,
}

impl Line {
    fn new(at: impl Into<Option<Timestamp>>, kind: LineKind, text: impl Into<String>) -> Line {
        Line { at: at.into(), kind, text: text.into(), machines: Vec::new() }
    }

    /// By time. What has none is at the end.
    fn order(&self) -> Timestamp {
        self.at.unwrap_or(Timestamp::from_millis(u64::MAX))
    }

    fn about(mut self, machines: impl IntoIterator<Item = impl ToString>) -> Line {
        self.machines = machines.into_iter().map(|id| id.to_string()).collect();
        self
    }
}

impl ExplainReport {
    pub(crate) fn of(story: Story) -> ExplainReport {
        match story {
            Story::Machine(story) => ExplainReport {
                subject: SubjectKind::Machine,
                id: story.id.to_string(),
                now: story.now,
                timeline: machine::timeline(&story),
                present: machine::present(&story),
                ledger: Vec::new(),
                typical_calls: 0,
            },
            Story::Run(story) => ExplainReport {
                subject: SubjectKind::Run,
                id: story.label.to_string(),
                now: story.now,
                timeline: run::timeline(&story),
                present: run::present(&story),
                ledger: ledger::rows(&story),
                typical_calls: story.typical.calls,
            },
        }
    }
}

impl ExplainReport {
    /// The story as lines of at most so many columns, except for the rows of its tables.
    #[cfg(feature = "watch")]
    pub(crate) fn lines(&self, columns: usize) -> Vec<ShownLine> {
        layout::lines(self, Some(columns))
    }
}

impl Report for ExplainReport {
    fn json(&self) -> String {
        to_json(&ExplainJson::from(self))
    }

    fn text(&self) -> String {
        layout::text(self, layout::terminal_width())
    }

    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// Says that events are missing, and what is known around them.
fn gap(gap: &Gap, what: &str) -> Line {
    let text = match (gap.from, gap.to) {
        (None, _) if gap.is_unread => format!("{what} has earlier events that were not read."),
        (None, Some(to)) => {
            format!("What happened before is unknown: no event tells how {what} became {to}.")
        }
        (None, None) => "What happened before is unknown: its events are missing.".to_owned(),
        (Some((from, at)), Some(to)) if from == to => format!(
            "Unknown: after {} at least one event of {what} is missing, which was {from} and is {to} \
             again.",
            words::clock(at)
        ),
        (Some((from, at)), Some(to)) => format!(
            "Unknown: no event tells how {what}, {from} at {}, became {to}.",
            words::clock(at)
        ),
        (Some((from, at)), None) => format!(
            "What happened next is unknown: {what} was {from} at {}, and no later event tells more.",
            words::clock(at)
        ),
    };
    Line::new(gap.until, LineKind::Unknown, text).about([what])
}

/// From which delay on it is told that an agent saw a claim late. One that is woken needs less.
const LATE: Duration = Duration::from_secs(2);

/// Says that an agent saw late that its machine was claimed.
fn saw_late(sight: &Sight, what: &str) -> Option<Line> {
    let Sight { run, at, after } = sight;
    let text = format!(
        "The agent of {what} saw the claim of run {run} {} after it was made, by its own clock. It was not \
         woken, and looked later, or it could not read its record.",
        span(*after)
    );
    (*after >= LATE).then(|| Line::new(*at, LineKind::Wait, text).about([what]))
}

const INTERRUPTED: &str = "Its provider has announced that it takes the machine away.";

/// How long until `at`, or since.
fn when(at: Timestamp, now: Timestamp) -> String {
    match at > now {
        true => format!("{} (in {})", words::clock(at), span(at.since(now))),
        false => format!("{} ({} ago)", words::clock(at), span(now.since(at))),
    }
}
