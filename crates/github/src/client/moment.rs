//! Moments as GitHub writes them: tokens for runners expire in some server's local time.

use std::time::Duration;

use ondeck_core::time::Timestamp;

/// Reads RFC 3339 with any offset from UTC.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    if let Ok(time) = Timestamp::parse(text) {
        return Some(time);
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let (hours, minutes) = offset.split_once(':')?;
    let (hours, minutes) = (hours.parse::<u64>().ok()?, minutes.parse::<u64>().ok()?);
    let local = Timestamp::parse(&format!("{local}Z")).ok()?;
    let span = Duration::from_secs(hours * 3600 + minutes * 60);
    match sign {
        "-" => Some(local + span),
        "+" => Some(local.before(span)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_taken_into_account() {
        for (text, utc) in [
            ("2026-01-22T12:13:35Z", "2026-01-22T12:13:35.000Z"),
            ("2026-01-22T12:13:35.123-08:00", "2026-01-22T20:13:35.123Z"),
            ("2026-01-22T12:13:35.123+05:30", "2026-01-22T06:43:35.123Z"),
            ("2026-01-22T23:30:00+00:00", "2026-01-22T23:30:00.000Z"),
        ] {
            assert_eq!(moment(text).unwrap().to_string(), utc, "{text}");
        }
        for bad in
            ["", "now", "08:00", "2026-01-22T12:13:35", "2026-01-22T12:13:35x08:00", "ü-08:00"]
        {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }
}
