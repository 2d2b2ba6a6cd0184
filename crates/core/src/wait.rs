//! The one retry and the one wait of the whole project.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::ports::{Clock, Dice, PortError, PortResult};
use crate::time::Timestamp;

/// How often and how fast a failed call is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Calls in all.
    pub attempts: u32,
    /// The pause after the first failure; it doubles from there.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// No attempt begins later than this after the first one did.
    pub within: Duration,
    /// Whether to repeat also what will not pass by itself: somebody may see to it.
    pub stubborn: bool,
}

impl Retry {
    /// For calls that somebody waits for.
    pub const SHORT: Retry = Retry {
        attempts: 10,
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_secs(1),
        within: Duration::from_secs(30),
        stubborn: false,
    };

    /// For one of several requests that make one answer. Whoever waits for the answer repeats it as
    /// a whole, so this is about sparing the others.
    pub const PART: Retry = Retry {
        attempts: 4,
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(400),
        within: Duration::from_secs(10),
        stubborn: false,
    };

    /// For an agent, which has nobody to give its error to.
    pub const PATIENT: Retry = Retry {
        attempts: u32::MAX,
        first_pause: Duration::from_millis(200),
        longest_pause: Duration::from_secs(5),
        within: Duration::MAX,
        stubborn: true,
    };

    /// The pause after failed attempt `n`, counted from 0: doubled each time, and anywhere
    /// between half of that and all of it, so that many who failed together do not return
    /// together.
    pub fn pause(&self, n: u32, dice: &dyn Dice) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << n.min(16));
        let whole = doubled.min(self.longest_pause);
        let half = whole / 2;
        let part = u32::try_from(dice.roll() % 1001).unwrap_or(0);
        half + half * part / 1000
    }
}

/// The pauses between attempts, for as long as a policy allows another one.
pub struct Pauses<'a> {
    clock: &'a dyn Clock,
    dice: &'a dyn Dice,
    policy: Retry,
    started: Duration,
    /// How many attempts have failed, the one that the next pause is for not among them.
    failed: u32,
}

impl<'a> Pauses<'a> {
    /// To be made before the first attempt.
    pub fn new(clock: &'a dyn Clock, dice: &'a dyn Dice, policy: Retry) -> Pauses<'a> {
        Pauses { clock, dice, policy, started: clock.steady(), failed: 0 }
    }

    /// Which attempt it is, from 0.
    pub fn attempt(&self) -> u32 {
        self.failed
    }

    /// Lets the pause after a failed attempt pass, for the reason given. False, and at once, if
    /// that attempt was the last.
    pub async fn another(&mut self, why: &(dyn fmt::Display + Sync)) -> bool {
        if self.failed + 1 >= self.policy.attempts {
            return false;
        }
        let pause = self.policy.pause(self.failed, self.dice);
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

/// Calls until it works, the error is one that will not pass, or the attempts or the time are used
/// up; then gives the last error. The call is told which attempt it is.
pub async fn retry<T, F>(
    clock: &dyn Clock,
    dice: &dyn Dice,
    policy: Retry,
    mut call: impl FnMut(u32) -> F,
) -> PortResult<T>
where
    F: Future<Output = PortResult<T>>,
{
    let mut pauses = Pauses::new(clock, dice, policy);
    loop {
        let error = match call(pauses.attempt()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let passing = policy.stubborn || matches!(error, PortError::Unavailable { .. });
        if !passing || !pauses.another(&error).await {
            return Err(error);
        }
    }
}

/// The one retry for an adapter that needs several requests for one answer: where each of ten fails
/// once in ten times, ten in a row would hardly ever pass. Never for a conditional write, which is
/// judged by whoever knows how often it was made.
#[derive(Clone)]
pub struct Patience {
    clock: Arc<dyn Clock>,
    dice: Arc<dyn Dice>,
}

impl Patience {
    /// By this time and this chance.
    pub fn new(clock: Arc<dyn Clock>, dice: Arc<dyn Dice>) -> Patience {
        Patience { clock, dice }
    }

    /// Makes one of several requests, and repeats it by itself where that may help.
    pub async fn retried<T, F>(&self, mut call: impl FnMut() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &*self.dice, Retry::PART, |_| call()).await
    }

    /// The pause after somebody has done only a part of what was asked, for the `n`th time from 0.
    pub async fn pause(&self, n: u32) {
        self.clock.sleep(Retry::PART.pause(n, &*self.dice)).await;
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Patience")
    }
}

/// How often to ask somebody who needs time to answer.
///
/// Questions are asked on the beat: at whole multiples of the pause, which is the shortest one
/// doubled some times. So all who wait in one process ask at the same moment, and can be answered
/// by one call (see [`crate::together`]), however long each of them has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    every: Duration,
    /// No pause is longer than the wait so far, divided by this.
    part: Option<u32>,
}

impl Beat {
    /// Always the same: for a wait that is short, or that somebody pays for by the millisecond.
    pub fn steady(every: Duration) -> Beat {
        Beat { every, part: None }
    }

    /// Slower and slower, so that asking costs little and an answer is found late by no more than
    /// a `part` of the time that it took. At the slowest, sixteen times as slow as at first.
    pub fn easing(every: Duration, part: u32) -> Beat {
        Beat { every, part: Some(part.max(1)) }
    }

