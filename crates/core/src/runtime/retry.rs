//! The one retry of the whole project: bounded, jittered, returning the last real error.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::ports::{Clock, PortResult, Random};

/// How often and how fast a failed call is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The most calls, the first included.
    pub attempts: u32,
    /// The pause after the first failure; it doubles from there.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// No attempt begins later than this after the first one did.
    pub within: Duration,
    /// Whether to repeat errors that do not pass on their own: the operator may correct the cause.
    pub retry_all_errors: bool,
}

impl Retry {
    /// For the calls of the control plane, which a job waits for.
    pub const SHORT: Retry = Retry {
        attempts: 10,
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_secs(1),
        within: Duration::from_secs(30),
        retry_all_errors: false,
    };

    /// For one of several requests that make one answer. The caller repeats the whole answer anyway;
    /// this avoids repeating the requests that succeeded.
    pub const PART: Retry = Retry {
        attempts: 4,
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(400),
        within: Duration::from_secs(10),
        retry_all_errors: false,
    };

    /// For an agent, which has no caller to report an error to.
    pub const PATIENT: Retry = Retry {
        attempts: u32::MAX,
        first_pause: Duration::from_millis(200),
        longest_pause: Duration::from_secs(5),
        within: Duration::MAX,
        retry_all_errors: true,
    };

    /// The pause after failed attempt `n`, counted from 0: doubled each time, and anywhere
    /// between half of that and all of it, so that many callers that failed together do not retry
    /// together.
    pub fn pause(&self, n: u32, random: &dyn Random) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << n.min(16));
        let whole = doubled.min(self.longest_pause);
        let half = whole / 2;
        let part = u32::try_from(random.number() % 1001).unwrap_or(0);
        half + half * part / 1000
    }
}

/// The pauses between attempts, for as long as a policy allows another one.
pub struct Pauses<'a> {
    clock: &'a dyn Clock,
    random: &'a dyn Random,
    policy: Retry,
    started: Duration,
    /// How many attempts have failed, the one that the next pause is for not among them.
    failed: u32,
}

impl<'a> Pauses<'a> {
    /// Must be made before the first attempt, because the time limit counts from here.
    pub fn new(clock: &'a dyn Clock, random: &'a dyn Random, policy: Retry) -> Pauses<'a> {
        Pauses { clock, random, policy, started: clock.steady(), failed: 0 }
    }

    /// The number of the current attempt, from 0.
    pub fn attempt(&self) -> u32 {
        self.failed
    }

    /// Waits for the pause after a failed attempt and returns true. Returns false at once if that
    /// attempt was the last. `why` is logged.
    pub async fn another(&mut self, why: &(dyn fmt::Display + Sync)) -> bool {
        if self.failed + 1 >= self.policy.attempts {
            return false;
        }
        let pause = self.policy.pause(self.failed, self.random);
        let waited = self.clock.steady().saturating_sub(self.started);
        if waited.saturating_add(pause) > self.policy.within {
            return false;
        }
        tracing::debug!(attempt = self.failed, "will try again: {why}");
        self.clock.sleep(pause).await;
        self.failed += 1;
        true
    }
}

impl fmt::Debug for Pauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pauses({} of {})", self.failed, self.policy.attempts)
    }
}

