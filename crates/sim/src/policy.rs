//! How it is decided what goes wrong: by dice that follow from the seed, by scripts that name
//! single calls, or not at all.

use std::sync::{Mutex, PoisonError};

use ondeck_core::runtime::retry::Retry;

use crate::faults::{Crash, Fault, FaultSource, Place, Rates, Spared};
use crate::kernel::{Micros, digest};

/// A service that answers no caller for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The service, by the name that calls give.
    pub service: &'static str,
    /// From when, in microseconds.
    pub from: u64,
    /// Until when, in microseconds.
    pub to: u64,
}

/// One thing that goes wrong, at one call of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Whose call: a process by its name, or all that are there for the same thing.
    pub process: String,
    /// Which of its calls.
    pub aim: Aim,
    /// What is done to that call.
    pub harm: CallFault,
}

/// Which call of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Its how many-th, from 1.
    Call(u32),
    /// The first that begins with these words.
    First(&'static str),
}

/// What can be done to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallFault {
    /// It fails, and works when repeated.
    FailOnce,
    /// It fails however often it is repeated.
    FailForGood,
    /// Its answer is lost once.
    LoseAnswer,
    /// Its answers are lost however often it is repeated.
    LoseAnswers,
    /// Its request arrives twice.
    Repeat,
    /// It arrives after it was given up.
    ArriveLate,
    /// The process dies before it.
    DieBefore,
    /// The process dies after it.
    DieAfter,
}

impl CallFault {
    /// All harms, each of them once.
    pub const ALL: [CallFault; 8] = [
        CallFault::FailOnce,
        CallFault::FailForGood,
        CallFault::LoseAnswer,
        CallFault::LoseAnswers,
        CallFault::Repeat,
        CallFault::ArriveLate,
        CallFault::DieBefore,
        CallFault::DieAfter,
    ];

    /// As one says it on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            CallFault::FailOnce => "fail-once",
            CallFault::FailForGood => "fail-for-good",
            CallFault::LoseAnswer => "lose-answer",
            CallFault::LoseAnswers => "lose-answers",
            CallFault::Repeat => "repeat",
            CallFault::ArriveLate => "arrive-late",
            CallFault::DieBefore => "die-before",
            CallFault::DieAfter => "die-after",
        }
    }

    /// Whether a caller that repeats the call meets it again.
    fn lasts(self) -> bool {
        matches!(self, CallFault::FailForGood | CallFault::LoseAnswers)
    }
}

/// A call, before anything becomes of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) process: &'a str,
    /// The process's how many-th.
    pub(crate) number: u32,
    pub(crate) service: &'static str,
    /// What it asks; empty if the policy neither watches nor harms its process.
    pub(crate) words: &'a str,
}

/// Decides what becomes of each call.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    pub(crate) seed: u64,
    pub(crate) rates: Rates,
    /// How often things go wrong that are not about a call as such, in thousandths.
    pub(crate) mishaps: Vec<(Fault, u32)>,
    pub(crate) outages: Vec<Outage>,
    /// From then on nothing goes wrong.
    pub(crate) calm_at: Micros,
    pub(crate) spared: Spared,
    pub(crate) scripts: Vec<Scripted>,
    /// Whether everything takes as long as it usually does.
    pub(crate) steady: bool,
    /// The process whose calls are written down, and what they were.
    pub(crate) watched: Option<String>,
    pub(crate) asked: Mutex<Vec<String>>,
    /// Whether agents are told of news, or must look for it.
    pub(crate) store_tells: bool,
    /// The calls that something befell, in order.
    pub(crate) struck: Mutex<Vec<Place>>,
}

impl Policy {
    /// The random source of one process, which does not depend on what other processes do.
    pub(crate) fn chance(&self, name: &str) -> fastrand::Rng {
        fastrand::Rng::with_seed(digest(&[&self.seed, &name]))
    }

    pub(crate) fn store_tells(&self) -> bool {
        self.store_tells
    }

    pub(crate) fn befalls(&self, fault: Fault, now: Micros, chance: &mut fastrand::Rng) -> bool {
        let roll = chance.u32(0..1000);
        let rate = self.mishaps.iter().find(|(known, _)| *known == fault).map_or(0, |(_, r)| *r);
        now < self.calm_at && roll < rate
    }

    /// Whether it matters what this process asks, and not only how often.
    pub(crate) fn minds(&self, process: &str) -> bool {
        self.watched.as_deref() == Some(process)
            || self.scripts.iter().any(|scripted| scripted.script.is_about(process))
    }

    pub(crate) fn fate(
        &self,
        asked: Asked<'_>,
        now: Micros,
        chance: &mut fastrand::Rng,
    ) -> FaultSource {
        let Asked { process, number, service, words } = asked;
        if self.watched.as_deref() == Some(process) {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(words.to_owned());
        }
        // One roll a call, so that sparing one fault does not shift the others.
        let mut own = fastrand::Rng::with_seed(chance.u64(..));
        let latency = self.rates.latency.max(1);
        let sound = match self.steady {
            true => FaultSource::sound(latency / 2, latency / 2),
            false => FaultSource::sound(own.u64(0..latency), own.u64(0..latency)),
        };
        let scripted = self.scripts.iter().find(|scripted| scripted.strikes(asked, now));
        if let Some(scripted) = scripted {
            return scripted.script.harm.done_to(sound, &mut own);
        }
        if now >= self.calm_at {
            return sound;
        }
        let is_out =
            |outage: &Outage| outage.service == service && (outage.from..outage.to).contains(&now);
        if self.outages.iter().any(is_out) {
            return sound.with(Fault::Outage, &mut own);
        }
        let mut roll = own.u32(0..1000);
        let place: Place = (process.to_owned(), number);
        for (fault, rate) in &self.rates.calls {
            if roll < *rate {
                if self.spared.contains(&place) {
                    return sound;
                }
                self.struck.lock().unwrap_or_else(PoisonError::into_inner).push(place);
                return sound.with(*fault, &mut own);
            }
            roll -= rate;
        }
        sound
    }
}

