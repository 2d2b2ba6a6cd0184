//! The outcome of `ondeck release`.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::record::Unreadable;
use ondeck_core::model::signal::INTERRUPTED;
use ondeck_core::modes::release::{Disposition, Outcome, Released};
use serde::Serialize;

use super::estimate::{self, Dollars};
use super::failure::{ErrorJson, reason};
use super::markdown::{ROWS, cell, code, first_rows, machine_type, machines, plain, span};
use super::wire::{PurchaseOption, ResultStatus, SchemaVersion, UnreadableJson, millis, to_json};
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
    /// Records of the run that cannot be read. Their machines are left as they are.
    unreadable: Vec<UnreadableJson>,
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
    /// `pooled`: it waits in the pool. `terminated`: it has no idle time left, or is not reused.
    /// `expired`: it failed or did not respond, and will be terminated. `interrupted`: its provider
    /// takes it away, as it does with spot machines. `preserved`: the run failed, and it is kept outside
    /// the pool for a while. `superseded`: it no longer belonged to the run.
    /// `not-reached`: the store or the queue did not answer for it, so it may still belong to the
    /// run.
    outcome: MachineOutcome,
    instance_type: String,
    /// The machine's purchase option.
    usage_class: PurchaseOption,
    resource_class: String,
    /// How long the run used it, in milliseconds. `null` if it never got to work for the run.
    used_ms: Option<u64>,
    /// Only if there is one: why it has this outcome.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Only if there is one: what the machine did for the run, as its agent reported.
    #[serde(skip_serializing_if = "String::is_empty")]
    agent_report: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum MachineOutcome {
    Pooled,
    Terminated,
    Expired,
    Interrupted,
    Preserved,
    Superseded,
    NotReached,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReleaseTimingsJson {
    /// The whole call, in milliseconds.
    total_ms: u64,
}

impl MachineOutcome {
    fn as_str(self) -> &'static str {
        match self {
            MachineOutcome::Pooled => "pooled",
            MachineOutcome::Terminated => "terminated",
            MachineOutcome::Expired => "expired",
            MachineOutcome::Interrupted => "interrupted",
            MachineOutcome::Preserved => "preserved",
            MachineOutcome::Superseded => "superseded",
            MachineOutcome::NotReached => "not-reached",
        }
    }
}

/// How releasing a machine ended, and the reason, which is empty for a machine that the run used and
/// that is pooled.
fn machine_outcome(disposition: &Disposition) -> (MachineOutcome, String) {
    match disposition {
        Disposition::Pooled => (MachineOutcome::Pooled, String::new()),
        Disposition::GivenBack => {
            (MachineOutcome::Pooled, "left claimed by an unfinished provision".to_owned())
        }
        Disposition::Terminated => {
            (MachineOutcome::Terminated, "no idle time left, or not reused".to_owned())
        }
        Disposition::Expired(why) => (MachineOutcome::Expired, why.clone()),
        Disposition::Interrupted => (MachineOutcome::Interrupted, INTERRUPTED.to_owned()),
        Disposition::Preserved(until) => {
            (MachineOutcome::Preserved, format!("the run failed; kept for debugging until {until}"))
        }
        Disposition::Superseded(why) => (MachineOutcome::Superseded, why.clone()),
        Disposition::NotReached(error) => (MachineOutcome::NotReached, error.clone()),
        Disposition::Unfinished(state) => {
            (MachineOutcome::Expired, format!("left {state} by an unfinished provision"))
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
            unreadable: outcome.unreadable.iter().map(UnreadableJson::from).collect(),
            timings: ReleaseTimingsJson { total_ms: millis(outcome.took) },
            error: failure.map(ErrorJson::from),
        }
    }
}

impl From<&Released> for ReleasedJson {
    fn from(one: &Released) -> ReleasedJson {
        let (outcome, reason) = machine_outcome(&one.disposition);
        ReleasedJson {
            instance_id: one.id.to_string(),
            outcome,
            instance_type: one.spec.instance_type.clone(),
            usage_class: one.spec.usage_class.into(),
            resource_class: one.spec.resource_class.to_string(),
            used_ms: one.used_for.map(millis),
            reason,
            agent_report: one.account.clone(),
        }
    }
}

impl Report for Outcome {
    fn json(&self) -> String {
        to_json(&ReleaseJson::from(self))
    }

