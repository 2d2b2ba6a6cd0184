//! The outcome of `ondeck provision`.

mod summary;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::requirements::{Mismatch, UsageClass};
use ondeck_core::modes::provision::{MachineSource, Outcome, PoolSearch, Provisioned, Timings};
use serde::Serialize;

use super::failure::ErrorJson;
use super::wire::{PurchaseOption, ResultStatus, SchemaVersion, millis, to_json};
use super::{Report, table};
use crate::inputs::Backend;

/// Printed by `ondeck provision --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ProvisionJson {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// The run that asked for the machines.
    run_id: String,
    /// The `runs-on` label of the run's jobs: the run's id, with the suffix if one was given. With
    /// `runner-label` `machine`, the label of the machine, or empty if there are several.
    label: String,
    /// The labels of the machines, in the order of `instances`. Each is the same as `label`, but with
    /// `runner-label` `machine`.
    labels: Vec<String>,
    /// How many machines were asked for.
    requested: u32,
    /// The machines that the run has now. Empty after a failure.
    instances: Vec<ProvisionedJson>,
    timings: TimingsJson,
    search: SearchJson,
    /// Only after a failure: the machines that this call terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    terminated: Option<Vec<String>>,
    /// Only after a failure: the machines that this call returned to the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<Vec<String>>,
    /// Only if there are any: what could not be cleaned up, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clean_up_failures: Vec<String>,
    /// Only after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// One machine of the run. Times are milliseconds since the start of the call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProvisionedJson {
    instance_id: String,
    /// `warm`: claimed from the pool. `cold`: launched by this call. `adopted`: the run had it
    /// already.
    source: SourceJson,
    instance_type: String,
    /// The machine's purchase option.
    usage_class: PurchaseOption,
    resource_class: String,
    /// When it passed the checks.
    ready_ms: u64,
    /// When its ticket was received. `null` unless it is warm.
    found_ms: Option<u64>,
    /// When it was claimed, registered or adopted.
    owned_ms: u64,
    /// When its runner was registered on GitHub.
    registered_ms: u64,
    /// Why the run got this machine.
    why: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum SourceJson {
    Warm,
    Cold,
    Adopted,
}

/// How long each phase took, in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TimingsJson {
    /// Looking for machines that the run already has.
    adoption_ms: u64,
    /// Claiming from the pool.
    selection_ms: u64,
    /// Launching new machines, until their records are written.
    creation_ms: u64,
    /// Waiting for new machines.
    validation_ms: u64,
    /// Committing, or cleaning up after a failure.
    post_provision_ms: u64,
    /// All phases of the call.
    total_ms: u64,
}

/// What the search in the pool found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SearchJson {
    /// Whether the pool was searched at all.
    asked: bool,
    /// How many tickets were received.
    tickets: usize,
    /// Machines claimed that passed their checks.
    claimed: usize,
    unsuitable: UnsuitableJson,
    /// Tickets that no usable machine stands behind: expired, unreadable, or of a machine that is
    /// gone.
    void: usize,
    /// Claims that another run won.
    lost: usize,
    /// Machines claimed that failed their checks and were terminated.
    unhealthy: usize,
    /// Machines claimed that went back unused: they were slow to register, or their agent is of a
    /// newer version.
    given_back: usize,
    /// How often a second machine was claimed because the first was slow to register.
    hedges: usize,
}

/// Tickets of machines that did not match the request, by the first property that differs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnsuitableJson {
    resource_class: usize,
    usage_class: usize,
    instance_type: usize,
    cpu: usize,
    mem: usize,
}

impl From<&Outcome> for ProvisionJson {
    fn from(outcome: &Outcome) -> ProvisionJson {
        let failure = outcome.failure.as_ref();
        let ids = |ids: &[_]| failure.map(|_| ids.iter().map(ToString::to_string).collect());
        ProvisionJson {
            schema_version: SchemaVersion,
            status: failure.into(),
            run_id: outcome.run.to_string(),
            label: outcome.runs_on().unwrap_or_default(),
            labels: labels(outcome),
            requested: outcome.requested,
            instances: outcome.instances.iter().map(ProvisionedJson::from).collect(),
            timings: (&outcome.timings).into(),
            search: (&outcome.search).into(),
            terminated: ids(&outcome.terminated),
            returned: ids(&outcome.returned),
            clean_up_failures: outcome.clean_up_failures.clone(),
            error: failure.map(ErrorJson::from),
        }
    }
}

