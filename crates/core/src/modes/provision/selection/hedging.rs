//! When a claim worker may claim a second machine because the first one is slow to register.
//!
//! One slow machine is worth a second claim. When many are slow, GitHub is: then more claims would
//! take machines from other runs and would not register any sooner.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::model::settings::Settings;
use crate::modes::provision::Attempt;
use crate::ports::Clock;

/// The delay until the pool's own registrations are known.
const FIRST_DELAY: Duration = Duration::from_secs(4);
/// The bounds of a delay that follows the pool's registrations.
const DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(20));

/// Counts the late workers and the hedges of one selection.
#[derive(Debug)]
pub(super) struct Hedging {
    delay: Duration,
    workers: u32,
    late: AtomicU32,
    made: AtomicU32,
}

/// A worker whose machine is late. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct Late<'a>(&'a Hedging);

impl Hedging {
    pub(super) fn new(attempt: &Attempt<'_>, workers: u32) -> Hedging {
        let (late, made) = (AtomicU32::new(0), AtomicU32::new(0));
        Hedging { delay: delay(&attempt.settings), workers, late, made }
    }

    /// Returns when a worker that has just claimed a machine may claim another one. Does not return
    /// while that is not allowed, so the caller must drop it when the first machine is decided.
    pub(super) async fn allowed(&self, clock: &dyn Clock) {
        // Workers that claimed at about the same time become late at about the same time, and have
        // to be counted before the first of them decides. So they count a little before.
        let part = self.delay / 16;
        clock.sleep(self.delay - part).await;
        let _late = self.is_late();
        loop {
            clock.sleep(part).await;
            if self.take() {
                return;
            }
        }
    }

    fn is_late(&self) -> Late<'_> {
        self.late.fetch_add(1, Ordering::Relaxed);
        Late(self)
    }

    /// Takes one of the hedges that are left, if a hedge is allowed now.
    fn take(&self) -> bool {
        if is_slow_everywhere(self.late.load(Ordering::Relaxed), self.workers) {
            return false;
        }
        let most = most_hedges(self.workers);
        let another = |made: u32| (made < most).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another).is_ok()
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::Relaxed);
    }
}

fn delay(settings: &Settings) -> Duration {
    settings.registration_p95.map_or(FIRST_DELAY, |usual| usual.clamp(DELAYS.0, DELAYS.1))
}

/// A quarter of the machines, rounded up.
fn most_hedges(workers: u32) -> u32 {
    workers.div_ceil(4)
}

/// Whether half of the workers are late. One alone says nothing about the others.
fn is_slow_everywhere(late: u32, workers: u32) -> bool {
    late > 1 && late.saturating_mul(2) >= workers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hedging(workers: u32) -> Hedging {
        let (late, made) = (AtomicU32::new(0), AtomicU32::new(0));
        Hedging { delay: FIRST_DELAY, workers, late, made }
    }

    #[test]
    fn a_quarter_of_the_machines_may_be_hedged() {
        for (workers, most) in [(1, 1), (4, 1), (5, 2), (50, 13), (1000, 250)] {
            let hedging = hedging(workers);
            let taken = (0..workers + 9).filter(|_| hedging.take()).count();
            assert_eq!(taken, most, "{workers} workers");
        }
    }

    #[test]
    fn none_is_when_half_of_the_workers_are_late() {
        for (late, workers, allowed) in
            [(1, 1, true), (1, 2, true), (2, 2, false), (2, 4, false), (2, 5, true), (3, 5, false)]
        {
            let hedging = hedging(workers);
            let waiting: Vec<_> = (0..late).map(|_| hedging.is_late()).collect();
            assert_eq!(hedging.take(), allowed, "{late} of {workers}");
            drop(waiting);
            assert_eq!(hedging.late.load(Ordering::Relaxed), 0, "a decided worker is not late");
        }
    }

    #[test]
    fn the_delay_follows_the_pool_within_bounds() {
        for (p95, seconds) in [(None, 4), (Some(100), 1), (Some(7_000), 7), (Some(90_000), 20)] {
            let p95 = p95.map(Duration::from_millis);
            let settings = Settings { registration_p95: p95, ..Settings::default() };
            assert_eq!(delay(&settings), Duration::from_secs(seconds), "{p95:?}");
        }
    }
}
