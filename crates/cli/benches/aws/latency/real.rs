//! Warm provisions and releases with real agents, and how soon an agent notices its run.

use super::{Bench, Round, Rounds, instances, noticed, provision, release};
use crate::harness::{BenchHarness, HarnessOptions};

const ROUNDS: Rounds = Rounds { quiet: 11, loaded: 5 };
/// How many machines wait in the pool, some more than a run asks for.
const MACHINES: usize = 60;
/// How many machines are launched at once. Each of them starts a process.
const STEP: usize = 10;
const ROWS: [&str; 5] =
    ["warm-1-real", "warm-10-real", "warm-50-real", "release-10-real", "noticed-10"];

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants_any(&ROWS) {
        return;
    }
    let options =
        HarnessOptions { agents: true, latency: bench.latency, ..HarnessOptions::default() };
    let harness = BenchHarness::new(options);
    harness.refresh();
    fill(bench, &harness);
    let hand_over = |bench: &mut Bench, count| {
        let [provisioned, released, _] = hand_over(bench, &harness, count);
        [provisioned, released]
    };
    bench.rounds([ROWS[0], "release-1-real"], &harness, ROUNDS, |it| hand_over(it, 1));
    bench.rounds([ROWS[1], ROWS[3], ROWS[4]], &harness, ROUNDS, |bench| {
        self::hand_over(bench, &harness, STEP)
    });
    bench.rounds([ROWS[2], "release-50-real"], &harness, ROUNDS, |it| hand_over(it, 50));
}

fn fill(bench: &mut Bench, harness: &BenchHarness) {
    let runs: Vec<String> = (0..MACHINES / STEP).map(|_| bench.next_run()).collect();
    for run in &runs {
        instances(&harness.ondeck(&provision(run, STEP, &[])), STEP, "cold");
    }
    for run in &runs {
        harness.ondeck(&release(run));
    }
    bench.note(&format!("{MACHINES} real agents are idle"));
}

/// A provision and its release, and how soon the agents noticed the run.
fn hand_over(bench: &mut Bench, harness: &BenchHarness, count: usize) -> [Round; 3] {
    let run = bench.next_run();
    harness.agents.reset();
    let (provisioned, outcome) = Round::of(harness, &provision(&run, count, &[]), 0);
    let ids = instances(&outcome, count, "warm");
    let took = noticed::median(harness, &run, &ids, bench.latency);
    let (released, _) = Round::of(harness, &release(&run), 0);
    [provisioned, released, Round { took, ..Round::default() }]
}
