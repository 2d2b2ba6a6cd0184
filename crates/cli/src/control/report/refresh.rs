//! The outcome of `ondeck refresh`.

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::modes::refresh::{CeilingUse, Outcome};
use serde::Serialize;

use super::Report;
use super::failure::{ErrorJson, section};
use super::markdown::{ROWS, code, counted, plain, table};
use super::wire::{ResultStatus, SchemaVersion, to_json};
use crate::inputs::Backend;

/// Printed by `ondeck refresh --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RefreshJson {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// Whether the infrastructure is complete and the given settings are stored. If not, no setting
    /// was changed, and the rest was done under the settings stored before.
    set_up: bool,
    /// Machines terminated because their threshold had passed.
    reaped: Vec<String>,
    /// How many void tickets were deleted from the pool.
    tickets_pruned: usize,
    /// Machines terminated because they have no record.
    orphans_terminated: Vec<String>,
    /// Idle machines that got a new ticket in the pool.
    requeued: Vec<String>,
    /// Idle machines expired because their heartbeat stopped.
    unresponsive: Vec<String>,
    /// How many abandoned launches were closed.
    intents_settled: usize,
    /// Offline runners removed from GitHub's list, by name.
    offline_runners_removed: Vec<String>,
    /// How many records of terminated machines were deleted.
    records_pruned: usize,
    /// How many machines were launched to keep the pool warm.
    warmed: usize,
    /// Runs with waiting jobs and no machine, which were not rescued.
    stranded: Vec<String>,
    /// Runs with waiting jobs and no machine, which got new machines.
    rescued: Vec<String>,
    /// For each number of `max-machines`, how many machines there are. Empty if there is none, or if
    /// the machines could not be counted.
    ceilings: Vec<CeilingJson>,
    /// Problems that did not stop the rest of the refresh.
    warnings: Vec<String>,
    /// Only after a failure. The other fields list what was done despite it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// One number of `max-machines`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CeilingJson {
    /// The class that the number is for. Absent for the number of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_class: Option<String>,
    /// How many machines there are, those that are being launched included.
    machines: u32,
    max: u32,
}

impl From<&CeilingUse> for CeilingJson {
    fn from(ceiling: &CeilingUse) -> CeilingJson {
        CeilingJson {
            resource_class: ceiling.class.as_ref().map(ToString::to_string),
            machines: ceiling.machines,
            max: ceiling.max,
        }
    }
}

impl From<&Outcome> for RefreshJson {
    fn from(outcome: &Outcome) -> RefreshJson {
        let ids = |ids: &[InstanceId]| ids.iter().map(ToString::to_string).collect();
        let runs = |runs: &[RunId]| runs.iter().map(ToString::to_string).collect();
        let failure = outcome.failure.as_ref();
        RefreshJson {
            schema_version: SchemaVersion,
            status: failure.into(),
            set_up: outcome.set_up,
            reaped: ids(&outcome.reaped),
            tickets_pruned: outcome.pruned_tickets,
            orphans_terminated: ids(&outcome.orphans),
            requeued: ids(&outcome.requeued),
            unresponsive: ids(&outcome.unresponsive),
            intents_settled: outcome.settled_intents,
            offline_runners_removed: outcome.offline_runners.clone(),
            records_pruned: outcome.pruned_records,
            warmed: outcome.warmed,
            stranded: runs(&outcome.stranded),
            rescued: runs(&outcome.rescued),
            ceilings: outcome.ceilings.iter().map(CeilingJson::from).collect(),
            warnings: outcome.warnings.clone(),
            error: failure.map(ErrorJson::from),
        }
    }
}

impl Report for Outcome {
    fn json(&self) -> String {
        to_json(&RefreshJson::from(self))
    }

