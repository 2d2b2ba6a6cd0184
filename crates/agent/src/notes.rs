//! What the store has of the notes about the registration of an idle machine, as far as the agent knows.
//!
//! Several notes may be under way at the same moment, and an answer may be lost. So the store has a note
//! only if the answer to the last one says so.

use std::time::Duration;

use ondeck_core::model::readiness::{IdleRegistration, Readiness, ReadinessNote};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use crate::refusals::is_refusal;

/// How much later the time of a note is if the store has a later one; twice as much after each further one.
const FIRST_SKIP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// What the store has; `None` if that is not known.
    told: Option<Readiness>,
    /// The time of the last note that was sent.
    last_at: Option<Timestamp>,
    /// By how much that was moved on last, because the store had a later note.
    skipped: Duration,
    are_taken: bool,
    /// Whether the store has ever had the last note that was sent: none of an earlier process is left then.
    has_been_told: bool,
    /// The registrations for which the store may call the machine ready, by notes that were sent: those that
    /// may have been written, and those of which no answer is known, because the caller has given up or still
    /// waits.
    may_name: Vec<IdleRegistration>,
    unanswered: Vec<(Timestamp, IdleRegistration)>,
    /// Whether the store has a later note than the last one, of which nothing is known.
    has_unknown: bool,
}

impl Notes {
    /// The part of this that the store may not have.
    pub(crate) fn untold(&self, said: Option<&Readiness>) -> Option<Readiness> {
        said.filter(|said| self.told.as_ref() != Some(said)).cloned()
    }

    /// Makes the note that says this. What the store has is not known until the note is answered.
    pub(crate) fn send(&mut self, readiness: Readiness, now: Timestamp) -> ReadinessNote {
        let next = self.last_at.map_or(now, |last| now.max(last + Duration::from_millis(1)));
        (self.told, self.last_at) = (None, Some(next));
        if let Readiness::Ready(named) = &readiness {
            self.unanswered.push((next, named.clone()));
        }
        ReadinessNote { readiness, at: next }
    }

    /// Takes the store's answer: whether it has the note, or a later one instead. Returns whether the note
    /// is to be sent again, with a later time: an earlier process of the agent may have written the one
    /// that the store has, before the clock was set back.
    pub(crate) fn answered(&mut self, note: &ReadinessNote, answer: &PortResult<bool>) -> bool {
        let is_last = self.last_at == Some(note.at);
        self.unanswered.retain(|(at, _)| *at != note.at);
        match answer {
            Err(error) if is_refusal(error) => self.are_taken = false,
            Err(_) => self.may_have(note),
            Ok(is_taken) => {
                self.are_taken = true;
                match (is_last, is_taken) {
                    (true, true) => {
                        self.told = Some(note.readiness.clone());
                        (self.has_been_told, self.has_unknown) = (true, false);
                        // The store keeps the latest note.
                        self.unanswered.clear();
                        self.may_name.clear();
                        self.may_have(note);
                    }
                    (true, false) => {
                        self.has_unknown = true;
                        self.skipped = (self.skipped * 2).max(FIRST_SKIP);
                        self.last_at = Some(note.at + self.skipped);
                        return true;
                    }
                    // The answer to a later note tells what the store has.
                    (false, _) if self.told.is_none() => self.may_have(note),
                    (false, _) => {}
                }
            }
        }
        false
    }

    fn may_have(&mut self, note: &ReadinessNote) {
        if let Readiness::Ready(named) = &note.readiness
            && !self.may_name.contains(named)
        {
            self.may_name.push(named.clone());
        }
    }

    /// Whether the store takes notes, by its last answer. A policy may not know them.
    pub(crate) fn are_taken(&self) -> bool {
        self.are_taken
    }

    /// Whether the store has had a note of this process, and so none of an earlier one.
    pub(crate) fn has_been_told(&self) -> bool {
        self.has_been_told
    }

