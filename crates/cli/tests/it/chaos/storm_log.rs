//! The log of a storm, for the developer who has to find out why it failed: injected faults with
//! their times, calls with their exit codes, and everything that should not have happened.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::pause;
use crate::harness::say;

/// Shared by all threads of a storm.
pub(super) struct StormLog {
    began: Instant,
    until: Instant,
    entries: Mutex<StormEntries>,
}

#[derive(Default)]
struct StormEntries {
    faults: Vec<(Duration, String)>,
    faults_by_kind: BTreeMap<&'static str, usize>,
    calls: BTreeMap<String, BTreeMap<i32, usize>>,
    reported: Vec<(String, Vec<String>)>,
    problems: Vec<String>,
}

impl StormLog {
    /// Begins the log of a storm that starts now and lasts for `span`.
    pub(super) fn over(span: Duration) -> StormLog {
        let began = Instant::now();
        StormLog { began, until: began + span, entries: Mutex::default() }
    }

    /// The time until the storm is over.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Lets time pass, but not beyond the end of the storm.
    pub(super) fn wait(&self, span: Duration) {
        pause(span.min(self.left()));
    }

    /// Notes a fault and when it was injected.
    pub(super) fn injected(&self, kind: &'static str, what: &str) {
        let at = self.began.elapsed();
        let mut entries = self.entries.lock().unwrap();
        *entries.faults_by_kind.entry(kind).or_default() += 1;
        entries.faults.push((at, format!("{kind}{what}")));
    }

    /// Notes faults of a kind that is too frequent for a line each.
    pub(super) fn count_injected(&self, kind: &'static str, times: usize) {
        *self.entries.lock().unwrap().faults_by_kind.entry(kind).or_default() += times;
    }

    /// Notes that a call has ended.
    pub(super) fn called(&self, mode: &str, code: i32) {
        let mut entries = self.entries.lock().unwrap();
        *entries.calls.entry(mode.to_owned()).or_default().entry(code).or_default() += 1;
    }

    /// How many calls of a mode have ended with this code.
    pub(super) fn count(&self, mode: &str, code: i32) -> usize {
        let entries = self.entries.lock().unwrap();
        entries.calls.get(mode).and_then(|codes| codes.get(&code)).copied().unwrap_or(0)
    }

    /// Notes the machines that a provision reported to its run.
    pub(super) fn reported(&self, run: &str, machines: Vec<String>) {
        self.entries.lock().unwrap().reported.push((run.to_owned(), machines));
    }

    /// The machines reported to each run.
    pub(super) fn reported_machines(&self) -> Vec<(String, Vec<String>)> {
        self.entries.lock().unwrap().reported.clone()
    }

    /// How many faults were noted with a line of their own.
    pub(super) fn faults(&self) -> usize {
        self.entries.lock().unwrap().faults.len()
    }

    /// Notes something that should not have happened.
    pub(super) fn problem(&self, problem: &str) {
        let at = self.began.elapsed().as_secs_f64();
        self.entries.lock().unwrap().problems.push(format!("{at:.3} s: {problem}"));
    }

    /// Prints a summary of a few lines.
    pub(super) fn sum_up(&self) {
        let entries = self.entries.lock().unwrap();
        let took = self.began.elapsed().as_secs_f64();
        let calls: usize = entries.calls.values().flat_map(BTreeMap::values).sum();
        say(&format!("{took:.1} s, {} faults, {calls} calls", entries.faults.len()));
        say(&format!("faults: {:?}", entries.faults_by_kind));
        say(&format!("calls by exit code: {:?}", entries.calls));
    }

    /// Prints every fault with its time.
    pub(super) fn recount(&self) {
        for (at, what) in &self.entries.lock().unwrap().faults {
            say(&format!("{:>8.3} s: {what}", at.as_secs_f64()));
        }
    }

    /// Everything that should not have happened.
    pub(super) fn problems(&self) -> Vec<String> {
        self.entries.lock().unwrap().problems.clone()
    }
}
