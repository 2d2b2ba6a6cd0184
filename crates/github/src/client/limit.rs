//! GitHub's rate limits: reads them from answers, and keeps requests back until they end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, PortError, PortResult};

use super::Answer;

/// The longest limit that is waited for at once. Core's retry then sends the request again; it starts
/// no attempt later than half a minute after the first.
const SHORT: Duration = Duration::from_secs(20);

/// How long to wait if the answer does not say. GitHub documents at least one minute.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// Until when no request may be sent. GitHub may block clients that keep sending requests.
#[derive(Default)]
pub(super) struct Limit(Mutex<Option<Remembered>>);

/// A limit that is too long to be waited out.
#[derive(Clone, Copy)]
struct Remembered {
    /// Its end in steady time, which a correction of the clock does not move.
    ends: Duration,
    /// The same as a time of day, for messages.
    until: Timestamp,
}

impl Limit {
    /// Fails while a limit is in force.
    pub(super) fn check(&self, clock: &dyn Clock) -> PortResult<()> {
        let remembered = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match remembered {
            Some(Remembered { ends, until }) if clock.steady() < ends => Err(limited(until, false)),
            _ => Ok(()),
        }
    }

    /// Takes note of a limit and returns the error for the limited request. A short limit is waited
    /// out and the error is retryable. A longer one is remembered and the error is final.
    pub(super) async fn apply(&self, clock: &dyn Clock, until: Timestamp) -> PortError {
        let span = until.since(clock.now());
        if span > SHORT {
            let remembered = Remembered { ends: clock.steady() + span, until };
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(remembered);
            return limited(until, false);
        }
        tracing::debug!(until = %until, "GitHub limits requests; waiting");
        clock.sleep(span).await;
        limited(until, true)
    }
}

/// Returns the end of the rate limit that an answer reports, or `None` if it reports none.
pub(crate) fn until(answer: &Answer, now: Timestamp) -> Option<Timestamp> {
    if !matches!(answer.status, 403 | 429) {
        return None;
    }
    let number = |name| answer.header(name).and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(seconds) = number("retry-after") {
        return Some(now + Duration::from_secs(seconds));
    }
    if number("x-ratelimit-remaining") == Some(0)
        && let Some(reset) = number("x-ratelimit-reset")
    {
        return Some(Timestamp::from_millis(reset.saturating_mul(1000)).max(now));
    }
    let said = answer.status == 429 || answer.words.to_ascii_lowercase().contains("rate limit");
    said.then(|| now + DEFAULT_WAIT)
}

fn limited(until: Timestamp, is_over: bool) -> PortError {
    PortError::Limited {
        reason: format!("GitHub limits requests until {until}"),
        hint: "run refresh again after that time; a GitHub App has higher limits than a token"
            .to_owned(),
        is_over,
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::testkit::VirtualClock;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], message: &str) -> Answer {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        let body = serde_json::json!({ "message": message }).to_string();
        Answer::new(status, headers, body.as_bytes(), None)
    }

    #[test]
    fn limits_are_read_from_headers_before_words() {
        let now = Timestamp::from_millis(1_750_000_000_000);
        let secondary = "You have exceeded a secondary rate limit. Please wait a few minutes";
        let none = ("x-ratelimit-remaining", "0");
        let left = ("x-ratelimit-remaining", "4999");
        let reset = ("x-ratelimit-reset", "1750000090");
        for (answer, seconds) in [
            (answer(429, &[("retry-after", "7")], ""), Some(7)),
            (answer(403, &[("retry-after", "30"), left, reset], secondary), Some(30)),
            (answer(403, &[none, reset], "API rate limit exceeded for user ID 1."), Some(90)),
            (answer(403, &[none, ("x-ratelimit-reset", "1")], "API rate limit exceeded"), Some(0)),
            (answer(403, &[left, reset], secondary), Some(60)),
            (answer(429, &[], ""), Some(60)),
            (answer(429, &[("retry-after", "soon")], ""), Some(60)),
            (answer(403, &[left, reset], "Resource not accessible by integration"), None),
            (answer(200, &[none, reset], ""), None),
            (answer(404, &[none, reset], "Not Found"), None),
        ] {
            let expected = seconds.map(|seconds| now + Duration::from_secs(seconds));
            assert_eq!(until(&answer, now), expected, "{} {}", answer.status, answer.words);
        }
    }

    #[tokio::test]
    async fn a_short_wait_is_waited_and_a_long_one_is_remembered() {
        let (clock, limit) = (VirtualClock::new(), Limit::default());
        let start = clock.now();
        let error = limit.apply(&clock, start + SHORT).await;
        assert!(error.is_passing(), "{error:?}");
        assert_eq!(clock.now(), start + SHORT);
        assert_eq!(limit.check(&clock), Ok(()));

        let until = clock.now() + SHORT + Duration::from_secs(1);
        let error = limit.apply(&clock, until).await;
        assert_eq!(clock.now(), start + SHORT, "a long limit is not waited for");
        assert_eq!(limit.check(&clock), Err(error.clone()));
        clock.step(3_600_000);
        assert_eq!(limit.check(&clock), Err(error), "a step of the clock does not end it");
        clock.advance(SHORT + Duration::from_secs(1));
        assert_eq!(limit.check(&clock), Ok(()));
    }
}
