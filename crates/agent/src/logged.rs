//! Keeps a reason that does not change from being logged over and over.

use std::time::Duration;

/// How often a reason is logged that does not change.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// The reason that was logged last, and when, in steady time.
#[derive(Debug, Default)]
pub(crate) struct LoggedReason(Option<(String, Duration)>);

impl LoggedReason {
    /// Whether to log the reason: at first, when it changes, and once a minute.
    pub(crate) fn is_due(&mut self, reason: &str, now: Duration) -> bool {
        let LoggedReason(last) = self;
        let is_recent = |at: Duration| now.saturating_sub(at) < SAY_AGAIN;
        let is_known = last.as_ref().is_some_and(|(said, at)| said == reason && is_recent(*at));
        if !is_known {
            *last = Some((reason.to_owned(), now));
        }
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_due_when_it_changes_and_once_a_minute() {
        let mut logged = LoggedReason::default();
        let mut is_due = |reason, second| logged.is_due(reason, Duration::from_secs(second));
        assert!(is_due("a", 0) && !is_due("a", 59) && is_due("a", 60) && !is_due("a", 61));
        assert!(is_due("b", 62) && is_due("a", 63));
    }
}