    fn text(&self) -> String {
        if self.instances.is_empty() && self.unreadable.is_empty() {
            return format!("run {} has no machines", self.run);
        }
        let rows = self.instances.iter().map(|one| {
            let (outcome, reason) = machine_outcome(&one.disposition);
            vec![one.id.to_string(), outcome.as_str().to_owned(), reason]
        });
        let machines = table(&["instance", "outcome", "reason"], rows.collect());
        format!("{machines}\nrun {} released after {} ms", self.run, millis(self.took))
    }

    fn failure(&self) -> Option<Failure> {
        Outcome::failure(self)
    }

    fn warnings(&self) -> Vec<String> {
        self.unreadable.iter().map(|row| format!("{row}; skipped")).collect()
    }

    fn markdown(&self, backend: Backend) -> String {
        markdown(self, backend)
    }
}

fn markdown(outcome: &Outcome, backend: Backend) -> String {
    let run = code(outcome.run.as_str());
    if outcome.instances.is_empty() && outcome.unreadable.is_empty() {
        return format!("### ondeck released nothing: run {run} has no machines\n");
    }
    let mut text = format!(
        "### ondeck released {} of run {run} in {}{}\n\n",
        machines(outcome.instances.len()),
        span(outcome.took),
        counts(&outcome.instances),
    );
    if let Some(failure) = outcome.failure() {
        text += &reason(&failure);
        text.push('\n');
    }
    text += &each_machine(&outcome.instances);
    text += &unreadable(&outcome.unreadable);
    text += &estimate(&outcome.instances, backend);
    text
}

/// `: 2 pooled, 1 expired`; empty for no machine.
fn counts(instances: &[Released]) -> String {
    let outcomes: Vec<MachineOutcome> =
        instances.iter().map(|one| machine_outcome(&one.disposition).0).collect();
    let mut counts: Vec<String> = Vec::new();
    for outcome in [
        MachineOutcome::Pooled,
        MachineOutcome::Terminated,
        MachineOutcome::Expired,
        MachineOutcome::Interrupted,
        MachineOutcome::Preserved,
        MachineOutcome::Superseded,
        MachineOutcome::NotReached,
    ] {
        let count = outcomes.iter().filter(|one| **one == outcome).count();
        if count > 0 {
            counts.push(format!("{count} {}", outcome.as_str()));
        }
    }
    let separator = if counts.is_empty() { "" } else { ": " };
    format!("{separator}{}", counts.join(", "))
}

fn each_machine(instances: &[Released]) -> String {
    let header = ["machine", "type", "outcome", "reason", "used for ", "agent's report"];
    let rows = instances.iter().map(|one| {
        let (outcome, reason) = machine_outcome(&one.disposition);
        vec![
            code(one.id.as_str()),
            machine_type(&one.spec),
            format!("**{}**", outcome.as_str()),
            plain(&reason),
            one.used_for.map(cell).unwrap_or_default(),
            plain(&one.account),
        ]
    });
    first_rows(&header, rows.collect(), ROWS)
}

fn unreadable(rows: &[Unreadable]) -> String {
    let lines = rows.iter().map(|row| format!("- {}\n", plain(&row.to_string())));
    match rows.is_empty() {
        true => String::new(),
        false => format!("\nLeft as they are:\n{}", lines.collect::<String>()),
    }
}

fn estimate(instances: &[Released], backend: Backend) -> String {
    let held: Vec<(&Released, Duration)> =
        instances.iter().filter_map(|one| Some((one, one.used_for?))).collect();
    let total: Duration = held.iter().map(|(_, span)| *span).sum();
    let spent =
        held.iter().map(|(one, span)| estimate::on_ec2(&one.spec, *span)).sum::<Option<Dollars>>();
    let Some(spent) = spent.filter(|_| !held.is_empty()) else {
        return String::new();
    };
    let hosted = held
        .iter()
        .map(|(one, span)| estimate::on_github(&one.spec, *span))
        .sum::<Option<Dollars>>();
    let hosted = hosted.map(|hosted| {
        format!("; GitHub-hosted runners of the same size, billed by the minute: {hosted}")
    });
    format!(
        "\nThe run used its machines for {} in total. Cost: {spent}{}.\n\n{}",
        span(total),
        hosted.unwrap_or_default(),
        estimate::assumption(backend),
    )
}
