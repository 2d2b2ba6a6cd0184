//! What a reading of the pool means: which machines are silent, overdue, retiring or preserved, which
//! come first, and what is wrong.
//!
//! [`judge`] is a pure function of the reading, which contains the time. Reports only render it.

mod problems;

use std::collections::BTreeMap;
use std::time::Duration;

use self::problems::problems;
use super::Reading;
use crate::lifecycle::Transition;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::lifetime::Lifetime;
use crate::model::machine_label::RunnerLabel;
use crate::model::readiness::USUALLY_READY;
use crate::model::record::{EventRow, Record, State, Unreadable};
use crate::model::settings::{CHECKED_EVERY, Settings};
use crate::model::signal::{AgentStatus, INTERRUPTED, Pulse, Report};
use crate::model::timestamp::Timestamp;
use crate::modes::refresh::SpendUse;
use crate::modes::refresh::keep_warm::is_own_run;

/// How long after the time by which refresh checks everything again it counts as overdue. A schedule of
/// GitHub may be late by many minutes.
const REFRESH_SLACK: Duration = Duration::from_secs(30 * 60);
/// How long after its threshold a machine is still listed if refresh does not terminate it. A refresh
/// every few minutes does that earlier.
const REAPED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// The pool, judged at one moment.
#[derive(Debug, Clone)]
pub struct Judgement {
    pub at: Timestamp,
    pub summary: Summary,
    /// By group, then the most urgent first.
    pub machines: Vec<Judged>,
    /// How many tickets each configured class has in the pool.
    pub tickets: Vec<(ResourceClass, usize)>,
    pub unreadable: Vec<Unreadable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub record: Record,
    pub status: AgentStatus,
    pub group: Group,
    /// Whether a run that claims it need not wait for a registration. `None` unless it is idle, in a pool
    /// whose machines register before a run claims them.
    pub is_ready: Option<bool>,
    /// What people should know about it, the most urgent first. Empty for most machines.
    pub marks: Vec<Mark>,
}

/// A state as people see it, in the order in which they see them. A preserved machine is `running` in
/// its record, but serves no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    Running,
    Claimed,
    Created,
    Idle,
    Preserved,
    Terminated,
}

/// What is unusual about a machine. The order is that of urgency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Its last heartbeat is older than its agent's own period allows, with the reason.
    Silent(String),
    /// Its agent has reported that it cannot be used, with the reason.
    Failed(String),
    /// Its threshold passed so long ago, and its record is still live.
    Overdue(Duration),
    /// It is idle and not registered, although machines of the pool register before a run claims them, with
    /// the reason. A run can still claim it.
    Unready(String),
    /// It will not return to the pool, with the reason.
    Retiring(String),
    /// Its run has failed, and it is kept for people to examine.
    Preserved,
}

/// The pool as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// How many live machines there are, by group.
    pub groups: BTreeMap<Group, usize>,
    /// The same by class, with each configured class that has machines or tickets.
    pub classes: Vec<ClassSummary>,
    /// How many idle machines are registered already. `None` where machines register when they are claimed.
    pub ready: Option<usize>,
    /// `None` if no event tells.
    pub warm: Option<WarmShare>,
    /// The idle machine whose last transition is the oldest, and how long ago that was.
    pub oldest_idle: Option<(InstanceId, Duration)>,
    /// When refresh checked everything last, so that the last refresh is not older; `None` if it has
    /// failed since, or never did.
    pub refreshed: Option<Timestamp>,
    pub refresh_overdue: bool,
    /// For each number of `max-machines`, how many machines count.
    pub ceilings: Vec<Ceiling>,
    /// What machines have cost since midnight in UTC, and may cost until the next, by the last count.
    /// `None` if there is no cap, or if it is not known.
    pub spend: Option<SpendUse>,
    /// What is wrong, the most urgent first.
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassSummary {
    pub class: ResourceClass,
    pub groups: BTreeMap<Group, usize>,
    /// How many tickets are in the pool.
    pub tickets: usize,
}