    /// Whether the store may have a note that calls the machine ready for another registration than this
    /// one, or for any if this is `None`.
    pub(crate) fn may_name_other(&self, than: Option<&IdleRegistration>) -> bool {
        let unanswered = self.unanswered.iter().map(|(_, named)| named);
        self.has_unknown || self.may_name.iter().chain(unanswered).any(|it| Some(it) != than)
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::machine_label::MachineLabel;
    use ondeck_core::model::readiness::IdleRegistration;
    use ondeck_core::ports::PortError;

    use super::*;

    fn ready() -> Readiness {
        let label = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
        Readiness::Ready(IdleRegistration { generation: 3, label, number: 9 })
    }

    fn lost() -> Readiness {
        Readiness::NotReady { since: at(1), why: "it died".to_owned() }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn out_of_reach() -> PortResult<bool> {
        Err(PortError::Unavailable { service: "store", reason: "timeout".to_owned() })
    }

    fn refused() -> PortResult<bool> {
        let (reason, hint) = ("denied".to_owned(), "check the policy".to_owned());
        Err(PortError::Unusable { service: "store", reason, hint })
    }

    #[test]
    fn a_note_whose_answer_is_lost_may_have_been_written_or_not() {
        let mut notes = Notes::default();
        let note = notes.send(ready(), at(1));
        assert!(!notes.answered(&note, &Ok(true)));
        assert_eq!(notes.untold(Some(&ready())), None);
        let note = notes.send(lost(), at(2));
        assert!(!notes.answered(&note, &out_of_reach()));
        assert!(notes.may_name_other(None));
        // It is ready again, as it was before.
        assert_eq!(notes.untold(Some(&ready())), Some(ready()));
        assert_eq!(notes.untold(Some(&lost())), Some(lost()));
    }

    #[test]
    fn a_late_answer_does_not_tell_what_the_store_has() {
        for late in [Ok(true), Ok(false), out_of_reach()] {
            let mut notes = Notes::default();
            let slow = notes.send(ready(), at(1));
            let quick = notes.send(lost(), at(1));
            assert!(quick.at > slow.at);
            assert!(!notes.answered(&quick, &Ok(true)));
            assert!(!notes.answered(&slow, &late));
            assert_eq!(notes.untold(Some(&lost())), None, "{late:?}");
            assert_eq!(notes.untold(Some(&ready())), Some(ready()), "{late:?}");
        }
    }

    #[test]
    fn the_store_may_name_an_earlier_registration_until_it_has_taken_a_note() {
        let [first, second] = [9, 10].map(|number| match ready() {
            Readiness::Ready(own) => IdleRegistration { number, ..own },
            Readiness::NotReady { .. } => unreachable!("it is ready"),
        });
        let mut notes = Notes::default();
        assert!(!notes.has_been_told());
        let note = notes.send(Readiness::Ready(first.clone()), at(1));
        assert!(!notes.answered(&note, &Ok(true)));
        assert!(notes.has_been_told() && !notes.may_name_other(Some(&first)));
        for second in [lost(), Readiness::Ready(second.clone())] {
            let note = notes.send(second, at(2));
            assert!(!notes.answered(&note, &out_of_reach()));
        }
        assert!(notes.may_name_other(Some(&first)) && notes.may_name_other(Some(&second)));
        let note = notes.send(Readiness::Ready(second.clone()), at(3));
        assert!(!notes.answered(&note, &Ok(true)));
        assert!(!notes.may_name_other(Some(&second)));
    }

    #[test]
    fn a_note_whose_caller_has_given_up_may_have_been_written() {
        let mut notes = Notes::default();
        let given_up = notes.send(ready(), at(1));
        assert!(notes.may_name_other(None));
        let note = notes.send(lost(), at(2));
        assert!(!notes.answered(&note, &out_of_reach()));
        assert!(notes.may_name_other(None), "the later one may not have been written");
        let note = notes.send(lost(), at(3));
        assert!(!notes.answered(&note, &Ok(true)));
        assert!(!notes.may_name_other(None), "the store keeps the later one");
        assert!(!notes.answered(&given_up, &Ok(false)));
        assert!(!notes.may_name_other(None));
    }

    #[test]
    fn a_note_is_sent_again_until_it_is_later_than_that_of_the_store() {
        let (mut notes, stored) = (Notes::default(), at(3_601));
        let mut sent = 1;
        let mut note = notes.send(lost(), at(1));
        while notes.answered(&note, &Ok(note.at >= stored)) {
            assert!(notes.may_name_other(None), "by an earlier process");
            sent += 1;
            note = notes.send(lost(), at(1));
        }
        assert_eq!((notes.untold(Some(&lost())), notes.may_name_other(None)), (None, false));
        assert_eq!(sent, 13, "the pace doubles");
        assert!(notes.send(ready(), at(2)).at > note.at);
    }

    #[test]
    fn only_a_note_that_was_refused_has_never_been_written() {
        let mut notes = Notes::default();
        let note = notes.send(ready(), at(1));
        assert!(!notes.answered(&note, &refused()));
        assert_eq!((notes.are_taken(), notes.may_name_other(None)), (false, false));
        let note = notes.send(ready(), at(2));
        assert!(!notes.answered(&note, &Ok(true)));
        let note = notes.send(lost(), at(3));
        assert!(!notes.answered(&note, &refused()));
        assert_eq!((notes.are_taken(), notes.may_name_other(None)), (false, true));
    }
}
