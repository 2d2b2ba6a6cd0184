//! Rules at work: which calls a rule has met, and which of them it has disturbed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::locked;

/// Which of the calls that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Occurrence {
    /// All of them.
    Always,
    /// The first so many.
    First(usize),
    /// Exactly that one, counted from 1.
    Nth(usize),
    /// Each time that so many have come: the nth, the 2nth, and so on.
    Every(usize),
    /// Each with this probability, the same ones again for the same seed.
    Chance {
        /// From 0 to 1.
        probability: f64,
        /// Where the dice begin.
        seed: u64,
    },
}

/// A rule at work. It goes on when this is dropped.
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

    /// How many calls it was for, disturbed or not.
    pub fn matched(&self) -> usize {
        self.0.matched.load(Ordering::SeqCst)
    }

    /// How many calls it has disturbed.
    pub fn fired(&self) -> usize {
        self.0.fired.load(Ordering::SeqCst)
    }

    /// Ends it.
    pub fn stop(&self) {
        self.0.lifted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn rule(&self) -> &R {
        &self.0.rule
    }

    /// Whether it disturbs the call that it is asked about, which is counted if it is one that
    /// the rule is for.
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
