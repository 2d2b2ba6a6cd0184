//! The outcome of `ondeck release`.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::release::{Disposition, Outcome, Released};
use serde::Serialize;

use super::cost::{self, Dollars};
use super::failure::{ErrorJson, reason};
use super::markdown::{ROWS, cell, code, first_rows, machine_type, machines, plain, span};
use super::wire::{PurchaseOption, ResultStatus, SchemaVersion, millis, to_json};
use super::{Report, table};
use crate::inputs::Backend;

/// Printed by `ondeck release --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ReleaseJson {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// The run whose machines were released.
    run_id: String,
    /// The machines that the run had.
    instances: Vec<ReleasedJson>,
    timings: ReleaseTimingsJson,
    /// Only after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// One machine that the run had.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReleasedJson {
    instance_id: String,
    /// `pooled`: it waits in the pool. `ended`: terminated, because it has no idle time left.
    /// `expired`: it failed or did not respond, and will be terminated. `moved-on`: it no longer
    /// belonged to the run.
    fate: FateJson,
    instance_type: String,
    /// The machine's purchase option.
    usage_class: PurchaseOption,
    resource_class: String,
    /// How long the run used it, in milliseconds. `null` if it never got to work for the run.
    held_ms: Option<u64>,
    /// Only if there is one: why it has this fate.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Only if there is one: what the machine did for the run, as its agent reported.
    #[serde(skip_serializing_if = "String::is_empty")]
    account: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum FateJson {
    Pooled,
    Ended,
    Expired,
    MovedOn,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReleaseTimingsJson {
    /// The whole call, in milliseconds.
    total_ms: u64,
}

impl FateJson {
    fn as_str(self) -> &'static str {
        match self {
            FateJson::Pooled => "pooled",
            FateJson::Ended => "ended",
            FateJson::Expired => "expired",
            FateJson::MovedOn => "moved-on",
        }
    }
}

/// What became of a machine, and why.
fn fate(disposition: &Disposition) -> (FateJson, String) {
    match disposition {
        Disposition::Pooled => (FateJson::Pooled, String::new()),
        Disposition::Terminated => (FateJson::Ended, "no idle time left".to_owned()),
        Disposition::Expired(why) => (FateJson::Expired, why.clone()),
        Disposition::Superseded(why) => (FateJson::MovedOn, why.clone()),
        Disposition::Unfinished(state) => {
            (FateJson::Expired, format!("left {state} by an unfinished provision"))
        }
    }
}

impl From<&Outcome> for ReleaseJson {
    fn from(outcome: &Outcome) -> ReleaseJson {
        let failure = outcome.failure();
        let failure = failure.as_ref();
        ReleaseJson {
            schema_version: SchemaVersion,
            status: failure.into(),
            run_id: outcome.run.to_string(),
            instances: outcome.instances.iter().map(ReleasedJson::from).collect(),
            timings: ReleaseTimingsJson { total_ms: millis(outcome.took) },
            error: failure.map(ErrorJson::from),
        }
    }
}

impl From<&Released> for ReleasedJson {
    fn from(one: &Released) -> ReleasedJson {
        let (fate, reason) = fate(&one.disposition);
        ReleasedJson {
            instance_id: one.id.to_string(),
            fate,
            instance_type: one.spec.instance_type.clone(),
            usage_class: one.spec.usage_class.into(),
            resource_class: one.spec.resource_class.to_string(),
            held_ms: one.used_for.map(millis),
            reason,
            account: one.account.clone(),
        }
    }
}

impl Report for Outcome {
    fn json(&self) -> String {
        to_json(&ReleaseJson::from(self))
    }

    fn text(&self) -> String {
        if self.instances.is_empty() {
            return format!("run {} has no machines", self.run);
        }
        let rows = self.instances.iter().map(|one| {
            let (word, reason) = fate(&one.disposition);
            vec![one.id.to_string(), word.as_str().to_owned(), reason]
        });
        let machines = table(&["instance", "fate", "reason"], rows.collect());
        format!("{machines}\nrun {} released after {} ms", self.run, millis(self.took))
    }

    fn failure(&self) -> Option<Failure> {
        Outcome::failure(self)
    }

    fn markdown(&self, backend: Backend) -> String {
        markdown(self, backend)
    }
}

fn markdown(outcome: &Outcome, backend: Backend) -> String {
    let run = code(outcome.run.as_str());
    if outcome.instances.is_empty() {
        return format!("### ondeck released nothing: run {run} has no machines\n");
    }
    let mut text = format!(
        "### ondeck released {} of run {run} in {}: {}\n\n",
        machines(outcome.instances.len()),
        span(outcome.took),
        counts(&outcome.instances),
    );
    if let Some(failure) = outcome.failure() {
        text += &reason(&failure);
        text.push('\n');
    }
    text += &each_machine(&outcome.instances);
    text += &estimate(&outcome.instances, backend);
    text
}

/// `2 pooled, 1 expired`.
fn counts(instances: &[Released]) -> String {
    let fates: Vec<FateJson> = instances.iter().map(|one| fate(&one.disposition).0).collect();
    let mut counts: Vec<String> = Vec::new();
    for word in [FateJson::Pooled, FateJson::Ended, FateJson::Expired, FateJson::MovedOn] {
        let count = fates.iter().filter(|fate| **fate == word).count();
        if count > 0 {
            counts.push(format!("{count} {}", word.as_str()));
        }
    }
    counts.join(", ")
}

fn each_machine(instances: &[Released]) -> String {
    let header = ["machine", "type", "fate", "reason", "used for ", "agent's report"];
    let rows = instances.iter().map(|one| {
        let (word, reason) = fate(&one.disposition);
        vec![
            code(one.id.as_str()),
            machine_type(&one.spec),
            format!("**{}**", word.as_str()),
            plain(&reason),
            one.used_for.map(cell).unwrap_or_default(),
            plain(&one.account),
        ]
    });
    first_rows(&header, rows.collect(), ROWS)
}

fn estimate(instances: &[Released], backend: Backend) -> String {
    let held: Vec<(&Released, Duration)> =
        instances.iter().filter_map(|one| Some((one, one.used_for?))).collect();
    let total: Duration = held.iter().map(|(_, span)| *span).sum();
    let spent =
        held.iter().map(|(one, span)| cost::on_ec2(&one.spec, *span)).sum::<Option<Dollars>>();
    let Some(spent) = spent.filter(|_| !held.is_empty()) else {
        return String::new();
    };
    let hosted =
        held.iter().map(|(one, span)| cost::on_github(&one.spec, *span)).sum::<Option<Dollars>>();
    let hosted = hosted.map(|hosted| {
        format!("; GitHub-hosted runners of the same size, billed by the minute: {hosted}")
    });
    format!(
        "\nThe run used its machines for {} in total. Cost: {spent}{}.\n\n{}",
        span(total),
        hosted.unwrap_or_default(),
        cost::assumption(backend),
    )
}
