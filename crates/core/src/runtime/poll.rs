//! The one wait of the whole project: asks until there is an answer or a deadline has passed.

use std::future::Future;
use std::time::Duration;

use crate::model::timestamp::Timestamp;
use crate::ports::Clock;

/// How often to ask somebody who needs time to answer.
///
/// Questions are asked on the interval: at whole multiples of the pause, which is the shortest one
/// doubled some times. So all who wait in one process ask at the same moment, and can be answered
/// by one call (see [`crate::runtime::batcher`]), however long each of them has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollInterval {
    every: Duration,
    /// No pause is longer than the wait so far, divided by this.
    part: Option<u32>,
}

impl PollInterval {
    /// Always the same: for a wait that is short, or that somebody pays for by the millisecond.
    pub fn fixed(every: Duration) -> PollInterval {
        PollInterval { every, part: None }
    }

    /// Slower and slower, so that asking costs little and an answer is found late by no more than
    /// a `part` of the time that it took. At the slowest, sixteen times as slow as at first.
    pub fn backing_off(every: Duration, part: u32) -> PollInterval {
        PollInterval { every, part: Some(part.max(1)) }
    }

    fn pause(&self, waited: Duration) -> Duration {
        const SLOWEST: u32 = 4;
        let Some(part) = self.part else { return self.every };
        let beats = waited.as_millis() / self.every.as_millis().max(1) / u128::from(part);
        self.every * (1 << beats.max(1).ilog2().min(SLOWEST))
    }

    /// How long to leave somebody alone who has only just been asked for something: until the
    /// next interval, so that all who were asked at about the same time are looked at together.
    pub fn initial_delay(&self, now: Timestamp) -> Duration {
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
    pub interval: PollInterval,
}

/// Asks until there is an answer or the deadline has passed, and once more at the deadline.
pub async fn wait_until<T, E, F>(
    clock: &dyn Clock,
    Wait { since, deadline, interval }: Wait,
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
        let next = until_next(now, interval.pause(now.since(since)));
        clock.sleep(next.min(deadline.since(now))).await;
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
            Wait {
                since: start,
                deadline: start + Duration::from_millis(250),
                interval: PollInterval::fixed(Duration::from_millis(100)),
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
                interval: PollInterval::backing_off(Duration::from_millis(50), 1),
            },
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
    }
}
