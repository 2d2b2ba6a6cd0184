//! How long the modes take behind a gateway that adds a fixed time to each call, with agents whose
//! signals are there at once, 50 ms later, or as soon as real agents write them.
//!
//! Each row is measured on a quiet computer and beside a load. A round trip is measured beside each
//! round, so that a figure can be judged by the round trips of the moment. The results go to
//! `target/bench/aws.json`; `cargo xtask bench aws` judges and draws them.

mod cold;
mod fleet;
mod idle;
mod load;
pub(crate) mod local_claims;
mod noticed;
mod real;
mod reap;
mod refresh;
mod search;
mod warm;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ondeck_standin::{LogEntry, critical_path};
use serde_json::{Value, json};

use crate::adapters::Adapters;
use crate::calls;
use crate::cpu::Cpu;
use crate::harness::{BenchHarness, Ran};
use crate::selection::{self, is_selected};
use load::Load;

/// What the gateway adds to each call unless `--latency-ms` says otherwise. A round trip then takes
/// about 10 ms.
const LATENCY: Duration = Duration::from_millis(8);
/// The row of calls and units, which prints its own tables.
const CALLS: &str = "calls";
/// How many round trips are measured beside each round.
const PROBES: usize = 3;
/// How many rounds of a row do not count. DynamoDB Local compiles what they call.
const UNCOUNTED: u32 = 6;

/// How busy the computer is beside what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Quiet,
    Loaded,
}

impl Condition {
    fn name(self) -> &'static str {
        match self {
            Condition::Quiet => "quiet",
            Condition::Loaded => "loaded",
        }
    }
}

/// How often a row is measured.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    quiet: usize,
    loaded: usize,
}

#[derive(Debug, Default)]
struct Round {
    took: Duration,
    calls: usize,
    /// Round trips of the control plane that followed each other.
    trips: usize,
    /// What the provider and the agents took of the time, where the row says so.
    outside: Duration,
    cpu: Cpu,
    /// The operations in the order in which they began, each with its start and how long it took, in
    /// milliseconds. A reader of the results sees from them which calls follow each other.
    operations: Vec<String>,
}

/// What is measured, and what has been.
struct Bench {
    selected: Vec<String>,
    latency: Duration,
    conditions: Vec<Condition>,
    runs: u32,
    results: Vec<Value>,
    started: Instant,
}

/// Measures the selected rows, all if there is no argument, and writes the results. Returns whether
/// calls and units were within their limits.
pub(crate) fn run(arguments: &[String]) -> bool {
    let mut bench = Bench::of(arguments);
    warm::measure(&mut bench);
    search::measure(&mut bench);
    cold::measure(&mut bench);
    refresh::measure(&mut bench);
    reap::measure(&mut bench);
    fleet::measure(&mut bench);
    real::measure(&mut bench);
    idle::measure(&mut bench);
    local_claims::measure(&mut bench);
    bench.write();
    !bench.wants(CALLS) || calls::run(bench.latency)
}

impl Bench {
    fn of(arguments: &[String]) -> Bench {
        let (mut selected, mut latency) = (Vec::new(), LATENCY);
        let mut conditions = vec![Condition::Quiet, Condition::Loaded];
        for argument in arguments {
            match argument.split_once('=') {
                Some(("--latency-ms", millis)) => {
                    latency = Duration::from_millis(millis.parse().unwrap());
                }
                _ if argument == "--quiet" => conditions = vec![Condition::Quiet],
                _ => selected.push(argument.clone()),
            }
        }
        let (results, started) = (Vec::new(), Instant::now());
        Bench { selected, latency, conditions, runs: 0, results, started }
    }

    /// Whether a row is selected, by its name or by the first words of it.
    fn wants(&self, row: &str) -> bool {
        is_selected(&self.selected, row)
    }

    fn wants_any(&self, rows: &[&str]) -> bool {
        rows.iter().any(|row| self.wants(row))
    }

    /// A run id that was not used before.
    fn next_run(&mut self) -> String {
        self.runs += 1;
        format!("run-{}", self.runs)
    }

