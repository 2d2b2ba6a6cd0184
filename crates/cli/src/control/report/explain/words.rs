//! Words that several sentences share.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;

/// The most ids that a sentence names.
const NAMED: usize = 5;

/// The time of day, in UTC.
pub(super) fn clock(at: Timestamp) -> String {
    at.to_string()[11..23].to_owned()
}

/// The day, in UTC.
pub(super) fn day(at: Timestamp) -> String {
    at.to_string()[..10].to_owned()
}

/// A span, in one or two units, rounded down.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) => format!("{} ms", span.as_millis()),
        (0, 0, 1..10) => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

pub(super) fn millis(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

/// `1 machine`, `2 machines`.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(super) fn machines(count: usize) -> String {
    counted(count, "machine", "machines")
}

/// Some ids: each of a few, or the first of many.
pub(super) fn listed(ids: &[String]) -> String {
    match ids.split_at(ids.len().min(NAMED)) {
        ([one], []) => one.clone(),
        ([rest @ .., last], []) => format!("{} and {last}", rest.join(", ")),
        (shown, more) => format!("{} and {} more", shown.join(", "), more.len()),
    }
}

/// ` because …`, unless there is no reason.
pub(super) fn because(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(": {}", one_line(why)),
    }
}

/// A text from outside, on one line and without a full stop at its end.
pub(super) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ").trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_lists_are_short() {
        let shown = [0, 999, 1_250, 59_999, 61_000, 3_661_000].map(millis);
        assert_eq!(shown, ["0 ms", "999 ms", "1.2 s", "59 s", "1 min 01 s", "1 h 01 min"]);
        let ids = |count: usize| (1..=count).map(|n| format!("i-{n}")).collect::<Vec<_>>();
        assert_eq!(listed(&ids(1)), "i-1");
        assert_eq!(listed(&ids(2)), "i-1 and i-2");
        assert_eq!(listed(&ids(5)), "i-1, i-2, i-3, i-4 and i-5");
        assert_eq!(listed(&ids(7)), "i-1, i-2, i-3, i-4, i-5 and 2 more");
        assert_eq!(one_line("no\nroom."), "no room");
    }
}
