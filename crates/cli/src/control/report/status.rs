//! What `ondeck status` shows.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::timestamp::Timestamp;
use serde::Serialize;

use super::wire::{PurchaseOption, SchemaVersion, UnreadableJson, millis, to_json};
use super::{Report, table};
use crate::control::status::Snapshot;

/// Printed by `ondeck status --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct StatusJson {
    schema_version: SchemaVersion,
    /// The live machines; with `--all`, terminated ones too.
    instances: Vec<InstanceJson>,
    /// How many tickets each resource class has in the pool.
    pool: BTreeMap<String, usize>,
    /// Only if there are any: records that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableJson>,
}

/// One machine: its record, and what its agent last reported. Times are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InstanceJson {
    instance_id: String,
    state: StateJson,
    /// The run that owns the machine. Empty if none does.
    run_id: String,
    /// Until when the state may last. Empty once the machine is terminated.
    threshold: String,
    resource_class: String,
    instance_type: String,
    /// The machine's purchase option.
    usage_class: PurchaseOption,
    /// How many vCPUs it has.
    cpu: u32,
    /// How much memory it has, in MiB.
    mem: u32,
    /// When the machine was registered.
    created_at: String,
    /// When its record last changed.
    updated_at: String,
    /// When its ticket was put into the pool. Empty if it has none.
    ticketed_at: String,
    /// Only if it is so: its run failed, and it is kept for people to examine until the threshold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    preserved: bool,
    /// How long ago the agent's last heartbeat was. `null` if there was none.
    heartbeat_age_ms: Option<u64>,
    /// The agent's last signal. `null` if there was none.
    signal: Option<String>,
    /// Only if there is one: what the agent added to its signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum StateJson {
    Created,
    Idle,
    Claimed,
    Running,
    Terminated,
}

impl From<&Snapshot> for StatusJson {
    fn from(snapshot: &Snapshot) -> StatusJson {
        let instances = snapshot.instances.iter();
        let unreadable = snapshot.unreadable.iter().map(UnreadableJson::from);
        StatusJson {
            schema_version: SchemaVersion,
            instances: instances.map(|(r, s)| instance(r, s, snapshot.now)).collect(),
            pool: snapshot.pool.iter().cloned().collect(),
            unreadable: unreadable.collect(),
        }
    }
}

fn instance(record: &Record, status: &AgentStatus, now: Timestamp) -> InstanceJson {
    let time = |time: Option<Timestamp>| time.map(|t| t.to_string()).unwrap_or_default();
    let report = status.report.as_ref();
    InstanceJson {
        instance_id: record.id.to_string(),
        state: match record.state {
            State::Created => StateJson::Created,
            State::Idle => StateJson::Idle,
            State::Claimed => StateJson::Claimed,
            State::Running => StateJson::Running,
            State::Terminated => StateJson::Terminated,
        },
        run_id: record.run.as_ref().map(ToString::to_string).unwrap_or_default(),
        threshold: time(record.threshold),
        resource_class: record.spec.resource_class.to_string(),
        instance_type: record.spec.instance_type.clone(),
        usage_class: record.spec.usage_class.into(),
        cpu: record.spec.cpu,
        mem: record.spec.mem,
        created_at: record.created_at.to_string(),
        updated_at: record.updated_at.to_string(),
        ticketed_at: time(record.ticketed_at),
        preserved: record.is_preserved(),
        heartbeat_age_ms: status.heartbeat.map(|beat| millis(now.since(beat.at))),
        signal: report.map(|report| report.signal.as_str().to_owned()),
        detail: report.map(|report| report.detail.clone()).filter(|detail| !detail.is_empty()),
    }
}

impl Report for Snapshot {
    fn json(&self) -> String {
        to_json(&StatusJson::from(self))
    }

    fn text(&self) -> String {
        let header = [
            "instance",
            "state",
            "run",
            "threshold",
            "heartbeat",
            "signal",
            "class",
            "type",
            "usage",
        ];
        let machines = match self.instances.len() {
            0 => "no machines".to_owned(),
            _ => table(&header, self.instances.iter().map(|(r, s)| self.row(r, s)).collect()),
        };
        let pool: Vec<String> = self
            .pool
            .iter()
            .filter(|(_, tickets)| *tickets > 0)
            .map(|(class, tickets)| format!("{class} {tickets}"))
            .collect();
        let pool = if pool.is_empty() { "empty".to_owned() } else { pool.join(", ") };
        format!("{machines}\npool: {pool}")
    }

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        self.unreadable.iter().map(ToString::to_string).collect()
    }
}

impl Snapshot {
    fn row(&self, record: &Record, status: &AgentStatus) -> Vec<String> {
        vec![
            record.id.to_string(),
            shown_state(record),
            record.run.as_ref().map_or("-", |run| run.as_str()).to_owned(),
            record.threshold.map_or("-".to_owned(), |t| self.left_until(t)),
            status.heartbeat.map_or("never".to_owned(), |beat| ago(self.now.since(beat.at))),
            status.report.as_ref().map_or("-", |report| report.signal.as_str()).to_owned(),
            record.spec.resource_class.to_string(),
            record.spec.instance_type.clone(),
            record.spec.usage_class.to_string(),
        ]
    }

    fn left_until(&self, threshold: Timestamp) -> String {
        if threshold > self.now {
            format!("in {}", span(threshold.since(self.now)))
        } else {
            format!("{} over", span(self.now.since(threshold)))
        }
    }
}

/// A machine that is kept for people is `running` in its record, but serves no run.
fn shown_state(record: &Record) -> String {
    match record.is_preserved() {
        true => "preserved".to_owned(),
        false => record.state.to_string(),
    }
}

fn ago(age: Duration) -> String {
    format!("{} ago", span(age))
}

/// Two units at the most, rounded down.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0..10) => format!("{:.1}s", span.as_secs_f64()),
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s:02}s"),
        (h, m, _) => format!("{h}h {m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_and_honest() {
        let shown = |millis| span(Duration::from_millis(millis));
        assert_eq!(shown(0), "0.0s");
        assert_eq!(shown(1_250), "1.2s");
        assert_eq!(shown(59_999), "59s");
        assert_eq!(shown(61_000), "1m 01s");
        assert_eq!(shown(3_661_000), "1h 01m");
    }
}
