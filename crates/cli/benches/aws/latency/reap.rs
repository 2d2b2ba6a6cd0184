//! A refresh that reaps 500 machines of runs that were never released.

use ondeck_core::model::requirements::UsageClass;
use ondeck_standin::Machine;

use super::{Bench, Round, Rounds};
use crate::adapters::LaunchOrder;
use crate::harness::{BenchHarness, HarnessOptions};

const ROUNDS: Rounds = Rounds { quiet: 5, loaded: 2 };
const ROW: &str = "reap-500";
const MACHINES: u32 = 500;

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants(ROW) {
        return;
    }
    // What is terminated would otherwise be listed in each later round.
    let options =
        HarnessOptions { latency: bench.latency, forgets: true, ..HarnessOptions::default() };
    let harness = BenchHarness::new(options);
    harness.refresh();
    let adapters = harness.adapters();
    bench.rounds([ROW], &harness, ROUNDS, |_| {
        let order =
            LaunchOrder { count: MACHINES, usage: UsageClass::Spot, idle: false, lasts: None };
        adapters.launch(order);
        let (round, _) = Round::of(&harness, &["refresh".to_owned()], 0);
        let is_up = |machine: &Machine| machine.reason.is_empty();
        assert!(!harness.gateway.ec2().machines().iter().any(is_up), "all of them are gone");
        [round]
    });
}
