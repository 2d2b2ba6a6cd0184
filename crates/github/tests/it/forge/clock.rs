//! A clock that agrees with the loopback GitHub's, and can be moved on as that can.

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;

/// Real time, plus what tests have advanced it by. A sleep advances it and returns at once.
#[derive(Debug, Default)]
pub(crate) struct MovedClock {
    ahead: Mutex<Duration>,
    slept: Mutex<Vec<Duration>>,
}

impl MovedClock {
    pub(crate) fn advance(&self, span: Duration) {
        *self.ahead.lock().unwrap() += span;
    }

    /// How long was slept, each time.
    pub(crate) fn slept(&self) -> Vec<Duration> {
        self.slept.lock().unwrap().clone()
    }
}

#[async_trait]
impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let ahead = *self.ahead.lock().unwrap();
        Timestamp::try_from(SystemTime::now() + ahead).unwrap()
    }

    fn steady(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed() + *self.ahead.lock().unwrap()
    }

    async fn sleep(&self, span: Duration) {
        self.slept.lock().unwrap().push(span);
        self.advance(span);
    }
}
