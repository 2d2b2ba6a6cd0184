//! When a claim worker may claim a second machine because the first one is slow to register.
//!
//! One slow machine is worth a second claim. When many are slow, GitHub is: then more claims would
//! take machines from other runs and would not register any sooner.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::model::readiness::ClaimWay;
use crate::model::settings::Settings;
use crate::modes::provision::Attempt;
use crate::ports::Clock;

/// The delay until the pool's own registrations are known.
const FIRST_DELAY: Duration = Duration::from_secs(4);
/// The bounds of a delay that follows what is known of the pool. A machine that is registered already has
/// the shorter one until more is known.
const DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(20));

/// Counts the late workers and the hedges of one selection.
#[derive(Debug)]
pub(super) struct Hedging {
    delays: Delays,
    workers: u32,
    late: AtomicU32,
    made: AtomicU32,
}

/// After which time a machine is late, by the way that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Delays {
    registers: Duration,
    ready: Duration,
}

/// A worker whose machine is late. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct Late<'a>(&'a Hedging);

impl Hedging {
    pub(super) fn new(attempt: &Attempt<'_>, workers: u32) -> Hedging {
        let (late, made) = (AtomicU32::new(0), AtomicU32::new(0));
        Hedging { delays: Delays::of(&attempt.settings), workers, late, made }
    }

    /// Returns when a worker that has just claimed a machine may claim another one. Does not return
    /// while that is not allowed, so the caller must drop it when the first machine is decided. Until
    /// `way` is known, the machine may take the shorter one.
    pub(super) async fn allowed(&self, clock: &dyn Clock, way: &OnceLock<ClaimWay>) {
        let assumed = self.delays.before(way.get());
        clock.sleep(uncounted(assumed)).await;
        let delay = self.delays.until_late(way.get());
        if delay > assumed {
            clock.sleep(uncounted(delay) - uncounted(assumed)).await;
        }
        let _late = self.is_late();
        loop {
            clock.sleep(delay - uncounted(delay)).await;
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

impl Delays {
    fn of(settings: &Settings) -> Delays {
        Delays {
            registers: delay(settings.registration_p95, FIRST_DELAY),
            ready: delay(settings.ready_p95, DELAYS.0),
        }
    }

    fn of_way(self, way: ClaimWay) -> Duration {
        match way {
            ClaimWay::Registers => self.registers,
            ClaimWay::Ready => self.ready,
        }
    }

    /// How long it takes in any case until a machine is late.
    fn before(self, way: Option<&ClaimWay>) -> Duration {
        way.map_or(self.registers.min(self.ready), |way| self.of_way(*way))
    }

    /// A machine whose agent could not be looked at gets the longer time.
    fn until_late(self, way: Option<&ClaimWay>) -> Duration {
        way.map_or(self.registers.max(self.ready), |way| self.of_way(*way))
    }
}

fn delay(known: Option<Duration>, unknown: Duration) -> Duration {
    known.map_or(unknown, usable_delay)
}

/// The delay if machines usually take this long.
pub(in crate::modes) fn usable_delay(usual: Duration) -> Duration {
    usual.clamp(DELAYS.0, DELAYS.1)
}

/// The part of a delay before a machine counts as late. Workers that claimed at about the same time become
/// late at about the same time, and have to be counted before the first of them decides. So they count a
/// little before.
fn uncounted(delay: Duration) -> Duration {
    delay - delay / 16
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
        Hedging { delays: Delays::of(&Settings::default()), workers, late, made }
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
    fn the_delay_of_each_way_follows_the_pool_within_bounds() {
        for (p95, registers, ready) in
            [(None, 4, 1), (Some(100), 1, 1), (Some(7_000), 7, 7), (Some(90_000), 20, 20)]
        {
            let known = p95.map(Duration::from_millis);
            let seconds = Duration::from_secs;
            let of = |registration_p95, ready_p95| {
                Delays::of(&Settings { registration_p95, ready_p95, ..Settings::default() })
            };
            let expected = Delays { registers: seconds(registers), ready: seconds(1) };
            assert_eq!(of(known, None), expected, "{p95:?}");
            let expected = Delays { registers: seconds(4), ready: seconds(ready) };
            assert_eq!(of(None, known), expected, "{p95:?}");
        }
    }

    #[tokio::test]
    async fn a_machine_is_late_after_the_delay_of_its_way() {
        use ClaimWay::{Ready, Registers};
        let (plane, _) = crate::testkit::plane();
        let seconds = Duration::from_secs;
        for (at_first, later, ready, expected) in [
            (Some(Registers), None, 2, 4),
            (Some(Ready), None, 2, 2),
            (None, Some(Registers), 2, 4),
            (None, Some(Ready), 2, 2),
            (None, None, 2, 4),
            (Some(Registers), None, 8, 4),
            (None, Some(Ready), 8, 8),
        ] {
            let ready_p95 = Some(seconds(ready));
            let settings = Settings { ready_p95, ..Settings::default() };
            let hedging = Hedging { delays: Delays::of(&settings), ..hedging(1) };
            let way = OnceLock::new();
            at_first.map(|known| way.set(known));
            let begun = plane.clock.steady();
            let look = async {
                plane.clock.sleep(Duration::from_millis(10)).await;
                later.map(|known| way.set(known));
            };
            futures_util::future::join(hedging.allowed(&*plane.clock, &way), look).await;
            let took = plane.clock.steady() - begun;
            assert_eq!(took, seconds(expected), "{at_first:?} {later:?} {ready}");
        }
    }
}
