//! Spans of time, as people read them.

use std::time::Duration;

/// Two units at the most, rounded down.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, 0..10) => format!("{:.1}s", span.as_secs_f64()),
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m {s:02}s"),
        (0, h, m, _) => format!("{h}h {m:02}m"),
        (d, h, _, _) => format!("{d}d {h:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_and_honest() {
        let shown = |millis| span(Duration::from_millis(millis));
        assert_eq!(shown(0), "0.0s");
        assert_eq!(shown(1_250), "1.2s");
        assert_eq!(shown(59_999), "59s");
        assert_eq!(shown(61_000), "1m 01s");
        assert_eq!(shown(3_661_000), "1h 01m");
        assert_eq!(shown(86_399_000), "23h 59m");
        assert_eq!(shown(90_000_000), "1d 01h");
    }
}
