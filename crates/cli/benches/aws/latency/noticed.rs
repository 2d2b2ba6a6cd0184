//! How soon agents notice the run that claims their machines, as the gateway sees it.

use std::time::Duration;

use ondeck_standin::{LogEntry, Service};

use crate::harness::BenchHarness;

/// The median over machines, for the calls since the last reset of both endpoints: from the answer to
/// the write that names the run, to the answer to the agent's next read of its record.
pub(super) fn median(
    harness: &BenchHarness,
    run: &str,
    machines: &[String],
    latency: Duration,
) -> Duration {
    let (control, agents) = (harness.control.log(), harness.agents.log());
    let mut all: Vec<Duration> =
        machines.iter().map(|id| of_machine(&control, &agents, run, id, latency)).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

fn of_machine(
    control: &[LogEntry],
    agents: &[LogEntry],
    run: &str,
    id: &str,
    latency: Duration,
) -> Duration {
    let record = format!("INSTANCE#{id}");
    let is_answered =
        |entry: &&LogEntry| entry.service == Service::DynamoDb && entry.status == Some(200);
    let quoted = format!("\"{run}\"");
    let claims = control.iter().filter(is_answered);
    let claims = claims.filter(|entry| entry.mentions(&record) && entry.mentions(&quoted));
    let written = claims.map(LogEntry::ended).min().expect("the claim is in the log");
    // The gateway waits before it forwards, so a read shows what is there this long after its arrival.
    let reads = agents.iter().filter(is_answered).filter(|entry| entry.mentions(&record));
    let reads = reads.filter(|entry| entry.at + latency >= written);
    let seen = reads.map(LogEntry::ended).min().expect("the agent reads its record");
    seen.duration_since(written).unwrap_or_default()
}
