//! How far the agent relies on wake-ups, by which the store announces that the record may have changed.
//!
//! A wake-up says when to look, and the record says what to do. So one that is false, late or repeated
//! costs a look. One that is lost costs time, until the next look: an agent that has seen a change which
//! no wake-up announced does not rely on them until they announce a change again. Then the control plane
//! is of a version that sends none, or may not send them.

use std::collections::VecDeque;
use std::time::Duration;

use ondeck_core::model::label::Label;
use ondeck_core::ports::{News, PortError};

use crate::store_calls::hint_of;

/// How much later than the change a wake-up may arrive and still count as its announcement.
const LATE: Duration = Duration::from_secs(5);

/// For how long the store may announce nothing before that is logged. A new machine may not be allowed
/// to listen for the first moments.
const SAY_AFTER: Duration = Duration::from_secs(5);

/// How many looks within [`LOOK_SPAN`] wake-ups can cause, however many arrive.
const MOST_LOOKS: usize = 4;
const LOOK_SPAN: Duration = Duration::from_secs(1);

/// All times are steady.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    /// The label that the record named at the last look; `None` before the first.
    owner: Option<Option<Label>>,
    /// Whether a wake-up has arrived since the last change that was seen.
    is_announced: bool,
    /// When a change was seen that no wake-up has announced so far.
    unannounced_since: Option<Duration>,
    /// Whether the last change was not announced in time.
    are_missed: bool,
    /// Why the store announces nothing at present.
    error: Option<PortError>,
    /// Since when the agent has not been able to rely on wake-ups.
    problem_since: Option<Duration>,
    is_said: bool,
    /// When the last looks were made because of wake-ups.
    looks: VecDeque<Duration>,
}

/// What to log about wake-ups.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remark {
    /// The agent polls, for this reason.
    Polls(String),
    /// It relies on wake-ups again.
    Relies,
}

impl WakeUps {
    /// Whether a change that the agent has to act on will be announced, as far as it can tell.
    pub(crate) fn are_relied_on(&self) -> bool {
        !self.are_missed && self.unannounced_since.is_none()
    }

    /// Notes what the agent has heard. Returns what to log about it.
    pub(crate) fn heard(&mut self, news: &News, now: Duration) -> Option<Remark> {
        self.error = match news {
            News::Unheard(error) => error.clone(),
            News::Announced | News::Quiet => None,
        };
        if *news == News::Announced {
            // It may announce the change that was seen, or one that is yet to be seen.
            self.are_missed &= self.unannounced_since.take().is_none();
            self.is_announced = true;
        }
        self.judge(now);
        self.remark(now)
    }

    /// Notes the label that the record names. The transitions that change it wake the agent.
    pub(crate) fn saw_owner(&mut self, owner: Option<&Label>, now: Duration) {
        let before = self.owner.replace(owner.cloned());
        if before.is_none_or(|before| before.as_ref() == owner) {
            return;
        }
        match std::mem::take(&mut self.is_announced) {
            true => (self.are_missed, self.unannounced_since) = (false, None),
            false => drop(self.unannounced_since.get_or_insert(now)),
        }
        self.judge(now);
    }

    /// How long to wait before a look that a wake-up has caused, and notes that it is made then.
    pub(crate) fn pause_before_look(&mut self, now: Duration) -> Duration {
        let earliest = match self.looks.front() {
            Some(first) if self.looks.len() >= MOST_LOOKS => *first + LOOK_SPAN,
            _ => now,
        };
        let at = earliest.max(now);
        self.looks.push_back(at);
        while self.looks.len() > MOST_LOOKS {
            self.looks.pop_front();
        }
        at.saturating_sub(now)
    }

    fn judge(&mut self, now: Duration) {
        if self.unannounced_since.is_some_and(|since| now.saturating_sub(since) >= LATE) {
            self.unannounced_since = None;
            self.are_missed = true;
        }
    }

    fn remark(&mut self, now: Duration) -> Option<Remark> {
        let Some(problem) = self.problem() else {
            self.problem_since = None;
            return std::mem::take(&mut self.is_said).then_some(Remark::Relies);
        };
        let since = *self.problem_since.get_or_insert(now);
        let is_new = !self.is_said && now.saturating_sub(since) >= SAY_AFTER;
        self.is_said |= is_new;
        is_new.then_some(Remark::Polls(problem))
    }

