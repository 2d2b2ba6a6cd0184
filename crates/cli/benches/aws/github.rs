//! How long warm provisions and releases take with a GitHub whose runners take as long as the real
//! ones: idle machines that are registered already, beside machines that register for their run, beside
//! the local forge, which has no runner. On the local backend, and on emulated AWS.
//!
//! What is compared is measured in the same round, one after the other and in changing order, so that a
//! load on the computer hits all of it alike. The results go to `target/bench/github.json`; `cargo xtask
//! bench github` judges them.

mod column;
mod hand_over;
mod local;
mod outage;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ondeck_standin::RunnerTimes;
use serde_json::{Value, json};

use crate::selection::{self, is_selected};
use column::Backend;

/// What GitHub takes for each round trip.
const LATENCIES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];

/// What is measured, and what has been.
struct Bench {
    selected: Vec<String>,
    /// The program as it was before machines could register while they are idle.
    before: Option<PathBuf>,
    /// The largest number of rounds.
    rounds: usize,
    results: Vec<Value>,
    started: Instant,
}

/// Measures the selected rows, all if none is named, and writes the results.
///
/// `--before=PATH` names an older program to compare with, `--rounds=N` limits the rounds of each row.
pub(crate) fn run(arguments: &[String]) {
    let mut bench = Bench::of(arguments);
    for backend in Backend::ALL {
        hand_over::measure(&mut bench, backend);
    }
    outage::measure(&mut bench);
    bench.write();
}

impl Bench {
    fn of(arguments: &[String]) -> Bench {
        let (mut selected, mut before, mut rounds) = (Vec::new(), None, usize::MAX);
        for argument in arguments {
            match argument.split_once('=') {
                Some(("--before", path)) => before = Some(fs::canonicalize(path).unwrap()),
                Some(("--rounds", number)) => rounds = number.parse().unwrap(),
                _ => selected.push(argument.clone()),
            }
        }
        let (results, started) = (Vec::new(), Instant::now());
        Bench { selected, before, rounds, results, started }
    }

    /// Whether a row is selected, by its name or by the first words of it.
    fn wants(&self, row: &str) -> bool {
        is_selected(&self.selected, row)
    }

    fn add(&mut self, row: &str, figures: Value) {
        if !self.wants(row) {
            return;
        }
        self.note(row);
        let mut result = figures;
        result["row"] = row.into();
        self.results.push(result);
    }

    /// Says on stderr how far the benchmark is.
    fn note(&self, what: &str) {
        selection::note(self.started, what);
    }

    fn write(&self) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
        fs::create_dir_all(&folder).unwrap();
        let RunnerTimes { configure, listen, remove, end } = RunnerTimes::REAL;
        let runner_ms = [configure, listen, remove, end].map(millis);
        let results = json!({
            "before": self.before.is_some(),
            "runnerMs": runner_ms,
            "roundTripsToRegister": RunnerTimes::ROUND_TRIPS_TO_REGISTER,
            "roundTripsToListen": RunnerTimes::ROUND_TRIPS_TO_LISTEN,
            "seconds": self.started.elapsed().as_secs(),
            "results": self.results,
        });
        fs::write(folder.join("github.json"), format!("{results:#}\n")).unwrap();
    }
}

fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}
