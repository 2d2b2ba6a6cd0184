use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::model::timestamp::Timestamp;
use crate::ports::{Clock, Random};

/// A clock that moves only when every task is asleep: each sleeper yields to let others run, and the
/// one with the earliest alarm then moves time forward. Hours pass in microseconds, and events keep
/// their order.
#[derive(Debug)]
pub struct VirtualClock {
    /// Milliseconds of steady time. The time of day is this plus `stepped`.
    elapsed: AtomicU64,
    stepped: AtomicI64,
    alarms: Mutex<Vec<u64>>,
    /// Grows whenever a task falls asleep or wakes up.
    stirs: AtomicU64,
}

impl VirtualClock {
    /// Starts at a fixed, arbitrary time.
    pub fn new() -> VirtualClock {
        VirtualClock {
            elapsed: AtomicU64::new(1_750_000_000_000),
            stepped: AtomicI64::new(0),
            alarms: Mutex::default(),
            stirs: AtomicU64::new(0),
        }
    }

    /// Moves time forward without regard to sleepers.
    pub fn advance(&self, span: Duration) {
        let millis = u64::try_from(span.as_millis()).expect("a test's span fits");
        self.elapsed.fetch_add(millis, Ordering::SeqCst);
    }

    /// Moves the time of day by `millis`, as a correction of the clock does, and leaves the steady
    /// time where it is.
    pub fn step(&self, millis: i64) {
        self.stepped.fetch_add(millis, Ordering::SeqCst);
    }

    fn unstepped(&self) -> Timestamp {
        Timestamp::from_millis(self.elapsed.load(Ordering::SeqCst))
    }

    fn alarms(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.alarms.lock().expect("no test panics while it holds the alarms")
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        VirtualClock::new()
    }
}

/// Removes the alarm even if the sleeper is dropped.
struct Alarm<'a>(&'a VirtualClock, u64);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.stirs.fetch_add(1, Ordering::SeqCst);
        let mut alarms = self.0.alarms();
        if let Some(at) = alarms.iter().position(|alarm| *alarm == self.1) {
            alarms.swap_remove(at);
        }
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let stepped = self.stepped.load(Ordering::SeqCst);
        Timestamp::from_millis(self.unstepped().millis().saturating_add_signed(stepped))
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.elapsed.load(Ordering::SeqCst))
    }

    async fn sleep(&self, span: Duration) {
        let alarm = (self.unstepped() + span).millis();
        self.alarms().push(alarm);
        self.stirs.fetch_add(1, Ordering::SeqCst);
        let _alarm = Alarm(self, alarm);
        // Enough turns for every task that has just woken up to act before time moves on.
        const QUIET_TURNS: u32 = 64;
        let (mut turns, mut stirs) = (0, self.stirs.load(Ordering::SeqCst));
        while self.unstepped().millis() < alarm {
            tokio::task::yield_now().await;
            let stirred = self.stirs.load(Ordering::SeqCst);
            turns = if stirred == stirs { turns + 1 } else { 0 };
            stirs = stirred;
            let earliest = self.alarms().iter().all(|other| alarm <= *other);
            if earliest && turns >= QUIET_TURNS {
                self.elapsed.fetch_max(alarm, Ordering::SeqCst);
            }
        }
    }
}

/// A source of chance that always returns the same number.
#[derive(Debug, Clone, Copy)]
pub struct FixedRandom(pub u64);

impl Random for FixedRandom {
    fn number(&self) -> u64 {
        self.0
    }
}

/// Numbers that follow from a seed (splitmix64).
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn number(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
