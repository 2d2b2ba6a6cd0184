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
    /// Runs of calls in a row. Each call that is not in one begins one with this probability. The same
    /// seed chooses the same calls.
    Bursts {
        /// The probability that a burst begins, from 0 to 1.
        probability: f64,
        /// How many calls a burst has.
        length: usize,
        /// The seed of the random choices.
        seed: u64,
    },
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
    /// How many calls are left of a burst.
    left: AtomicUsize,
    random: Mutex<fastrand::Rng>,
}

impl<R> Clone for ActiveFault<R> {
    fn clone(&self) -> ActiveFault<R> {
        ActiveFault(self.0.clone())
    }
}

impl<R> ActiveFault<R> {
    pub(crate) fn of(rule: R, occurrence: Occurrence) -> ActiveFault<R> {
        let seed = match occurrence {
            Occurrence::Chance { seed, .. } | Occurrence::Bursts { seed, .. } => seed,
            _ => 0,
        };
        ActiveFault(Arc::new(Active {
            rule,
            occurrence,
            matched: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
            lifted: AtomicBool::new(false),
            left: AtomicUsize::new(0),
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
            Occurrence::Bursts { probability, length, .. } => {
                let mut random = locked(&active.random);
                let left = active.left.load(Ordering::SeqCst);
                let left = if left == 0 && random.f64() < probability { length } else { left };
                active.left.store(left.saturating_sub(1), Ordering::SeqCst);
                left > 0
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_their_length() {
        let occurrence = Occurrence::Bursts { probability: 0.2, length: 3, seed: 7 };
        let rule = ActiveFault::of((), occurrence);
        let fired: Vec<bool> = (0..200).map(|_| rule.fires(|()| true)).collect();
        let runs: Vec<usize> =
            fired.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect();
        assert!(
            runs.len() > 5 && runs[..runs.len() - 1].iter().all(|run| run % 3 == 0),
            "{runs:?}"
        );
        assert!(fired.iter().any(|fired| !fired));
        let again = ActiveFault::of((), occurrence);
        assert_eq!((0..200).map(|_| again.fires(|()| true)).collect::<Vec<_>>(), fired);
    }
}
