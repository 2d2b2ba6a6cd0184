//! The beginning of an account, as it is asked for.

use std::time::Duration;

use crate::model::excerpt::quoted;
use crate::model::timestamp::Timestamp;

/// How long stores keep events, at the longest.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A time before now, or a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    At(Timestamp),
}

impl Since {
    /// The moment, seen from `now`. Fails if it is not before that, or longer ago than [`LONGEST`].
    pub fn moment(self, now: Timestamp) -> Result<Timestamp, String> {
        let at = match self {
            Since::Ago(span) => now.before(span),
            Since::At(at) => at,
        };
        if at >= now {
            return Err(format!("is not in the past: {at}"));
        }
        if now.since(at) > LONGEST {
            return Err(format!("is longer ago than 30 days, for which events are kept: {at}"));
        }
        Ok(at)
    }
}

impl std::str::FromStr for Since {
    type Err = String;

    /// Reads `7d`, `12h`, `2026-11-01` (midnight in UTC) or a time in RFC 3339.
    fn from_str(text: &str) -> Result<Since, String> {
        if let Ok(at) =
            Timestamp::parse(text).or_else(|_| Timestamp::parse(&format!("{text}T00:00:00Z")))
        {
            return Ok(Since::At(at));
        }
        let span = humantime::parse_duration(text).ok().filter(|span| !span.is_zero());
        let wrong = || {
            format!(
                "is no span such as 7d or 12h, and no date such as 2026-11-01: {}",
                quoted(text)
            )
        };
        let span = span.ok_or_else(wrong)?;
        if span > LONGEST {
            return Err(format!(
                "is longer than 30 days, for which events are kept: {}",
                quoted(text)
            ));
        }
        Ok(Since::Ago(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_days_and_moments_are_read_and_others_refused() {
        let now = Timestamp::parse("2026-11-18T20:00:00Z").unwrap();
        for (text, at) in [
            ("7d", "2026-11-11T20:00:00Z"),
            ("30days", "2026-10-19T20:00:00Z"),
            ("90min", "2026-11-18T18:30:00Z"),
            ("2026-11-01", "2026-11-01T00:00:00Z"),
            ("2026-11-01T12:30:00Z", "2026-11-01T12:30:00Z"),
        ] {
            let since: Since = text.parse().unwrap();
            assert_eq!(since.moment(now), Ok(Timestamp::parse(at).unwrap()), "{text}");
        }
        for text in ["", "0s", "7", "-1d", "yesterday", "31d", "2026-13-01"] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
        for text in ["2026-11-19", "2026-10-01"] {
            assert!(text.parse::<Since>().unwrap().moment(now).is_err(), "{text}");
        }
    }
}
