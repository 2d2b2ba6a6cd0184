//! Warm provisions, releases, and how soon machines are ready again.

use std::time::Duration;

use serde_json::{Value, json};

use super::column::{Backend, Column, HandOver, Way};
use super::{Bench, LATENCIES, millis};

/// How many rounds compare ready machines with the local forge.
const READY_ROUNDS: usize = 15;
/// How many rounds also take machines that register for their run. These take seconds.
const RUN_ROUNDS: usize = 7;
/// How many provisions of one machine precede each that is measured, and count with it.
const MORE: u32 = 4;
/// How many machines of a pool the smaller rows need.
const FEW: usize = 10;
/// How many the largest needs. All pools of it at once would keep two cores busy.
const MANY: usize = 50;

/// The kinds of rows, in the order of their figures.
const KINDS: [&str; 6] =
    ["warm-ready", "warm-run", "whole-warm-run", "release", "whole-release", "again"];

/// Figures of one row, one for each round.
#[derive(Default)]
struct Row(Vec<Value>);

/// What one round has measured, in the order of the columns. A column that was left out has no figures.
type Round = Vec<Option<HandOver>>;

pub(super) fn measure(bench: &mut Bench, backend: Backend) {
    let name = backend.name();
    let rows = |counts: &[usize], kinds: &[&str]| -> Vec<String> {
        let each = |count: &usize| {
            let row = move |kind: &&str| format!("{name}-{kind}-{count}");
            kinds.iter().map(row).collect::<Vec<_>>()
        };
        counts.iter().flat_map(each).collect()
    };
    let wants = |bench: &Bench, rows: Vec<String>| rows.iter().any(|row| wants(bench, row));
    if wants(bench, rows(&[1, FEW], &KINDS)) {
        let mut ways = vec![Way::LocalForge, Way::Ready, Way::OfRun];
        ways.extend(bench.before.clone().map(Way::Before));
        let mut columns = open(bench, backend, &ways, FEW);
        for count in [1, FEW] {
            compare(bench, backend, &mut columns, count);
        }
    }
    if wants(bench, rows(&[MANY], &["warm-ready", "again"])) {
        let mut columns = open(bench, backend, &[Way::LocalForge, Way::Ready], MANY);
        compare(bench, backend, &mut columns, MANY);
    }
    if let Some(before) = bench.before.clone()
        && wants(bench, rows(&[MANY], &["warm-run", "whole-warm-run"]))
    {
        let mut columns = open(bench, backend, &[Way::OfRun, Way::Before(before)], MANY);
        compare(bench, backend, &mut columns, MANY);
    }
}

/// Whether a row is selected with any latency.
fn wants(bench: &Bench, row: &str) -> bool {
    LATENCIES.iter().any(|latency| bench.wants(&with(row, *latency)))
}

/// The name of a row with this latency of GitHub.
fn with(row: &str, latency: Duration) -> String {
    format!("{row}-{}ms", latency.as_millis())
}

fn open(bench: &Bench, backend: Backend, ways: &[Way], machines: usize) -> Vec<(Way, Column)> {
    let opened = ways.iter().map(|way| {
        let column = Column::open(backend, way, machines);
        bench.note(&format!("{} pool of {machines}: {way:?}", backend.name()));
        (way.clone(), column)
    });
    opened.collect()
}

/// Measures all rows of this number of machines, with each latency.
fn compare(bench: &mut Bench, backend: Backend, columns: &mut [(Way, Column)], count: usize) {
    let name = backend.name();
    for latency in LATENCIES {
        let row = |kind: &str| with(&format!("{name}-{kind}-{count}"), latency);
        if !KINDS.iter().any(|kind| bench.wants(&row(kind))) {
            continue;
        }
        columns.iter().for_each(|(_, column)| column.set_latency(latency));
        // The first one does not count.
        round(columns, 0, count, true);
        let mut figures = [const { Row(Vec::new()) }; KINDS.len()];
        for number in 0..READY_ROUNDS.min(bench.rounds) {
            let measured = round(columns, number, count, number < RUN_ROUNDS);
            let of = |wanted: &dyn Fn(&Way) -> bool| {
                let found = columns.iter().position(|(way, _)| wanted(way))?;
                measured[found].as_ref()
            };
            let local = of(&|way| *way == Way::LocalForge);
            let ready = of(&|way| *way == Way::Ready);
            let run = of(&|way| *way == Way::OfRun);
            let before = of(&|way| matches!(way, Way::Before(_)));
            figures[0].push_provisions(ready, local);
            figures[1].push(run, before, |it| it.provisioned.saturating_sub(it.unseen));
            figures[2].push_provisions(run, before);
            figures[3].push(ready, run, |it| it.freed);
            figures[4].push(ready, run, |it| it.released);
            if let Some(ready) = ready {
                figures[5].0.push(json!({ "ms": millis(ready.ready_again) }));
            }
        }
        let latency_ms = latency.as_millis();
        for (kind, Row(rounds)) in KINDS.into_iter().zip(figures) {
            if !rounds.is_empty() {
                bench.add(&row(kind), json!({ "latencyMs": latency_ms, "rounds": rounds }));
            }
        }
    }
}

/// One hand-over in each pool, one after the other, beginning with another pool each time.
fn round(
    columns: &mut [(Way, Column)],
    number: usize,
    count: usize,
    with_registrations: bool,
) -> Round {
    let total = columns.len();
    let mut measured: Round = (0..total).map(|_| None).collect();
    for step in 0..total {
        let which = (number + step) % total;
        let (way, column) = &mut columns[which];
        let registers = matches!(way, Way::OfRun | Way::Before(_));
        if !registers || with_registrations {
            let more = if count == 1 && !registers { MORE } else { 0 };
            measured[which] = Some(column.hand_over(count, more));
        }
    }
    measured
}

impl Row {
    /// As [`Row::push`], with the calls of both, from which a reader sees what follows what.
    fn push_provisions(&mut self, one: Option<&HandOver>, beside: Option<&HandOver>) {
        self.push(one, beside, |it| it.provisioned);
        if let (Some(one), Some(beside), Some(round)) = (one, beside, self.0.last_mut())
            && !one.operations.is_empty()
        {
            round["operations"] = json!(one.operations);
            round["besideOperations"] = json!(beside.operations);
        }
    }

    /// Adds the figures of a round, if both columns were measured.
    fn push(
        &mut self,
        one: Option<&HandOver>,
        beside: Option<&HandOver>,
        which: impl Fn(&HandOver) -> Duration,
    ) {
        if let (Some(one), Some(beside)) = (one, beside) {
            let [ms, beside] = [one, beside].map(|it| millis(which(it)));
            self.0.push(json!({ "ms": ms, "besideMs": beside }));
        }
    }
}
