//! What people are shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::faults::Fault;
use crate::harness::Tally;
use crate::history::{History, Watched};
use crate::shrink::Shrunk;

/// The sum of many histories.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    /// How many histories were added.
    pub histories: u64,
    /// How many events they handled.
    pub steps: u64,
    /// How much virtual time passed in them.
    pub lasted: Duration,
    /// What went wrong, how often.
    pub faults: BTreeMap<Fault, u64>,
    /// What came of the modes.
    pub tally: Tally,
}

impl Sum {
    /// Adds the figures of one history.
    pub fn add(&mut self, history: &History) {
        self.histories += 1;
        self.steps += history.steps;
        self.lasted += history.lasted;
        for (fault, count) in &history.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        let (sum, one) = (&mut self.tally, &history.tally);
        sum.provisioned += one.provisioned;
        sum.refused += one.refused;
        sum.warm += one.warm;
        sum.released += one.released;
        sum.refreshed += one.refreshed;
        sum.jobs += one.jobs;
        sum.machines += one.machines;
    }

    /// Adds the sum that another worker has built.
    pub fn join(&mut self, other: &Sum) {
        let histories = self.histories + other.histories;
        let (steps, lasted) = (other.steps, other.lasted);
        let (faults, tally) = (other.faults.clone(), other.tally.clone());
        self.add(&History {
            violation: None,
            steps,
            lasted,
            faults,
            tally,
            journal: Vec::new(),
            struck: Vec::new(),
            watched: Watched::default(),
        });
        self.histories = histories;
    }

    /// Returns the sum as a table, one row for each figure.
    pub fn shown(&self) -> String {
        let tally = &self.tally;
        let days = self.lasted.as_secs_f64() / 86_400.0;
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            writeln!(text, "  {name:<16} {value}").expect("a string takes all");
        };
        row("histories", grouped(self.histories));
        row("events", grouped(self.steps));
        row("simulated time", format!("{days:.1} days"));
        row("machines", format!("{} launched", grouped(tally.machines)));
        row(
            "provisions",
            format!(
                "{} succeeded ({} machines warm), {} refused",
                grouped(tally.provisioned),
                grouped(tally.warm),
                grouped(tally.refused)
            ),
        );
        row("releases", grouped(tally.released));
        row("refreshes", grouped(tally.refreshed));
        row("jobs", grouped(tally.jobs));
        row("faults", grouped(self.faults.values().sum()));
        for fault in Fault::ALL {
            let count = self.faults.get(&fault).copied().unwrap_or_default();
            row(&format!("  {fault}"), grouped(count));
        }
        text
    }
}

/// A broken promise, and the history that broke it.
pub fn broken(seed: u64, first: &History, shrunk: &Shrunk) -> String {
    let plan = &shrunk.plan;
    let mut text = String::new();
    let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes all");
    let violation = first.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    line(&format!("seed {seed} breaks a promise: {violation}"));
    let kinds: Vec<String> = plan.rates.calls.iter().map(|(fault, _)| fault.to_string()).collect();
    let mishaps: Vec<String> = plan.mishaps.iter().map(|(fault, _)| fault.to_string()).collect();
    line(&format!("shrunk in {} histories to:", shrunk.tried));
    for (at, deed) in &plan.deeds {
        line(&format!("  at {:>4} s  {deed:?}", at / 1_000_000));
    }
    line(&format!("  faults: {}", [kinds, mishaps].concat().join(", ")));
    line(&format!("  clock skew: {} ms, outages: {:?}", plan.skew, plan.outages));
    line("its history, without looks and heartbeats that nothing befell:");
    for event in worth_seeing(&shrunk.history.journal) {
        line(&event);
    }
    if let Some(violation) = &shrunk.history.violation {
        line(&format!("=> {violation}"));
    }
    line(&format!("replay it with: cargo xtask sim --seed {seed}"));
    text
}

/// The journal without the looks that find nothing new, each line cut to a readable length.
pub fn worth_seeing(journal: &[String]) -> Vec<String> {
    const LONGEST: usize = 200;
    const MOST: usize = 250;
    let mut last_signs = String::new();
    let mut seen: Vec<String> = Vec::new();
    for line in journal {
        let words = line.get(29..).unwrap_or_default();
        let is_look = ["record ", "beat ", "settings ", "depth ", "signs "]
            .iter()
            .any(|look| words.starts_with(look));
        let again = !words.starts_with("signs ") || words == last_signs;
        if is_look && again && !line.contains("**") {
            continue;
        }
        if words.starts_with("signs ") {
            words.clone_into(&mut last_signs);
        }
        seen.push(line.chars().take(LONGEST).collect());
    }
    let surplus = seen.len().saturating_sub(MOST);
    if surplus > 0 {
        seen.drain(..surplus);
        seen.insert(0, format!("(the first {surplus} events are left out)"));
    }
    seen
}

/// A number that can be read.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
