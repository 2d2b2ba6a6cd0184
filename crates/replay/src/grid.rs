//! All points of a grid, played at the same time on all processors.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::model::prices::Prices;
use ondeck_core::model::requirements::UsageClass;

use crate::history::History;
use crate::model::{Model, Point};
use crate::play::{Measured, play};

/// The settings of which each combination is a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    pub idle_times: Vec<Duration>,
    pub min_idle: Vec<u32>,
    /// When the minimum holds; always if it is empty.
    pub window: String,
    pub usage: Vec<UsageClass>,
}

impl Grid {
    /// Every point, by usage class, then minimum, then idle time, each in the order that was given.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for usage in &self.usage {
            for min_idle in &self.min_idle {
                points.extend(self.idle_times.iter().map(|idle_time| Point {
                    idle_time: *idle_time,
                    min_idle: *min_idle,
                    window: self.window.clone(),
                    usage: *usage,
                }));
            }
        }
        points
    }
}

/// Plays a history at each of these points, several at the same time. `done` is told how many points
/// are played, each time that one is. The results are in the order of the points.
pub fn play_all(
    history: &History,
    points: &[Point],
    model: Model,
    prices: &Prices,
    done: &(dyn Fn(usize) + Sync),
) -> Vec<Measured> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(points.len());
    let (next, played) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<(usize, Measured)>> = Mutex::default();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = points.get(index) else { return };
            let measured = play(history, point, model, prices);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, measured));
            done(played.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, measured)| measured).collect()
}