    fn pause(&self, waited: Duration) -> Duration {
        const SLOWEST: u32 = 4;
        let Some(part) = self.part else { return self.every };
        let beats = waited.as_millis() / self.every.as_millis().max(1) / u128::from(part);
        self.every * (1 << beats.max(1).ilog2().min(SLOWEST))
    }

    /// How long to leave somebody alone who has only just been asked for something: until the
    /// next beat, so that all who were asked at about the same time are looked at together.
    pub fn head_start(&self, now: Timestamp) -> Duration {
        until_next(now, if self.part.is_some() { self.every * 2 } else { self.every })
    }
}

fn until_next(now: Timestamp, pause: Duration) -> Duration {
    let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(pause - now.millis() % pause)
}

/// One wait: since when, until when, and how often to ask.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// When it began.
    pub since: Timestamp,
    /// When it is over, answer or not.
    pub deadline: Timestamp,
    /// How often to ask.
    pub beat: Beat,
}

/// Asks until there is an answer or the deadline has passed, and once more at the deadline.
pub async fn wait_until<T, E, F>(
    clock: &dyn Clock,
    Wait { since, deadline, beat }: Wait,
    mut ask: impl FnMut() -> F,
) -> Result<Option<T>, E>
where
    F: Future<Output = Result<Option<T>, E>>,
{
    loop {
        let asked_at = clock.now();
        if let Some(answer) = ask().await? {
            return Ok(Some(answer));
        }
        if asked_at >= deadline {
            return Ok(None);
        }
        let now = clock.now();
        let next = until_next(now, beat.pause(now.since(since)));
        clock.sleep(next.min(deadline.since(now))).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::testkit::{FixedDice, VirtualClock};

    fn unavailable(n: u32) -> PortError {
        PortError::Unavailable { service: "store", reason: format!("failure {n}") }
    }

    #[tokio::test]
    async fn retry_is_bounded_and_gives_the_last_error() {
        let clock = VirtualClock::new();
        let started = clock.now();
        let answer: PortResult<()> =
            retry(&clock, &FixedDice(1000), Retry::SHORT, |n| async move { Err(unavailable(n)) })
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
        let answer: PortResult<()> = retry(&clock, &FixedDice(0), Retry::SHORT, slow).await;
        assert_eq!(answer, Err(unavailable(1)), "the third would have begun after 40 s");
    }

    /// A clock that is an hour behind until somebody says so.
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
        let answer = retry(&clock, &FixedDice(0), Retry::SHORT, refused_once).await;
        assert_eq!(answer, Ok(1));
    }

    #[tokio::test]
    async fn what_will_not_pass_is_not_repeated() {
        let calls = Cell::new(0);
        let gone = || PortError::NotSetUp { what: "table".into() };
        let answer: PortResult<()> =
            retry(&VirtualClock::new(), &FixedDice(0), Retry::SHORT, |_| {
                calls.set(calls.get() + 1);
                async { Err(gone()) }
            })
            .await;
        assert_eq!((answer, calls.get()), (Err(gone()), 1));
    }

    #[test]
    fn pauses_are_jittered_within_their_half() {
        let pause = |n, roll| Retry::SHORT.pause(n, &FixedDice(roll)).as_millis();
        assert_eq!((pause(0, 0), pause(0, 1000)), (25, 50));
        assert_eq!((pause(10, 0), pause(10, 1000)), (500, 1000), "never beyond the longest");
    }

    #[tokio::test]
    async fn waiting_asks_on_the_beat_and_once_more_at_the_deadline() {
        let clock = VirtualClock::new();
        clock.advance(Duration::from_millis(30));
        let start = clock.now();
        let mut asked = Vec::new();
        let answer: Result<Option<()>, ()> = wait_until(
            &clock,
            Wait {
                since: start,
                deadline: start + Duration::from_millis(250),
                beat: Beat::steady(Duration::from_millis(100)),
            },
            || {
                asked.push(clock.now().since(start).as_millis());
                async { Ok(None) }
            },
        )
        .await;
        assert_eq!(answer, Ok(None));
        assert_eq!(asked, [0, 70, 170, 250]);
    }

    #[tokio::test]
    async fn an_easing_beat_asks_less_and_less_often_and_stays_on_the_beat() {
        let clock = VirtualClock::new();
        let start = clock.now();
        let mut asked = Vec::new();
        let answer: Result<Option<()>, ()> = wait_until(
            &clock,
            Wait {
                since: start,
                deadline: start + Duration::from_secs(4),
                beat: Beat::easing(Duration::from_millis(50), 1),
            },
            || {
                asked.push(clock.now().since(start).as_millis());
                async { Ok(None) }
            },
        )
        .await;
        assert_eq!(answer, Ok(None));
        assert_eq!(asked, [0, 50, 100, 200, 400, 800, 1600, 2400, 3200, 4000]);
        let slower = Beat::easing(Duration::from_millis(50), 8);
        let pause = |millis| slower.pause(Duration::from_millis(millis)).as_millis();
        assert_eq!([pause(0), pause(799), pause(800), pause(1600)], [50, 50, 100, 200]);
        assert_eq!(pause(3_600_000), 800, "however long it takes");
    }
}
