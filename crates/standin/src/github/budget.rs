//! GitHub's rate limits, by the rules at
//! <https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api>.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use hyper::Method;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// How many requests GitHub answers to each caller. The defaults are those of github.com; an
/// Enterprise Server has no limits unless its administrator sets some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The primary limit of a caller with credentials, in requests an hour.
    pub requests: u64,
    /// The primary limit of callers without credentials, in requests an hour.
    pub anonymous_requests: u64,
    /// The secondary limit in points a minute. A request that reads costs one point, any other five.
    pub points: u64,
    /// The secondary limit of requests at the same time.
    pub concurrent: usize,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits { requests: 5_000, anonymous_requests: 60, points: 900, concurrent: 100 }
    }
}

/// What the callers have used of their limits.
#[derive(Debug, Default)]
pub(super) struct Budgets(HashMap<String, Used>);

/// What one caller has used.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    requests: Window,
    points: Window,
    running: usize,
}

/// A count that starts anew when its time is over.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    count: u64,
    ends: Option<SystemTime>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exceeded {
    /// The primary limit, until it resets.
    Primary(SystemTime),
    /// A secondary limit, for this long.
    Secondary(Duration),
}

/// What the headers of an answer say about the primary limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remaining {
    pub(super) limit: u64,
    pub(super) used: u64,
    pub(super) reset: SystemTime,
}

impl Budgets {
    /// Counts a request that begins. Fails if it exceeds a limit; it is not counted then.
    pub(super) fn begin(
        &mut self,
        limits: &RequestLimits,
        caller: Option<&str>,
        method: &Method,
        now: SystemTime,
    ) -> Result<(), Exceeded> {
        let used = self.0.entry(name(caller).to_owned()).or_default();
        used.requests.renew(now, HOUR);
        used.points.renew(now, MINUTE);
        if used.requests.count >= limits.of(caller) {
            return Err(Exceeded::Primary(used.requests.ends.unwrap_or(now)));
        }
        let cost = if matches!(*method, Method::GET | Method::HEAD) { 1 } else { 5 };
        if used.points.count + cost > limits.points {
            let ends = used.points.ends.unwrap_or(now);
            let left = ends.duration_since(now).unwrap_or_default();
            // The header has whole seconds.
            return Err(Exceeded::Secondary(Duration::from_secs(left.as_secs() + 1)));
        }
        if used.running >= limits.concurrent {
            return Err(Exceeded::Secondary(MINUTE));
        }
        used.requests.count += 1;
        used.points.count += cost;
        used.running += 1;
        Ok(())
    }

    /// Ends a request that [`begin`](Budgets::begin) has counted.
    pub(super) fn end(&mut self, caller: Option<&str>) {
        if let Some(used) = self.0.get_mut(name(caller)) {
            used.running = used.running.saturating_sub(1);
        }
    }

    /// What is left to a caller.
    pub(super) fn remaining(
        &self,
        limits: &RequestLimits,
        caller: Option<&str>,
        now: SystemTime,
    ) -> Remaining {
        let mut used = self.0.get(name(caller)).copied().unwrap_or_default();
        used.requests.renew(now, HOUR);
        let reset = used.requests.ends.unwrap_or(now + HOUR);
        Remaining { limit: limits.of(caller), used: used.requests.count, reset }
    }
}

impl RequestLimits {
    fn of(&self, caller: Option<&str>) -> u64 {
        if caller.is_some() { self.requests } else { self.anonymous_requests }
    }
}

impl Window {
    /// Starts anew if the window is over.
    fn renew(&mut self, now: SystemTime, length: Duration) {
        if self.ends.is_none_or(|ends| ends <= now) {
            *self = Window { count: 0, ends: Some(now + length) };
        }
    }
}

fn name(caller: Option<&str>) -> &str {
    caller.unwrap_or("anonymous")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits =
        RequestLimits { requests: 4, anonymous_requests: 1, points: 11, concurrent: 2 };
    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn each_caller_has_its_requests_an_hour() {
        let mut budgets = Budgets::default();
        let mut get = |caller, now| {
            let begun = budgets.begin(&LIMITS, caller, &Method::GET, now);
            if begun.is_ok() {
                budgets.end(caller);
            }
            (begun, budgets.remaining(&LIMITS, caller, now))
        };
        for used in 1..=4 {
            let (begun, remaining) = get(Some("a"), NOW);
            assert_eq!(begun, Ok(()));
            assert_eq!(remaining, Remaining { limit: 4, used, reset: NOW + HOUR });
        }
        let late = NOW + HOUR - MINUTE;
        assert_eq!(get(Some("a"), late).0, Err(Exceeded::Primary(NOW + HOUR)));
        assert_eq!(get(Some("b"), late).0, Ok(()));
        assert_eq!(get(None, late).0, Ok(()));
        assert_eq!(get(None, late).0, Err(Exceeded::Primary(late + HOUR)));
        let (begun, remaining) = get(Some("a"), NOW + HOUR);
        assert_eq!((begun, remaining.used), (Ok(()), 1));
    }

    #[test]
    fn writes_cost_five_points_a_minute() {
        let mut budgets = Budgets::default();
        let mut ask = |method, now| {
            let begun = budgets.begin(&LIMITS, Some("a"), &method, now);
            budgets.end(Some("a"));
            begun
        };
        assert_eq!(ask(Method::POST, NOW), Ok(()));
        assert_eq!(ask(Method::DELETE, NOW), Ok(()));
        let later = NOW + Duration::from_secs(20);
        assert_eq!(ask(Method::POST, later), Err(Exceeded::Secondary(Duration::from_secs(41))));
        assert_eq!(ask(Method::GET, later), Ok(()));
        assert_eq!(ask(Method::POST, NOW + MINUTE), Ok(()));
    }

    #[test]
    fn only_so_many_requests_run_at_the_same_time() {
        let mut budgets = Budgets::default();
        let begin = |budgets: &mut Budgets| budgets.begin(&LIMITS, Some("a"), &Method::GET, NOW);
        assert_eq!((begin(&mut budgets), begin(&mut budgets)), (Ok(()), Ok(())));
        assert_eq!(begin(&mut budgets), Err(Exceeded::Secondary(MINUTE)));
        budgets.end(Some("a"));
        assert_eq!(begin(&mut budgets), Ok(()));
    }
}
