//! What a fleet of 200 machines consumes on DynamoDB Local, and what follows for 10,000 of them.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::requirements::UsageClass;
use ondeck_standin::{PartitionKey, Units};
use serde_json::json;

use super::{Bench, Condition, instances, provision, release};
use crate::adapters::LaunchOrder;
use crate::fakes::FakeAgents;
use crate::harness::{BenchHarness, HarnessOptions};

const ROW: &str = "fleet-200";
const MACHINES: u32 = 200;
/// Machines that are reaped before, so that there are terminated records.
const REAPED: u32 = 20;
const RUNS: usize = 10;
const SIZE: usize = 20;

/// The fleet for which the units are extrapolated, with its hand-overs in an hour and its shards.
const LARGE: f64 = 10_000.0;
const HAND_OVERS: f64 = 20_000.0;
const SHARDS: f64 = 16.0;
/// The write units of one partition key in a second, and the read units.
const MOST_WRITES: f64 = 1_000.0;
const MOST_READS: f64 = 3_000.0;

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants(ROW) {
        return;
    }
    let (watch, requests) = mpsc::channel();
    let options = HarnessOptions { checked: true, watch: Some(watch), ..HarnessOptions::default() };
    let harness = BenchHarness::new(options);
    harness.refresh();
    let agents = FakeAgents::start(&harness, requests);
    let launching = harness.adapters();
    let usage = UsageClass::OnDemand;
    launching.launch(LaunchOrder { count: REAPED, usage, idle: false, lasts: None });
    harness.ondeck(&["refresh"]);
    let lasts = Some(Duration::from_secs(2 * 3_600));
    let machines = launching.launch(LaunchOrder { count: MACHINES, usage, idle: true, lasts });
    agents.beat(&machines);
    agents.deregister(&machines, "gone");

    harness.control.reset();
    harness.ondeck(&["refresh"]);
    let refreshed = harness.control.consumed();
    let reads = |key: &PartitionKey, units: &Units| {
        let id = key.value.strip_prefix("INSTANCE#").filter(|_| key.index.is_none())?;
        Some((id.to_owned(), units.reads))
    };
    let records: BTreeMap<String, f64> =
        refreshed.iter().filter_map(|(key, units)| reads(key, units)).collect();
    let is_live = |id: &str| machines.iter().any(|machine| machine.as_str() == id);
    let live = records.iter().filter(|(id, _)| is_live(id)).map(|(_, reads)| *reads);
    let live = live.fold(0.0, f64::max);
    let terminated: f64 =
        records.iter().filter(|(id, _)| !is_live(id)).map(|(_, reads)| *reads).sum();
    let listed: f64 =
        refreshed.iter().filter(|(key, _)| is_list(key)).map(|(_, it)| it.reads).sum();

    harness.control.reset();
    for _ in 0..RUNS {
        hand_over(bench, &harness, &agents, &machines);
    }
    let handed = (RUNS * SIZE) as f64;
    let mut lists: BTreeMap<String, f64> = BTreeMap::new();
    for (key, units) in harness.control.consumed().iter().filter(|(key, _)| is_list(key)) {
        let list = key.value.split('#').next().unwrap_or_default().to_owned();
        *lists.entry(list).or_default() += units.writes / handed;
    }
    let busiest = lists.values().fold(0.0_f64, |most, writes| most.max(*writes));
    let writes_share = busiest * HAND_OVERS / 3_600.0 / SHARDS / MOST_WRITES;
    // A refresh asks each shard once, within one second.
    let reads_share = listed / f64::from(MACHINES) * LARGE / SHARDS / MOST_READS;
    bench.add(
        ROW,
        Condition::Quiet,
        &json!({
            "readsOfLiveRecord": live,
            "readsOfTerminated": terminated,
            "listWritesByHandOver": lists,
            "busiestListPercent": 100.0 * writes_share.max(reads_share),
        }),
    );
    harness.gateway.assert_all_measured();
}

fn is_list(key: &PartitionKey) -> bool {
    key.index.as_deref() == Some("lists")
}

fn hand_over(
    bench: &mut Bench,
    harness: &BenchHarness,
    agents: &FakeAgents,
    machines: &[InstanceId],
) {
    let run = bench.next_run();
    agents.beat(machines);
    agents.register(machines, &run);
    let line = provision(&run, SIZE, &["--usage-class=on-demand"]);
    let ids = instances(&harness.ondeck(&line), SIZE, "warm").into_iter();
    let ids: Vec<InstanceId> = ids.map(|id| InstanceId::new(id).unwrap()).collect();
    agents.deregister(&ids, &run);
    harness.ondeck(&release(&run));
}
