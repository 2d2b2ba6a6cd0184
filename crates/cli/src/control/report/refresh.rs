//! The outcome of `ondeck refresh`.

use std::collections::BTreeMap;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::modes::refresh::{CeilingUse, Outcome, SpendUse};
use serde::Serialize;

use super::Report;
use super::configuration::ConfigurationInForce;
use super::failure::{ErrorJson, section};
use super::markdown::{ROWS, code, counted, plain, table};
use super::wire::{ResultStatus, SchemaVersion, SpendJson, to_json};
use crate::control::applied::Enforcement;
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
    /// Only if `ondeck apply` has stored a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<ConfigurationInForce>,
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
    /// Idle machines terminated because their provider takes them away.
    interrupted: Vec<String>,
    /// How many abandoned launches were closed.
    intents_settled: usize,
    /// Runners removed from GitHub's list because their machine is gone or has registered again, by name.
    offline_runners_removed: Vec<String>,
    /// How many records of terminated machines were deleted.
    records_pruned: usize,
    /// How many machines were launched to keep the pool warm.
    warmed: usize,
    /// Only with a time limit: how many machines for the minimum are starting, and are left to the next
    /// refresh.
    #[serde(skip_serializing_if = "Option::is_none")]
    starting: Option<usize>,
    /// Idle machines of the minimum that stay longer in the pool.
    renewed: Vec<String>,
    /// Idle machines terminated because they had reached a limit of their lifetime.
    rotated: Vec<String>,
    /// How many machine-hours a week `min-idle` asks for, by class.
    min_idle_machine_hours_per_week: BTreeMap<String, f64>,
    /// Running machines whose agents have stopped sending heartbeats. They stay until their threshold.
    silent: Vec<String>,
    /// Machines whose agents have reported that they cannot serve their run. `warnings` has the reasons.
    failing: Vec<String>,
    /// Runs that had completed without a release, and whose machines were released.
    completed: Vec<String>,
    /// Runs whose jobs were re-run because their machines were taken away.
    rerun: Vec<String>,
    /// Labels of runs with waiting jobs and too few machines, which were not rescued.
    stranded: Vec<String>,
    /// Labels of runs with waiting jobs and too few machines, which got new machines.
    rescued: Vec<String>,
    /// For each number of `max-machines`, how many machines there are. Empty if there is none, or if
    /// the machines could not be counted.
    ceilings: Vec<CeilingJson>,
    /// What machines cost today. Absent if there is no cap, or if they could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    spend: Option<SpendJson>,
    /// Machines that were drained because what they may still cost today is more than
    /// `max-spend-per-day` leaves. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drained: Vec<String>,
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

impl From<&RefreshReport> for RefreshJson {
    fn from(report: &RefreshReport) -> RefreshJson {
        let RefreshReport { outcome, configuration } = report;
        let ids = |ids: &[InstanceId]| ids.iter().map(ToString::to_string).collect();
        let labels = |labels: &[Label]| labels.iter().map(ToString::to_string).collect();
        let failure = outcome.failure.as_ref();
        RefreshJson {
            schema_version: SchemaVersion,
            status: failure.into(),
            set_up: outcome.set_up,
            configuration: configuration.clone(),
            reaped: ids(&outcome.reaped),
            tickets_pruned: outcome.pruned_tickets,
            orphans_terminated: ids(&outcome.orphans),
            requeued: ids(&outcome.requeued),
            unresponsive: ids(&outcome.unresponsive),
            interrupted: ids(&outcome.interrupted),
            intents_settled: outcome.settled_intents,
            offline_runners_removed: outcome.offline_runners.clone(),
            records_pruned: outcome.pruned_records,
            warmed: outcome.warmed,
            starting: Some(outcome.starting).filter(|starting| *starting > 0),
            renewed: ids(&outcome.renewed),
            rotated: ids(&outcome.rotated),
            min_idle_machine_hours_per_week: outcome
                .minimum_hours
                .iter()
                .map(|(class, hours)| (class.to_string(), *hours))
                .collect(),
            silent: ids(&outcome.silent),
            failing: ids(&outcome.failing),
            completed: outcome.completed.iter().map(ToString::to_string).collect(),
            rerun: outcome.rerun.iter().map(ToString::to_string).collect(),
            stranded: labels(&outcome.stranded),
            rescued: labels(&outcome.rescued),
            ceilings: outcome.ceilings.iter().map(CeilingJson::from).collect(),
            spend: outcome.spend.as_ref().map(SpendJson::from),
            drained: ids(&outcome.drained),
            warnings: outcome.warnings.clone(),
            error: failure.map(ErrorJson::from),
        }
    }
}

/// What a refresh did, and what became of the applied configuration.
#[derive(Debug)]
pub(crate) struct RefreshReport {
    pub(crate) outcome: Outcome,
    configuration: Option<ConfigurationInForce>,
}