/// Of the machines that runs were given lately, how many came from the pool. Machines that refresh
/// launched for the pool itself do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmShare {
    pub handed_over: usize,
    pub warm: usize,
    /// When the first of them was handed over.
    pub since: Timestamp,
}

/// One number of `max-machines`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// The class that it is for; `None` for the pool.
    pub class: Option<ResourceClass>,
    /// How many machines count; `None` if that is unknown.
    pub machines: Option<u32>,
    pub max: u32,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    /// The machines that it is about, the most urgent first.
    pub machines: Vec<InstanceId>,
    /// Lowercase, no full stop.
    pub message: String,
    /// One command or one setting.
    pub hint: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    Closed,
    RefreshOverdue,
    /// The last refresh has failed, or never succeeded.
    RefreshFailed,
    Silent,
    Failed,
    Overdue,
    Unready,
    AtCeiling,
    /// What machines have cost today and may still cost is near `max-spend-per-day`.
    SpendNearCap,
    Unreadable,
}

/// Judges a reading at the time that it was made.
pub fn judge(reading: Reading) -> Judgement {
    let Reading { at, settings, machines, unreadable, tickets, count, hand_overs } = reading;
    let judged = |(record, status)| Judged::new(record, status, &settings, at);
    let mut machines: Vec<Judged> = machines.into_iter().map(judged).collect();
    machines.sort_by(|a, b| a.order().cmp(&b.order()));
    let counted = count.filter(|count| settings.ceiling_since == Some(count.since));
    let of_pool = settings.max_machines.pool.map(|max| Ceiling {
        class: None,
        machines: counted.as_ref().map(|count| count.total),
        max,
    });
    let of_classes = settings.max_machines.classes.iter().map(|(class, max)| {
        let machines = counted.as_ref().map(|count| count.of_class(class));
        Ceiling { class: Some(class.clone()), machines, max: *max }
    });
    let spend = counted.as_ref().and_then(|count| SpendUse::counted(&settings, count, at));
    let mut summary = Summary {
        groups: tally(machines.iter()),
        classes: classes(&machines, &tickets),
        ready: (settings.runner_label == RunnerLabel::Machine)
            .then(|| machines.iter().filter(|it| it.is_ready == Some(true)).count()),
        warm: hand_overs.as_deref().and_then(warm_share),
        oldest_idle: oldest_idle(&machines, at),
        refreshed: settings.checked,
        refresh_overdue: is_refresh_overdue(&settings, &machines, at),
        ceilings: of_pool.into_iter().chain(of_classes).collect(),
        spend,
        problems: Vec::new(),
    };
    summary.problems = problems(&settings, &summary, &machines, &unreadable);
    Judgement { at, summary, machines, tickets, unreadable }
}

