//! The summary of a release: what became of each machine, and what the run has cost.

use std::time::Duration;

use ondeck_core::modes::release::{Outcome, Released};

use super::super::money::{self, Dollars};
use super::failure::reason;
use super::markdown::{code, plain, some_of};
use super::{ROWS, assumption, cell, kind, machines, span};
use crate::control::output::fate;
use crate::inputs::Backend;

/// Markdown; ends with a line break.
pub(crate) fn summary(outcome: &Outcome, backend: Backend) -> String {
    let run = code(outcome.run.as_str());
    if outcome.instances.is_empty() {
        return format!("### ondeck had nothing to release: run {run} has no machines\n");
    }
    let mut text = format!(
        "### ondeck released {} of run {run} in {}: {}\n\n",
        machines(outcome.instances.len()),
        span(outcome.took),
        fates(&outcome.instances),
    );
    if let Some(failure) = outcome.failure() {
        text += &reason(&failure);
        text.push('\n');
    }
    text += &each(&outcome.instances);
    text += &estimate(&outcome.instances, backend);
    text
}

/// `2 pooled, 1 expired`.
fn fates(instances: &[Released]) -> String {
    let words: Vec<&str> = instances.iter().map(|one| fate(&one.disposition).0).collect();
    let mut counts: Vec<String> = Vec::new();
    for word in ["pooled", "ended", "expired", "moved-on"] {
        let count = words.iter().filter(|one| **one == word).count();
        if count > 0 {
            counts.push(format!("{count} {word}"));
        }
    }
    counts.join(", ")
}

fn each(instances: &[Released]) -> String {
    let header = ["machine", "type", "fate", "why", "held for ", "what it did"];
    let rows = instances.iter().map(|one| {
        let (word, reason) = fate(&one.disposition);
        vec![
            code(one.id.as_str()),
            kind(&one.spec),
            format!("**{word}**"),
            plain(&reason),
            one.used_for.map(cell).unwrap_or_default(),
            plain(&one.account),
        ]
    });
    some_of(&header, rows.collect(), ROWS)
}

fn estimate(instances: &[Released], backend: Backend) -> String {
    let held: Vec<(&Released, Duration)> =
        instances.iter().filter_map(|one| Some((one, one.used_for?))).collect();
    let total: Duration = held.iter().map(|(_, span)| *span).sum();
    let spent =
        held.iter().map(|(one, span)| money::on_ec2(&one.spec, *span)).sum::<Option<Dollars>>();
    let Some(spent) = spent.filter(|_| !held.is_empty()) else {
        return String::new();
    };
    let hosted =
        held.iter().map(|(one, span)| money::on_github(&one.spec, *span)).sum::<Option<Dollars>>();
    let hosted = hosted.map(|hosted| {
        format!(
            "; GitHub-hosted runners of that size would have cost {hosted} for the same time in whole minutes"
        )
    });
    format!(
        "\nThe run held its machines for {} in all, which costs {spent}{}.\n\n{}",
        span(total),
        hosted.unwrap_or_default(),
        assumption(backend),
    )
}
