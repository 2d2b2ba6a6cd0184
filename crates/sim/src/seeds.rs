//! Plays the histories of a range of seeds, on all processors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::history::{History, play};
use crate::plan::Plan;
use crate::report::Totals;

/// The result of [`play_seeds`].
#[derive(Debug, Default)]
pub struct PlayedSeeds {
    /// The figures of all histories that were played.
    pub totals: Totals,
    /// The seeds whose histories violate an invariant, in ascending order.
    pub violations: Vec<(u64, History)>,
}

/// Plays the history of each seed, and stops once `max_violations` of them violate an invariant.
pub fn play_seeds(seeds: std::ops::Range<u64>, max_violations: usize) -> PlayedSeeds {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let found = Mutex::new(PlayedSeeds::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut totals = Totals::default();
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let history = play(&Plan::of(seed), false);
                    totals.add(&history);
                    if history.violation.is_some() {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.violations.push((seed, history));
                        if found.violations.len() >= max_violations {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
                found.lock().unwrap_or_else(PoisonError::into_inner).totals.join(&totals);
            });
        }
    });
    let mut played = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    played.violations.sort_by_key(|(seed, _)| *seed);
    played
}