/// The label of each machine, so that the job with index n can name the label of machine n.
fn labels(outcome: &Outcome) -> Vec<String> {
    outcome.instances.iter().map(|instance| instance.label.clone()).collect()
}

impl From<&Provisioned> for ProvisionedJson {
    fn from(one: &Provisioned) -> ProvisionedJson {
        ProvisionedJson {
            instance_id: one.id.to_string(),
            source: match one.source {
                MachineSource::Warm => SourceJson::Warm,
                MachineSource::Cold => SourceJson::Cold,
                MachineSource::Adopted => SourceJson::Adopted,
            },
            instance_type: one.spec.instance_type.clone(),
            usage_class: one.spec.usage_class.into(),
            resource_class: one.spec.resource_class.to_string(),
            ready_ms: millis(one.milestones.ready),
            found_ms: one.milestones.found.map(millis),
            owned_ms: millis(one.milestones.owned),
            registered_ms: millis(one.milestones.registered),
            why: one.why.clone(),
        }
    }
}

impl From<&Timings> for TimingsJson {
    fn from(timings: &Timings) -> TimingsJson {
        TimingsJson {
            adoption_ms: millis(timings.adoption),
            selection_ms: millis(timings.selection),
            creation_ms: millis(timings.creation),
            validation_ms: millis(timings.validation),
            post_provision_ms: millis(timings.post_provision),
            total_ms: millis(timings.total),
        }
    }
}

impl From<&PoolSearch> for SearchJson {
    fn from(search: &PoolSearch) -> SearchJson {
        let unsuitable = |mismatch| search.unsuitable.get(&mismatch).copied().unwrap_or_default();
        SearchJson {
            asked: search.asked,
            tickets: search.tickets,
            claimed: search.claimed,
            unsuitable: UnsuitableJson {
                resource_class: unsuitable(Mismatch::Class),
                usage_class: unsuitable(Mismatch::Usage),
                instance_type: unsuitable(Mismatch::Type),
                cpu: unsuitable(Mismatch::Cpu),
                mem: unsuitable(Mismatch::Mem),
            },
            void: search.void,
            lost: search.lost,
            unhealthy: search.unhealthy,
            given_back: search.given_back,
            hedges: search.hedges,
        }
    }
}

impl Report for Outcome {
    fn json(&self) -> String {
        to_json(&ProvisionJson::from(self))
    }

    fn text(&self) -> String {
        if self.failure.is_some() {
            return String::new();
        }
        let rows = self.instances.iter().map(|instance| {
            vec![
                instance.id.to_string(),
                instance.source.as_str().to_owned(),
                instance.spec.instance_type.clone(),
                instance.spec.usage_class.to_string(),
                format!("{} ms", millis(instance.milestones.ready)),
            ]
        });
        let machines =
            table(&["instance", "source", "type", "usage", "ready after"], rows.collect());
        format!(
            "{machines}\nrun {}: {} warm, {} cold, {} adopted after {} ms; its jobs use runs-on: {}",
            self.run,
            self.count(MachineSource::Warm),
            self.count(MachineSource::Cold),
            self.count(MachineSource::Adopted),
            millis(self.timings.total),
            self.runs_on().unwrap_or_else(|| "one label for each machine".to_owned()),
        )
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.clean_up_failures.clone()
    }

    fn notices(&self) -> Vec<String> {
        let on_demand_instead = |instance: &&Provisioned| {
            self.usage == UsageClass::Spot && instance.spec.usage_class == UsageClass::OnDemand
        };
        match self.instances.iter().filter(on_demand_instead).count() {
            0 => Vec::new(),
            count => vec![format!("spot had no capacity; launched on-demand: {count}")],
        }
    }

    fn outputs(&self) -> Vec<(&'static str, String)> {
        let label = self.runs_on().filter(|_| self.failure.is_none());
        let ids: Vec<&str> = self.instances.iter().map(|instance| instance.id.as_str()).collect();
        vec![
            ("label", label.unwrap_or_default()),
            ("labels", to_json(&labels(self))),
            ("instance-ids", ids.join(" ")),
            ("warm-count", self.count(MachineSource::Warm).to_string()),
            ("cold-count", self.count(MachineSource::Cold).to_string()),
        ]
    }

    fn markdown(&self, backend: Backend) -> String {
        summary::markdown(self, backend)
    }
}
