//! What the store keeps about one instance. A stored row that is corrupt is refused with its id and
//! its problem, and does not affect other rows.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::departure::Departure;
use crate::model::excerpt::quoted;
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::label::{Label, LabelSuffix};
use crate::model::machine_label::RequestedLabel;
use crate::model::requirements::UsageClass;
use crate::model::reuse::Reuse;
use crate::model::settings::SettingsVersion;
use crate::model::timestamp::Timestamp;

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Launched for a run and starting up.
    Created,
    /// Owned by no run and free to be claimed.
    Idle,
    /// Taken from the pool by a run that is still checking it.
    Claimed,
    /// Owned by a run that may use it.
    Running,
    /// Final: the machine is gone or about to be.
    Terminated,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [State; 5] =
        [State::Created, State::Idle, State::Claimed, State::Running, State::Terminated];

    /// Whether the machine is expected to exist: every state but `terminated`.
    pub fn is_live(self) -> bool {
        self != State::Terminated
    }

    /// Whether an instance in this state belongs to a run.
    pub fn is_owned(self) -> bool {
        matches!(self, State::Created | State::Claimed | State::Running)
    }

    /// The text that the store keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Created => "created",
            State::Idle => "idle",
            State::Claimed => "claimed",
            State::Running => "running",
            State::Terminated => "terminated",
        }
    }

    /// Parses the text that the store keeps.
    pub fn parse(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What kind of machine an instance is. Never changes during its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The class it was launched for, which names its queue in the pool.
    pub resource_class: ResourceClass,
    /// The provider's type (`c6i.large`).
    pub instance_type: String,
    /// The purchase option: spot or on-demand.
    pub usage_class: UsageClass,
    /// The number of virtual processors.
    pub cpu: u32,
    /// The memory in MiB.
    pub mem: u32,
}

impl MachineSpec {
    /// As the event of its registration tells it, so that it is known after the record is deleted.
    pub fn told(&self) -> String {
        let MachineSpec { resource_class, instance_type, usage_class, cpu, mem } = self;
        format!("{instance_type} {usage_class} of {resource_class} with {cpu} vCPU and {mem} MiB")
    }

    /// Reads what [`MachineSpec::told`] has put at the end of a reason. `None` if it is not there.
    pub fn told_in(why: &str) -> Option<MachineSpec> {
        let words: Vec<&str> = why.split(' ').collect();
        let told = words.get(words.len().checked_sub(10)?..)?;
        let [instance_type, usage, "of", class, "with", cpu, "vCPU", "and", mem, "MiB"] = told
        else {
            return None;
        };
        Some(MachineSpec {
            resource_class: class.parse().ok()?,
            instance_type: (*instance_type).to_owned(),
            usage_class: usage.parse().ok()?,
            cpu: cpu.parse().ok()?,
            mem: mem.parse().ok()?,
        })
    }
}

/// What a record counts during the life of its machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the machine has become idle. It tells one idle period from the next, however often
    /// the threshold of a period was moved.
    pub generation: u32,
    /// How many runs it was given to. One of refresh that only warms it up counts until it is
    /// released.
    pub runs: u32,
    /// How often in a row it was claimed and did not register in time.
    pub missed_registrations: u32,
}

/// One instance, as the store has it. Only the control plane writes these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: InstanceId,
    pub state: State,
    /// The owner. `Some` exactly in the owned states.
    pub run: Option<RunId>,
    /// Of the label under which the owner asked for the machine; `None` if that is the run's id.
    pub suffix: Option<LabelSuffix>,
    /// What the owner wants the runner to be registered with.
    pub requested: RequestedLabel,
    /// Until when the state may last. `None` exactly when terminated.
    pub threshold: Option<Timestamp>,
    pub spec: MachineSpec,
    pub counts: Counts,
    /// Of an owned machine, what its owner asked for. An idle one with [`Reuse::Never`] has served its
    /// run and cannot be claimed.
    pub reuse: Reuse,
    /// Whether an operator wants the machine to leave the pool. No transition but those of operators
    /// changes it.
    pub departure: Departure,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its last transition was made.
    pub updated_at: Timestamp,
    /// When the present idle state was announced in the pool.
    pub ticketed_at: Option<Timestamp>,
    /// The settings that the last writer went by; `None` if it did not know.
    pub settings_version: Option<SettingsVersion>,
}

