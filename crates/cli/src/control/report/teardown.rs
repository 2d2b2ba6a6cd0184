//! The outcome of `ondeck teardown`.

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::modes::teardown::{MachineInUse, Outcome};
use ondeck_core::ports::Resource;
use serde::Serialize;

use super::failure::ErrorJson;
use super::wire::{ResultStatus, SchemaVersion, to_json};
use super::{Report, table};

/// What a teardown did, and what it leaves to its caller.
#[derive(Debug)]
pub(crate) struct TeardownReport {
    pool: String,
    outcome: Outcome,
    leftovers: Vec<Leftover>,
    /// Whether the pool was closed before `--cancel` opened it; `None` without `--cancel`.
    cancelled: Option<bool>,
}

/// Something that belongs to the pool and that ondeck did not create.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LeftoverJson"))]
pub(crate) struct Leftover {
    pub(crate) what: String,
    /// The command that removes it. Words in capitals are for the caller to fill in.
    pub(crate) command: String,
}

/// Printed by `ondeck teardown --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TeardownJson {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// The pool's name, or the home of a local one.
    pool: String,
    /// Whether nothing was changed, and the lists tell what exists.
    dry_run: bool,
    /// Whether the pool is closed now: nothing is claimed or launched in it.
    closed: bool,
    /// Machines that were terminated, or exist.
    machines: Vec<String>,
    /// Machines and launches of runs that keep the pool from being torn down.
    in_use: Vec<InUseJson>,
    /// Runners that were removed from GitHub's list, or are on it, by name.
    runners: Vec<String>,
    /// What was deleted, or exists.
    resources: Vec<ResourceJson>,
    /// What ondeck did not create and therefore left.
    leftovers: Vec<Leftover>,
    /// Problems that did not stop the rest.
    warnings: Vec<String>,
    /// Only after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// A machine that a run owns, or a launch for it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InUseJson {
    /// Absent for a launch whose machines are not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    /// Absent if the record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// In words for people.
    state: String,
}

/// Something that ondeck created.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ResourceJson {
    /// `launch template`, `queue`, `wake-up queue`, `files` or `table`.
    kind: String,
    /// Its name or path.
    name: String,
}

impl From<&MachineInUse> for InUseJson {
    fn from(it: &MachineInUse) -> InUseJson {
        InUseJson {
            instance_id: it.id.as_ref().map(InstanceId::to_string),
            run_id: it.run.as_ref().map(RunId::to_string),
            state: it.state.to_owned(),
        }
    }
}

impl From<&Resource> for ResourceJson {
    fn from(it: &Resource) -> ResourceJson {
        ResourceJson { kind: it.kind.as_str().to_owned(), name: it.name.clone() }
    }
}

impl TeardownReport {
    pub(crate) fn new(pool: &str, outcome: Outcome, leftovers: Vec<Leftover>) -> TeardownReport {
        TeardownReport { pool: pool.to_owned(), outcome, leftovers, cancelled: None }
    }

    /// The report of `--cancel`.
    pub(crate) fn cancelled(pool: String, was_closed: bool) -> TeardownReport {
        let outcome = Outcome::default();
        TeardownReport { pool, outcome, leftovers: Vec::new(), cancelled: Some(was_closed) }
    }

    /// A row for each thing that is gone, or exists.
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |kind: &str, name: &str| vec![kind.to_owned(), name.to_owned()];
        let Outcome { machines, runners, resources, .. } = &self.outcome;
        let machines = machines.iter().map(|id| row("machine", id.as_str()));
        let runners = runners.iter().map(|name| row("runner", name));
        let resources = resources.iter().map(|it| row(it.kind.as_str(), &it.name));
        machines.chain(runners).chain(resources).collect()
    }

    fn headline(&self) -> String {
        let (pool, outcome) = (&self.pool, &self.outcome);
        match (self.cancelled, outcome.is_plan, &outcome.failure) {
            (Some(true), ..) => format!("pool {pool} is open again; run ondeck refresh"),
            (Some(false), ..) => format!("pool {pool} was not closed"),
            (None, true, _) if self.rows().is_empty() => format!("nothing is left of pool {pool}"),
            (None, true, _) => format!("teardown of pool {pool} would delete"),
            (None, false, Some(_)) if self.rows().is_empty() => String::new(),
            (None, false, Some(_)) => format!("of pool {pool}, these are gone"),
            (None, false, None) if self.rows().is_empty() => {
                format!("nothing was left of pool {pool}")
            }
            (None, false, None) => format!("pool {pool} is gone"),
        }
    }
}

impl Report for TeardownReport {
    fn json(&self) -> String {
        let Outcome { is_plan, closed, machines, in_use, runners, resources, warnings, failure } =
            &self.outcome;
        to_json(&TeardownJson {
            schema_version: SchemaVersion,
            status: failure.as_ref().into(),
            pool: self.pool.clone(),
            dry_run: *is_plan,
            closed: *closed,
            machines: machines.iter().map(InstanceId::to_string).collect(),
            in_use: in_use.iter().map(InUseJson::from).collect(),
            runners: runners.clone(),
            resources: resources.iter().map(ResourceJson::from).collect(),
            leftovers: self.leftovers.clone(),
            warnings: warnings.clone(),
            error: failure.as_ref().map(ErrorJson::from),
        })
    }

    fn text(&self) -> String {
        let mut parts = vec![self.headline()];
        let rows = self.rows();
        if !rows.is_empty() {
            parts.push(table(&["what", "name"], rows));
        }
        if self.outcome.is_plan && !self.outcome.in_use.is_empty() {
            let in_use = self.outcome.in_use.iter().map(|it| format!("  {it}"));
            parts.push(format!("in use:\n{}", in_use.collect::<Vec<_>>().join("\n")));
        }
        let is_over = self.outcome.failure.is_none() && self.cancelled.is_none();
        if is_over && !self.leftovers.is_empty() {
            let left =
                self.leftovers.iter().map(|it| format!("  {}:\n    {}", it.what, it.command));
            let left: Vec<String> = left.collect();
            parts.push(format!("not created by ondeck, and left:\n{}", left.join("\n")));
        }
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        self.outcome.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.outcome.warnings.clone()
    }
}