impl Judged {
    fn new(record: Record, status: AgentStatus, settings: &Settings, now: Timestamp) -> Judged {
        let group = Group::of(&record);
        let mut marks: Vec<Mark> = match group {
            Group::Terminated => Vec::new(),
            _ => [
                silent(&record, &status, now),
                failed(&record, &status),
                overdue(&record, now),
                unready(&record, &status, settings, now),
                retiring(&record, &status, settings, now),
                (group == Group::Preserved).then_some(Mark::Preserved),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        marks.sort();
        let is_ready = registers_idle(&record, settings)
            .then(|| status.is_ready_in(record.counts.generation, now));
        Judged { record, status, group, is_ready, marks }
    }

    /// Unmarked machines come last. Of equally urgent ones, that whose threshold is next comes first.
    fn order(&self) -> (Group, u8, Option<Timestamp>, &InstanceId) {
        let rank = self.marks.first().map_or(u8::MAX, Mark::rank);
        (self.group, rank, self.record.threshold, &self.record.id)
    }

    pub fn is_silent(&self) -> bool {
        self.marks.iter().any(|mark| matches!(mark, Mark::Silent(_)))
    }
}

impl Group {
    pub const ALL: [Group; 6] = [
        Group::Running,
        Group::Claimed,
        Group::Created,
        Group::Idle,
        Group::Preserved,
        Group::Terminated,
    ];

    fn of(record: &Record) -> Group {
        match record.state {
            State::Running if record.is_preserved() => Group::Preserved,
            State::Running => Group::Running,
            State::Claimed => Group::Claimed,
            State::Created => Group::Created,
            State::Idle => Group::Idle,
            State::Terminated => Group::Terminated,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Group::Running => "running",
            Group::Claimed => "claimed",
            Group::Created => "created",
            Group::Idle => "idle",
            Group::Preserved => "preserved",
            Group::Terminated => "terminated",
        }
    }
}

impl Mark {
    fn rank(&self) -> u8 {
        match self {
            Mark::Silent(_) => 0,
            Mark::Failed(_) => 1,
            Mark::Overdue(_) => 2,
            Mark::Unready(_) => 3,
            Mark::Retiring(_) => 4,
            Mark::Preserved => 5,
        }
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Mark::Silent(_) => "silent",
            Mark::Failed(_) => "failed",
            Mark::Overdue(_) => "overdue",
            Mark::Unready(_) => "unready",
            Mark::Retiring(_) => "retiring",
            Mark::Preserved => "preserved",
        }
    }

    /// Why the machine has it, if there is more to say than the word.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Mark::Silent(why) | Mark::Failed(why) | Mark::Unready(why) | Mark::Retiring(why) => {
                Some(why)
            }
            Mark::Overdue(_) | Mark::Preserved => None,
        }
    }
}

impl ProblemKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemKind::Closed => "closed",
            ProblemKind::RefreshOverdue => "refresh-overdue",
            ProblemKind::RefreshFailed => "refresh-failed",
            ProblemKind::Silent => "silent",
            ProblemKind::Failed => "failed",
            ProblemKind::Overdue => "overdue",
            ProblemKind::Unready => "unready",
            ProblemKind::AtCeiling => "at-ceiling",
            ProblemKind::SpendNearCap => "spend-near-cap",
            ProblemKind::Unreadable => "unreadable",
        }
    }
}

/// A new machine is not silent before its agent's first heartbeat: its threshold limits how long it may
/// start.
fn silent(record: &Record, status: &AgentStatus, now: Timestamp) -> Option<Mark> {
    let is_silent = match status.pulse(now) {
        Pulse::Healthy => false,
        Pulse::Stale(_) => true,
        Pulse::Never => record.state != State::Created,
    };
    is_silent.then(|| Mark::Silent(status.why_unhealthy(now)))
}

fn failed(record: &Record, status: &AgentStatus) -> Option<Mark> {
    let report = status.report.as_ref().filter(|report| !is_used_up(report))?;
    let why = match record.label() {
        Some(label) => report.failure_for(&label),
        None => report.why_unusable(),
    };
    why.map(Mark::Failed)
}

fn overdue(record: &Record, now: Timestamp) -> Option<Mark> {
    let threshold = record.threshold.filter(|_| record.is_expired(now))?;
    Some(Mark::Overdue(now.since(threshold)))
}

/// A machine that has just become idle registers for some seconds, which is not unusual.
fn unready(
    record: &Record,
    status: &AgentStatus,
    settings: &Settings,
    now: Timestamp,
) -> Option<Mark> {
    if !registers_idle(record, settings) || record.is_expired(now) {
        return None;
    }
    let (since, why) = status.why_not_ready((record.counts.generation, record.updated_at), now)?;
    (now.since(since) >= USUALLY_READY).then(|| Mark::Unready(why.to_owned()))
}

/// Whether the machine is to be registered although no run has claimed it.
fn registers_idle(record: &Record, settings: &Settings) -> bool {
    settings.runner_label == RunnerLabel::Machine && record.state == State::Idle
}

