//! `ondeck status`: the machines, what they are doing and how long they may, and the pool.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, RecordRow, Unreadable};
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::Scope;
use serde_json::{Map, Value, json};

use crate::control::backend;
use crate::control::output::{Telling, table, tell, try_print};
use crate::control::progress::Nobody;
use crate::inputs::{Common, rows};
use crate::logging;
use crate::surroundings::stop_on_signals;

/// Everything there is to show, at one moment.
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    pub(crate) instances: Vec<(Record, AgentStatus)>,
    pub(crate) pool: Vec<(String, usize)>,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// Shows it, once or every second.
pub(crate) async fn status(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let scope = if common.given.is_set(&rows::ALL) { Scope::All } else { Scope::Live };
    let plane = match backend::plane(common, false, std::sync::Arc::new(Nobody)).await {
        Ok(plane) => plane,
        Err(failure) => return tell("status", Err(failure), common),
    };
    if !common.given.is_set(&rows::WATCH) {
        let snapshot = Snapshot::take(&plane, scope).await;
        let told = snapshot.as_ref().map(|s| s as &dyn Telling).map_err(Clone::clone);
        return tell("status", told, common);
    }
    let stop = stop_on_signals();
    let watching = async {
        loop {
            let snapshot = Snapshot::take(&plane, scope).await?;
            if try_print(&format!("\x1b[2J\x1b[H{}", snapshot.text())).is_err() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    match stop.unless_raised(watching).await {
        Ok(Err(failure)) => tell("status", Err(failure), common),
        Ok(Ok(())) | Err(_) => 0,
    }
}

impl Snapshot {
    pub(crate) async fn take(plane: &Plane, scope: Scope) -> Result<Snapshot, Failure> {
        let settings = plane.settings().await?;
        let listing = plane.store.list(scope).await?;
        let ids: Vec<InstanceId> = listing.records.iter().map(|record| record.id.clone()).collect();
        let status = plane.store.agent_status(&ids).await?;
        let mut pool = Vec::new();
        for class in settings.classes.names() {
            pool.push((class.to_string(), plane.pool.depth(class).await?.total()));
        }
        Ok(Snapshot {
            now: plane.now(),
            instances: listing.records.into_iter().zip(status).collect(),
            pool,
            unreadable: listing.unreadable,
        })
    }

    fn row(&self, record: &Record, status: &AgentStatus) -> Vec<String> {
        vec![
            record.id.to_string(),
            record.state.to_string(),
            record.run.as_ref().map_or("-", |run| run.as_str()).to_owned(),
            record.threshold.map_or("-".to_owned(), |t| self.left_until(t)),
            status.heartbeat.map_or("never".to_owned(), |at| ago(self.now.since(at))),
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

impl Telling for Snapshot {
    fn json(&self) -> Value {
        let instances = self.instances.iter().map(|(record, status)| {
            let mut object = match serde_json::to_value(RecordRow::from(record)) {
                Ok(Value::Object(object)) => object,
                _ => Map::new(),
            };
            let age = status.heartbeat.map(|at| self.now.since(at).as_millis() as u64);
            object.insert("heartbeatAgeMs".to_owned(), json!(age));
            let signal = status.report.as_ref().map(|report| report.signal.as_str());
            object.insert("signal".to_owned(), json!(signal));
            if let Some(report) = status.report.as_ref().filter(|report| !report.detail.is_empty())
            {
                object.insert("detail".to_owned(), json!(report.detail));
            }
            Value::Object(object)
        });
        let instances: Vec<Value> = instances.collect();
        let pool: Map<String, Value> =
            self.pool.iter().map(|(class, tickets)| (class.clone(), json!(tickets))).collect();
        let mut object = json!({"instances": instances, "pool": pool});
        if !self.unreadable.is_empty() {
            let rows = self.unreadable.iter();
            let rows = rows.map(|row| json!({"instanceId": row.id, "problem": row.problem}));
            object["unreadable"] = rows.collect();
        }
        object
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