/// How long an agent, which never gives up, meets a lasting harm, in microseconds.
const LASTING: Micros = 60_000_000;

/// A script, and how far it has come.
#[derive(Debug)]
pub(crate) struct Scripted {
    script: Script,
    struck: Mutex<Option<Struck>>,
}

/// The call that a script has struck.
#[derive(Debug)]
struct Struck {
    words: String,
    at: Micros,
    times: u32,
}

impl Script {
    fn is_about(&self, process: &str) -> bool {
        let purpose = process.rsplit_once('#').map_or(process, |(purpose, _)| purpose);
        self.process == process || self.process == purpose
    }
}

impl Scripted {
    pub(crate) fn new(script: &Script) -> Scripted {
        Scripted { script: script.clone(), struck: Mutex::default() }
    }

    /// A call that was struck is known by its words when it is repeated, since others of the same
    /// process may come in between.
    fn strikes(&self, asked: Asked<'_>, now: Micros) -> bool {
        let Script { process, aim, harm } = &self.script;
        if !self.script.is_about(asked.process) {
            return false;
        }
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(struck) = &mut *struck else {
            let hit = match aim {
                Aim::Call(number) => asked.number == *number,
                Aim::First(words) => asked.words.starts_with(words),
            };
            if hit {
                *struck = Some(Struck { words: asked.words.to_owned(), at: now, times: 1 });
            }
            return hit;
        };
        let lasts = match process.starts_with("agent ") {
            true => now < struck.at + LASTING,
            false => struck.times < Retry::SHORT.attempts,
        };
        let again = harm.lasts() && lasts && struck.words == asked.words;
        struck.times += u32::from(again);
        again
    }
}

impl CallFault {
    fn done_to(self, sound: FaultSource, own: &mut fastrand::Rng) -> FaultSource {
        match self {
            CallFault::FailOnce | CallFault::FailForGood => sound.with(Fault::Throttled, own),
            CallFault::LoseAnswer | CallFault::LoseAnswers => sound.with(Fault::AnswerLost, own),
            CallFault::Repeat => sound.with(Fault::ArrivedTwice, own),
            CallFault::ArriveLate => sound.with(Fault::ArrivedLate, own),
            CallFault::DieBefore => sound.deadly(Crash::Before),
            CallFault::DieAfter => sound.deadly(Crash::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(process: &'a str, number: u32, words: &'a str) -> Asked<'a> {
        Asked { process, number, service: "store", words }
    }

    fn scripted(process: &str, aim: Aim, harm: CallFault) -> Scripted {
        Scripted::new(&Script { process: process.to_owned(), aim, harm })
    }

    #[test]
    fn what_fails_for_good_fails_for_as_many_attempts_as_a_mode_makes() {
        let scripted = scripted("release 1#3", Aim::Call(2), CallFault::FailForGood);
        assert!(!scripted.strikes(asked("release 1#3", 1, "settings"), 0));
        assert!(!scripted.strikes(asked("release 2#4", 2, "send i-1"), 0));
        let mut number = 2;
        for _ in 0..Retry::SHORT.attempts {
            assert!(scripted.strikes(asked("release 1#3", number, "send i-1"), 0));
            assert!(!scripted.strikes(asked("release 1#3", number + 1, "signs i-2"), 0));
            number += 2;
        }
        assert!(!scripted.strikes(asked("release 1#3", number, "send i-1"), 0));
    }

    #[test]
    fn what_fails_once_is_known_by_its_number_or_its_words() {
        let once = scripted("refresh#1", Aim::Call(1), CallFault::FailOnce);
        assert!(once.strikes(asked("refresh#1", 1, "list"), 0));
        assert!(!once.strikes(asked("refresh#1", 2, "list"), 0));
        let first = scripted("release 1", Aim::First("write"), CallFault::DieAfter);
        assert!(!first.strikes(asked("release 1#5", 1, "settings"), 0));
        assert!(!first.strikes(asked("release 10#6", 1, "write release i-1"), 0));
        assert!(first.strikes(asked("release 1#5", 2, "write release i-1"), 0));
        assert!(!first.strikes(asked("release 1#7", 2, "write release i-1"), 0));
    }

    #[test]
    fn an_agent_meets_a_lasting_harm_for_a_while() {
        let scripted = scripted("agent i-1#1", Aim::Call(1), CallFault::LoseAnswers);
        assert!(scripted.strikes(asked("agent i-1#1", 1, "beat"), 10));
        for number in 2..40 {
            assert!(scripted.strikes(asked("agent i-1#1", number, "beat"), LASTING));
        }
        assert!(!scripted.strikes(asked("agent i-1#1", 40, "record"), LASTING));
        assert!(!scripted.strikes(asked("agent i-1#1", 41, "beat"), LASTING + 10));
    }
}
