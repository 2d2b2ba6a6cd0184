//! Fault rules in force: which calls a rule has matched, and for which of them it has fired.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::locked;

/// Which of the calls that a rule matches get its fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Occurrence {
    Always,
    /// The first calls, up to this number.
    First(usize),
    /// One call only, counted from 1.
    Nth(usize),
    /// Every nth call: n, 2n, 3n and so on.
    Every(usize),
    /// Each call with this probability. The same seed chooses the same calls.
    Chance {
        /// The probability of each call, from 0 to 1.
        probability: f64,
        /// The seed of the random choices.
        seed: u64,
    },
}

/// A fault rule in force, with its counters. The rule stays in force when this is dropped;
/// end it with [`stop`](ActiveFault::stop).
#[derive(Debug)]
pub struct ActiveFault<R>(Arc<Active<R>>);

#[derive(Debug)]
struct Active<R> {
    rule: R,
    occurrence: Occurrence,
    matched: AtomicUsize,
    fired: AtomicUsize,
    lifted: AtomicBool,
    random: Mutex<fastrand::Rng>,
}

impl<R> Clone for ActiveFault<R> {
    fn clone(&self) -> ActiveFault<R> {
        ActiveFault(self.0.clone())
    }
}

impl<R> ActiveFault<R> {
    pub(crate) fn of(rule: R, occurrence: Occurrence) -> ActiveFault<R> {
        let seed = if let Occurrence::Chance { seed, .. } = occurrence { seed } else { 0 };
        ActiveFault(Arc::new(Active {
            rule,
            occurrence,
            matched: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
            lifted: AtomicBool::new(false),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        }))
    }

    /// How many calls the rule has matched, whether or not it fired for them.
    pub fn matched(&self) -> usize {
        self.0.matched.load(Ordering::SeqCst)
    }

    /// How many calls have got the fault.
    pub fn fired(&self) -> usize {
        self.0.fired.load(Ordering::SeqCst)
    }

    /// Stops the rule: later calls are neither counted nor affected.
    pub fn stop(&self) {
        self.0.lifted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn rule(&self) -> &R {
        &self.0.rule
    }

    /// Returns whether the rule fires for a call. `is_for` says whether the rule matches the call,
    /// which is then counted.
    pub(crate) fn fires(&self, is_for: impl FnOnce(&R) -> bool) -> bool {
        let active = &self.0;
        if active.lifted.load(Ordering::SeqCst) || !is_for(&active.rule) {
            return false;
        }
        let number = active.matched.fetch_add(1, Ordering::SeqCst) + 1;
        let fires = match active.occurrence {
            Occurrence::Always => true,
            Occurrence::First(count) => number <= count,
            Occurrence::Nth(nth) => number == nth,
            Occurrence::Every(nth) => nth > 0 && number.is_multiple_of(nth),
            Occurrence::Chance { probability, .. } => {
                let mut random = locked(&active.random);
                random.f64() < probability
            }
        };
        if fires {
            active.fired.fetch_add(1, Ordering::SeqCst);
        }
        fires
    }
}
