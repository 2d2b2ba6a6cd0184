//! The one wait of the whole project: polls until there is an answer or a deadline has passed.

use std::future::Future;
use std::time::Duration;

use crate::ports::Clock;

/// How often to poll.
///
/// The first question is asked at once. Later ones are asked at whole multiples of the pause, which
/// is the shortest one multiplied by a whole number. So all who wait in one process ask at the same
/// moment, and can be answered by one call (see [`crate::runtime::batcher`]), however long each of
/// them has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollInterval {
    every: Duration,
    /// No pause is longer than the wait so far, divided by this.
    part: Option<u32>,
    longest: Duration,
    /// Until twice the interval has passed, the pause is a part of it.
    is_prompt: bool,
}

/// How many times as often a prompt interval asks at first.
const PROMPT: u32 = 10;

impl PollInterval {
    /// Always the same interval, for short waits.
    pub const fn fixed(every: Duration) -> PollInterval {
        PollInterval { every, part: None, longest: every, is_prompt: false }
    }

    /// An interval that grows with the wait, so that an answer is found late by no more than a
    /// `part` of the time that it took. It grows to sixteen times `every` at most.
    pub fn backing_off(every: Duration, part: u32) -> PollInterval {
        PollInterval { every, part: Some(part.max(1)), longest: every * 16, is_prompt: false }
    }

    /// Asks ten times as often until twice the interval has passed, for answers that are usually
    /// there within a few round trips.
    #[must_use]
    pub fn prompt(self) -> PollInterval {
        PollInterval { is_prompt: true, ..self }
    }

    /// Lets the interval grow to `longest` instead.
    #[must_use]
    pub fn up_to(self, longest: Duration) -> PollInterval {
        PollInterval { longest: longest.max(self.every), ..self }
    }

    fn pause(&self, waited: Duration) -> Duration {
        if self.is_prompt && waited < self.every * 2 {
            return self.every / PROMPT;
        }
        let Some(part) = self.part else { return self.every };
        let most = (waited / part).min(self.longest);
        let times = most.as_millis() / self.every.as_millis().max(1);
        self.every * (1 << times.max(1).ilog2().min(16))
    }
}

fn until_next(now: Duration, pause: Duration) -> Duration {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let pause = millis(pause).max(1);
    Duration::from_millis(pause - millis(now) % pause)
}

/// One wait: since when, for how long, and how often to ask. It goes by steady time, so that a
/// correction of the clock neither ends nor prolongs it.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    since: Duration,
    at_most: Duration,
    interval: PollInterval,
}

impl Wait {
    /// A wait that begins now and ends after `at_most`.
    pub fn begin(clock: &dyn Clock, at_most: Duration, interval: PollInterval) -> Wait {
        Wait { since: clock.steady(), at_most, interval }
    }

    fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }
}

/// Asks until there is an answer or the wait is over, and once more at its end. Returns `None` if
/// there was no answer by then, and the first error of `ask`.
pub async fn wait_until<T, E, F>(
    clock: &dyn Clock,
    wait: Wait,
    mut ask: impl FnMut() -> F,
) -> Result<Option<T>, E>
where
    F: Future<Output = Result<Option<T>, E>>,
{
    loop {
        let asked_at = clock.steady();
        if let Some(answer) = ask().await? {
            return Ok(Some(answer));
        }
        if wait.waited(asked_at) >= wait.at_most {
            return Ok(None);
        }
        let now = clock.steady();
        let waited = wait.waited(now);
        let next = until_next(now, wait.interval.pause(waited));
        clock.sleep(next.min(wait.at_most.saturating_sub(waited))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::VirtualClock;

    #[tokio::test]
    async fn waiting_asks_on_the_beat_and_once_more_at_the_deadline() {
        let clock = VirtualClock::new();
        clock.advance(Duration::from_millis(30));
        let start = clock.now();
        let mut asked = Vec::new();
        let answer: Result<Option<()>, ()> = wait_until(
            &clock,
            Wait::begin(
                &clock,
                Duration::from_millis(250),
                PollInterval::fixed(Duration::from_millis(100)),
            ),
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
    async fn a_step_of_the_clock_neither_ends_nor_prolongs_a_wait() {
        for by in [3_600_000, -3_600_000] {
            let clock = VirtualClock::new();
            let start = clock.steady();
            let wait = Wait::begin(
                &clock,
                Duration::from_millis(250),
                PollInterval::fixed(Duration::from_millis(100)),
            );
            let mut asked = Vec::new();
            let answer: Result<Option<()>, ()> = wait_until(&clock, wait, || {
                asked.push((clock.steady() - start).as_millis());
                clock.step(by);
                async { Ok(None) }
            })
            .await;
            assert_eq!(answer, Ok(None));
            assert_eq!(asked, [0, 100, 200, 250], "stepped by {by} ms at each question");
        }
    }

    #[tokio::test]
    async fn an_easing_beat_asks_less_and_less_often_and_stays_on_the_beat() {
        let clock = VirtualClock::new();
        let start = clock.now();
        let mut asked = Vec::new();
        let answer: Result<Option<()>, ()> = wait_until(
            &clock,
            Wait::begin(
                &clock,
                Duration::from_secs(4),
                PollInterval::backing_off(Duration::from_millis(50), 1),
            ),
            || {
                asked.push(clock.now().since(start).as_millis());
                async { Ok(None) }
            },
        )
        .await;
        assert_eq!(answer, Ok(None));
        assert_eq!(asked, [0, 50, 100, 200, 400, 800, 1600, 2400, 3200, 4000]);
        let slower = PollInterval::backing_off(Duration::from_millis(50), 8);
        let pause = |millis| slower.pause(Duration::from_millis(millis)).as_millis();
        assert_eq!([pause(0), pause(799), pause(800), pause(1600)], [50, 50, 100, 200]);
        assert_eq!(pause(3_600_000), 800, "however long it takes");
        let slowest = slower.up_to(Duration::from_millis(2_400));
        assert_eq!(slowest.pause(Duration::from_secs(3_600)).as_millis(), 1_600, "doubled only");
    }

    #[tokio::test]
    async fn a_prompt_interval_asks_often_at_first_and_not_more_often_in_the_long_run() {
        let asked = |interval: PollInterval, at_most: u64, round_trip: u64| async move {
            let clock = VirtualClock::new();
            let start = clock.now();
            let asked = std::cell::RefCell::new(Vec::new());
            let wait = Wait::begin(&clock, Duration::from_millis(at_most), interval);
            let answer: Result<Option<()>, ()> = wait_until(&clock, wait, || {
                asked.borrow_mut().push(clock.now().since(start).as_millis());
                async {
                    clock.sleep(Duration::from_millis(round_trip)).await;
                    Ok(None)
                }
            })
            .await;
            assert_eq!(answer, Ok(None));
            asked.into_inner()
        };
        let every = Duration::from_millis(50);
        let prompt = PollInterval::backing_off(every, 6).prompt();
        let first = asked(prompt, 160, 9).await;
        assert_eq!(first, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 160]);
        let slower = asked(prompt, 160, 12).await;
        assert_eq!(slower, [0, 15, 30, 45, 60, 75, 90, 150, 162]);
        let steady = PollInterval::backing_off(every, 8);
        let (prompt, steady) = (asked(prompt, 2_500, 9).await, asked(steady, 2_500, 9).await);
        assert!(prompt.len() <= steady.len() + 4, "{} and {}", prompt.len(), steady.len());
    }
}
