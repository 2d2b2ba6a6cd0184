//! The outcome of `ondeck drain`, `ondeck retire` and `ondeck terminate`.

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::modes::operate::{Action, Affected, Order, Outcome};
use serde::Serialize;

use super::failure::ErrorJson;
use super::wire::{ResultStatus, SchemaVersion, to_json};
use super::{Report, table};

/// What was done to machines, or would be.
#[derive(Debug)]
pub(crate) struct MachinesReport {
    command: &'static str,
    actor: String,
    reason: String,
    outcome: Outcome,
}

/// Printed by `ondeck drain --json`, `ondeck retire --json` and `ondeck terminate --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MachinesJson {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// `drain`, `retire` or `terminate`.
    command: String,
    /// Whether nothing was changed, and the list tells what would be.
    dry_run: bool,
    /// Who asked, as the events of the machines say.
    actor: String,
    /// Why, as the events of the machines say. Empty if no reason was given.
    reason: String,
    /// Every machine that was selected, by id.
    machines: Vec<MachineJson>,
    /// Ids that were asked for and that have no record.
    unknown: Vec<String>,
    /// Problems that did not stop the rest.
    warnings: Vec<String>,
    /// Only after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// One machine that was selected.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MachineJson {
    instance_id: String,
    resource_class: String,
    /// `spot` or `on-demand`.
    usage_class: String,
    /// The state that was found.
    state: String,
    /// The run that has the machine. Absent if none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    action: ActionJson,
    /// In words for people.
    detail: String,
    /// Whether another process changed the machine first, such as a run that claimed it.
    changed_meanwhile: bool,
    /// Whether the machine is gone, as far as the command can tell.
    gone: bool,
}

/// What is done to one machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum ActionJson {
    /// No run has it, and it is terminated.
    Terminate,
    /// It is terminated, and its run loses it.
    TakeFromRun,
    /// It serves no further run.
    LeaveAfterRun,
    /// It leaves after its run, or when others are idle in its place.
    Replace,
    /// It is left as it is.
    None,
    /// It is left as it is, because a run has it.
    Refuse,
}

impl From<&Affected> for MachineJson {
    fn from(it: &Affected) -> MachineJson {
        MachineJson {
            instance_id: it.id.to_string(),
            resource_class: it.spec.resource_class.to_string(),
            usage_class: it.spec.usage_class.to_string(),
            state: it.state.to_string(),
            run_id: it.run.as_ref().map(RunId::to_string),
            action: match it.action {
                Action::Terminate => ActionJson::Terminate,
                Action::TakeFromRun => ActionJson::TakeFromRun,
                Action::LeaveAfterRun => ActionJson::LeaveAfterRun,
                Action::Replace => ActionJson::Replace,
                Action::None(_) => ActionJson::None,
                Action::Refuse(_) => ActionJson::Refuse,
            },
            detail: detail(it),
            changed_meanwhile: it.changed_meanwhile,
            gone: it.is_gone,
        }
    }
}

/// What is done to the machine, in words.
fn detail(it: &Affected) -> String {
    if let Some(error) = &it.error {
        return format!("not done: {error}");
    }
    let run = it.run.as_ref().map_or("its last run", RunId::as_str);
    let action = match &it.action {
        Action::Terminate => "terminate".to_owned(),
        Action::TakeFromRun => format!("terminate, run {run} loses it"),
        Action::LeaveAfterRun if it.run.is_none() => "leaves after its last run".to_owned(),
        Action::LeaveAfterRun => format!("leaves after run {run}"),
        Action::Replace if it.run.is_none() => "leaves when it is replaced".to_owned(),
        Action::Replace => format!("leaves after run {run}"),
        Action::None(why) => format!("left: {why}"),
        Action::Refuse(why) => format!("refused: {why}"),
    };
    match it.changed_meanwhile {
        true => format!("{action} (changed by another process meanwhile)"),
        false => action,
    }
}

impl MachinesReport {
    pub(crate) fn new(command: &'static str, order: &Order, outcome: Outcome) -> MachinesReport {
        let (actor, reason) = (order.actor.clone(), order.reason.clone());
        MachinesReport { command, actor, reason, outcome }
    }

    fn headline(&self) -> String {
        let (selected, affected) = (self.outcome.machines.len(), self.outcome.affected().count());
        let command = self.command;
        match (selected, self.outcome.is_plan) {
            (0, _) => format!("{command}: no machine is selected by these conditions"),
            (_, true) => format!("{command} would change {affected} of {selected} machines"),
            (_, false) => format!("{command}: changed {affected} of {selected} machines"),
        }
    }
}

impl Report for MachinesReport {
    fn json(&self) -> String {
        let Outcome { is_plan, machines, unknown, warnings, failure, .. } = &self.outcome;
        to_json(&MachinesJson {
            schema_version: SchemaVersion,
            status: failure.as_ref().into(),
            command: self.command.to_owned(),
            dry_run: *is_plan,
            actor: self.actor.clone(),
            reason: self.reason.clone(),
            machines: machines.iter().map(MachineJson::from).collect(),
            unknown: unknown.iter().map(InstanceId::to_string).collect(),
            warnings: warnings.clone(),
            error: failure.as_ref().map(ErrorJson::from),
        })
    }

    fn text(&self) -> String {
        let row = |it: &Affected| {
            let class = it.spec.resource_class.to_string();
            vec![it.id.to_string(), class, it.state.to_string(), detail(it)]
        };
        let rows: Vec<Vec<String>> = self.outcome.machines.iter().map(row).collect();
        let mut parts = vec![self.headline()];
        if !rows.is_empty() {
            parts.push(table(&["machine", "class", "state", "action"], rows));
        }
        parts.join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        self.outcome.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.outcome.warnings.clone()
    }
}