    fn problem(&self) -> Option<String> {
        match &self.error {
            Some(error) => Some(format!("{error}{}", hint_of(error))),
            None if self.are_missed => Some("the last change was not announced".to_owned()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::ids::RunId;

    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn label(run: &str) -> Label {
        Label { run: RunId::new(run).unwrap(), suffix: None }
    }

    fn denied() -> News {
        let reason = "access denied".to_owned();
        News::Unheard(Some(PortError::Unusable { service: "SQS", reason, hint: "x".to_owned() }))
    }

    #[test]
    fn wake_ups_are_relied_on_while_they_announce_changes() {
        let mut wake_ups = WakeUps::default();
        assert!(wake_ups.are_relied_on());
        wake_ups.saw_owner(None, secs(0));
        // Announced before the look, and after it.
        wake_ups.heard(&News::Announced, secs(1));
        wake_ups.saw_owner(Some(&label("1")), secs(1));
        assert!(wake_ups.are_relied_on());
        wake_ups.saw_owner(None, secs(10));
        assert!(!wake_ups.are_relied_on(), "the agent polls until it is announced");
        wake_ups.heard(&News::Announced, secs(11));
        assert!(wake_ups.are_relied_on());
        // Nothing changes, and nothing is announced.
        wake_ups.heard(&News::Quiet, secs(600));
        wake_ups.saw_owner(None, secs(600));
        assert!(wake_ups.are_relied_on());
    }

    #[test]
    fn a_missed_wake_up_makes_the_agent_poll_until_a_change_is_announced() {
        let mut wake_ups = WakeUps::default();
        wake_ups.saw_owner(None, secs(0));
        wake_ups.saw_owner(Some(&label("1")), secs(20));
        assert_eq!(wake_ups.heard(&News::Quiet, secs(24)), None);
        assert_eq!(wake_ups.heard(&News::Quiet, secs(25)), None, "said a little later");
        assert!(!wake_ups.are_relied_on());
        let remark = wake_ups.heard(&News::Quiet, secs(30));
        assert_eq!(remark, Some(Remark::Polls("the last change was not announced".to_owned())));
        assert_eq!(wake_ups.heard(&News::Quiet, secs(90)), None, "said once");
        wake_ups.heard(&News::Announced, secs(100));
        assert!(!wake_ups.are_relied_on(), "a wake-up without a change proves nothing");
        wake_ups.saw_owner(Some(&label("2")), secs(100));
        assert!(wake_ups.are_relied_on());
        assert_eq!(wake_ups.heard(&News::Quiet, secs(101)), Some(Remark::Relies));
    }

    #[test]
    fn an_error_is_said_once_when_it_lasts_and_once_when_it_is_over() {
        let mut wake_ups = WakeUps::default();
        assert_eq!(wake_ups.heard(&denied(), secs(0)), None);
        assert_eq!(wake_ups.heard(&News::Quiet, secs(4)), None, "a short one is not said");
        assert_eq!(wake_ups.heard(&denied(), secs(5)), None);
        let Some(Remark::Polls(why)) = wake_ups.heard(&denied(), secs(10)) else {
            panic!("not said");
        };
        assert!(why.contains("access denied") && why.contains("hint: x"), "{why}");
        assert_eq!(wake_ups.heard(&denied(), secs(100)), None);
        assert_eq!(wake_ups.heard(&News::Quiet, secs(101)), Some(Remark::Relies));
        assert_eq!(wake_ups.heard(&News::Unheard(None), secs(200)), None, "no error, no remark");
    }

    #[test]
    fn a_flood_causes_a_few_looks_a_second() {
        let (mut wake_ups, mut now) = (WakeUps::default(), secs(100));
        let mut looks = 0;
        while now < secs(110) {
            now += wake_ups.pause_before_look(now) + Duration::from_millis(1);
            looks += 1;
        }
        assert!((36..=44).contains(&looks), "{looks}");
        now += secs(2);
        let pauses: Vec<Duration> = (0..4).map(|_| wake_ups.pause_before_look(now)).collect();
        assert_eq!(pauses, [Duration::ZERO; 4], "a few may follow each other closely");
    }
}
