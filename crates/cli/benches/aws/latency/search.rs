//! Searches among many tickets that do not fit.

use ondeck_core::model::requirements::UsageClass;

use super::warm::PoolOfFakes;
use super::{Bench, Round, Rounds, provision};

const ROUNDS: Rounds = Rounds { quiet: 9, loaded: 5 };
const UNSUITABLE: u32 = 200;
const ROWS: [&str; 2] = ["nothing-among-200", "one-behind-200"];
/// The exit code if there are not enough machines.
const NO_CAPACITY: i32 = 4;

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants_any(&ROWS) {
        return;
    }
    let mut pool = PoolOfFakes::fill(bench, 0);
    pool.launch(UsageClass::Spot, UNSUITABLE);
    bench.rounds([ROWS[0]], &pool.harness, ROUNDS, |bench| {
        // Only the search is measured, so nothing is launched.
        let more = ["--usage-class=on-demand", "--machine-source=pool"];
        let line = provision(&bench.next_run(), 1, &more);
        let (round, outcome) = Round::of(&pool.harness, &line, NO_CAPACITY);
        assert_eq!(outcome["search"]["tickets"], UNSUITABLE, "{outcome}");
        [round]
    });
    pool.machines.clear();
    pool.launch(UsageClass::OnDemand, 1);
    bench.rounds([ROWS[1]], &pool.harness, ROUNDS, |bench| {
        let run = bench.next_run();
        pool.agents.beat(&pool.machines);
        let (provisioned, ids) = pool.provision(&run, 1);
        pool.agents.deregister(&ids, &run);
        pool.release(&run);
        [provisioned]
    });
}