fn retiring(
    record: &Record,
    status: &AgentStatus,
    settings: &Settings,
    now: Timestamp,
) -> Option<Mark> {
    if record.is_preserved() {
        return None;
    }
    let lifetime = Lifetime::of(settings);
    let runs = record.counts.runs;
    let why = if status.is_interrupted() {
        INTERRUPTED.to_owned()
    } else if record.departure.is_wanted() {
        format!("an operator has {} it", record.departure.stored())
    } else if status.report.as_ref().is_some_and(is_used_up)
        || (record.reuse.is_never() && runs > 0)
    {
        "it serves one run only".to_owned()
    } else if lifetime.max_runs.is_some_and(|most| runs >= most) {
        format!("it has served {runs} {}", if runs == 1 { "run" } else { "runs" })
    } else if lifetime.is_over(record, now) {
        "it has reached max-machine-age-min".to_owned()
    } else {
        return None;
    };
    Some(Mark::Retiring(why))
}

/// Whether the agent has left its run and serves no other, because the run asked for that.
fn is_used_up(report: &Report) -> bool {
    report.run.as_ref().is_some_and(|run| report.used_up_by(run).is_some())
}

fn tally<'a>(machines: impl Iterator<Item = &'a Judged>) -> BTreeMap<Group, usize> {
    let mut groups = BTreeMap::new();
    for machine in machines.filter(|machine| machine.group != Group::Terminated) {
        *groups.entry(machine.group).or_default() += 1;
    }
    groups
}

fn classes(machines: &[Judged], tickets: &[(ResourceClass, usize)]) -> Vec<ClassSummary> {
    let of = |machine: &Judged| machine.record.spec.resource_class.clone();
    // A class may have machines although it is no longer configured.
    let known: Vec<ResourceClass> = tickets.iter().map(|(class, _)| class.clone()).collect();
    let mut others: Vec<ResourceClass> = machines.iter().map(of).collect();
    others.retain(|class| !known.contains(class));
    others.sort();
    others.dedup();
    let all = tickets.iter().cloned().chain(others.into_iter().map(|class| (class, 0)));
    let summaries = all.map(|(class, tickets)| {
        let groups = tally(machines.iter().filter(|machine| of(machine) == class));
        ClassSummary { class, groups, tickets }
    });
    summaries.filter(|class| class.tickets > 0 || !class.groups.is_empty()).collect()
}

/// `None` if there was no hand-over. Machines that refresh warms up are handed to no run.
fn warm_share(hand_overs: &[EventRow]) -> Option<WarmShare> {
    let is_own = |event: &&EventRow| event.run.as_ref().is_some_and(is_own_run);
    let to_runs: Vec<&EventRow> = hand_overs.iter().filter(|event| !is_own(event)).collect();
    let is_warm = |event: &&&EventRow| event.transition == Transition::Commit.as_str();
    Some(WarmShare {
        handed_over: to_runs.len(),
        warm: to_runs.iter().filter(is_warm).count(),
        since: to_runs.iter().map(|event| event.at).min()?,
    })
}

fn oldest_idle(machines: &[Judged], now: Timestamp) -> Option<(InstanceId, Duration)> {
    let idle = machines.iter().filter(|machine| machine.group == Group::Idle);
    let oldest = idle.min_by_key(|machine| (machine.record.updated_at, &machine.record.id))?;
    Some((oldest.record.id.clone(), now.since(oldest.record.updated_at)))
}

/// Refresh is overdue if it has not checked everything for longer than it may, or if a machine is listed
/// that it should have terminated.
fn is_refresh_overdue(settings: &Settings, machines: &[Judged], now: Timestamp) -> bool {
    let latest = CHECKED_EVERY + REFRESH_SLACK;
    let note_is_old = settings.checked.is_some_and(|at| now.since(at) > latest);
    let is_left = |mark: &Mark| matches!(mark, Mark::Overdue(by) if *by > REAPED_WITHIN);
    note_is_old || machines.iter().any(|machine| machine.marks.iter().any(is_left))
}

#[cfg(test)]
mod tests;
