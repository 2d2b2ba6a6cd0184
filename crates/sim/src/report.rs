//! The texts that the command line prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::faults::Fault;
use crate::harness::Tally;
use crate::history::{History, WatchedProcess};
use crate::shrink::Shrunk;

/// The figures of many histories, added up.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub histories: u64,
    /// Events that were handled.
    pub steps: u64,
    /// Virtual time that passed.
    pub lasted: Duration,
    /// How often each fault was injected.
    pub faults: BTreeMap<Fault, u64>,
    pub tally: Tally,
}

impl Totals {
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

    /// Adds the totals of another worker.
    pub fn join(&mut self, other: &Totals) {
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
            faulty_calls: Vec::new(),
            watched: WatchedProcess::default(),
        });
        self.histories = histories;
    }

    /// Returns a table with one row for each figure.
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

/// Describes a violation: the invariant, the shrunk plan and its history, and the
/// command that replays it.
pub fn violation_report(seed: u64, first: &History, shrunk: &Shrunk) -> String {
    let plan = &shrunk.plan;
    let mut text = String::new();
    let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes all");
    let violation = first.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    line(&format!("seed {seed} violates an invariant: {violation}"));
    let kinds: Vec<String> = plan.rates.calls.iter().map(|(fault, _)| fault.to_string()).collect();
    let other_faults: Vec<String> =
        plan.other_faults.iter().map(|(fault, _)| fault.to_string()).collect();
    line(&format!("shrunk in {} histories to:", shrunk.tried));
    if plan.begins_at > 0 {
        line(&format!("  begins at {} s", plan.begins_at / 1_000_000));
    }
    for (at, action) in &plan.actions {
        line(&format!("  at {:>4} s  {action:?}", at / 1_000_000));
    }
    line(&format!("  faults: {}", [kinds, other_faults].concat().join(", ")));
    line(&format!("  clock skew: {} ms, outages: {:?}", plan.skew, plan.outages));
    line(&format!("  wake-ups: {:?}", plan.wake_ups));
    line("its history, without reads and heartbeats that no fault was injected into:");
    for event in readable_journal(&shrunk.history.journal) {
        line(&event);
    }
    if let Some(violation) = &shrunk.history.violation {
        line(&format!("=> {violation}"));
    }
    line(&format!("replay it with: cargo xtask sim --seed {seed}"));
    text
}

/// Returns the last 250 lines of the journal, without reads that find nothing new. Each line is
/// cut to 200 characters.
pub fn readable_journal(journal: &[String]) -> Vec<String> {
    const MAX_LENGTH: usize = 200;
    const MAX_LINES: usize = 250;
    let mut last_status = String::new();
    let mut kept: Vec<String> = Vec::new();
    for line in journal {
        let words = line.get(29..).unwrap_or_default();
        let is_read = ["record ", "beat ", "settings ", "depth ", "agent status "]
            .iter()
            .any(|read| words.starts_with(read));
        let unchanged = !words.starts_with("agent status ") || words == last_status;
        if is_read && unchanged && !line.contains("**") {
            continue;
        }
        if words.starts_with("agent status ") {
            words.clone_into(&mut last_status);
        }
        kept.push(line.chars().take(MAX_LENGTH).collect());
    }
    let surplus = kept.len().saturating_sub(MAX_LINES);
    if surplus > 0 {
        kept.drain(..surplus);
        kept.insert(0, format!("(the first {surplus} events are left out)"));
    }
    kept
}

/// Formats a number with a comma between groups of three digits.
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
