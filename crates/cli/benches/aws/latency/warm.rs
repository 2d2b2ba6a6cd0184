//! Warm provisions and releases with agents that answer in advance, or after 50 ms.

use std::sync::mpsc;
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::requirements::UsageClass;

use super::{Bench, Round, Rounds, instances, provision, release};
use crate::adapters::LaunchOrder;
use crate::fakes::FakeAgents;
use crate::harness::{BenchHarness, HarnessOptions};

const ROUNDS: Rounds = Rounds { quiet: 15, loaded: 7 };
/// How many machines wait in the pool, some more than a run asks for.
const MACHINES: u32 = 60;
/// How long an agent takes that is not prompt.
const AGENT: Duration = Duration::from_millis(50);
const ROWS: [&str; 5] =
    ["warm-1-prompt", "warm-10-prompt", "warm-50-prompt", "release-10-prompt", "release-10-50ms"];

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants_any(&ROWS) {
        return;
    }
    let pool = PoolOfFakes::fill(bench, MACHINES);
    let hand_over = |bench: &mut Bench, count| pool.hand_over(bench, count, false);
    bench.rounds([ROWS[0], "release-1-prompt"], &pool.harness, ROUNDS, |it| hand_over(it, 1));
    bench.rounds([ROWS[1], ROWS[3]], &pool.harness, ROUNDS, |it| hand_over(it, 10));
    bench.rounds([ROWS[4]], &pool.harness, ROUNDS, |bench| {
        let [_, released] = pool.hand_over(bench, 10, true);
        [released]
    });
    bench.rounds([ROWS[2], "release-50-prompt"], &pool.harness, ROUNDS, |it| hand_over(it, 50));
}

/// A pool of idle machines without processes.
pub(super) struct PoolOfFakes {
    pub(super) harness: BenchHarness,
    pub(super) agents: FakeAgents,
    pub(super) machines: Vec<InstanceId>,
}

impl PoolOfFakes {
    /// A pool with this number of idle machines, which are on-demand ones as most runs ask for.
    pub(super) fn fill(bench: &Bench, count: u32) -> PoolOfFakes {
        let (watch, requests) = mpsc::channel();
        let (latency, watch) = (bench.latency, Some(watch));
        let harness =
            BenchHarness::new(HarnessOptions { latency, watch, ..HarnessOptions::default() });
        harness.refresh();
        let agents = FakeAgents::start(&harness, requests);
        let mut pool = PoolOfFakes { harness, agents, machines: Vec::new() };
        pool.launch(UsageClass::OnDemand, count);
        pool
    }

    /// Adds idle machines behind the others.
    pub(super) fn launch(&mut self, usage: UsageClass, count: u32) {
        const LASTS: Duration = Duration::from_secs(2 * 3_600);
        if count == 0 {
            return;
        }
        let order = LaunchOrder { count, usage, idle: true, lasts: Some(LASTS) };
        let launched = self.harness.adapters().launch(order);
        self.agents.beat(&launched);
        self.agents.deregister(&launched, "gone");
        self.machines.extend(launched);
    }

    /// A warm provision of a prompt agents' machines, and its release, whose agents are prompt or
    /// `late`.
    fn hand_over(&self, bench: &mut Bench, count: usize, late: bool) -> [Round; 2] {
        let run = bench.next_run();
        self.agents.beat(&self.machines);
        let (provisioned, ids) = self.provision(&run, count);
        let released = match late {
            true => self.agents.answering(AGENT, || self.release(&run)),
            false => {
                self.agents.deregister(&ids, &run);
                self.release(&run)
            }
        };
        [provisioned, released]
    }

    /// A provision whose machines have registered in advance.
    pub(super) fn provision(&self, run: &str, count: usize) -> (Round, Vec<InstanceId>) {
        self.agents.register(&self.machines, run);
        let line = provision(run, count, &["--usage-class=on-demand"]);
        let (round, outcome) = Round::of(&self.harness, &line, 0);
        let ids = instances(&outcome, count, "warm").into_iter();
        (round, ids.map(|id| InstanceId::new(id).unwrap()).collect())
    }

    pub(super) fn release(&self, run: &str) -> Round {
        Round::of(&self.harness, &release(run), 0).0
    }
}
