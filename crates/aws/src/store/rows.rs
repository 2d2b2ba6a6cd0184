//! Items as records, agent status and intents, and back. A corrupt item is logged and skipped; the
//! others are still read.

use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::demand::{Demand, RETENTION};
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::{Record, RecordRow, Unreadable};
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Listing;

use super::keys::{Item, Kind, id_of, item, number, read_number, read_text, text};

/// The attributes of a record, but for its key.
pub(super) fn attributes(record: &Record) -> Vec<(&'static str, AttributeValue)> {
    let row = RecordRow::from(record);
    vec![
        ("instanceId", text(row.instance_id)),
        ("state", text(row.state)),
        ("runId", text(row.run_id)),
        ("threshold", text(row.threshold)),
        ("resourceClass", text(row.resource_class)),
        ("instanceType", text(row.instance_type)),
        ("usageClass", text(row.usage_class)),
        ("cpu", number(row.cpu)),
        ("mem", number(row.mem)),
        ("createdAt", text(row.created_at)),
        ("updatedAt", text(row.updated_at)),
        ("ticketedAt", text(row.ticketed_at)),
    ]
}

/// Reads a record, or says what is wrong with the item.
pub(super) fn record(item: &Item) -> Result<Record, Unreadable> {
    let id = id_of(item).unwrap_or("?").to_owned();
    match wire(item) {
        Ok(row) if row.instance_id != id => {
            let problem = format!("it calls itself {}", quoted(&row.instance_id));
            Err(Unreadable { id, problem })
        }
        Ok(row) => Record::try_from(row),
        Err(problem) => Err(Unreadable { id, problem }),
    }
}

fn wire(item: &Item) -> Result<RecordRow, String> {
    let text = |name| read_text(item, name).map(str::to_owned);
    Ok(RecordRow {
        instance_id: text("instanceId")?,
        state: text("state")?,
        run_id: text("runId")?,
        threshold: text("threshold")?,
        resource_class: text("resourceClass")?,
        instance_type: text("instanceType")?,
        usage_class: text("usageClass")?,
        cpu: read_number(item, "cpu")?,
        mem: read_number(item, "mem")?,
        created_at: text("createdAt")?,
        updated_at: text("updatedAt")?,
        ticketed_at: text("ticketedAt")?,
    })
}

/// Reads records, in the order of their ids.
pub(super) fn listing(items: &[Item]) -> Listing {
    let mut listing = Listing::default();
    for item in items {
        match record(item) {
            Ok(record) => listing.records.push(record),
            Err(unreadable) => listing.unreadable.push(unreadable),
        }
    }
    listing.records.sort_by(|a, b| a.id.cmp(&b.id));
    listing
}

pub(super) fn heartbeat(id: &InstanceId, at: Timestamp) -> Item {
    let mut heartbeat = Kind::Heartbeat.key(id).attributes();
    heartbeat.extend(item([("value", text("PING")), ("updatedAt", text(at))]));
    heartbeat
}

pub(super) fn beat(item: &Item) -> Option<Timestamp> {
    Timestamp::parse(read_text(item, "updatedAt").ok()?).ok()
}

pub(super) fn signal(id: &InstanceId, report: &Report) -> Item {
    let run = report.run.as_ref().map_or("", RunId::as_str);
    let said = item([("signal", text(report.signal)), ("runId", text(run))]);
    let mut signal = Kind::Signal.key(id).attributes();
    signal.extend(item([
        ("value", AttributeValue::M(said)),
        ("updatedAt", text(report.at)),
        ("detail", text(&report.detail)),
    ]));
    signal
}

