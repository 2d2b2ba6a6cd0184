//! What the three modes cost on AWS, in calls and in units of DynamoDB. Units cost money and are limited
//! for each partition key.
//!
//! Counts vary with load: a mode polls until its agents have answered, so a busy computer adds
//! polls. The limits leave room for that.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use ondeck_core::model::requirements::UsageClass;
use ondeck_standin::Endpoint;

use crate::adapters::LaunchOrder;
use crate::harness::{BenchHarness, HarnessOptions};
use crate::units::{MeasuredUnits, Workload};

/// How long idle agents are watched.
const IDLE: Duration = Duration::from_secs(30);

/// The most calls that each may take, and what the best program of this design takes.
const LIMITS: [(&str, usize, Option<usize>); 5] = [
    ("warm provision of 10", 40, Some(66)),
    ("warm provision of 50", 150, Some(306)),
    ("release of 10", 25, Some(33)),
    ("refresh that reaps 500", 600, Some(1_520)),
    ("refresh that reaps 500 idle ones and drops their tickets", 600, None),
];

/// Counts and prints. Returns whether every limit was kept.
pub(crate) fn run() -> bool {
    let mut figures = Figures::default();
    modes(&mut figures);
    for idle in [false, true] {
        reaping(&mut figures, idle);
    }
    figures.print()
}

/// Warm provisions and releases, with default settings.
fn modes(figures: &mut Figures) {
    let boot = Duration::from_secs(2);
    let options = HarnessOptions { boot, agents: true, checked: true, ..HarnessOptions::default() };
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

/// What was counted, by name.
#[derive(Default)]
struct Figures {
    rounds: BTreeMap<&'static str, Vec<usize>>,
    last: BTreeMap<&'static str, String>,
    units: BTreeMap<&'static str, MeasuredUnits>,
    overloaded: Vec<String>,
    ratio: f64,
}

impl Figures {
    fn add(&mut self, name: &'static str, endpoint: &Endpoint) {
        self.rounds.entry(name).or_default().push(endpoint.total());
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
        writeln!(out, "| | fewest | median | most | limit | ec2-runner-pool-manager | ratio |")
            .unwrap();
        writeln!(out, "| --- | --: | --: | --: | --: | --: | --: |").unwrap();
        for (name, counts) in &mut self.rounds {
            counts.sort_unstable();
            let (fewest, most) = (counts[0], counts[counts.len() - 1]);
            let median = counts[counts.len() / 2];
            let limit = LIMITS.iter().find(|(limited, ..)| limited == name);
            broken += usize::from(limit.is_some_and(|(_, limit, _)| most > *limit));
            let cell = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
            let best = limit.and_then(|(.., best)| *best);
            let ratio = best.map(|best| format!("{:.1}", best as f64 / median as f64));
            let (limit, best) = (cell(limit.map(|(_, limit, _)| *limit)), cell(best));
            let ratio = ratio.unwrap_or_default();
            writeln!(out, "| {name} | {fewest} | {median} | {most} | {limit} | {best} | {ratio} |")
                .unwrap();
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
