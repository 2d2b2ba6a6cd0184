//! What the page is sent. Only the page of the same program reads it, so it has no version.

use std::collections::BTreeMap;

use ondeck_core::model::money::Money;
use ondeck_core::model::record::Record;
use ondeck_core::model::summary::{CallOrigin, CallResult, ProvisionSummary};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::judgement::{Group, Judged, Judgement, Mark};
use serde::{Serialize, Serializer};

use crate::control::report::estimate::CostOfAnHour;

/// The most machines that a problem names. The page says how many there are.
const NAMED: usize = 20;

/// A moment, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(pub(super) Timestamp);

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.millis())
    }
}

/// One machine, as its card shows it. It is the same until something about the machine changes, so it
/// contains no ages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Machine {
    pub(super) id: String,
    pub(super) state: &'static str,
    pub(super) run: String,
    pub(super) class: String,
    #[serde(rename = "type")]
    pub(super) instance_type: String,
    pub(super) usage: &'static str,
    /// When it got into its state, or its state was renewed.
    pub(super) since: At,
    /// Until when the state may last.
    pub(super) until: Option<At>,
    /// How many runs it was given to.
    pub(super) runs: u32,
    pub(super) marks: Vec<&'static str>,
}

impl Machine {
    pub(super) fn of(judged: &Judged) -> Machine {
        let marks = judged.marks.iter().map(Mark::as_str).collect();
        Machine { state: judged.group.as_str(), marks, ..Machine::recorded(&judged.record) }
    }

    /// A machine of which only the record is known.
    pub(super) fn recorded(record: &Record) -> Machine {
        let spec = &record.spec;
        Machine {
            id: record.id.to_string(),
            state: record.state.as_str(),
            run: record.label().map(|label| label.to_string()).unwrap_or_default(),
            class: spec.resource_class.to_string(),
            instance_type: spec.instance_type.clone(),
            usage: spec.usage_class.as_str(),
            since: At(record.updated_at),
            until: record.threshold.map(At),
            runs: record.counts.runs,
            marks: Vec::new(),
        }
    }
}

/// Something that was seen to have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    /// Of all changes since the process began.
    pub(super) number: u64,
    pub(super) at: At,
    pub(super) id: String,
    pub(super) class: String,
    pub(super) run: String,
    /// `state` or `mark`.
    pub(super) kind: &'static str,
    /// The state before; empty if it was not seen.
    pub(super) from: &'static str,
    /// The state, or the mark.
    pub(super) to: &'static str,
    /// Whether other states must have been between the two.
    pub(super) skipped: bool,
}

/// How many machines and tickets there were at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Sample {
    pub(super) at: At,
    pub(super) idle: usize,
    pub(super) running: usize,
    /// How many are created or claimed.
    pub(super) starting: usize,
    pub(super) tickets: usize,
}

/// One call of provision by a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Call {
    pub(super) at: At,
    pub(super) run: String,
    pub(super) ms: u64,
    pub(super) warm: usize,
    pub(super) cold: usize,
    pub(super) failed: bool,
}

impl Call {
    /// `None` for a call that refresh made.
    pub(super) fn of(summary: &ProvisionSummary) -> Option<Call> {
        if matches!(summary.origin, CallOrigin::KeepWarm | CallOrigin::Rescue) {
            return None;
        }
        let count = |source: &str| summary.machines.iter().filter(|it| it.source == source).count();
        Some(Call {
            at: At(summary.began),
            run: summary.label().to_string(),
            ms: summary.phases.total_ms,
            warm: count("warm"),
            cold: count("cold"),
            failed: summary.ending.result != CallResult::HandingOver,
        })
    }
}

/// The pool as a whole. It contains no ages either.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    states: BTreeMap<&'static str, usize>,
    classes: Vec<Class>,
    tickets: usize,
    warm: Option<Warm>,
    oldest_idle: Option<OldestIdle>,
    refreshed: Option<At>,
    refresh_overdue: bool,
    ceilings: Vec<Ceiling>,
    spend: Option<Spend>,
    problems: Vec<Problem>,
    cost: Cost,
}

