//! What every page shows: the pool of the last reading, and what has changed before it.
//!
//! It makes no calls. Absence from a reading proves nothing, so a machine that is no longer listed
//! stays until its own record says that it is terminated, or that it has none.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::judgement::{Group, Judgement};
use ondeck_core::ports::Listing;
use serde::Serialize;

use super::wire::{At, Call, Change, Machine, Sample, Summary};

/// How long a terminated machine is shown, and how many of them at the most.
const TERMINATED_SHOWN: Duration = Duration::from_secs(10 * 60);
const MOST_TERMINATED: usize = 300;
/// How many changes a page that is opened gets to see.
const CHANGES: usize = 400;
/// Half an hour of readings every two seconds.
const SAMPLES: usize = 900;
/// The most machines whose own record is looked at after one reading. The others wait for the next.
pub(super) const LOOKED_AT: usize = 400;

#[derive(Debug)]
pub(super) struct Picture {
    pause: Duration,
    /// When the pool was read; `None` before the first reading.
    at: Option<Timestamp>,
    machines: BTreeMap<String, Machine>,
    summary: Option<Summary>,
    samples: VecDeque<Sample>,
    changes: VecDeque<Change>,
    calls: Vec<Call>,
    trouble: Option<Trouble>,
    /// How many changes there have been.
    counted: u64,
}

/// Why the pool cannot be read.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Trouble {
    message: String,
    /// Empty if there is nothing to do.
    hint: String,
    /// Since when readings have failed.
    since: At,
    /// When it is read again.
    next: At,
}

/// What one reading of the pool has found.
pub(super) struct News<'a> {
    pub(super) judgement: &'a Judgement,
    /// The machines that were looked at because the reading does not list them, and what was found.
    pub(super) absent: (&'a [InstanceId], Listing),
    /// `None` if they were not read this time.
    pub(super) calls: Option<Vec<Call>>,
    /// Whether the machines are processes of this computer.
    pub(super) local: bool,
}

/// Everything, for a page that is opened.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot<'a> {
    pause_ms: u64,
    at: Option<At>,
    machines: Vec<&'a Machine>,
    summary: Option<&'a Summary>,
    samples: &'a VecDeque<Sample>,
    changes: &'a VecDeque<Change>,
    calls: &'a [Call],
    trouble: Option<&'a Trouble>,
}

/// What is different after a reading.
#[derive(Debug, Serialize)]
pub(super) struct Update {
    at: At,
    set: Vec<Machine>,
    gone: Vec<String>,
    /// Only if it is different.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
    sample: Sample,
    changes: Vec<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<Call>>,
}

