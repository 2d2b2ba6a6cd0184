//! A clock that is wrong by minutes makes AWS refuse every signature. What AWS's own clock says
//! stands in every answer, so the refusal is the last one: later calls are signed by that clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::Format;

/// AWS takes signatures that are up to five minutes off; closer than this nothing is corrected.
const TOLERATED_SECS: i64 = 60;

/// From here on a refusal may be for the date alone.
const REFUSED_SECS: i64 = 4 * 60;

/// How far AWS's clock is ahead of ours.
#[derive(Debug, Default)]
pub(crate) struct Skew(AtomicI64);

/// The time by which requests are signed.
#[derive(Debug, Clone)]
pub(crate) struct SigningClock(Arc<Skew>);

/// Takes note of the date of every answer that an SDK client gets.
#[derive(Debug)]
pub(crate) struct ObserveSkew(pub(crate) Arc<Skew>);

impl Skew {
    pub(crate) fn clock(self: &Arc<Self>) -> SigningClock {
        SigningClock(self.clone())
    }

    /// Takes note of the `Date` header of an answer that arrived at `now`.
    ///
    /// A correction stands until it is too far off itself: answers do not agree to the second,
    /// and to follow each of them would be a warning with each call.
    pub(crate) fn observe(&self, date: &str, now: SystemTime) {
        let Some(ahead) = ahead_by(date, now) else { return };
        let corrected_by = self.0.load(Ordering::Relaxed);
        if (ahead - corrected_by).abs() <= TOLERATED_SECS {
            return;
        }
        let ahead = if ahead.abs() > TOLERATED_SECS { ahead } else { 0 };
        self.0.store(ahead, Ordering::Relaxed);
        if ahead != 0 {
            tracing::warn!("this computer's clock is off by {} s", -ahead);
        }
    }
}

/// Whether `date`, of an answer that arrived at `now`, says that our clock is so wrong that AWS
/// refuses what is signed by it.
pub(crate) fn is_refused_for(date: &str, now: SystemTime) -> bool {
    ahead_by(date, now).is_some_and(|ahead| ahead.abs() > REFUSED_SECS)
}

fn ahead_by(date: &str, now: SystemTime) -> Option<i64> {
    let theirs = DateTime::from_str(date, Format::HttpDate).ok()?;
    Some(theirs.secs() - DateTime::from(now).secs())
}

impl TimeSource for SigningClock {
    fn now(&self) -> SystemTime {
        let ahead = self.0.0.load(Ordering::Relaxed);
        let span = Duration::from_secs(ahead.unsigned_abs());
        let now = SystemTime::now();
        let corrected = if ahead < 0 { now.checked_sub(span) } else { now.checked_add(span) };
        corrected.unwrap_or(now)
    }
}

#[dyn_dispatch_hint]
impl Intercept for ObserveSkew {
    fn name(&self) -> &'static str {
        "ObserveSkew"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(date) = context.response().headers().get("date") {
            self.0.observe(date, SystemTime::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_stands_until_it_is_wrong_itself() {
        let skew = Arc::new(Skew::default());
        let now = SystemTime::now();
        let observe = |seconds: u64| {
            let theirs = DateTime::from(now + Duration::from_secs(seconds));
            skew.observe(&theirs.fmt(Format::HttpDate).unwrap(), now);
            skew.0.load(Ordering::Relaxed)
        };
        let first = observe(3_600);
        for seconds in [3_601, 3_599, 3_630] {
            assert_eq!(observe(seconds), first, "answers do not agree to the second");
        }
        assert!(observe(7_200) > first + 3_000);
        let (_, near, nearer) = (observe(61), observe(60), observe(59));
        assert_eq!((near, nearer), (61, 61), "nor at the edge of what is tolerated");
        assert_eq!(observe(0), 0);
    }

    #[test]
    fn a_wrong_clock_is_corrected_and_a_right_one_left_alone() {
        let skew = Arc::new(Skew::default());
        let ahead_by = |seconds: u64| {
            let theirs = SystemTime::now() + Duration::from_secs(seconds);
            DateTime::from(theirs).fmt(Format::HttpDate).unwrap()
        };
        let off = || {
            let now = SystemTime::now();
            skew.clock().now().duration_since(now).unwrap_or_default().as_secs()
        };
        skew.observe(&ahead_by(30), SystemTime::now());
        assert_eq!(off(), 0, "within what AWS tolerates");
        skew.observe(&ahead_by(7_200), SystemTime::now());
        assert!((7_190..=7_200).contains(&off()), "{}", off());
        skew.observe("no date at all", SystemTime::now());
        assert!(off() > 0, "what cannot be read changes nothing");
        skew.observe(&ahead_by(0), SystemTime::now());
        assert_eq!(off(), 0, "the clock was put right");
    }
}
