//! Times in GitHub's answers. The expiry of runner tokens is in the server's local time, so offsets
//! must be read.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;

/// Parses RFC 3339 with any offset from UTC. Returns `None` for any other text.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_are_taken_into_account() {
        for (text, utc) in [
            ("2026-01-22T12:13:35Z", "2026-01-22T12:13:35.000Z"),
            ("2026-01-22T12:13:35.123-08:00", "2026-01-22T20:13:35.123Z"),
            ("2026-01-22T12:13:35.123+05:30", "2026-01-22T06:43:35.123Z"),
            ("2026-01-22T23:30:00+00:00", "2026-01-22T23:30:00.000Z"),
        ] {
            assert_eq!(parse_time(text).unwrap().to_string(), utc, "{text}");
        }
        for bad in
            ["", "now", "08:00", "2026-01-22T12:13:35", "2026-01-22T12:13:35x08:00", "ü-08:00"]
        {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_time_is_the_same_in_every_zone(
            millis in 86_400_000_u64..250_000_000_000_000, hours in 0..24_u64, minutes in 0..60_u64,
            east in any::<bool>(),
        ) {
            let utc = Timestamp::from_millis(millis);
            let span = Duration::from_secs(hours * 3600 + minutes * 60);
            let (local, sign) = if east { (utc + span, '+') } else { (utc.before(span), '-') };
            let local = local.to_string();
            let text = format!("{}{sign}{hours:02}:{minutes:02}", local.trim_end_matches('Z'));
            prop_assert_eq!(parse_time(&text), Some(utc), "{}", text);
        }

        #[test]
        fn any_text_is_a_time_or_none(text in "(?s).{0,40}", tail in "[+-]?[0-9:ü+]{0,7}") {
            prop_assert_eq!(parse_time(&text), None, "random text is no time");
            let noon = Timestamp::parse("2026-01-22T12:00:00Z").unwrap();
            let near = |time: Timestamp| time.distance(noon) < Duration::from_secs(3_600_000);
            let read = parse_time(&format!("2026-01-22T12:00:00{tail}"));
            prop_assert!(read.is_none_or(near), "{:?}", read);
        }
    }
}
