//! What the three modes cost on AWS, in calls and in units of DynamoDB. Units cost money and are limited
//! for each partition key.
//!
//! The gateway adds its latency to the calls of modes that wait for agents, as AWS would: without it, a mode
//! that waits looks every 5 ms. How often a mode looks at its agents depends on when they answer, so on the
//! computer and what else it does. Looks are counted apart, and what is limited are the other calls, which
//! depend on nothing but the mode.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use ondeck_core::model::requirements::UsageClass;
use ondeck_standin::{Endpoint, LogEntry};

use crate::adapters::LaunchOrder;
use crate::harness::{BenchHarness, HarnessOptions};
use crate::units::{MeasuredUnits, Workload};

/// How long idle agents are watched.
const IDLE: Duration = Duration::from_secs(30);

/// What precedes the id of a machine in the key that its agent writes.
const AGENT_KEY: &str = "AGENT#";

/// The most calls that each may take beside its looks, and what the best program of this design takes.
/// Two more than the mode needs: on a busy computer, tickets or events may go in one more batch.
const LIMITS: [(&str, usize, Option<usize>); 5] = [
    ("warm provision of 10", 23, Some(66)),
    ("warm provision of 50", 73, Some(306)),
    ("release of 10", 19, Some(33)),
    ("refresh that reaps 500", 59, Some(1_520)),
    ("refresh that reaps 500 idle ones and drops their tickets", 79, None),
];

/// Counts and prints. Returns whether every limit was kept.
pub(crate) fn run(latency: Duration) -> bool {
    let mut figures = Figures::default();
    modes(&mut figures, latency);
    for idle in [false, true] {
        reaping(&mut figures, idle);
    }
    figures.print()
}

/// Warm provisions and releases, with default settings.
fn modes(figures: &mut Figures, latency: Duration) {
    let boot = Duration::from_secs(2);
    let options =
        HarnessOptions { boot, agents: true, checked: true, latency, ..HarnessOptions::default() };
    let harness = BenchHarness::new(options);
    harness.refresh();
    let cold = harness.timed(&["provision", "--run-id=fill", "--instance-count=10"]);
    harness.ondeck(&["release", "--run-id=fill"]);
    let mut warm = Duration::MAX;
    for round in 0..8 {
        warm = warm.min(hand_over(figures, &harness, 10, round));
    }
    figures.ratio = cold.as_secs_f64() / warm.as_secs_f64();
    idle(figures, &harness);
    let took = harness.timed(&["refresh"]);
    figures.add("refresh with nothing to do", &harness.control);
    let workload = Workload { machines: 10, transitions: 0, agents: true };
    let units = MeasuredUnits::new(workload, took, [harness.control.consumed()]);
    figures.add_units("refresh with nothing to do, 10 machines", units);

    harness.ondeck(&["provision", "--run-id=more", "--instance-count=50"]);
    harness.ondeck(&["release", "--run-id=more"]);
    for round in 0..3 {
        hand_over(figures, &harness, 50, round);
    }
    harness.timed(&["provision", "--run-id=none", "--resource-class=xlarge"]);
    figures.add("cold provision of 1", &harness.control);
    harness.gateway.assert_requests_valid();
    harness.gateway.assert_nothing_denied();
    harness.gateway.assert_all_measured();
}

/// A warm provision and its release. Returns how long the provision took.
fn hand_over(figures: &mut Figures, harness: &BenchHarness, count: u32, round: u32) -> Duration {
    let run = format!("--run-id={count}-{round}");
    let names = match count {
        10 => ["warm provision of 10", "release of 10", "warm provision of 10 and release"],
        _ => ["warm provision of 50", "release of 50", "warm provision of 50 and release"],
    };
    harness.agents.reset();
    let begun = Instant::now();
    let provision = harness.timed(&["provision", &run, &format!("--instance-count={count}")]);
    figures.add(names[0], &harness.control);
    let provisioned = harness.control.consumed();
    harness.timed(&["release", &run]);
    figures.add(names[1], &harness.control);
    let consumed = [provisioned, harness.control.consumed(), harness.agents.consumed()];
    // Claim, commit and release.
    let workload = Workload { machines: count, transitions: 3, agents: true };
    figures.add_units(names[2], MeasuredUnits::new(workload, begun.elapsed(), consumed));
    provision
}

/// Ten agents that wait for work, and nothing else.
fn idle(figures: &mut Figures, harness: &BenchHarness) {
    harness.agents.reset();
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "what is measured is that nothing happens")]
    std::thread::sleep(IDLE);
    let workload = Workload { machines: 10, transitions: 0, agents: true };
    let units = MeasuredUnits::new(workload, begun.elapsed(), [harness.agents.consumed()]);
    figures.add_units("10 idle agents", units);
}

