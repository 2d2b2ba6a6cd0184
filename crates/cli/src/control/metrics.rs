//! Metrics for Prometheus: of the pool as it is, and of the last call of a mode.
//!
//! [`prometheus()`] is a pure function. The modes write its text into a file for the textfile collector
//! of node_exporter, if they were given one.

pub(crate) mod emf;
mod exposition;
mod file;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ondeck_core::modes::provision::{self, MachineSource};
use ondeck_core::modes::refresh;
use ondeck_core::modes::release::{self, Disposition};
use ondeck_core::modes::status::judgement::{Group, Judgement, Mark, Summary};

use self::exposition::Exposition;
pub(crate) use self::file::write;
use self::table as t;

/// What there is to tell of a pool.
#[derive(Default)]
pub(crate) struct Snapshot<'a> {
    /// The pool, as people know it.
    pub(crate) pool: &'a str,
    /// The pool as it is, if it was looked at.
    pub(crate) status: Option<&'a Judgement>,
    /// The last call of a mode, if it is known.
    pub(crate) call: Option<Call<'a>>,
}

/// One call of a mode.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) ended: SystemTime,
    pub(crate) took: Duration,
    pub(crate) result: CallResult<'a>,
}

/// What a call came to; `None` if it failed before it could do anything.
#[derive(Clone, Copy)]
pub(crate) enum CallResult<'a> {
    Refresh(Option<&'a refresh::Outcome>),
    Provision(Option<&'a provision::Outcome>),
    Release(Option<&'a release::Outcome>),
}

/// The metrics in Prometheus' text format, version 0.0.4.
pub(crate) fn prometheus(snapshot: &Snapshot<'_>) -> String {
    let mut text = Exposition::of(snapshot.pool);
    if let Some(judgement) = snapshot.status {
        pool(&mut text, judgement);
    }
    if let Some(Call { ended, took, result }) = &snapshot.call {
        let ended = ended.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (success, at, duration) = match result {
            CallResult::Refresh(_) => (t::REFRESH_SUCCESS, t::REFRESH_ENDED, t::REFRESH_DURATION),
            CallResult::Provision(_) => {
                (t::PROVISION_SUCCESS, t::PROVISION_ENDED, t::PROVISION_DURATION)
            }
            CallResult::Release(_) => (t::RELEASE_SUCCESS, t::RELEASE_ENDED, t::RELEASE_DURATION),
        };
        text.one(success, truth(result.has_succeeded()));
        text.one(at, ended.as_secs_f64());
        text.one(duration, took.as_secs_f64());
        match result {
            CallResult::Refresh(Some(outcome)) => refreshed(&mut text, outcome),
            CallResult::Provision(Some(outcome)) => provisioned(&mut text, outcome),
            CallResult::Release(Some(outcome)) => released(&mut text, outcome),
            CallResult::Refresh(None) | CallResult::Provision(None) | CallResult::Release(None) => {
            }
        }
    }
    text.finish()
}

impl CallResult<'_> {
    fn has_succeeded(&self) -> bool {
        match self {
            CallResult::Refresh(outcome) => outcome.is_some_and(|it| it.failure.is_none()),
            CallResult::Provision(outcome) => outcome.is_some_and(|it| it.failure.is_none()),
            CallResult::Release(outcome) => outcome.is_some_and(|it| it.failure().is_none()),
        }
    }
}

fn pool(text: &mut Exposition, judgement: &Judgement) {
    let Judgement { summary, machines, tickets, unreadable, .. } = judgement;
    let mut counts: BTreeMap<[&str; 3], usize> = BTreeMap::new();
    let mut marks: BTreeMap<&str, usize> = BTreeMap::new();
    for machine in machines.iter().filter(|machine| machine.group != Group::Terminated) {
        let spec = &machine.record.spec;
        let labels =
            [spec.resource_class.as_str(), spec.usage_class.as_str(), machine.group.as_str()];
        // An alarm on none in a state needs a zero there.
        for state in LIVE {
            counts.entry([labels[0], labels[1], state.as_str()]).or_default();
        }
        *counts.entry(labels).or_default() += 1;
        for mark in machine.marks.iter().map(Mark::as_str) {
            *marks.entry(mark).or_default() += 1;
        }
    }
    let idle = machines.iter().filter(|machine| machine.group == Group::Idle).count();
    text.one(t::IDLE_MACHINES, number(idle));
    text.many(t::MACHINES, counts.iter().map(|(labels, count)| (&labels[..], number(*count))));
    let marked = |mark: &str| number(marks.get(mark).copied().unwrap_or_default());
    text.many(t::MARKED_MACHINES, MARKS.iter().map(|mark| (&mark[..], marked(mark[0]))));
    let tickets: Vec<([&str; 1], f64)> =
        tickets.iter().map(|(class, count)| ([class.as_str()], number(*count))).collect();
    text.many(t::TICKETS, tickets.iter().map(|(labels, count)| (&labels[..], *count)));
    let Summary {
        warm, oldest_idle, refreshed, refresh_overdue, ceilings, problems, spend, ..
    } = summary;
    if let Some(share) = warm {
        let cold = share.handed_over.saturating_sub(share.warm);
        let samples: [(&[&str], f64); 2] =
            [(&["warm"], number(share.warm)), (&["cold"], number(cold))];
        text.many(t::HAND_OVERS, samples);
    }
    if let Some((_, age)) = oldest_idle {
        text.one(t::OLDEST_IDLE, age.as_secs_f64());
    }
    if let Some(checked) = refreshed {
        text.one(t::CHECKED, seconds_of(checked.millis()));
    }
    text.one(t::OVERDUE, truth(*refresh_overdue));
    let ceilings: Vec<([&str; 1], Option<u32>, u32)> = ceilings
        .iter()
        .map(|it| ([it.class.as_ref().map_or("", |class| class.as_str())], it.machines, it.max))
        .collect();
    let counted =
        ceilings.iter().filter_map(|(class, count, _)| Some((&class[..], (*count)?.into())));
    text.many(t::CEILING, counted);
    text.many(t::CEILING_MAX, ceilings.iter().map(|(class, _, max)| (&class[..], (*max).into())));
    if let Some(used) = spend {
        let parts = [("spent", used.spent), ("reserved", used.reserved), ("cap", used.cap)];
        let parts = parts.map(|(part, amount)| ([part], amount.dollars()));
        text.many(t::SPEND, parts.iter().map(|(labels, amount)| (&labels[..], *amount)));
    }
    let mut kinds: Vec<[&str; 1]> = problems.iter().map(|it| [it.kind.as_str()]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    text.many(t::PROBLEMS, kinds.iter().map(|kind| (&kind[..], 1.0)));
    text.one(t::UNREADABLE, number(unreadable.len()));
}

/// The states of live machines.
const LIVE: [Group; 5] =
    [Group::Created, Group::Claimed, Group::Running, Group::Idle, Group::Preserved];
/// The words of the marks, which are all shown, so that one that disappears is 0 and not stale.
const MARKS: [[&str; 1]; 6] =
    [["silent"], ["failed"], ["overdue"], ["unready"], ["retiring"], ["preserved"]];

fn refreshed(text: &mut Exposition, outcome: &refresh::Outcome) {
    let terminated = [
        (["expired"], outcome.reaped.len()),
        (["orphaned"], outcome.orphans.len()),
        (["unresponsive"], outcome.unresponsive.len()),
        (["interrupted"], outcome.interrupted.len()),
        (["rotated"], outcome.rotated.len()),
    ];
    text.many(t::REFRESH_TERMINATED, samples(&terminated));
    text.one(t::REFRESH_LAUNCHED, number(outcome.warmed));
    text.one(t::REFRESH_STARTING, number(outcome.starting));
    let dead = [(["silent"], outcome.silent.len()), (["failing"], outcome.failing.len())];
    text.many(t::REFRESH_DEAD, samples(&dead));
    let runs = [
        (["stranded"], outcome.stranded.len()),
        (["rescued"], outcome.rescued.len()),
        (["completed"], outcome.completed.len()),
        (["rerun"], outcome.rerun.len()),
    ];
    text.many(t::REFRESH_RUNS, samples(&runs));
    text.one(t::REFRESH_REQUEUED, number(outcome.requeued.len()));
    text.one(t::REFRESH_PRUNED, number(outcome.pruned_tickets));
    if let Some(listed) = outcome.machines {
        text.one(t::REFRESH_LISTED, number(listed));
    }
    text.one(t::REFRESH_ORPHAN, outcome.oldest_orphan.unwrap_or_default().as_secs_f64());
    text.one(t::REFRESH_WARNINGS, number(outcome.warnings.len()));
}

fn provisioned(text: &mut Exposition, outcome: &provision::Outcome) {
    const SOURCES: [MachineSource; 3] =
        [MachineSource::Warm, MachineSource::Cold, MachineSource::Adopted];
    text.one(t::PROVISION_REQUESTED, outcome.requested.into());
    let machines = SOURCES.map(|source| ([source.as_str()], outcome.count(source)));
    text.many(t::PROVISION_MACHINES, samples(&machines));
    let timings = &outcome.timings;
    let phases: [(&[&str], f64); 5] = [
        (&["adoption"], timings.adoption.as_secs_f64()),
        (&["selection"], timings.selection.as_secs_f64()),
        (&["creation"], timings.creation.as_secs_f64()),
        (&["validation"], timings.validation.as_secs_f64()),
        (&["post-provision"], timings.post_provision.as_secs_f64()),
    ];
    text.many(t::PROVISION_PHASE, phases);
    let slowest = SOURCES.map(|source| {
        let machines = outcome.instances.iter().filter(|machine| machine.source == source);
        ([source.as_str()], machines.map(|machine| machine.milestones.ready).max())
    });
    let slowest =
        slowest.iter().filter_map(|(labels, at)| Some((&labels[..], (*at)?.as_secs_f64())));
    text.many(t::PROVISION_READY, slowest);
}

fn released(text: &mut Exposition, outcome: &release::Outcome) {
    const RESULTS: [&str; 9] = [
        "pooled",
        "given-back",
        "terminated",
        "expired",
        "interrupted",
        "preserved",
        "unfinished",
        "superseded",
        "not-reached",
    ];
    let result = |disposition: &Disposition| match disposition {
        Disposition::Pooled => "pooled",
        Disposition::GivenBack => "given-back",
        Disposition::Terminated => "terminated",
        Disposition::Expired(_) => "expired",
        Disposition::Interrupted => "interrupted",
        Disposition::Preserved(_) => "preserved",
        Disposition::Unfinished(_) => "unfinished",
        Disposition::Superseded(_) => "superseded",
        Disposition::NotReached(_) => "not-reached",
    };
    let count = |word: &str| {
        let is_so = |it: &&release::Released| result(&it.disposition) == word;
        outcome.instances.iter().filter(is_so).count()
    };
    text.many(t::RELEASE_MACHINES, samples(&RESULTS.map(|word| ([word], count(word)))));
}

fn samples<'a>(counts: &'a [([&'a str; 1], usize)]) -> impl Iterator<Item = (&'a [&'a str], f64)> {
    counts.iter().map(|(labels, count)| (&labels[..], number(*count)))
}

/// No count here is too large for it.
fn number(count: usize) -> f64 {
    count as f64
}

fn truth(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

fn seconds_of(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}
