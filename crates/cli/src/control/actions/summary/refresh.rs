//! The summary of a refresh: what it had to do, and nothing about what it had not.

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::modes::refresh::Outcome;

use super::failure::section;
use super::markdown::{code, plain, table};
use super::{ROWS, counted};

/// Markdown; ends with a line break.
pub(crate) fn summary(outcome: &Outcome) -> String {
    let rows = done(outcome);
    let mut text = match rows.len() {
        0 if outcome.failure.is_some() => String::new(),
        0 => "### ondeck refreshed the pool: all was well\n".to_owned(),
        _ => format!("### ondeck refreshed the pool\n\n{}", {
            table(&["done", "count ", "which"], &rows)
        }),
    };
    if !outcome.stranded.is_empty() {
        let runs = counted(outcome.stranded.len(), "run waits", "runs wait");
        let which = names(outcome.stranded.iter().map(RunId::as_str));
        text += &format!("\n**{runs} for machines that nobody gives them:** {which}\n");
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

/// Only what happened.
fn done(outcome: &Outcome) -> Vec<Vec<String>> {
    let ids = |ids: &[InstanceId]| names(ids.iter().map(InstanceId::as_str));
    let rows = [
        ("ended, past their threshold", outcome.reaped.len(), ids(&outcome.reaped)),
        ("ended, without a record", outcome.orphans.len(), ids(&outcome.orphans)),
        ("announced in the pool again", outcome.requeued.len(), ids(&outcome.requeued)),
        ("expired, idle but silent", outcome.unresponsive.len(), ids(&outcome.unresponsive)),
        ("void tickets dropped", outcome.pruned_tickets, String::new()),
        ("abandoned launches settled", outcome.settled_intents, String::new()),
        (
            "ghost runners struck off",
            outcome.offline_runners.len(),
            names(outcome.offline_runners.iter().map(String::as_str)),
        ),
        ("old records removed", outcome.pruned_records, String::new()),
        ("runs rescued", outcome.rescued.len(), names(outcome.rescued.iter().map(RunId::as_str))),
        ("launched to keep warm", outcome.warmed, String::new()),
    ];
    let rows = rows.into_iter().filter(|(_, count, _)| *count > 0);
    rows.map(|(what, count, which)| vec![what.to_owned(), count.to_string(), which]).collect()
}

/// The first few.
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
            warnings: vec!["jobs wait for a run that has no machine: 17".to_owned(), "<b>".into()],
            failure: None,
        };
        insta::assert_snapshot!(summary(&outcome), @"
        ### ondeck refreshed the pool

        | done | count | which |
        | --- | ---: | --- |
        | ended, past their threshold | 12 | `i-0` `i-1` `i-2` `i-3` `i-4` `i-5` `i-6` `i-7` `i-8` `i-9` … |
        | ended, without a record | 1 | `i-a` |
        | announced in the pool again | 2 | `i-b` `i-c` |
        | expired, idle but silent | 1 | `i-d` |
        | void tickets dropped | 3 |  |
        | abandoned launches settled | 1 |  |
        | ghost runners struck off | 2 | `i-e_1` odd&#124;name |
        | old records removed | 40 |  |
        | runs rescued | 2 | `18` `19` |
        | launched to keep warm | 2 |  |

        **1 run waits for machines that nobody gives them:** `17`

        2 warnings:
        - jobs wait for a run that has no machine: 17
        - &lt;b&gt;
        ");
        insta::assert_snapshot!(summary(&Outcome::default()), @"### ondeck refreshed the pool: all was well");
    }
}
