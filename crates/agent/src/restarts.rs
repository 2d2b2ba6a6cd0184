//! How often a runner that died is started again, and what is logged of that.

use std::time::Duration;

use ondeck_core::ports::Random;
use ondeck_core::runtime::retry::Retry;

use crate::logged::LoggedReason;

/// The pauses after a runner has died that could be started.
const DIED: Retry = Retry::PATIENT;

/// The pauses while it cannot be started. That may last until an operator does something: for example,
/// GitHub refuses its version, and no newer one is known.
const STUCK: Retry = Retry { longest_pause: Duration::from_secs(60), ..Retry::PATIENT };

/// The runner's deaths during one run.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    deaths: u32,
    /// How many attempts to start it have failed in a row.
    failures: u32,
    logged: LoggedReason,
}

impl Restarts {
    /// Notes that the runner was started and has died. Returns how long to wait before it is started
    /// again.
    pub(crate) fn died(&mut self, random: &dyn Random) -> Duration {
        self.failures = 0;
        let pause = DIED.pause(self.deaths, random);
        self.deaths = self.deaths.saturating_add(1);
        pause
    }

    /// Notes that it could not be started. Returns how long to wait before the next attempt.
    pub(crate) fn failed(&mut self, random: &dyn Random) -> Duration {
        let pause = STUCK.pause(self.failures, random);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Whether to log why it died or could not be started.
    pub(crate) fn is_to_be_logged(&mut self, why: &str, now: Duration) -> bool {
        self.logged.is_due(why, now)
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::testkit::FixedRandom;

    use super::*;

    #[test]
    fn a_runner_that_cannot_be_started_is_tried_once_a_minute() {
        let (mut restarts, most) = (Restarts::default(), FixedRandom(1_000));
        let pauses: Vec<_> = (0..11).map(|_| restarts.failed(&most).as_millis()).collect();
        let doubled = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200];
        assert_eq!(pauses[..9], doubled);
        assert_eq!(pauses[9..], [60_000, 60_000]);
        assert_eq!(restarts.failed(&FixedRandom(0)).as_secs(), 30, "at least");
        // One that could be started is started again soon.
        assert_eq!(restarts.died(&most).as_millis(), 200);
        assert_eq!(restarts.failed(&most).as_millis(), 200);
    }
}
