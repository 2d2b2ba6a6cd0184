//! What an agent costs that waits for a run: calls, money and a share of a core.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use ondeck_standin::{Service, Units};
use serde_json::json;

use super::{Bench, Condition, provision, release};
use crate::harness::{BenchHarness, HarnessOptions};

const ROW: &str = "idle-agent";
const MACHINES: usize = 10;
/// Several periods of a long poll and of heartbeats.
const WATCHED: Duration = Duration::from_secs(60);

/// List prices on demand in us-east-1, in dollars for each million.
const WRITE_UNITS: f64 = 0.625;
const READ_UNITS: f64 = 0.125;
const SQS_REQUESTS: f64 = 0.40;
const SECONDS_A_MONTH: f64 = 730.0 * 3_600.0;

/// The unit of the times in `/proc/<pid>/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn measure(bench: &mut Bench) {
    if !bench.wants(ROW) {
        return;
    }
    let latency = bench.latency;
    let options =
        HarnessOptions { agents: true, checked: true, latency, ..HarnessOptions::default() };
    let harness = BenchHarness::new(options);
    harness.refresh();
    let run = bench.next_run();
    harness.ondeck(&provision(&run, MACHINES, &[]));
    harness.ondeck(&release(&run));
    let machines = harness.gateway.ec2().machines();
    let pids: Vec<u32> = machines.iter().filter_map(|machine| machine.pid).collect();
    assert_eq!(pids.len(), MACHINES);
    settle();
    harness.agents.reset();
    let (ticks, began) = (cpu_ticks(&pids), Instant::now());
    watch();
    let (ticks, seconds) = (cpu_ticks(&pids) - ticks, began.elapsed().as_secs_f64());
    let resident: f64 = pids.iter().map(|pid| resident_mb(*pid)).sum();

    let calls = harness.agents.calls();
    let machines = MACHINES as f64;
    let minutes = seconds / 60.0;
    let by_operation: BTreeMap<String, f64> = calls
        .iter()
        .map(|((_, operation), count)| (operation.clone(), *count as f64 / machines / minutes))
        .collect();
    let sqs: usize =
        calls.iter().filter(|((service, _), _)| *service == Service::Sqs).map(|(_, n)| n).sum();
    let mut units = Units::default();
    harness.agents.consumed().into_values().for_each(|consumed| units += consumed);
    let millions =
        units.writes * WRITE_UNITS + units.reads * READ_UNITS + sqs as f64 * SQS_REQUESTS;
    let dollars = millions / 1e6 / machines / seconds * SECONDS_A_MONTH;
    let figures = json!({
        "callsAMinute": harness.agents.total() as f64 / machines / minutes,
        "callsByOperation": by_operation,
        "dollarsAMonth": dollars,
        "corePercent": 100.0 * ticks / TICKS_PER_SECOND / seconds / machines,
        "residentMb": resident / machines,
        "machines": MACHINES,
        "seconds": seconds,
    });
    bench.add(ROW, Condition::Quiet, &figures);
    harness.gateway.assert_all_measured();
}

/// Lets the agents finish what a release has left to do.
#[expect(clippy::disallowed_methods, reason = "what is awaited is that nothing happens")]
fn settle() {
    std::thread::sleep(Duration::from_secs(5));
}

#[expect(clippy::disallowed_methods, reason = "what is measured is that nothing happens")]
fn watch() {
    std::thread::sleep(WATCHED);
}

/// User and system time of all processes: fields 14 and 15 of `stat`. The name before them may
/// contain anything.
fn cpu_ticks(pids: &[u32]) -> f64 {
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().skip(11).take(2);
        fields.map(|field| field.parse::<f64>().unwrap()).sum::<f64>()
    };
    pids.iter().map(of).sum()
}

fn resident_mb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = line.split_ascii_whitespace().next().unwrap().parse().unwrap();
    kib * 1.024 / 1_000.0
}