/// Repeats `call` until it succeeds. Returns the last error if it does not pass on its own, or when
/// the attempts or the time are used up. `call` gets the number of the attempt, from 0.
pub async fn retry<T, F>(
    clock: &dyn Clock,
    random: &dyn Random,
    policy: Retry,
    mut call: impl FnMut(u32) -> F,
) -> PortResult<T>
where
    F: Future<Output = PortResult<T>>,
{
    let mut pauses = Pauses::new(clock, random, policy);
    loop {
        let error = match call(pauses.attempt()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let passing = policy.retry_all_errors || error.is_passing();
        if !passing || !pauses.another(&error).await {
            return Err(error);
        }
    }
}

/// The retry for adapters that need several requests for one answer: if each of ten requests fails
/// one time in ten, all ten in a row seldom succeed. Never for a conditional write: its caller has
/// to know how often it was made.
#[derive(Clone)]
pub struct RequestRetry {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl RequestRetry {
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> RequestRetry {
        RequestRetry { clock, random }
    }

    /// Makes one request, and repeats it by [`Retry::PART`] while the error is a passing one.
    pub async fn retried<T, F>(&self, mut call: impl FnMut() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &*self.random, Retry::PART, |_| call()).await
    }

    /// Waits after a service has done only part of a request, for the `n`th time from 0.
    pub async fn pause(&self, n: u32) {
        self.back_off(&Retry::PART, n).await;
    }

    /// Waits after failed attempt `n`, counted from 0, as `retry` says.
    pub async fn back_off(&self, retry: &Retry, n: u32) {
        self.clock.sleep(retry.pause(n, &*self.random)).await;
    }
}

impl fmt::Debug for RequestRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestRetry")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::model::timestamp::Timestamp;
    use crate::ports::PortError;
    use crate::testkit::{FixedRandom, VirtualClock};

    fn unavailable(n: u32) -> PortError {
        PortError::Unavailable { service: "store", reason: format!("failure {n}") }
    }

    #[tokio::test]
    async fn retry_is_bounded_and_gives_the_last_error() {
        let clock = VirtualClock::new();
        let started = clock.now();
        let answer: PortResult<()> =
            retry(&clock, &FixedRandom(1000), Retry::SHORT, |n| async move { Err(unavailable(n)) })
                .await;
        assert_eq!(answer, Err(unavailable(9)));
        let pauses = [50, 100, 200, 400, 800, 1000, 1000, 1000, 1000];
        assert_eq!(clock.now().since(started), Duration::from_millis(pauses.iter().sum()));
    }

    #[tokio::test]
    async fn no_attempt_begins_after_the_time_is_up() {
        let clock = VirtualClock::new();
        let slow = |n| {
            clock.advance(Duration::from_secs(20));
            async move { Err(unavailable(n)) }
        };
        let answer: PortResult<()> = retry(&clock, &FixedRandom(0), Retry::SHORT, slow).await;
        assert_eq!(answer, Err(unavailable(1)), "the third would have begun after 40 s");
    }

    /// A clock that is an hour behind until its flag is set.
    struct Behind(VirtualClock, AtomicBool);

    #[async_trait]
    impl Clock for Behind {
        fn now(&self) -> Timestamp {
            let right = self.1.load(Ordering::Relaxed);
            self.0.now() + if right { Duration::from_secs(3_600) } else { Duration::ZERO }
        }

        fn steady(&self) -> Duration {
            self.0.steady()
        }

        async fn sleep(&self, span: Duration) {
            self.0.sleep(span).await;
        }
    }

    #[tokio::test]
    async fn a_clock_that_is_put_right_does_not_use_up_the_time() {
        let clock = Behind(VirtualClock::new(), AtomicBool::new(false));
        let refused_once = |n: u32| {
            clock.1.store(true, Ordering::Relaxed);
            async move { if n == 0 { Err(unavailable(n)) } else { Ok(n) } }
        };
        let answer = retry(&clock, &FixedRandom(0), Retry::SHORT, refused_once).await;
        assert_eq!(answer, Ok(1));
    }

    #[tokio::test]
    async fn a_permanent_error_is_not_repeated() {
        let calls = Cell::new(0);
        let gone = || PortError::NotSetUp { what: "table".into() };
        let answer: PortResult<()> =
            retry(&VirtualClock::new(), &FixedRandom(0), Retry::SHORT, |_| {
                calls.set(calls.get() + 1);
                async { Err(gone()) }
            })
            .await;
        assert_eq!((answer, calls.get()), (Err(gone()), 1));
    }

    #[test]
    fn pauses_are_jittered_within_their_half() {
        let pause = |n, roll| Retry::SHORT.pause(n, &FixedRandom(roll)).as_millis();
        assert_eq!((pause(0, 0), pause(0, 1000)), (25, 50));
        assert_eq!((pause(10, 0), pause(10, 1000)), (500, 1000), "never beyond the longest");
    }
}