impl Record {
    /// Whether the threshold has passed. A terminated record is never expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.threshold.is_some_and(|threshold| threshold <= now)
    }

    /// Whether the threshold has passed, by this clock or by that of the record's last writer. An
    /// expiry writes the time of its own clock, which may be ahead of this one.
    pub fn is_expired_by_any_clock(&self, now: Timestamp) -> bool {
        self.is_expired(now.max(self.updated_at))
    }

    /// Whether its run has failed, and the machine is kept for people to examine.
    pub fn is_preserved(&self) -> bool {
        self.state == State::Running && self.reuse == Reuse::Preserved
    }

    /// The label that its owner asked for it under; `None` if no run owns it.
    pub fn label(&self) -> Option<Label> {
        Some(Label::new(self.run.clone()?, self.suffix.clone()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    pub instance: InstanceId,
    pub at: Timestamp,
    pub transition: String,
    /// The state before. `None` if there was no record, or if it is unknown because the answer to a
    /// write that admits any state was lost.
    pub from: Option<State>,
    pub to: State,
    /// The owner after the transition.
    pub run: Option<RunId>,
    pub why: String,
}

/// The events that concern a run: those after which it owns the machine, and those by which it loses
/// it. `events` are in the order of their commits, and complete for each machine from some event on.
pub fn concerning(events: Vec<EventRow>, run: &RunId) -> Vec<EventRow> {
    let mut owners: BTreeMap<InstanceId, Option<RunId>> = BTreeMap::new();
    let concerns = |event: &EventRow| {
        let before = owners.insert(event.instance.clone(), event.run.clone()).flatten();
        let is_loss = event.run.is_none() && before.as_ref() == Some(run);
        event.run.as_ref() == Some(run) || is_loss
    };
    events.into_iter().filter(concerns).collect()
}

/// A record as stores write it, with their attribute names and texts. An empty text means none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordRow {
    pub instance_id: String,
    pub state: String,
    pub run_id: String,
    pub threshold: String,
    pub resource_class: String,
    pub instance_type: String,
    pub usage_class: String,
    pub cpu: i64,
    pub mem: i64,
    pub created_at: String,
    pub updated_at: String,
    pub ticketed_at: String,
    #[serde(default)]
    pub settings_version: String,
    #[serde(default)]
    pub generation: i64,
    #[serde(default)]
    pub runs: i64,
    #[serde(default)]
    pub missed_registrations: i64,
    /// As [`RequestedLabel::stored`] has it.
    #[serde(default)]
    pub label: String,
    /// As [`Reuse::stored`] has it.
    #[serde(default)]
    pub reuse: String,
    /// As [`Departure::stored`] has it.
    #[serde(default)]
    pub departure: String,
}

/// A corrupt row, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable record {}: {problem}", quoted(id))]
pub struct Unreadable {
    /// The id in the row, which may itself be invalid.
    pub id: String,
    pub problem: String,
}

impl From<&Record> for RecordRow {
    fn from(record: &Record) -> RecordRow {
        let time = |time: Option<Timestamp>| time.map(|t| t.to_string()).unwrap_or_default();
        RecordRow {
            instance_id: record.id.to_string(),
            state: record.state.to_string(),
            run_id: record.run.as_ref().map(ToString::to_string).unwrap_or_default(),
            threshold: time(record.threshold),
            resource_class: record.spec.resource_class.to_string(),
            instance_type: record.spec.instance_type.clone(),
            usage_class: record.spec.usage_class.to_string(),
            cpu: record.spec.cpu.into(),
            mem: record.spec.mem.into(),
            created_at: record.created_at.to_string(),
            updated_at: record.updated_at.to_string(),
            ticketed_at: time(record.ticketed_at),
            settings_version: record
                .settings_version
                .as_ref()
                .map_or("", SettingsVersion::as_str)
                .to_owned(),
            generation: record.counts.generation.into(),
            runs: record.counts.runs.into(),
            missed_registrations: record.counts.missed_registrations.into(),
            label: record.requested.stored(record.run.as_ref(), record.suffix.as_ref()),
            reuse: record.reuse.stored().to_owned(),
            departure: record.departure.stored().to_owned(),
        }
    }
}

impl TryFrom<RecordRow> for Record {
    type Error = Unreadable;

    fn try_from(row: RecordRow) -> Result<Record, Unreadable> {
        let id = row.instance_id.clone();
        read(row).map_err(|problem| Unreadable { id, problem })
    }
}

fn read(row: RecordRow) -> Result<Record, String> {
    let state = State::parse(&row.state)
        .ok_or_else(|| format!("state is unknown: {}", quoted(&row.state)))?;
    let run = match row.run_id.as_str() {
        "" => None,
        run => Some(RunId::new(run).map_err(|e| e.to_string())?),
    };
    if state.is_owned() && run.is_none() {
        return Err(format!("{state}, but belongs to no run"));
    }
    if let (false, Some(run)) = (state.is_owned(), &run) {
        return Err(format!("{state}, but belongs to run {run}"));
    }
    let threshold = optional_time("threshold", &row.threshold)?;
    let (suffix, requested) = RequestedLabel::read(run.as_ref(), &row.label);
    if state.is_live() != threshold.is_some() {
        return Err(format!("{state}, but its threshold is {}", quoted(&row.threshold)));
    }
    Ok(Record {
        id: InstanceId::new(row.instance_id).map_err(|e| e.to_string())?,
        state,
        suffix,
        requested,
        run,
        threshold,
        spec: MachineSpec {
            resource_class: ResourceClass::new(row.resource_class).map_err(|e| e.to_string())?,
            instance_type: row.instance_type,
            usage_class: row.usage_class.parse().map_err(|e| format!("{e}"))?,
            cpu: whole("cpu", row.cpu)?,
            mem: whole("mem", row.mem)?,
        },
        counts: Counts {
            generation: whole("generation", row.generation)?,
            runs: whole("runs", row.runs)?,
            missed_registrations: whole("missedRegistrations", row.missed_registrations)?,
        },
        reuse: Reuse::read(&row.reuse),
        departure: Departure::read(&row.departure),
        created_at: time("createdAt", &row.created_at)?,
        updated_at: time("updatedAt", &row.updated_at)?,
        ticketed_at: optional_time("ticketedAt", &row.ticketed_at)?,
        settings_version: SettingsVersion::parse(&row.settings_version),
    })
}

fn whole(name: &str, number: i64) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("{name} is out of range: {number}"))
}