impl Picture {
    pub(super) fn new(pause: Duration) -> Picture {
        Picture {
            pause,
            at: None,
            machines: BTreeMap::new(),
            summary: None,
            samples: VecDeque::new(),
            changes: VecDeque::new(),
            calls: Vec::new(),
            trouble: None,
            counted: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_none()
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            pause_ms: u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX),
            at: self.at.map(At),
            machines: self.machines.values().collect(),
            summary: self.summary.as_ref(),
            samples: &self.samples,
            changes: &self.changes,
            calls: &self.calls,
            trouble: self.trouble.as_ref(),
        }
    }

    /// What is wrong, in words that are the same as long as the same is wrong.
    pub(super) fn wrong(&self) -> String {
        self.summary.as_ref().map(Summary::wrong).unwrap_or_default()
    }

    /// The machines that are shown as live and that a reading does not list: at most [`LOOKED_AT`].
    pub(super) fn absent(&self, judgement: &Judgement) -> Vec<InstanceId> {
        let listed: std::collections::BTreeSet<&str> =
            judgement.machines.iter().map(|machine| machine.record.id.as_str()).collect();
        let live = self.machines.values().filter(|machine| is_live(machine));
        let absent = live.filter(|machine| !listed.contains(machine.id.as_str()));
        absent.filter_map(|machine| machine.id.parse().ok()).take(LOOKED_AT).collect()
    }

    /// Notes that the pool could not be read.
    pub(super) fn fail(&mut self, failure: &Failure, now: Timestamp, next: Timestamp) -> Trouble {
        let since = self.trouble.as_ref().map_or(At(now), |before| before.since);
        let (message, hint) = (failure.message.clone(), failure.hint.clone());
        self.trouble.insert(Trouble { message, hint, since, next: At(next) }).clone()
    }

    /// Takes a reading over. Returns what is different.
    pub(super) fn learn(&mut self, news: News<'_>) -> Update {
        let News { judgement, absent: (looked_at, found), calls, local } = news;
        let now = judgement.at;
        let is_first = self.at.replace(now).is_none();
        self.trouble = None;
        let ended = |machine: &&Machine| is_live(machine) || !is_old(machine, now);
        let listed: Vec<Machine> = judgement.machines.iter().map(Machine::of).collect();
        // A record that cannot be read does not say that the machine has ended.
        let is_unreadable =
            |id: &InstanceId| found.unreadable.iter().any(|row| row.id == id.as_str());
        let has_record = |id: &InstanceId| found.records.iter().any(|record| record.id == *id);
        let without_record = |id: &&InstanceId| !has_record(id) && !is_unreadable(id);
        let mut gone: Vec<String> =
            looked_at.iter().filter(without_record).map(ToString::to_string).collect();
        // One that is live was only not listed, and stays as it is shown.
        let ended_since = found.records.iter().filter(|record| !record.state.is_live());
        let found: Vec<Machine> = ended_since.map(Machine::recorded).collect();
        let (mut set, mut changes) = (Vec::new(), Vec::new());
        for machine in listed.into_iter().chain(found).filter(|machine| ended(&machine)) {
            let before = self.machines.get(&machine.id);
            if before == Some(&machine) {
                continue;
            }
            if !is_first {
                changes.extend(changes_between(before, &machine, now));
            }
            self.machines.insert(machine.id.clone(), machine.clone());
            set.push(machine);
        }
        for id in &gone {
            if let Some(before) = self.machines.remove(id) {
                changes.push(vanished(&before, now));
            }
        }
        gone.extend(self.forget(now));
        let changes = self.number(changes);
        let sample = Sample::of(judgement);
        push_within(&mut self.samples, sample.clone(), SAMPLES);
        let calls = calls.filter(|calls| *calls != self.calls);
        if let Some(calls) = &calls {
            self.calls.clone_from(calls);
        }
        let summary = Summary::of(judgement, local);
        let summary = (self.summary.as_ref() != Some(&summary)).then(|| {
            self.summary = Some(summary.clone());
            summary
        });
        Update { at: At(now), set, gone, summary, sample, changes, calls }
    }

    /// Removes machines that were terminated long ago, or that are too many. Returns them.
    fn forget(&mut self, now: Timestamp) -> Vec<String> {
        let mut terminated: Vec<&Machine> =
            self.machines.values().filter(|machine| !is_live(machine)).collect();
        terminated.sort_by_key(|machine| std::cmp::Reverse(machine.since));
        let old = terminated.iter().enumerate();
        let old = old.filter(|(n, machine)| *n >= MOST_TERMINATED || is_old(machine, now));
        let old: Vec<String> = old.map(|(_, machine)| machine.id.clone()).collect();
        for id in &old {
            self.machines.remove(id);
        }
        old
    }

    /// Brings changes in order, numbers them, and keeps the latest.
    fn number(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        changes.sort_by_key(|change| change.at);
        for change in &mut changes {
            self.counted += 1;
            change.number = self.counted;
            push_within(&mut self.changes, change.clone(), CHANGES);
        }
        changes
    }
}

fn push_within<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}

fn is_live(machine: &Machine) -> bool {
    machine.state != Group::Terminated.as_str()
}

fn is_old(machine: &Machine, now: Timestamp) -> bool {
    now.since(machine.since.0) > TERMINATED_SHOWN
}

fn vanished(before: &Machine, now: Timestamp) -> Change {
    let to = Group::Terminated.as_str();
    Change { from: before.state, skipped: true, ..change(before, At(now), "state", to) }
}

fn change(machine: &Machine, at: At, kind: &'static str, to: &'static str) -> Change {
    Change {
        number: 0,
        at,
        id: machine.id.clone(),
        class: machine.class.clone(),
        run: machine.run.clone(),
        kind,
        from: "",
        to,
        skipped: false,
    }
}

/// What has happened to a machine between two readings, as far as they tell.
fn changes_between(before: Option<&Machine>, after: &Machine, now: Timestamp) -> Vec<Change> {
    let mut changes = Vec::new();
    let moved = before.is_none_or(|before| {
        before.state != after.state || before.run != after.run || before.runs != after.runs
    });
    if moved {
        let from = before.map_or("", |before| before.state);
        let run = match (after.run.as_str(), before) {
            // It tells more which run it was that a machine has left.
            ("", Some(before)) => before.run.clone(),
            (run, _) => run.to_owned(),
        };
        let skipped = !is_one_step(before, after);
        changes.push(Change {
            from,
            run,
            skipped,
            ..change(after, after.since, "state", after.state)
        });
    }
    let is_new = |mark: &&&'static str| before.is_none_or(|before| !before.marks.contains(mark));
    let marks = after.marks.iter().filter(is_new);
    changes.extend(marks.map(|mark| change(after, At(now), "mark", mark)));
    changes
}

/// Whether one transition leads from one to the other.
fn is_one_step(before: Option<&Machine>, after: &Machine) -> bool {
    let Some(before) = before else { return after.state == "created" };
    let same_run = before.run == after.run;
    match (before.state, after.state) {
        ("created" | "claimed", "running") | ("running", "preserved") => same_run,
        ("idle", "claimed") => before.run.is_empty(),
        ("claimed" | "running", "idle") => true,
        (_, "terminated") => before.runs == after.runs,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
