//! A moment with millisecond precision, and its text form.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;

/// Milliseconds since the Unix epoch. Written as RFC 3339 in UTC with three decimals and a `Z`;
/// in that form, later moments also sort later as text, which the stores rely on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(u64);

/// A text that is not a moment in RFC 3339, UTC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a time in RFC 3339, UTC: {}", quoted(.0))]
pub struct InvalidTime(String);

/// The last moment that four digits of a year can write (9999-12-31T23:59:59.999Z).
const LAST: u64 = 253_402_300_799_999;

const DAY: u64 = 24 * 3_600 * 1_000;

impl Timestamp {
    /// From milliseconds since the epoch, cut to what can be written.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(LAST))
    }

    pub fn millis(self) -> u64 {
        self.0
    }

    /// Reads RFC 3339 in UTC, with or without decimals.
    pub fn parse(text: &str) -> Result<Self, InvalidTime> {
        let invalid = || InvalidTime(text.to_owned());
        let time = humantime::parse_rfc3339(text).map_err(|_| invalid())?;
        Self::try_from(time).map_err(|()| invalid())
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The absolute difference between the two.
    pub fn distance(self, other: Timestamp) -> Duration {
        Duration::from_millis(self.0.abs_diff(other.0))
    }

    /// Midnight, in UTC, at the beginning of the day that this moment is in.
    pub fn start_of_day(self) -> Timestamp {
        Self(self.0 / DAY * DAY)
    }

    /// Midnight, in UTC, of the day before the one that this moment is in.
    pub fn start_of_day_before(self) -> Timestamp {
        Self((self.0 / DAY).saturating_sub(1) * DAY)
    }

    /// This moment less `span`; never before the epoch.
    pub fn before(self, span: Duration) -> Timestamp {
        Self(self.0.saturating_sub(whole_millis(span)))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Duration) -> Timestamp {
        Self::from_millis(self.0.saturating_add(whole_millis(span)))
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = ();
    fn try_from(time: SystemTime) -> Result<Self, ()> {
        let span = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| ())?;
        Ok(Self::from_millis(whole_millis(span)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(self.0);
        write!(f, "{}", humantime::format_rfc3339_millis(time))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidTime;
    fn try_from(text: String) -> Result<Self, InvalidTime> {
        Self::parse(&text)
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> String {
        time.to_string()
    }
}

fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_with_three_decimals_and_read_with_any() {
        let time = Timestamp::parse("2025-05-31T12:20:00Z").unwrap();
        assert_eq!(time.to_string(), "2025-05-31T12:20:00.000Z");
        assert_eq!(Timestamp::parse("2025-05-31T21:31:44.242Z").unwrap().millis() % 1000, 242);
        for bad in ["", "now", "2025-05-31", "2025-13-31T12:20:00Z", "1969-01-01T00:00:00Z"] {
            assert!(Timestamp::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn text_order_is_time_order_up_to_the_last_moment() {
        let times = [0, 1, 999, 1_000, 1_760_000_000_000, LAST].map(Timestamp::from_millis);
        for pair in times.windows(2) {
            assert!(pair[0].to_string() < pair[1].to_string(), "{pair:?}");
        }
        let end = Timestamp::from_millis(u64::MAX) + Duration::MAX;
        assert_eq!(Timestamp::parse(&end.to_string()).unwrap(), end);
    }
}