    fn text(&self) -> String {
        let first = if self.set_up { "set up" } else { "not set up: no setting was changed" };
        let mut lines = vec![first.to_owned()];
        lines.extend(actions(self).iter().map(|(what, count, _)| format!("{count} {what}")));
        lines.extend(self.ceilings.iter().map(room));
        lines.join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn notices(&self) -> Vec<String> {
        let rescued = self.rescued.iter();
        rescued.map(|run| format!("run had waiting jobs and no machines, rescued: {run}")).collect()
    }

    fn markdown(&self, _backend: Backend) -> String {
        markdown(self)
    }
}

fn markdown(outcome: &Outcome) -> String {
    let rows: Vec<Vec<String>> = actions(outcome)
        .into_iter()
        .map(|(what, count, which)| vec![what.to_owned(), count.to_string(), which])
        .collect();
    let mut text = match rows.len() {
        0 if outcome.failure.is_some() => String::new(),
        0 => "### ondeck refreshed the pool: nothing to do\n".to_owned(),
        _ => format!("### ondeck refreshed the pool\n\n{}", {
            table(&["action", "count ", "which"], &rows)
        }),
    };
    if !outcome.ceilings.is_empty() {
        let lines: Vec<String> = outcome.ceilings.iter().map(|one| plain(&room(one))).collect();
        text += &format!("\n{}.\n", lines.join("; "));
    }
    if !outcome.stranded.is_empty() {
        let runs = counted(outcome.stranded.len(), "run has", "runs have");
        let which = names(outcome.stranded.iter().map(RunId::as_str));
        text += &format!("\n**{runs} waiting jobs and no machines:** {which}\n");
    }
    if !outcome.warnings.is_empty() {
        let shown = outcome.warnings.iter().take(ROWS);
        let lines: String = shown.map(|warning| format!("- {}\n", plain(warning))).collect();
        text += &format!("\n{}:\n{lines}", counted(outcome.warnings.len(), "warning", "warnings"));
    }
    match &outcome.failure {
        Some(failure) => format!("{}\n{text}", section("refresh", failure)),
        None => text,
    }
}

/// How much of a ceiling is used.
fn room(ceiling: &CeilingUse) -> String {
    let CeilingUse { class, machines, max } = ceiling;
    match class {
        None => format!("the pool has {machines} of {max} machines"),
        Some(class) => format!("class {class} has {machines} of {max} machines"),
    }
}

/// What refresh did, how often, and to which: only what happened at least once.
fn actions(outcome: &Outcome) -> Vec<(&'static str, usize, String)> {
    let ids = |ids: &[InstanceId]| names(ids.iter().map(InstanceId::as_str));
    let runners = names(outcome.offline_runners.iter().map(String::as_str));
    let rescued = names(outcome.rescued.iter().map(RunId::as_str));
    let actions = [
        ("expired machines terminated", outcome.reaped.len(), ids(&outcome.reaped)),
        ("orphaned machines terminated", outcome.orphans.len(), ids(&outcome.orphans)),
        ("idle machines re-queued", outcome.requeued.len(), ids(&outcome.requeued)),
        (
            "idle machines without heartbeat expired",
            outcome.unresponsive.len(),
            ids(&outcome.unresponsive),
        ),
        ("void tickets deleted", outcome.pruned_tickets, String::new()),
        ("abandoned launches closed", outcome.settled_intents, String::new()),
        ("offline runners removed", outcome.offline_runners.len(), runners),
        ("old records deleted", outcome.pruned_records, String::new()),
        ("runs rescued", outcome.rescued.len(), rescued),
        ("machines launched to keep the pool warm", outcome.warmed, String::new()),
    ];
    actions.into_iter().filter(|(_, count, _)| *count > 0).collect()
}

/// The first ten names, as code.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const FEW: usize = 10;
    let mut shown: Vec<String> = Vec::new();
    for (n, name) in all.enumerate() {
        if n == FEW {
            shown.push("…".to_owned());
            break;
        }
        shown.push(code(name));
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_that_had_everything_to_do() {
        let ids =
            |names: &[&str]| names.iter().map(|name| InstanceId::new(*name).unwrap()).collect();
        let run = |name: &str| RunId::new(name).unwrap();
        let reaped: Vec<String> = (0..12).map(|n| format!("i-{n}")).collect();
        let outcome = Outcome {
            set_up: true,
            reaped: ids(&reaped.iter().map(String::as_str).collect::<Vec<_>>()),
            pruned_tickets: 3,
            orphans: ids(&["i-a"]),
            requeued: ids(&["i-b", "i-c"]),
            unresponsive: ids(&["i-d"]),
            settled_intents: 1,
            offline_runners: vec!["i-e_1".to_owned(), "odd|name".to_owned()],
            pruned_records: 40,
            warmed: 2,
            stranded: vec![run("17")],
            rescued: vec![run("18"), run("19")],
            ceilings: vec![
                CeilingUse { class: None, machines: 98, max: 100 },
                CeilingUse { class: Some("large".parse().unwrap()), machines: 20, max: 20 },
            ],
            warnings: vec!["jobs wait for a run that has no machine: 17".to_owned(), "<b>".into()],
            failure: None,
        };
        insta::assert_snapshot!(markdown(&outcome), @"
        ### ondeck refreshed the pool

        | action | count | which |
        | --- | ---: | --- |
        | expired machines terminated | 12 | `i-0` `i-1` `i-2` `i-3` `i-4` `i-5` `i-6` `i-7` `i-8` `i-9` … |
        | orphaned machines terminated | 1 | `i-a` |
        | idle machines re-queued | 2 | `i-b` `i-c` |
        | idle machines without heartbeat expired | 1 | `i-d` |
        | void tickets deleted | 3 |  |
        | abandoned launches closed | 1 |  |
        | offline runners removed | 2 | `i-e_1` odd&#124;name |
        | old records deleted | 40 |  |
        | runs rescued | 2 | `18` `19` |
        | machines launched to keep the pool warm | 2 |  |

        the pool has 98 of 100 machines; class large has 20 of 20 machines.

        **1 run has waiting jobs and no machines:** `17`

        2 warnings:
        - jobs wait for a run that has no machine: 17
        - &lt;b&gt;
        ");
        insta::assert_snapshot!(markdown(&Outcome::default()), @"### ondeck refreshed the pool: nothing to do");
    }
}
