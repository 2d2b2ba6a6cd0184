//! Refreshes that find nothing to do.

use ondeck_core::model::requirements::UsageClass;

use super::warm::PoolOfFakes;
use super::{Bench, Round, Rounds};

const ROUNDS: Rounds = Rounds { quiet: 7, loaded: 3 };
const ROWS: [&str; 2] = ["refresh-empty", "refresh-one-class"];
/// How many machines the class has that is not empty.
const MACHINES: u32 = 10;

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants_any(&ROWS) {
        return;
    }
    let mut pool = PoolOfFakes::fill(bench, 0);
    bench.rounds([ROWS[0]], &pool.harness, ROUNDS, |_| [refresh(&pool)]);
    pool.launch(UsageClass::OnDemand, MACHINES);
    bench.rounds([ROWS[1]], &pool.harness, ROUNDS, |_| {
        pool.agents.beat(&pool.machines);
        [refresh(&pool)]
    });
}

fn refresh(pool: &PoolOfFakes) -> Round {
    Round::of(&pool.harness, &["refresh".to_owned()], 0).0
}