    /// Measures rows together under each condition, after a few rounds that do not count. `one`
    /// returns the rounds of the rows, in their order.
    fn rounds<const N: usize>(
        &mut self,
        rows: [&'static str; N],
        harness: &BenchHarness,
        rounds: Rounds,
        mut one: impl FnMut(&mut Bench) -> [Round; N],
    ) {
        if !self.wants_any(&rows) {
            return;
        }
        let probe = harness.probe();
        for _ in 0..UNCOUNTED {
            one(self);
        }
        for condition in self.conditions.clone() {
            let _load = Load::start(condition);
            let count = match condition {
                Condition::Quiet => rounds.quiet,
                Condition::Loaded => rounds.loaded,
            };
            let mut measured: [Vec<Value>; N] = std::array::from_fn(|_| Vec::new());
            for _ in 0..count {
                let round_trip = round_trip(&probe);
                let now = one(self);
                for (round, all) in now.iter().zip(&mut measured) {
                    all.push(round.to_json(round_trip));
                }
            }
            for (row, rounds) in rows.into_iter().zip(measured) {
                self.add(row, condition, &json!({ "rounds": rounds }));
            }
        }
    }

    fn add(&mut self, row: &str, condition: Condition, figures: &Value) {
        if !self.wants(row) {
            return;
        }
        let name = condition.name();
        self.note(&format!("{row}, {name}"));
        let mut result = json!({ "row": row, "condition": name });
        for (key, value) in figures.as_object().into_iter().flatten() {
            result[key] = value.clone();
        }
        self.results.push(result);
    }

    /// Says on stderr how far the benchmark is.
    fn note(&self, what: &str) {
        selection::note(self.started, what);
    }

    fn write(&self) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
        fs::create_dir_all(&folder).unwrap();
        let results = json!({
            "latencyMs": self.latency.as_millis(),
            "seconds": self.started.elapsed().as_secs(),
            "results": self.results,
        });
        fs::write(folder.join("aws.json"), format!("{results:#}\n")).unwrap();
    }
}

/// The median of a few calls, one after the other.
fn round_trip(probe: &Adapters) -> Duration {
    let mut all = probe.round_trips(PROBES);
    all.sort_unstable();
    all[all.len() / 2]
}

impl Round {
    /// Runs the program and looks at its calls.
    fn of(harness: &BenchHarness, arguments: &[String], code: i32) -> (Round, Value) {
        harness.control.reset();
        let Ran { took, cpu, printed } = harness.measured(arguments, code);
        let log = harness.control.log();
        let (calls, trips) = (harness.control.total(), critical_path(&log).len());
        let operations = operations(log);
        (Round { took, calls, trips, outside: Duration::ZERO, cpu, operations }, printed)
    }

    fn to_json(&self, round_trip: Duration) -> Value {
        let Round { took, calls, trips, outside, cpu, operations } = self;
        json!({
            "ms": millis(*took),
            "calls": calls,
            "trips": trips,
            "outsideMs": millis(*outside),
            "roundTripMs": millis(round_trip),
            "cpuMs": cpu.to_json(),
            "operations": operations,
        })
    }
}

/// The calls of a log as texts, such as `12+9 Query` for one that took 9 ms: the first began at 0.
pub(crate) fn operations(mut log: Vec<LogEntry>) -> Vec<String> {
    log.sort_by_key(|entry| entry.at);
    let Some(first) = log.first().map(|entry| entry.at) else { return Vec::new() };
    let text = |entry: &LogEntry| {
        let since = entry.at.duration_since(first).unwrap_or_default().as_millis();
        format!("{since}+{} {}", entry.took.as_millis(), entry.operation)
    };
    log.iter().map(text).collect()
}

fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

/// The arguments of a provision that reports in JSON.
fn provision(run: &str, count: usize, more: &[&str]) -> Vec<String> {
    let mut line = vec!["provision".to_owned(), format!("--run-id={run}")];
    line.extend([format!("--instance-count={count}"), "--json".to_owned()]);
    line.extend(more.iter().map(ToString::to_string));
    line
}

fn release(run: &str) -> Vec<String> {
    ["release".to_owned(), format!("--run-id={run}"), "--json".to_owned()].into()
}

/// The machines of an outcome, all of which must have come from `source`.
fn instances(outcome: &Value, count: usize, source: &str) -> Vec<String> {
    let instances = outcome["instances"].as_array().unwrap();
    assert_eq!(instances.len(), count, "{outcome}");
    let id = |instance: &Value| {
        assert_eq!(instance["source"], source, "{outcome}");
        instance["instanceId"].as_str().unwrap().to_owned()
    };
    instances.iter().map(id).collect()
}
