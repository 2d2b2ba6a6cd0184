//! GitHub's limits: how long it wants to be left alone.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, PortError, PortResult};

use super::{Answer, GITHUB};

/// What is waited for on the spot. Core's retry then asks again, and begins nothing later than
/// half a minute after the first attempt.
const SHORT: Duration = Duration::from_secs(20);

/// How long to wait where GitHub does not say: it asks for a minute at least.
const UNTOLD: Duration = Duration::from_secs(60);

/// Until when not to ask, if there is such a moment. Who goes on asking may be shut out.
#[derive(Default)]
pub(super) struct Limit(Mutex<Option<Timestamp>>);

impl Limit {
    /// Whether it may be asked.
    pub(super) fn check(&self, now: Timestamp) -> PortResult<()> {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match until {
            Some(until) if now < until => Err(limited(until)),
            _ => Ok(()),
        }
    }

    /// Waits if it is not for long, so that it may be asked again; else remembers.
    pub(super) async fn heed(&self, clock: &dyn Clock, until: Timestamp) -> PortError {
        let span = until.since(clock.now());
        if span > SHORT {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
            return limited(until);
        }
        tracing::debug!(until = %until, "GitHub limits requests; waiting");
        clock.sleep(span).await;
        let reason = format!("it limits requests until {until}");
        PortError::Unavailable { service: GITHUB, reason }
    }
}

/// Until when GitHub wants to be left alone, if the answer says so.
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
    said.then(|| now + UNTOLD)
}

fn limited(until: Timestamp) -> PortError {
    PortError::Forge {
        reason: format!("GitHub limits requests until {until}"),
        hint: "the next refresh after that time tries again; a GitHub App has higher limits than \
               a token"
            .to_owned(),
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
        let error = limit.heed(&clock, start + SHORT).await;
        assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
        assert_eq!(clock.now(), start + SHORT);
        assert_eq!(limit.check(clock.now()), Ok(()));

        let until = clock.now() + SHORT + Duration::from_secs(1);
        let error = limit.heed(&clock, until).await;
        assert_eq!(clock.now(), start + SHORT, "nobody waits for that");
        assert_eq!(limit.check(clock.now()), Err(error));
        assert_eq!(limit.check(until), Ok(()));
    }
}
