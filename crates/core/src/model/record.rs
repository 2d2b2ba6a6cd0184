//! What the store keeps about one instance, and how a stored row becomes a record that makes
//! sense: a row that does not is refused with its id and its problem, and harms no other row.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::requirements::UsageClass;
use crate::model::timestamp::Timestamp;

/// Where an instance stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Launched for a run and starting up.
    Created,
    /// Waiting in the pool.
    Idle,
    /// Taken from the pool by a run that has not finished checking it.
    Claimed,
    /// Working for a run.
    Running,
    /// Gone, for good.
    Terminated,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [State; 5] =
        [State::Created, State::Idle, State::Claimed, State::Running, State::Terminated];

    /// Whether a machine stands behind this state.
    pub fn is_live(self) -> bool {
        self != State::Terminated
    }

    /// Whether an instance in this state belongs to a run.
    pub fn is_owned(self) -> bool {
        matches!(self, State::Created | State::Claimed | State::Running)
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Created => "created",
            State::Idle => "idle",
            State::Claimed => "claimed",
            State::Running => "running",
            State::Terminated => "terminated",
        }
    }

    /// Reads the word on the wire.
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
    /// How it is paid for.
    pub usage_class: UsageClass,
    /// Virtual processors.
    pub cpu: u32,
    /// Memory in MiB.
    pub mem: u32,
}

/// One instance, as the store has it. Only the control plane writes these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The machine.
    pub id: InstanceId,
    /// Where it stands.
    pub state: State,
    /// Whose it is; `None` unless the state is an owned one.
    pub run: Option<RunId>,
    /// Until when the state may last; `None` once terminated.
    pub threshold: Option<Timestamp>,
    /// What it is.
    pub spec: MachineSpec,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its last transition was made.
    pub updated_at: Timestamp,
    /// When the present idle state was announced in the pool.
    pub ticketed_at: Option<Timestamp>,
}

impl Record {
    /// Whether the state has outlived its threshold. Terminated records have none to outlive.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.threshold.is_some_and(|threshold| threshold <= now)
    }
}

/// A committed transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// The machine.
    pub instance: InstanceId,
    /// When.
    pub at: Timestamp,
    /// The transition's name.
    pub transition: String,
    /// The state before; `None` where there was no record, and where the answer to a write that
    /// any state would have admitted was lost.
    pub from: Option<State>,
    /// The state after.
    pub to: State,
    /// The owner after.
    pub run: Option<RunId>,
    /// The reason.
    pub why: String,
}

/// A record as it is written: the attribute names and the texts of the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordRow {
    /// The machine.
    pub instance_id: String,
    /// One of the state words.
    pub state: String,
    /// The run, or `""` for none.
    pub run_id: String,
    /// RFC 3339, or `""` for none.
    pub threshold: String,
    /// See [`MachineSpec`].
    pub resource_class: String,
    /// See [`MachineSpec`].
    pub instance_type: String,
    /// See [`MachineSpec`].
    pub usage_class: String,
    /// See [`MachineSpec`].
    pub cpu: i64,
    /// See [`MachineSpec`].
    pub mem: i64,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
    /// RFC 3339, or `""` for never.
    pub ticketed_at: String,
}

/// A stored row that makes no sense, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable record {}: {problem}", quoted(id))]
pub struct Unreadable {
    /// What the row calls itself.
    pub id: String,
    /// What is wrong with it.
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
    if state.is_live() != threshold.is_some() {
        return Err(format!("{state}, but its threshold is {}", quoted(&row.threshold)));
    }
    Ok(Record {
        id: InstanceId::new(row.instance_id).map_err(|e| e.to_string())?,
        state,
        run,
        threshold,
        spec: MachineSpec {
            resource_class: ResourceClass::new(row.resource_class).map_err(|e| e.to_string())?,
            instance_type: row.instance_type,
            usage_class: row.usage_class.parse().map_err(|e| format!("{e}"))?,
            cpu: u32::try_from(row.cpu).map_err(|_| format!("cpu is out of range: {}", row.cpu))?,
            mem: u32::try_from(row.mem).map_err(|_| format!("mem is out of range: {}", row.mem))?,
        },
        created_at: time("createdAt", &row.created_at)?,
        updated_at: time("updatedAt", &row.updated_at)?,
        ticketed_at: optional_time("ticketedAt", &row.ticketed_at)?,
    })
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
        }
    }

    #[test]
    fn a_sound_row_survives_the_round_trip() {
        let record = Record::try_from(idle_row()).unwrap();
        assert_eq!(record.run, None);
        assert_eq!(Record::try_from(RecordRow::from(&record)).unwrap(), record);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_refused_with_its_id() {
        type Corrupt = fn(&mut RecordRow);
        let cases: [(Corrupt, &str); 9] = [
            (|r| r.state = "asleep".into(), "state is unknown"),
            (|r| r.run_id = "7".into(), "belongs to run 7"),
            (|r| r.state = "running".into(), "belongs to no run"),
            (|r| r.threshold = String::new(), "threshold"),
            (|r| r.threshold = "soon".into(), "threshold is not a time"),
            (|r| r.usage_class = "free".into(), "usage class"),
            (|r| r.cpu = -1, "cpu is out of range"),
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
