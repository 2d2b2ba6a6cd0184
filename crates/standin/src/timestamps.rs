//! Times in the formats of AWS and GitHub.

use std::time::{Duration, SystemTime};

/// Formats a time as EC2, its metadata service and GitHub do: `2026-11-15T07:15:30Z`.
pub(crate) fn iso(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Formats a time with milliseconds, as EC2 does for launch times.
pub(crate) fn iso_millis(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Formats a time as in a signature: `20261115T071530Z`.
pub(crate) fn compact(time: SystemTime) -> String {
    iso(time).replace(['-', ':'], "")
}

/// Parses the time in a signature. Returns `None` if the text has another format.
pub(crate) fn parse_compact(text: &str) -> Option<SystemTime> {
    let part = |from, to| text.get(from..to);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
    let iso = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    humantime::parse_rfc3339(&iso).ok()
}

/// Formats a time as in a `Date` header: `Sun, 15 Nov 2026 07:15:30 GMT`.
pub(crate) fn http_date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // The first of January 1970 was a Thursday.
    let day_name = DAYS.get((since / 86_400 % 7) as usize).copied().unwrap_or_default();
    let iso = iso(time);
    let month: usize = iso.get(5..7).and_then(|month| month.parse().ok()).unwrap_or(1);
    let month = MONTHS.get(month - 1).copied().unwrap_or_default();
    let (year, day) = (iso.get(..4).unwrap_or_default(), iso.get(8..10).unwrap_or_default());
    let clock = iso.get(11..19).unwrap_or_default();
    format!("{day_name}, {day} {month} {year} {clock} GMT")
}

/// Shifts a time by a number of seconds, into the past if it is negative.
pub(crate) fn shifted(time: SystemTime, ahead: i64) -> SystemTime {
    let span = Duration::from_secs(ahead.unsigned_abs());
    if ahead < 0 { time - span } else { time + span }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_agree_with_each_other() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_726_930);
        assert_eq!(iso(time), "2026-11-15T07:15:30Z");
        assert_eq!(compact(time), "20261115T071530Z");
        assert_eq!(parse_compact("20261115T071530Z"), Some(time));
        assert_eq!(parse_compact("nonsense"), None);
        assert_eq!(http_date(time), "Sun, 15 Nov 2026 07:15:30 GMT");
        assert_eq!(iso(shifted(time, -3_600)), "2026-11-15T06:15:30Z");
    }
}
