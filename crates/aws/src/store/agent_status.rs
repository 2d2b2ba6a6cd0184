//! What an agent writes: heartbeat, signal and readiness, in one item under a key of the machine's own.
//!
//! Each write puts off the time at which DynamoDB may delete the item. So it lives as long as its
//! agent and a little longer, and the control plane needs no permission to write it.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::signal::Report;
use ondeck_core::ports::PortResult;

use super::keys::{Key, number, text, ttl};
use super::table::Table;

/// How long the status of an agent that no longer writes is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A later signal stays. One without a valid time is replaced.
const NOT_LATER: &str =
    "NOT (#signalAt > :signalAt AND #signalAt <= :last AND size(#signalAt) = :length)";

/// The same for what it says about its registration.
const NOT_LATER_READINESS: &str = "NOT (#readinessAt > :readinessAt AND #readinessAt <= :last \
     AND size(#readinessAt) = :length)";

pub(super) async fn beat(table: &Table, key: &Key, beat: &Heartbeat) -> PortResult<()> {
    table.set(key, &heartbeat(beat), None).await.map(drop)
}

pub(super) async fn report(table: &Table, key: &Key, report: &Report) -> PortResult<()> {
    table.set(key, &signal(report), Some(NOT_LATER)).await.map(drop)
}

pub(super) async fn note_readiness(
    table: &Table,
    key: &Key,
    note: &ReadinessNote,
) -> PortResult<bool> {
    table.set(key, &readiness(note), Some(NOT_LATER_READINESS)).await
}

pub(super) fn readiness(note: &ReadinessNote) -> [(&'static str, AttributeValue); 3] {
    [
        ("readiness", text(note.readiness.stored())),
        ("readinessAt", text(note.at)),
        ttl(note.at + KEPT),
    ]
}

pub(super) fn heartbeat(beat: &Heartbeat) -> Vec<(&'static str, AttributeValue)> {
    let mut attributes = vec![
        ("heartbeatAt", text(beat.at)),
        ("heartbeatPeriodMs", number(beat.period.as_millis())),
        ("protocol", number(beat.protocol)),
        ("busy", AttributeValue::Bool(beat.busy)),
        ttl(beat.at + KEPT),
    ];
    let registration = beat.registration.map(|took| ("registrationMs", number(took.as_millis())));
    attributes.extend(registration);
    let ready_claim = beat.ready_claim.map(|took| ("readyClaimMs", number(took.as_millis())));
    attributes.extend(ready_claim);
    // A machine that was interrupted stays so.
    attributes.extend(beat.interrupted.then_some(("interrupted", AttributeValue::Bool(true))));
    attributes
}

pub(super) fn signal(report: &Report) -> [(&'static str, AttributeValue); 7] {
    [
        ("signal", text(report.signal)),
        ("signalRun", text(report.run.as_ref().map_or("", RunId::as_str))),
        ("signalLabel", text(report.stored_label())),
        ("signalDetail", text(&report.detail)),
        ("signalAt", text(report.at)),
        // Overwrites that of an earlier signal in any case.
        ("signalGeneration", report.generation.map_or(AttributeValue::Null(true), number)),
        ttl(report.at + KEPT),
    ]
}