fn time(name: &str, text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|e| format!("{name} is {e}"))
}

fn optional_time(name: &str, text: &str) -> Result<Option<Timestamp>, String> {
    if text.is_empty() { Ok(None) } else { time(name, text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle_row() -> RecordRow {
        RecordRow {
            instance_id: "i-1".into(),
            state: "idle".into(),
            run_id: String::new(),
            threshold: "2025-05-31T12:20:00Z".into(),
            resource_class: "large".into(),
            instance_type: "c6i.large".into(),
            usage_class: "spot".into(),
            cpu: 2,
            mem: 4096,
            created_at: "2025-05-31T12:00:00Z".into(),
            updated_at: "2025-05-31T12:00:00Z".into(),
            ticketed_at: String::new(),
            settings_version: "v1".into(),
            generation: 3,
            runs: 2,
            missed_registrations: 1,
            label: String::new(),
            reuse: "never".into(),
            departure: "retired".into(),
        }
    }

    #[test]
    fn a_sound_row_survives_the_round_trip() {
        let record = Record::try_from(idle_row()).unwrap();
        assert_eq!(record.run, None);
        assert_eq!(Record::try_from(RecordRow::from(&record)).unwrap(), record);
    }

    #[test]
    fn a_corrupt_row_is_refused_with_its_id() {
        type Corrupt = fn(&mut RecordRow);
        let cases: [(Corrupt, &str); 10] = [
            (|r| r.state = "asleep".into(), "state is unknown"),
            (|r| r.run_id = "7".into(), "belongs to run 7"),
            (|r| r.state = "running".into(), "belongs to no run"),
            (|r| r.threshold = String::new(), "threshold"),
            (|r| r.threshold = "soon".into(), "threshold is not a time"),
            (|r| r.usage_class = "free".into(), "usage class"),
            (|r| r.cpu = -1, "cpu is out of range"),
            (|r| r.generation = -1, "generation is out of range"),
            (|r| r.updated_at = "x".into(), "updatedAt"),
            (|r| r.resource_class = String::new(), "resource class is empty"),
        ];
        for (corrupt, problem) in cases {
            let mut row = idle_row();
            corrupt(&mut row);
            let error = Record::try_from(row).unwrap_err();
            assert_eq!(error.id, "i-1");
            assert!(error.problem.contains(problem), "{error}");
        }
    }
}