/// Today's part of `max-spend-per-day`, in billionths of a dollar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Spend {
    /// The day in UTC.
    day: String,
    spent: Money,
    reserved: Money,
    cap: Money,
    /// Whether most of the cap is spent or reserved.
    near: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Class {
    name: String,
    states: BTreeMap<&'static str, usize>,
    tickets: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Warm {
    handed_over: usize,
    warm: usize,
    since: At,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct OldestIdle {
    id: String,
    since: At,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Ceiling {
    /// Empty for the pool.
    class: String,
    machines: Option<u32>,
    max: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Problem {
    kind: &'static str,
    message: String,
    hint: &'static str,
    machines: Vec<String>,
    /// How many more there are.
    more: usize,
}

/// Estimates, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Cost {
    hour: String,
    idle: String,
    unpriced: usize,
    /// Whether the machines are processes, which cost nothing.
    local: bool,
}

impl Summary {
    /// What is wrong, in words.
    pub(super) fn wrong(&self) -> String {
        let words = self.problems.iter().map(|it| format!("{}: {}\n", it.kind, it.message));
        words.collect()
    }

    pub(super) fn of(judgement: &Judgement, local: bool) -> Summary {
        let summary = &judgement.summary;
        let classes = summary.classes.iter().map(|class| Class {
            name: class.class.to_string(),
            states: counts(&class.groups),
            tickets: class.tickets,
        });
        let ceilings = summary.ceilings.iter().map(|ceiling| Ceiling {
            class: ceiling.class.as_ref().map(ToString::to_string).unwrap_or_default(),
            machines: ceiling.machines,
            max: ceiling.max,
        });
        let problems = summary.problems.iter().map(|problem| Problem {
            kind: problem.kind.as_str(),
            message: problem.message.clone(),
            hint: problem.hint,
            machines: problem.machines.iter().take(NAMED).map(ToString::to_string).collect(),
            more: problem.machines.len().saturating_sub(NAMED),
        });
        Summary {
            states: counts(&summary.groups),
            classes: classes.collect(),
            tickets: tickets(judgement),
            warm: summary.warm.map(|warm| Warm {
                handed_over: warm.handed_over,
                warm: warm.warm,
                since: At(warm.since),
            }),
            oldest_idle: summary.oldest_idle.as_ref().map(|(id, age)| OldestIdle {
                id: id.to_string(),
                since: At(judgement.at.before(*age)),
            }),
            refreshed: summary.refreshed.map(At),
            refresh_overdue: summary.refresh_overdue,
            ceilings: ceilings.collect(),
            spend: summary.spend.as_ref().map(|used| Spend {
                day: used.date(),
                spent: used.spent,
                reserved: used.reserved,
                cap: used.cap,
                near: used.is_near_cap(),
            }),
            problems: problems.collect(),
            cost: cost(judgement, local),
        }
    }
}

impl Sample {
    pub(super) fn of(judgement: &Judgement) -> Sample {
        let count = |group| judgement.summary.groups.get(&group).copied().unwrap_or(0);
        Sample {
            at: At(judgement.at),
            idle: count(Group::Idle),
            running: count(Group::Running),
            starting: count(Group::Created) + count(Group::Claimed),
            tickets: tickets(judgement),
        }
    }
}

fn counts(groups: &BTreeMap<Group, usize>) -> BTreeMap<&'static str, usize> {
    groups.iter().map(|(group, count)| (group.as_str(), *count)).collect()
}

fn tickets(judgement: &Judgement) -> usize {
    judgement.tickets.iter().map(|(_, tickets)| tickets).sum()
}

fn cost(judgement: &Judgement, local: bool) -> Cost {
    let live = judgement.machines.iter().filter(|machine| machine.group != Group::Terminated);
    let idle = live.clone().filter(|machine| machine.group == Group::Idle);
    let all = CostOfAnHour::of(live.map(|machine| &machine.record.spec));
    let idle = CostOfAnHour::of(idle.map(|machine| &machine.record.spec));
    Cost { hour: all.amount, idle: idle.amount, unpriced: all.unpriced, local }
}