impl RefreshReport {
    pub(crate) fn new(outcome: Outcome, enforcement: Enforcement) -> RefreshReport {
        let configuration = ConfigurationInForce::after(enforcement, outcome.set_up);
        RefreshReport { outcome, configuration }
    }
}

impl Report for RefreshReport {
    fn json(&self) -> String {
        to_json(&RefreshJson::from(self))
    }

    fn text(&self) -> String {
        let first =
            if self.outcome.set_up { "set up" } else { "not set up: no setting was changed" };
        let mut lines = vec![first.to_owned()];
        lines.extend(self.configuration.as_ref().map(ConfigurationInForce::line));
        lines.extend(
            actions(&self.outcome).iter().map(|(what, count, _)| format!("{count} {what}")),
        );
        lines.extend(minimum_cost(&self.outcome));
        lines.extend(rooms(&self.outcome));
        lines.extend(spend(&self.outcome));
        lines.join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        self.outcome.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.outcome.warnings.clone()
    }

    fn notices(&self) -> Vec<String> {
        let rescued = self.outcome.rescued.iter();
        let rescued =
            rescued.map(|run| format!("run had waiting jobs and too few machines, rescued: {run}"));
        let completed = self.outcome.completed.iter();
        let completed =
            completed.map(|run| format!("run completed without a release, released: {run}"));
        let rerun = self.outcome.rerun.iter();
        let rerun =
            rerun.map(|run| format!("jobs lost their machines and were re-run, run: {run}"));
        rescued.chain(completed).chain(rerun).collect()
    }

