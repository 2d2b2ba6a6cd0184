//! A clock that agrees with the stand-in's and can be advanced like it.

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;

/// Real time plus an offset. A sleep returns at once and adds to the offset.
#[derive(Debug, Default)]
pub(crate) struct MovedClock {
    ahead: Mutex<Duration>,
    slept: Mutex<Vec<Duration>>,
}

impl MovedClock {
    pub(crate) fn advance(&self, span: Duration) {
        *self.ahead.lock().unwrap() += span;
    }

    /// The length of each sleep.
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
