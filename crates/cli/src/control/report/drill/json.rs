//! What `ondeck drill --json` prints.

use ondeck_core::model::ids::InstanceId;
use ondeck_core::modes::drill::{Planned, Played, Step, Verdict, Violation};
use serde::Serialize;

use super::DrillReport;
use crate::control::report::Report;
use crate::control::report::failure::ErrorJson;
use crate::control::report::wire::{PurchaseOption, ResultStatus, SchemaVersion, millis};

/// Printed by `ondeck drill --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DrillJson {
    schema_version: SchemaVersion,
    /// `failed` also if an expectation was not met, or if nothing could be played.
    status: ResultStatus,
    /// The pool, as `--confirm` names it.
    pool: String,
    /// What the ids of the drill's runs begin with.
    run_id_prefix: String,
    /// What was planned when the drill began.
    plan: Vec<PlannedJson>,
    /// Absent if nothing was done: with `--dry-run`, and without consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    scenarios: Option<Vec<PlayedJson>>,
    /// What an audit found before the drill. It does not count against it.
    before: Vec<ViolationJson>,
    /// What the audits could not look at, and what they need for it.
    not_checked: Vec<String>,
    /// What the drill could not clean up.
    left: Vec<String>,
    /// Only after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// One scenario of the plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlannedJson {
    scenario: &'static str,
    /// What is done.
    does: &'static str,
    /// Whether it launches a machine.
    launches: bool,
    /// Whether the idle machine that it takes is gone afterwards.
    ends_idle_machine: bool,
    /// Why it cannot be played. Absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    /// The class of the machine. Absent if it cannot be played.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_class: Option<String>,
    /// Its purchase option. Absent if it cannot be played.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_class: Option<PurchaseOption>,
}

/// One scenario, as it was played.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlayedJson {
    scenario: &'static str,
    verdict: VerdictJson,
    /// Why it was skipped or is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The machine that was disturbed. `null` if there was none.
    instance_id: Option<String>,
    steps: Vec<StepJson>,
}

/// What a scenario has shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum VerdictJson {
    /// Every expectation was met.
    Passed,
    /// An expectation was not met.
    Failed,
    /// None was missed, but one could not be seen to the end.
    Incomplete,
    /// It was not played.
    Skipped,
}

/// One expectation, and what was seen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DrillStepJson"))]
struct StepJson {
    /// One of the ids in docs/guides/drill.md.
    expectation: &'static str,
    met: bool,
    /// What was seen.
    seen: String,
    /// How long it took.
    took_ms: u64,
    /// The longest time that meets the expectation. `null` if it has no limit of its own.
    limit_ms: Option<u64>,
    /// What is expected.
    what: &'static str,
    /// Why it matters. Absent if it was met.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    /// What to do. Absent if it was met.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

/// Something that an audit has found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ViolationJson {
    /// One of the ids in docs/guides/drill.md.
    expectation: &'static str,
    /// The machine or runner that it is about.
    about: String,
    what: String,
}

impl From<&DrillReport> for DrillJson {
    fn from(report: &DrillReport) -> DrillJson {
        let failure = report.failure();
        let outcome = report.outcome.as_ref();
        DrillJson {
            schema_version: SchemaVersion,
            status: failure.as_ref().into(),
            pool: report.pool.clone(),
            run_id_prefix: report.name.clone(),
            plan: report.planned.iter().map(PlannedJson::from).collect(),
            scenarios: outcome.map(|it| it.scenarios.iter().map(PlayedJson::from).collect()),
            before: outcome
                .map(|it| it.before.iter().map(ViolationJson::from).collect())
                .unwrap_or_default(),
            not_checked: outcome.map(|it| it.unchecked.clone()).unwrap_or_default(),
            left: outcome.map(|it| it.left.clone()).unwrap_or_default(),
            error: failure.as_ref().map(ErrorJson::from),
        }
    }
}

impl From<&Planned> for PlannedJson {
    fn from(planned: &Planned) -> PlannedJson {
        let Planned { scenario, target } = planned;
        let kind = target.as_ref().ok();
        PlannedJson {
            scenario: scenario.as_str(),
            does: scenario.what(),
            launches: scenario.launches(),
            ends_idle_machine: scenario.ends_idle_machine(),
            skipped: target.as_ref().err().cloned(),
            resource_class: kind.map(|target| target.class.to_string()),
            usage_class: kind.map(|target| target.usage.into()),
        }
    }
}

impl From<&Played> for PlayedJson {
    fn from(played: &Played) -> PlayedJson {
        let Played { scenario, verdict, machine, steps } = played;
        let (verdict, reason) = match verdict {
            Verdict::Passed => (VerdictJson::Passed, None),
            Verdict::Failed => (VerdictJson::Failed, None),
            Verdict::Incomplete(reason) => (VerdictJson::Incomplete, Some(reason.clone())),
            Verdict::Skipped(reason) => (VerdictJson::Skipped, Some(reason.clone())),
        };
        PlayedJson {
            scenario: scenario.as_str(),
            verdict,
            reason,
            instance_id: machine.as_ref().map(InstanceId::to_string),
            steps: steps.iter().map(StepJson::from).collect(),
        }
    }
}

impl From<&Step> for StepJson {
    fn from(step: &Step) -> StepJson {
        let Step { expectation, is_met, seen, took, limit } = step;
        StepJson {
            expectation: expectation.as_str(),
            met: *is_met,
            seen: seen.clone(),
            took_ms: millis(*took),
            limit_ms: limit.map(millis),
            what: expectation.what(),
            why: (!is_met).then(|| expectation.why()),
            fix: (!is_met).then(|| expectation.fix()),
        }
    }
}

impl From<&Violation> for ViolationJson {
    fn from(violation: &Violation) -> ViolationJson {
        let Violation { expectation, about, what } = violation;
        let (about, what) = (about.clone(), what.clone());
        ViolationJson { expectation: expectation.as_str(), about, what }
    }
}
