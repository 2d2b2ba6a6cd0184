//! The story as JSON.

use serde::Serialize;

use super::super::wire::SchemaVersion;
use super::{ExplainReport, LineKind, SubjectKind};

/// Printed by `ondeck explain --json`. Times are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in super::super) struct ExplainJson {
    schema_version: SchemaVersion,
    /// What the argument was found to be.
    subject: SubjectJson,
    /// The run, the label or the machine.
    id: String,
    /// When it was read.
    read_at: String,
    /// What happened, oldest first. Entries without a time are at the end.
    timeline: Vec<LineJson>,
    /// What is so now, one sentence each.
    present: Vec<String>,
    /// For a run: how long each phase of its provisions took.
    ledger: Vec<LedgerJson>,
    /// How many recent calls of other runs the typical values come from.
    typical_calls: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum SubjectJson {
    Run,
    Machine,
}

/// One entry of the timeline.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LineJson {
    /// `null` if it is not known.
    at: Option<String>,
    kind: KindJson,
    /// The sentence.
    text: String,
    /// The machines that it is about.
    machines: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum KindJson {
    Request,
    Search,
    Wait,
    Launch,
    Event,
    Ending,
    Unknown,
}

/// How long one phase of a provision took, in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LedgerJson {
    /// When the provision began.
    call: String,
    /// `preparation`, `adoption`, `selection`, `creation`, `validation`, `registration` (of the
    /// slowest warm machine that was not registered when it was claimed), `ready claim` (of the
    /// slowest that was), `clean-up` or `total`.
    phase: String,
    ms: u64,
    /// The median of recent calls of other runs. `null` if it is not known.
    typical_median_ms: Option<u64>,
    /// The 95th percentile of them; of a registration or a ready claim, as refresh has stored it.
    typical_p95_ms: Option<u64>,
}

impl From<&ExplainReport> for ExplainJson {
    fn from(report: &ExplainReport) -> ExplainJson {
        let line = |line: &super::Line| LineJson {
            at: line.at.map(|at| at.to_string()),
            kind: match line.kind {
                LineKind::Request => KindJson::Request,
                LineKind::Search => KindJson::Search,
                LineKind::Wait => KindJson::Wait,
                LineKind::Launch => KindJson::Launch,
                LineKind::Event => KindJson::Event,
                LineKind::Ending => KindJson::Ending,
                LineKind::Unknown => KindJson::Unknown,
            },
            text: line.text.clone(),
            machines: line.machines.clone(),
        };
        let row = |row: &super::LedgerRow| LedgerJson {
            call: row.call.to_string(),
            phase: row.phase.to_owned(),
            ms: row.ms,
            typical_median_ms: row.median,
            typical_p95_ms: row.p95,
        };
        ExplainJson {
            schema_version: SchemaVersion,
            subject: match report.subject {
                SubjectKind::Run => SubjectJson::Run,
                SubjectKind::Machine => SubjectJson::Machine,
            },
            id: report.id.clone(),
            read_at: report.now.to_string(),
            timeline: report.timeline.iter().map(line).collect(),
            present: report.present.clone(),
            ledger: report.ledger.iter().map(row).collect(),
            typical_calls: report.typical_calls,
        }
    }
}