    fn markdown(&self, _backend: Backend) -> String {
        let mut text = markdown(&self.outcome);
        if let Some(configuration) = &self.configuration {
            text += &format!("\n{}\n", plain(&configuration.line()));
        }
        text
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
    if let Some(cost) = minimum_cost(outcome) {
        text += &format!("\n{cost}\n");
    }
    if !outcome.ceilings.is_empty() {
        let lines: Vec<String> = rooms(outcome).map(|room| plain(&room)).collect();
        text += &format!("\n{}.\n", lines.join("; "));
    }
    if let Some(spend) = spend(outcome) {
        text += &format!("\n{}.\n", plain(&spend));
    }
    if !outcome.stranded.is_empty() {
        let runs = counted(outcome.stranded.len(), "run has", "runs have");
        let which = labels(&outcome.stranded);
        text += &format!("\n**{runs} waiting jobs and too few machines:** {which}\n");
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

/// How much of each ceiling is used.
fn rooms(outcome: &Outcome) -> impl Iterator<Item = String> {
    let counted = when_counted(outcome);
    outcome.ceilings.iter().map(move |CeilingUse { class, machines, max }| match class {
        None => format!("the pool has {machines} of {max} machines{counted}"),
        Some(class) => format!("class {class} has {machines} of {max} machines{counted}"),
    })
}

/// How much of the cap is used.
fn spend(outcome: &Outcome) -> Option<String> {
    let (used, counted) = (outcome.spend?, when_counted(outcome));
    let SpendUse { spent, reserved, cap, .. } = used;
    let day = used.date();
    Some(format!(
        "machines of {day} (UTC) have cost {spent} and may cost {reserved} more, of {cap} a day{counted}"
    ))
}

/// Machines are counted before any are launched.
fn when_counted(outcome: &Outcome) -> &'static str {
    match outcome.warmed + outcome.starting + outcome.rescued.len() {
        0 => "",
        _ => ", before the launches of this refresh",
    }
}

/// What refresh did, how often, and to which: only what happened at least once.
fn actions(outcome: &Outcome) -> Vec<(&'static str, usize, String)> {
    let ids = |ids: &[InstanceId]| names(ids.iter().map(InstanceId::as_str));
    let runners = names(outcome.offline_runners.iter().map(String::as_str));
    let completed = names(outcome.completed.iter().map(RunId::as_str));
    let rerun = names(outcome.rerun.iter().map(RunId::as_str));
    let actions = [
        ("expired machines terminated", outcome.reaped.len(), ids(&outcome.reaped)),
        ("orphaned machines terminated", outcome.orphans.len(), ids(&outcome.orphans)),
        ("idle machines re-queued", outcome.requeued.len(), ids(&outcome.requeued)),
        (
            "idle machines without heartbeat expired",
            outcome.unresponsive.len(),
            ids(&outcome.unresponsive),
        ),
        (
            "idle machines taken away by their provider",
            outcome.interrupted.len(),
            ids(&outcome.interrupted),
        ),
        ("void tickets deleted", outcome.pruned_tickets, String::new()),
        ("abandoned launches closed", outcome.settled_intents, String::new()),
        ("offline runners removed", outcome.offline_runners.len(), runners),
        ("old records deleted", outcome.pruned_records, String::new()),
        ("running machines without heartbeat", outcome.silent.len(), ids(&outcome.silent)),
        ("machines that cannot serve their runs", outcome.failing.len(), ids(&outcome.failing)),
        ("completed runs released", outcome.completed.len(), completed),
        ("runs with re-run jobs", outcome.rerun.len(), rerun),
        ("runs rescued", outcome.rescued.len(), labels(&outcome.rescued)),
        ("machines launched to keep the pool warm", outcome.warmed, String::new()),
        ("machines starting to keep the pool warm", outcome.starting, String::new()),
        ("idle machines kept for longer", outcome.renewed.len(), ids(&outcome.renewed)),
        (
            "machines at the end of their lifetime replaced",
            outcome.rotated.len(),
            ids(&outcome.rotated),
        ),
        (
            "machines drained for the cap on their cost",
            outcome.drained.len(),
            ids(&outcome.drained),
        ),
    ];
    actions.into_iter().filter(|(_, count, _)| *count > 0).collect()
}

/// What the minimum of idle machines costs; `None` if there is none.
fn minimum_cost(outcome: &Outcome) -> Option<String> {
    let hours = outcome.minimum_hours.iter();
    let classes: Vec<String> = hours.map(|(class, n)| format!("{class} {}", rounded(*n))).collect();
    let told = format!("min-idle costs, in machine-hours a week: {}", classes.join(", "));
    (!classes.is_empty()).then_some(told)
}

/// With two decimals at most.
fn rounded(hours: f64) -> String {
    format!("{hours:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn labels(labels: &[Label]) -> String {
    let texts: Vec<String> = labels.iter().map(ToString::to_string).collect();
    names(texts.iter().map(String::as_str))
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
    use ondeck_core::model::finding::Findings;
    use ondeck_core::model::ids::ResourceClass;
    use ondeck_core::model::money::Money;
    use ondeck_core::model::timestamp::Timestamp;

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
            oldest_orphan: None,
            requeued: ids(&["i-b", "i-c"]),
            unresponsive: ids(&["i-d"]),
            interrupted: ids(&["i-s"]),
            settled_intents: 1,
            offline_runners: vec!["i-e_1".to_owned(), "odd|name".to_owned()],
            pruned_records: 40,
            warmed: 2,
            starting: 1,
            renewed: ids(&["i-f"]),
            rotated: ids(&["i-g", "i-h"]),
            minimum_hours: BTreeMap::from([
                (ResourceClass::new("large").unwrap(), 200.0),
                (ResourceClass::new("xlarge").unwrap(), 1.0 / 3.0),
            ]),
            silent: ids(&["i-q"]),
            failing: ids(&["i-r"]),
            completed: vec![run("16")],
            rerun: vec![run("15")],
            stranded: vec![Label::from(&run("17"))],
            rescued: vec![Label::from(&run("18")), Label::new(run("19"), "large".parse().ok())],
            ceilings: vec![
                CeilingUse { class: None, machines: 98, max: 100 },
                CeilingUse { class: Some("large".parse().unwrap()), machines: 20, max: 20 },
            ],
            spend: Some(SpendUse {
                day: Timestamp::parse("2026-11-19T00:00:00Z").unwrap(),
                spent: Money::from_nanos(3_200_000_000),
                reserved: Money::from_nanos(950_000_000),
                cap: Money::from_nanos(5_000_000_000),
            }),
            drained: ids(&["i-t"]),
            machines: Some(98),
            findings: Findings::default(),
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
        | idle machines taken away by their provider | 1 | `i-s` |
        | void tickets deleted | 3 |  |
        | abandoned launches closed | 1 |  |
        | offline runners removed | 2 | `i-e_1` odd&#124;name |
        | old records deleted | 40 |  |
        | running machines without heartbeat | 1 | `i-q` |
        | machines that cannot serve their runs | 1 | `i-r` |
        | completed runs released | 1 | `16` |
        | runs with re-run jobs | 1 | `15` |
        | runs rescued | 2 | `18` `19-large` |
        | machines launched to keep the pool warm | 2 |  |
        | machines starting to keep the pool warm | 1 |  |
        | idle machines kept for longer | 1 | `i-f` |
        | machines at the end of their lifetime replaced | 2 | `i-g` `i-h` |
        | machines drained for the cap on their cost | 1 | `i-t` |

        min-idle costs, in machine-hours a week: large 200, xlarge 0.33

        the pool has 98 of 100 machines, before the launches of this refresh; class large has 20 of 20 machines, before the launches of this refresh.

        machines of 2026-11-19 (UTC) have cost &#36;3.20 and may cost &#36;0.9500 more, of &#36;5.00 a day, before the launches of this refresh.

        **1 run has waiting jobs and too few machines:** `17`

        2 warnings:
        - jobs wait for a run that has no machine: 17
        - &lt;b&gt;
        ");
        let Outcome { ceilings, spend, .. } = outcome;
        let quiet = markdown(&Outcome { ceilings, spend, ..Outcome::default() });
        assert!(quiet.contains("has 98 of 100 machines; "), "{quiet}");
        assert!(quiet.contains("of &#36;5.00 a day.\n"), "{quiet}");
        insta::assert_snapshot!(markdown(&Outcome::default()), @"### ondeck refreshed the pool: nothing to do");
    }
}
