//! AWS's clock, as its answers tell it. If this computer's clock is wrong by minutes, AWS refuses
//! every signature; if it is wrong by less, this process would terminate machines whose time is not
//! up. Every answer of AWS carries a date, so the first refusal corrects the clock, and signatures
//! and decisions go by the corrected one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use aws_smithy_types::date_time::Format;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;

/// A smaller difference is not corrected: answers tell the time to the second, and take a while to
/// arrive.
const TOLERATED_SECS: i64 = 10;

/// An answer that took longer does not tell the time, because it may have been written at any moment
/// of that span. A process that was stopped half-way would take its own clock for late.
const PROMPT: Duration = Duration::from_secs(5);

/// From this difference on, AWS may refuse a request for its date alone.
const REFUSED_SECS: i64 = 4 * 60;

/// How far AWS's clock is ahead of this computer's.
#[derive(Debug)]
pub(crate) struct Skew {
    ahead_secs: AtomicI64,
    since: Instant,
}

/// The time by AWS's clock; until the first answer, by this computer's.
#[derive(Debug, Clone)]
pub struct AwsClock(Arc<Skew>);

/// Observes the date of every answer that an SDK client gets.
#[derive(Debug)]
pub(crate) struct ObserveSkew(pub(crate) Arc<Skew>);

#[derive(Debug)]
struct Sent(Instant);

impl Storable for Sent {
    type Storer = StoreReplace<Sent>;
}

impl Default for Skew {
    fn default() -> Skew {
        Skew { ahead_secs: AtomicI64::new(0), since: Instant::now() }
    }
}

impl Skew {
    pub(crate) fn clock(self: &Arc<Self>) -> AwsClock {
        AwsClock(self.clone())
    }

    /// Corrects the clock by the `Date` header of an answer that has just arrived, `took` after its
    /// request was sent.
    pub(crate) fn observe(&self, date: &str, took: Duration) {
        if took <= PROMPT {
            self.correct(date, SystemTime::now());
        }
    }

    /// A correction stands until it is itself off by more than is tolerated. Answers do not agree to
    /// the second, and following each of them would log a warning with each call.
    fn correct(&self, date: &str, now: SystemTime) {
        let Some(ahead) = ahead_by(date, now) else { return };
        let corrected_by = self.ahead_secs.load(Ordering::Relaxed);
        if (ahead - corrected_by).abs() <= TOLERATED_SECS {
            return;
        }
        let ahead = if ahead.abs() > TOLERATED_SECS { ahead } else { 0 };
        self.ahead_secs.store(ahead, Ordering::Relaxed);
        if ahead != 0 {
            tracing::warn!("this computer's clock is off by {} s", -ahead);
        }
    }
}

/// Whether `date`, of an answer that arrived at `now`, shows that this computer's clock is so wrong
/// that AWS refuses what is signed by it.
pub(crate) fn is_refused_for(date: &str, now: SystemTime) -> bool {
    ahead_by(date, now).is_some_and(|ahead| ahead.abs() > REFUSED_SECS)
}

fn ahead_by(date: &str, now: SystemTime) -> Option<i64> {
    let theirs = DateTime::from_str(date, Format::HttpDate).ok()?;
    Some(theirs.secs() - DateTime::from(now).secs())
}

impl TimeSource for AwsClock {
    fn now(&self) -> SystemTime {
        let ahead = self.0.ahead_secs.load(Ordering::Relaxed);
        let span = Duration::from_secs(ahead.unsigned_abs());
        let now = SystemTime::now();
        let corrected = if ahead < 0 { now.checked_sub(span) } else { now.checked_add(span) };
        corrected.unwrap_or(now)
    }
}

#[async_trait]
impl Clock for AwsClock {
    fn now(&self) -> Timestamp {
        // A clock before 1970 is no clock; everything would count as unexpired.
        Timestamp::try_from(TimeSource::now(self)).unwrap_or(Timestamp::from_millis(0))
    }

    fn steady(&self) -> Duration {
        self.0.since.elapsed()
    }

    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

#[dyn_dispatch_hint]
impl Intercept for ObserveSkew {
    fn name(&self) -> &'static str {
        "ObserveSkew"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        config.interceptor_state().store_put(Sent(Instant::now()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        if let (Some(date), Some(sent)) = (date, config.load::<Sent>()) {
            self.0.observe(date, sent.0.elapsed());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::testkit::contract::clock_suite;

    use super::*;

    #[test]
    fn a_correction_stands_until_it_is_wrong_itself() {
        let skew = Arc::new(Skew::default());
        let now = SystemTime::now();
        let observe = |seconds: u64| {
            let theirs = DateTime::from(now + Duration::from_secs(seconds));
            skew.correct(&theirs.fmt(Format::HttpDate).unwrap(), now);
            skew.ahead_secs.load(Ordering::Relaxed)
        };
        let first = observe(3_600);
        for seconds in [3_601, 3_599, 3_609] {
            assert_eq!(observe(seconds), first, "answers do not agree to the second");
        }
        assert!(observe(7_200) > first + 3_000);
        let (_, near, nearer) = (observe(11), observe(10), observe(9));
        assert_eq!((near, nearer), (11, 11), "nor at the edge of what is tolerated");
        assert_eq!(observe(0), 0);
    }

    #[test]
    fn a_wrong_clock_is_corrected_and_a_right_one_left_alone() {
        let skew = Arc::new(Skew::default());
        let ahead_by = |seconds: u64| {
            let theirs = SystemTime::now() + Duration::from_secs(seconds);
            DateTime::from(theirs).fmt(Format::HttpDate).unwrap()
        };
        let clock = skew.clock();
        let off = || {
            let now = SystemTime::now();
            TimeSource::now(&clock).duration_since(now).unwrap_or_default().as_secs()
        };
        skew.observe(&ahead_by(8), PROMPT);
        assert_eq!(off(), 0, "that may be the answer's own time");
        skew.observe(&ahead_by(7_200), PROMPT + Duration::from_millis(1));
        assert_eq!(off(), 0, "an answer that took too long tells nothing");
        let begun = clock.steady();
        skew.observe(&ahead_by(7_200), PROMPT);
        assert!((7_190..=7_200).contains(&off()), "{}", off());
        let theirs = Timestamp::try_from(SystemTime::now()).unwrap() + Duration::from_secs(7_190);
        assert!(Clock::now(&clock) > theirs, "decisions go by it too");
        assert!(clock.steady() - begun < Duration::from_secs(7_000), "and spans do not");
        skew.observe("no date at all", PROMPT);
        assert!(off() > 0, "what cannot be read changes nothing");
        skew.observe(&ahead_by(0), PROMPT);
        assert_eq!(off(), 0, "the clock was put right");
    }

    #[tokio::test]
    async fn a_correction_keeps_the_contract_of_clocks() {
        let skew = Arc::new(Skew::default());
        let ahead = AtomicI64::new(0);
        let step = |millis: i64| {
            let ahead = ahead.fetch_add(millis / 1000, Ordering::Relaxed) + millis / 1000;
            let theirs = DateTime::from_secs(DateTime::from(SystemTime::now()).secs() + ahead);
            skew.observe(&theirs.fmt(Format::HttpDate).unwrap(), PROMPT);
        };
        clock_suite(&skew.clock(), Some(&step)).await;
    }
}
