//! What the agent does about a store that refuses it: how long it asks for nothing, and what it has
//! logged.
//!
//! A refusal does not pass on its own: there are no credentials, or IAM denies the call. An agent that
//! asked again at its usual pace would send dozens of requests a second for as long as the machine
//! lives, and log as many lines.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::ports::{PortError, PortResult, Random};
use ondeck_core::runtime::retry::Retry;

use crate::logged::LoggedReason;

/// The pauses between looks at the store that are refused.
const LOOKS: Retry = Retry {
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(30),
    ..Retry::PATIENT
};

/// All times are steady.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    look: Option<RefusedLook>,
    heartbeat_is_refused: bool,
    /// For each kind of call that fails, what was logged.
    said: BTreeMap<&'static str, LoggedReason>,
}

#[derive(Debug)]
struct RefusedLook {
    reason: PortError,
    /// How many looks were refused in a row.
    times: u32,
    /// When the store is asked again.
    next: Duration,
}

impl Refusals {
    /// The last refusal, if it is too early to ask the store again.
    pub(crate) fn standing(&self, now: Duration) -> Option<PortError> {
        self.look.as_ref().filter(|look| now < look.next).map(|look| look.reason.clone())
    }

    /// How long it is until the store is asked again; `None` if nothing was refused.
    pub(crate) fn until_next_look(&self, now: Duration) -> Option<Duration> {
        self.look.as_ref().map(|look| look.next.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    /// Notes the answer to a look at the store.
    pub(crate) fn looked<T>(&mut self, answer: &PortResult<T>, now: Duration, random: &dyn Random) {
        match answer {
            Err(reason) if is_refusal(reason) => {
                let times = self.look.as_ref().map_or(0, |look| look.times);
                let next = now + LOOKS.pause(times, random);
                let (reason, times) = (reason.clone(), times.saturating_add(1));
                self.look = Some(RefusedLook { reason, times, next });
            }
            // Another error says nothing about what is allowed.
            Err(_) => {}
            Ok(_) => self.look = None,
        }
    }

    /// Notes the answer to a heartbeat. The first that is taken after a refusal ends the pause between
    /// looks: credentials have arrived.
    pub(crate) fn beat(&mut self, answer: &PortResult<()>) {
        match answer {
            Ok(()) => {
                if std::mem::take(&mut self.heartbeat_is_refused) {
                    self.look = None;
                }
            }
            Err(reason) => self.heartbeat_is_refused = is_refusal(reason),
        }
    }

    pub(crate) fn heartbeat_is_refused(&self) -> bool {
        self.heartbeat_is_refused
    }

    /// Whether to log why a kind of call fails: at first, when the reason changes, and once a minute.
    pub(crate) fn is_to_be_said(
        &mut self,
        what: &'static str,
        reason: &PortError,
        now: Duration,
    ) -> bool {
        self.said.entry(what).or_default().is_due(&reason.to_string(), now)
    }

    /// Notes that a kind of call succeeds. Returns whether its failure was logged before.
    pub(crate) fn has_recovered(&mut self, what: &'static str) -> bool {
        self.said.remove(what).is_some()
    }
}

/// Whether an operator has to change something before the store answers.
pub(crate) fn is_refusal(error: &PortError) -> bool {
    matches!(error, PortError::Unusable { .. })
}

#[cfg(test)]
mod tests {
    use ondeck_core::testkit::FixedRandom;

    use super::*;

    fn denied(reason: &str) -> PortError {
        let (reason, hint) = (reason.to_owned(), String::new());
        PortError::Unusable { service: "store", reason, hint }
    }

    fn out_of_reach() -> PortError {
        PortError::Unavailable { service: "store", reason: "timeout".to_owned() }
    }

    #[test]
    fn looks_back_off_to_half_a_minute_and_end_with_an_answer() {
        let (mut refusals, mut now) = (Refusals::default(), Duration::ZERO);
        let look = |refusals: &mut Refusals, now| {
            refusals.looked::<()>(&Err(denied("no")), now, &FixedRandom(1_000));
            refusals.until_next_look(now).unwrap()
        };
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = look(&mut refusals, now);
            assert_eq!(refusals.standing(now), Some(denied("no")));
            now += pause;
            assert_eq!(refusals.standing(now), None, "it is time to look");
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        refusals.looked::<()>(&Err(out_of_reach()), now, &FixedRandom(0));
        assert_eq!(look(&mut refusals, now).as_secs(), 30, "an outage does not start it over");
        refusals.looked(&Ok(()), now, &FixedRandom(0));
        assert_eq!((refusals.standing(now), refusals.until_next_look(now)), (None, None));
        assert_eq!(look(&mut refusals, now).as_millis(), 500);
    }

    #[test]
    fn a_heartbeat_that_is_taken_again_ends_the_pause() {
        let (mut refusals, now) = (Refusals::default(), Duration::ZERO);
        refusals.beat(&Err(denied("no")));
        refusals.looked::<()>(&Err(denied("no")), now, &FixedRandom(0));
        assert!(refusals.heartbeat_is_refused());
        refusals.beat(&Ok(()));
        assert!(!refusals.heartbeat_is_refused() && refusals.standing(now).is_none());
        // Heartbeats are allowed, and looks are not.
        refusals.looked::<()>(&Err(denied("no")), now, &FixedRandom(0));
        refusals.beat(&Ok(()));
        assert!(refusals.standing(now).is_some());
        refusals.beat(&Err(out_of_reach()));
        assert!(!refusals.heartbeat_is_refused(), "it is retried soon");
    }

    #[test]
    fn a_reason_is_said_when_it_changes_and_once_a_minute() {
        let mut refusals = Refusals::default();
        let mut say = |what, reason: &str, second| {
            refusals.is_to_be_said(what, &denied(reason), Duration::from_secs(second))
        };
        assert!(say("a", "x", 0) && say("b", "x", 0));
        assert!(!say("a", "x", 59) && say("a", "x", 60) && !say("a", "x", 61));
        assert!(say("a", "y", 62));
        assert!(refusals.has_recovered("a") && !refusals.has_recovered("a"));
    }
}
