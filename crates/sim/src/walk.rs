//! Many histories, on all processors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::history::{History, play};
use crate::plan::Plan;
use crate::report::Sum;

/// What came of a walk.
#[derive(Debug, Default)]
pub struct Walk {
    /// The sum of all histories that were played.
    pub sum: Sum,
    /// Those that broke a promise, by seed, lowest first.
    pub broken: Vec<(u64, History)>,
}

/// Plays the histories of `seeds`, and stops at the `most`-th that breaks a promise.
pub fn walk(seeds: std::ops::Range<u64>, most: usize) -> Walk {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let found = Mutex::new(Walk::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut sum = Sum::default();
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let history = play(&Plan::of(seed), false);
                    sum.add(&history);
                    if history.violation.is_some() {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.broken.push((seed, history));
                        if found.broken.len() >= most {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
                found.lock().unwrap_or_else(PoisonError::into_inner).sum.join(&sum);
            });
        }
    });
    let mut walk = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    walk.broken.sort_by_key(|(seed, _)| *seed);
    walk
}
