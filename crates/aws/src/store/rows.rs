//! Items as records, agent status and intents, and back. A corrupt item is logged and skipped; the
//! others are still read.

use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_core::model::credentials::{Credentials, Token, TokenPurpose};
use ondeck_core::model::demand::Demand;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{ResourceClass, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::label::Label;
use ondeck_core::model::readiness::{Readiness, ReadinessNote};
use ondeck_core::model::record::{Record, RecordRow, Unreadable};
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Listing;
use std::time::Duration;

use super::keys::{Item, Key, List, id_of, item, number, read_number, read_text, text, ttl};

/// How long an intent with an outcome is kept after its deadline.
const SETTLED_INTENTS: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What the attribute of a demand under a label with a suffix begins with.
const DEMAND_UNDER_SUFFIX: &str = "value-";

/// The attributes of a record, but for its key.
pub(super) fn attributes(record: &Record) -> Vec<(&'static str, AttributeValue)> {
    let row = RecordRow::from(record);
    let mut attributes = vec![
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
        ("settingsVersion", text(row.settings_version)),
        ("label", text(row.label)),
        ("reuse", text(row.reuse)),
    ];
    if !row.departure.is_empty() {
        attributes.push(("departure", text(row.departure)));
    }
    attributes.extend(counts(row.generation, row.runs, row.missed_registrations));
    attributes
}

/// The attributes of what a record counts.
pub(super) fn counts(
    generation: impl ToString,
    runs: impl ToString,
    missed: impl ToString,
) -> [(&'static str, AttributeValue); 3] {
    [
        ("generation", number(generation)),
        ("runs", number(runs)),
        ("missedRegistrations", number(missed)),
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
        settings_version: text("settingsVersion")?,
        generation: read_number(item, "generation")?,
        runs: read_number(item, "runs")?,
        missed_registrations: read_number(item, "missedRegistrations")?,
        label: optional_text(item, "label")?,
        reuse: optional_text(item, "reuse")?,
        departure: optional_text(item, "departure")?,
    })
}

/// Reads an attribute that some versions do not write.
fn optional_text(item: &Item, name: &'static str) -> Result<String, String> {
    match item.contains_key(name) {
        true => read_text(item, name).map(str::to_owned),
        false => Ok(String::new()),
    }
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

/// Reads what an agent wrote. What is corrupt counts as not written: no decision follows from it,
/// and the agent's next heartbeat or signal replaces it.
pub(super) fn agent_status(item: &Item) -> AgentStatus {
    AgentStatus { heartbeat: heartbeat(item), report: report(item), readiness: readiness(item) }
}

fn heartbeat(item: &Item) -> Option<Heartbeat> {
    let whole = |name| u64::try_from(read_number(item, name).ok()?).ok();
    Some(Heartbeat {
        at: Timestamp::parse(read_text(item, "heartbeatAt").ok()?).ok()?,
        period: Duration::from_millis(whole("heartbeatPeriodMs")?),
        protocol: whole("protocol")?.try_into().ok()?,
        registration: whole("registrationMs").map(Duration::from_millis),
        ready_claim: whole("readyClaimMs").map(Duration::from_millis),
        busy: item.get("busy")?.as_bool().copied().ok()?,
        interrupted: item.get("interrupted").is_some_and(|it| it.as_bool() == Ok(&true)),
    })
}

fn readiness(item: &Item) -> Option<ReadinessNote> {
    let stored = read_text(item, "readiness").ok()?;
    let at = Timestamp::parse(read_text(item, "readinessAt").ok()?).ok()?;
    Some(ReadinessNote { readiness: Readiness::read(stored)?, at })
}

fn report(item: &Item) -> Option<Report> {
    let word = read_text(item, "signal").ok()?;
    let read = || {
        let run = match read_text(item, "signalRun").ok()? {
            "" => None,
            run => Some(RunId::new(run).ok()?),
        };
        let stored = read_text(item, "signalLabel").unwrap_or_default();
        let (suffix, machine_label) = Report::read_label(run.as_ref(), stored);
        Some(Report {
            signal: Signal::parse(word)?,
            suffix,
            machine_label,
            run,
            detail: read_text(item, "signalDetail").unwrap_or_default().to_owned(),
            at: Timestamp::parse(read_text(item, "signalAt").ok()?).ok()?,
            generation: read_number(item, "signalGeneration").ok().and_then(|n| n.try_into().ok()),
        })
    };
    let report = read();
    if report.is_none() {
        tracing::warn!(agent = id_of(item), "unreadable signal; skipped");
    }
    report
}

/// The item of an intent. An open one is on a list; one with an outcome expires.
pub(super) fn intent_item(intent: &Intent, shards: u32) -> Item {
    let mut written = Key::intent(&intent.id).attributes();
    written.extend(item([
        ("intentId", text(&intent.id)),
        ("runId", text(&intent.run)),
        ("resourceClass", text(intent.class.as_ref().map_or("", ResourceClass::as_str))),
        ("count", number(intent.count)),
        ("usageClass", text(intent.usage)),
        ("deadline", text(intent.deadline)),
        ("outcome", text(&intent.outcome)),
    ]));
    if intent.is_open() {
        let id = intent.id.as_str();
        written.extend(item(List::OpenIntents.entry(id, intent.deadline, shards)));
    } else {
        written.extend(item([ttl(intent.deadline + SETTLED_INTENTS)]));
    }
    written
}

/// Reads an intent; a corrupt one is logged and skipped.
pub(super) fn intent(item: &Item) -> Option<Intent> {
    let read = || -> Result<Intent, String> {
        let text = |name| read_text(item, name);
        Ok(Intent {
            id: text("intentId")?.parse().map_err(|e| format!("{e}"))?,
            run: text("runId")?.parse().map_err(|e| format!("{e}"))?,
            class: class_of_intent(item)?,
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

/// Earlier versions of the program did not write the class.
fn class_of_intent(item: &Item) -> Result<Option<ResourceClass>, String> {
    if !item.contains_key("resourceClass") {
        return Ok(None);
    }
    match read_text(item, "resourceClass")? {
        "" => Ok(None),
        class => class.parse().map(Some).map_err(|error| format!("{error}")),
    }
}

/// Reads a setting; a corrupt one is logged and has its default.
pub(super) fn setting(item: &Item) -> Option<(String, String)> {
    let name = read_text(item, "SK").unwrap_or("?");
    let problem = |problem: &String| {
        tracing::warn!("unreadable setting {}: {problem}; skipped", quoted(name));
    };
    let value = read_text(item, "value").inspect_err(problem).ok()?;
    Some((name.to_owned(), value.to_owned()))
}

/// The item of one token. It is on no list, so that no index holds a copy.
pub(super) fn token_item(credentials: &Credentials, purpose: TokenPurpose) -> Item {
    let token = credentials.token(purpose);
    let mut written = Key::token(purpose).attributes();
    written.extend(item([
        ("token", text(token.secret.expose())),
        ("validUntil", text(token.expires_at)),
        ttl(token.expires_at),
    ]));
    written
}

/// Reads a token. A corrupt one counts as none, and the log shows nothing of it.
pub(super) fn token(item: &Item) -> Option<Token> {
    let read = || {
        Some(Token {
            secret: Secret::new(read_text(item, "token").ok()?),
            expires_at: Timestamp::parse(read_text(item, "validUntil").ok()?).ok()?,
        })
    };
    let token = read();
    if token.is_none() {
        tracing::warn!("unreadable token; skipped");
    }
    token
}

/// The attribute of a run's demand under one label. All labels of a run share an item, so that one
/// read finds them.
pub(super) fn demand_attribute(label: &Label) -> String {
    match &label.suffix {
        None => "value".to_owned(),
        Some(suffix) => format!("{DEMAND_UNDER_SUFFIX}{suffix}"),
    }
}

/// Reads the demands of a run, ordered by label. A corrupt one is logged and skipped.
pub(super) fn demands(item: &Item) -> Vec<Demand> {
    let Some(run) = id_of(item).and_then(|run| RunId::new(run).ok()) else { return Vec::new() };
    let holds_demand = |name: &str| name == "value" || name.starts_with(DEMAND_UNDER_SUFFIX);
    let values = item.iter().filter(|(name, _)| holds_demand(name));
    let texts = values.filter_map(|(_, value)| value.as_s().ok());
    let mut demands: Vec<Demand> = texts.filter_map(|text| Demand::read(&run, text)).collect();
    demands.sort_by_key(Demand::label);
    demands
}

#[cfg(test)]
mod tests;
