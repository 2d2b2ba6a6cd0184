//! What happened in a storm, for the developer who has to find out why: disturbances with their
//! moments, calls with their codes, and everything that should not have happened.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::pause;
use crate::harness::say;

/// Kept by all threads of a storm.
pub(super) struct StormCounts {
    began: Instant,
    until: Instant,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    disturbances: Vec<(Duration, String)>,
    kinds: BTreeMap<&'static str, usize>,
    calls: BTreeMap<String, BTreeMap<i32, usize>>,
    promises: Vec<(String, Vec<String>)>,
    problems: Vec<String>,
}

impl StormCounts {
    /// Of a storm that lasts so long from now on.
    pub(super) fn over(span: Duration) -> StormCounts {
        let began = Instant::now();
        StormCounts { began, until: began + span, kept: Mutex::default() }
    }

    /// How much of the storm is left.
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

    pub(super) fn disturbed(&self, kind: &'static str, what: &str) {
        let at = self.began.elapsed();
        let mut kept = self.kept.lock().unwrap();
        *kept.kinds.entry(kind).or_default() += 1;
        kept.disturbances.push((at, format!("{kind}{what}")));
    }

    /// Notes how often something has happened that is not worth a line each time.
    pub(super) fn disturbed_often(&self, kind: &'static str, times: usize) {
        *self.kept.lock().unwrap().kinds.entry(kind).or_default() += times;
    }

    /// Notes that a call has ended.
    pub(super) fn called(&self, mode: &str, code: i32) {
        let mut kept = self.kept.lock().unwrap();
        *kept.calls.entry(mode.to_owned()).or_default().entry(code).or_default() += 1;
    }

    /// How many calls of a mode have ended with this code.
    pub(super) fn count(&self, mode: &str, code: i32) -> usize {
        let kept = self.kept.lock().unwrap();
        kept.calls.get(mode).and_then(|codes| codes.get(&code)).copied().unwrap_or(0)
    }

    /// Notes the machines that a run was told it has.
    pub(super) fn promised(&self, run: &str, machines: Vec<String>) {
        self.kept.lock().unwrap().promises.push((run.to_owned(), machines));
    }

    /// What each run was told.
    pub(super) fn promises(&self) -> Vec<(String, Vec<String>)> {
        self.kept.lock().unwrap().promises.clone()
    }

    /// How many disturbances there were.
    pub(super) fn disturbances(&self) -> usize {
        self.kept.lock().unwrap().disturbances.len()
    }

    /// Notes something that should not have been.
    pub(super) fn problem(&self, problem: &str) {
        let at = self.began.elapsed().as_secs_f64();
        self.kept.lock().unwrap().problems.push(format!("{at:.3} s: {problem}"));
    }

    /// Says in a few lines what happened.
    pub(super) fn sum_up(&self) {
        let kept = self.kept.lock().unwrap();
        let took = self.began.elapsed().as_secs_f64();
        let calls: usize = kept.calls.values().flat_map(BTreeMap::values).sum();
        say(&format!("{took:.1} s, {} disturbances, {calls} calls", kept.disturbances.len()));
        say(&format!("disturbances: {:?}", kept.kinds));
        say(&format!("calls by exit code: {:?}", kept.calls));
    }

    /// Says every disturbance with its moment.
    pub(super) fn recount(&self) {
        for (at, what) in &self.kept.lock().unwrap().disturbances {
            say(&format!("{:>8.3} s: {what}", at.as_secs_f64()));
        }
    }

    /// Everything that should not have been.
    pub(super) fn problems(&self) -> Vec<String> {
        self.kept.lock().unwrap().problems.clone()
    }
}
