//! A cold provision whose machines answer 50 ms after they have their records.

use std::time::Duration;

use super::warm::PoolOfFakes;
use super::{Bench, Round, Rounds, instances, provision};

const ROUNDS: Rounds = Rounds { quiet: 9, loaded: 5 };
const ROW: &str = "cold-2-50ms";
const AGENT: Duration = Duration::from_millis(50);

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants(ROW) {
        return;
    }
    let pool = PoolOfFakes::fill(bench, 0);
    bench.rounds([ROW], &pool.harness, ROUNDS, |bench| {
        // The machines stay with their run, so the next round finds the pool empty as well.
        let line = provision(&bench.next_run(), 2, &[]);
        let run = || Round::of(&pool.harness, &line, 0);
        let (round, outcome) = pool.agents.answering(AGENT, run);
        instances(&outcome, 2, "cold");
        let log = pool.harness.control.log();
        let launches = log.iter().filter(|entry| entry.operation == "CreateFleet");
        let launch: Duration = launches.map(|entry| entry.took).sum();
        [Round { outside: launch + AGENT, ..round }]
    });
}