/// A refresh that finds 500 machines past their threshold, as runs that were never released have
/// left them, or waiting in the pool for longer than they may.
fn reaping(figures: &mut Figures, idle: bool) {
    let options = HarnessOptions { checked: true, ..HarnessOptions::default() };
    let harness = BenchHarness::new(options);
    harness.refresh();
    let order = LaunchOrder { count: 500, usage: UsageClass::Spot, idle, lasts: None };
    harness.adapters().launch(order);
    let took = harness.timed(&["refresh"]);
    let name = LIMITS[if idle { 4 } else { 3 }].0;
    figures.add(name, &harness.control);
    let workload = Workload { machines: 500, transitions: 1, agents: false };
    figures.add_units(name, MeasuredUnits::new(workload, took, [harness.control.consumed()]));
    let machines = harness.gateway.ec2().machines();
    let is_terminated = |m: &ondeck_standin::Machine| !m.reason.is_empty();
    assert_eq!(machines.iter().filter(|m| is_terminated(m)).count(), 500, "all of them are gone");
    harness.gateway.assert_requests_valid();
    harness.gateway.assert_nothing_denied();
    harness.gateway.assert_all_measured();
}

/// The calls of one round.
struct Counts {
    /// Reads of what agents have written.
    looks: usize,
    others: usize,
}

/// What was counted, by name.
#[derive(Default)]
struct Figures {
    rounds: BTreeMap<&'static str, Vec<Counts>>,
    last: BTreeMap<&'static str, String>,
    units: BTreeMap<&'static str, MeasuredUnits>,
    overloaded: Vec<String>,
    ratio: f64,
}

impl Figures {
    fn add(&mut self, name: &'static str, endpoint: &Endpoint) {
        let log = endpoint.log();
        let is_look = |entry: &&LogEntry| {
            ["BatchGetItem", "GetItem"].contains(&&*entry.operation) && entry.mentions(AGENT_KEY)
        };
        let looks = log.iter().filter(is_look).count();
        let others = endpoint.total().saturating_sub(looks);
        self.rounds.entry(name).or_default().push(Counts { looks, others });
        let calls = endpoint.calls();
        let words = calls.iter().map(|((_, operation), count)| format!("{count} {operation}"));
        self.last.insert(name, words.collect::<Vec<_>>().join(", "));
    }

    fn add_units(&mut self, name: &'static str, units: MeasuredUnits) {
        self.overloaded.extend(units.overloaded().iter().map(|key| format!("{name}: {key}")));
        self.units.insert(name, units);
    }

    /// Prints them. Returns whether every limit was kept in every round.
    fn print(&mut self) -> bool {
        let mut out = std::io::stdout().lock();
        let mut broken = 0;
        writeln!(out, "\nAWS calls, by the built program with real agents, counted at a gateway\n")
            .unwrap();
        writeln!(
            out,
            "| | fewest | most | limit | looks, median | most | all, median | \
             ec2-runner-pool-manager | ratio |"
        )
        .unwrap();
        writeln!(out, "| --- |{}", " --: |".repeat(8)).unwrap();
        for (name, rounds) in &self.rounds {
            let sorted = |count: fn(&Counts) -> usize| {
                let mut counts: Vec<usize> = rounds.iter().map(count).collect();
                counts.sort_unstable();
                counts
            };
            let (others, looks) = (sorted(|it| it.others), sorted(|it| it.looks));
            let all = sorted(|it| it.others + it.looks);
            let (last, middle) = (rounds.len() - 1, rounds.len() / 2);
            let limit = LIMITS.iter().find(|(limited, ..)| limited == name);
            broken += usize::from(limit.is_some_and(|(_, limit, _)| others[last] > *limit));
            let cell = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
            let best = limit.and_then(|(.., best)| *best);
            let ratio = best.map(|best| format!("{:.1}", best as f64 / all[middle] as f64));
            let cells = [
                others[0].to_string(),
                others[last].to_string(),
                cell(limit.map(|(_, limit, _)| *limit)),
                looks[middle].to_string(),
                looks[last].to_string(),
                all[middle].to_string(),
                cell(best),
                ratio.unwrap_or_default(),
            ];
            writeln!(out, "| {name} | {} |", cells.join(" | ")).unwrap();
        }
        writeln!(out, "\nof the last round of each:").unwrap();
        for (name, calls) in &self.last {
            writeln!(out, "  {name}: {calls}").unwrap();
        }
        writeln!(out, "\nunits of DynamoDB in the last round of each, by kind of partition key")
            .unwrap();
        for (name, units) in &self.units {
            units.print(name, &mut out).unwrap();
        }
        let ratio = self.ratio;
        writeln!(out, "\nwarm was {ratio:.0} times as fast as cold with a boot of 2 s").unwrap();
        for key in &self.overloaded {
            writeln!(out, "a key carries more than its machine or run needs: {key}").unwrap();
        }
        broken += self.overloaded.len();
        if broken > 0 {
            writeln!(out, "limits broken: {broken}").unwrap();
        }
        broken == 0
    }
}
