//! How it is decided what goes wrong: by dice that follow from the seed, by a script that names
//! one call, or not at all.

use std::sync::{Mutex, PoisonError};

use crate::fate::{Crash, Fate, Fault, Place, Rates, Spared};
use crate::kernel::{Micros, digest};

/// A service that answers nobody for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Which.
    pub service: &'static str,
    /// From when, in microseconds.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

/// One thing that goes wrong, at one call of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Whose call.
    pub process: String,
    /// Which of its calls, from 1.
    pub call: u32,
    /// What goes wrong.
    pub harm: Harm,
}

/// What can be done to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// It fails, and works when repeated.
    FailOnce,
    /// It fails however often it is repeated.
    FailForGood,
    /// Its answer is lost once.
    LoseAnswer,
    /// Its answers are lost however often it is repeated.
    LoseAnswers,
    /// It arrives twice.
    Repeat,
    /// It arrives after it was given up.
    ArriveLate,
    /// The process dies before it.
    DieBefore,
    /// The process dies after it.
    DieAfter,
}

impl Harm {
    /// Every one.
    pub const ALL: [Harm; 8] = [
        Harm::FailOnce,
        Harm::FailForGood,
        Harm::LoseAnswer,
        Harm::LoseAnswers,
        Harm::Repeat,
        Harm::ArriveLate,
        Harm::DieBefore,
        Harm::DieAfter,
    ];
}

/// What decides.
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
    pub(crate) script: Option<Script>,
    /// Whether agents are told of news, or must look for it.
    pub(crate) store_tells: bool,
    /// The calls that something befell, in order.
    pub(crate) struck: Mutex<Vec<Place>>,
}

impl Policy {
    /// The dice of one process: the same whatever others do.
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

    pub(crate) fn fate(
        &self,
        (process, number): (&str, u32),
        service: &str,
        now: Micros,
        chance: &mut fastrand::Rng,
    ) -> Fate {
        // One roll a call, so that sparing one fault does not shift the others.
        let mut own = fastrand::Rng::with_seed(chance.u64(..));
        let latency = self.rates.latency.max(1);
        let sound = Fate::sound(own.u64(0..latency), own.u64(0..latency));
        if let Some(script) = &self.script {
            return script.fate(process, number, sound, &mut own);
        }
        if now >= self.calm_at {
            return sound;
        }
        let is_out =
            |outage: &Outage| outage.service == service && (outage.from..outage.to).contains(&now);
        if self.outages.iter().any(is_out) {
            return sound.with(Fault::Throttled, &mut own);
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

impl Script {
    fn fate(&self, process: &str, number: u32, sound: Fate, own: &mut fastrand::Rng) -> Fate {
        if process != self.process || number < self.call {
            return sound;
        }
        let lasting = matches!(self.harm, Harm::FailForGood | Harm::LoseAnswers);
        if number > self.call && !(lasting && number < self.call + 12) {
            return sound;
        }
        match self.harm {
            Harm::FailOnce | Harm::FailForGood => sound.with(Fault::Throttled, own),
            Harm::LoseAnswer | Harm::LoseAnswers => sound.with(Fault::AnswerLost, own),
            Harm::Repeat => sound.with(Fault::ArrivedTwice, own),
            Harm::ArriveLate => sound.with(Fault::ArrivedLate, own),
            Harm::DieBefore => sound.deadly(Crash::Before),
            Harm::DieAfter => sound.deadly(Crash::After),
        }
    }
}