/// Reads a signal. A corrupt one counts as none: no decision follows from it, and the agent's next
/// signal replaces it.
pub(super) fn report(item: &Item) -> Option<Report> {
    let read = || {
        let said = item.get("value")?.as_m().ok()?;
        let run = match read_text(said, "runId").ok()? {
            "" => None,
            run => Some(RunId::new(run).ok()?),
        };
        Some(Report {
            signal: Signal::parse(read_text(said, "signal").ok()?)?,
            run,
            detail: read_text(item, "detail").unwrap_or_default().to_owned(),
            at: Timestamp::parse(read_text(item, "updatedAt").ok()?).ok()?,
        })
    };
    let report = read();
    if report.is_none() {
        tracing::warn!(instance = id_of(item), "unreadable signal; skipped");
    }
    report
}

pub(super) fn intent_item(intent: &Intent) -> Item {
    let mut written = Kind::Intent.key(&intent.id).attributes();
    written.extend(item([
        ("intentId", text(&intent.id)),
        ("runId", text(&intent.run)),
        ("count", number(intent.count)),
        ("usageClass", text(intent.usage)),
        ("deadline", text(intent.deadline)),
        ("outcome", text(&intent.outcome)),
    ]));
    written
}

/// Reads an intent; a corrupt one is logged and skipped.
pub(super) fn intent(item: &Item) -> Option<Intent> {
    let read = || -> Result<Intent, String> {
        let text = |name| read_text(item, name);
        Ok(Intent {
            id: text("intentId")?.parse().map_err(|e| format!("{e}"))?,
            run: text("runId")?.parse().map_err(|e| format!("{e}"))?,
            count: u32::try_from(read_number(item, "count")?).map_err(|e| e.to_string())?,
            usage: text("usageClass")?.parse().map_err(|e| format!("{e}"))?,
            deadline: Timestamp::parse(text("deadline")?).map_err(|e| e.to_string())?,
            outcome: text("outcome")?.to_owned(),
        })
    };
    let problem = |problem| {
        let id = id_of(item).unwrap_or("?");
        tracing::warn!("unreadable intent {}: {problem}; skipped", quoted(id));
    };
    read().map_err(problem).ok()
}

/// Reads a setting; a corrupt one is logged and has its default.
pub(super) fn setting(item: &Item) -> Option<(String, String)> {
    let name = id_of(item).unwrap_or("?");
    let problem = |problem: &String| {
        tracing::warn!("unreadable setting {}: {problem}; skipped", quoted(name));
    };
    let value = read_text(item, "value").inspect_err(problem).ok()?;
    Some((name.to_owned(), value.to_owned()))
}

pub(super) const RUNNERS: &str = "runners";

/// The item of credentials. Its kind is one of its own, so that a policy can tell who may read it.
pub(super) fn credentials_item(credentials: &Credentials) -> Item {
    let mut written = Kind::Credentials.key(RUNNERS).attributes();
    written.extend(item([
        ("registration", text(credentials.registration.expose())),
        ("removal", text(credentials.removal.expose())),
        // Not `expiresAt`: that is the key of the index, which would hold a copy of all of it.
        ("validUntil", text(credentials.expires_at)),
        ("ttl", number(credentials.expires_at.millis() / 1_000)),
    ]));
    written
}

/// Reads credentials. Corrupt ones count as none, and the log shows nothing of them.
pub(super) fn credentials(item: &Item) -> Option<Credentials> {
    let secret = |name| read_text(item, name).ok().map(Secret::new);
    let read = || {
        Some(Credentials {
            registration: secret("registration")?,
            removal: secret("removal")?,
            expires_at: Timestamp::parse(read_text(item, "validUntil").ok()?).ok()?,
        })
    };
    let credentials = read();
    if credentials.is_none() {
        tracing::warn!("unreadable credentials; skipped");
    }
    credentials
}

pub(super) fn demand_item(demand: &Demand) -> Item {
    let mut written = Kind::Demand.key(&demand.run).attributes();
    written.extend(item([
        ("value", text(serde_json::json!(demand))),
        ("ttl", number((demand.at + RETENTION).millis() / 1_000)),
    ]));
    written
}

#[cfg(test)]
mod tests;
