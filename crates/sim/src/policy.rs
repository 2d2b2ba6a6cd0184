//! Decides which faults are injected: at random, derived from the seed; or by script,
//! into one named call.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::runtime::retry::Retry;

use crate::faults::{CallBehaviour, CallSite, CrashPoint, Fault, Rates, SkippedFaults};
use crate::kernel::{Micros, digest};
use crate::wake_ups::{Deliveries, WakeUpFaults};

/// A service that answers no caller for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The service: `store`, `pool`, `compute` or `forge`.
    pub service: &'static str,
    /// The beginning, in microseconds.
    pub from: u64,
    /// The end, in microseconds.
    pub to: u64,
}

/// A fault that is injected into one call of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedFault {
    /// The full name of a process (`release 1#3`), or its name without the number (`release 1`),
    /// which selects every process of that kind.
    pub process: String,
    pub selector: CallSelector,
    pub fault: CallFault,
}

/// Selects a call of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallSelector {
    /// The call with this number, from 1.
    Call(u32),
    /// The first call whose words begin like this.
    First(&'static str),
}

/// The faults that can be injected into one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallFault {
    /// The call fails once; repeating it works.
    FailOnce,
    /// The call fails however often it is repeated.
    FailForGood,
    /// The answer is lost once.
    LoseAnswer,
    /// The answer is lost however often the call is repeated.
    LoseAnswers,
    /// The request arrives twice.
    Repeat,
    /// The request arrives after the caller has stopped waiting.
    ArriveLate,
    /// The process dies before the call has its effect.
    DieBefore,
    /// The process dies after the call has had its effect.
    DieAfter,
}

impl CallFault {
    /// All faults, each of them once.
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

    /// The name of the fault on the command line.
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

    /// Whether the fault is injected again when the caller repeats the call.
    fn lasts(self) -> bool {
        matches!(self, CallFault::FailForGood | CallFault::LoseAnswers)
    }
}

/// A call for which the policy decides the behaviour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    pub(crate) process: &'a str,
    /// The number of the call within its process, from 1.
    pub(crate) number: u32,
    pub(crate) service: &'static str,
    /// The name and text of the request; empty unless [`Policy::needs_words`] asks for it.
    pub(crate) words: &'a str,
}

/// Decides how each call behaves, and which other faults are injected.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    pub(crate) seed: u64,
    pub(crate) rates: Rates,
    /// The rates of faults that do not concern a single call, in thousandths.
    pub(crate) other_faults: Vec<(Fault, u32)>,
    pub(crate) outages: Vec<Outage>,
    /// No fault is injected from this time on.
    pub(crate) faults_end_at: Micros,
    /// How much later the store's index shows a write at most.
    pub(crate) index_lag: Micros,
    /// How much later the provider lists a new machine at most.
    pub(crate) listing_lag: Micros,
    /// Whether the forge lists waiting jobs together with the open runs.
    pub(crate) lists_waiting_jobs: bool,
    pub(crate) skipped_faults: SkippedFaults,
    pub(crate) scripts: Vec<ScriptedFaultState>,
    /// Whether every call takes the same time instead of a random one.
    pub(crate) fixed_durations: bool,
    /// The name of the process whose calls are recorded in `watched_calls`.
    pub(crate) watched: Option<String>,
    pub(crate) watched_calls: Mutex<Vec<String>>,
    /// Whether no random fault is injected into the calls of agents.
    pub(crate) agents_spared: bool,
    /// How long credentials are valid.
    pub(crate) token_life: Duration,
    /// Whether the store notifies agents of changes, instead of being polled.
    pub(crate) store_notifies: bool,
    /// How agents are woken; `None` if they are not.
    pub(crate) wake_ups: Option<WakeUpFaults>,
    /// The calls into which a fault was injected at random, in order.
    pub(crate) faulty_calls: Mutex<Vec<CallSite>>,
}

impl Policy {
    /// Returns the random source of one process, which is independent of all other processes.
    pub(crate) fn random_for(&self, name: &str) -> fastrand::Rng {
        fastrand::Rng::with_seed(digest(&[&self.seed, &name]))
    }

    pub(crate) fn store_notifies(&self) -> bool {
        self.store_notifies
    }

    /// Whether agents are woken, and cannot hear it now.
    pub(crate) fn wake_ups_are_unheard(&self, now: Micros) -> bool {
        let is_unheard = |faults: &WakeUpFaults| faults.are_unheard(now);
        now < self.faults_end_at && self.wake_ups.as_ref().is_some_and(is_unheard)
    }

    /// What becomes of a wake-up of this machine that is sent now. The decision is derived from both, so that
    /// it does not depend on other draws.
    pub(crate) fn deliveries(&self, machine: &str, now: Micros) -> Deliveries {
        let seed = digest(&[&self.seed, &"wake-up", &machine, &now]);
        let mut random = fastrand::Rng::with_seed(seed);
        let sound = WakeUpFaults::default();
        match &self.wake_ups {
            None => Deliveries::default(),
            Some(faults) => {
                let faults = if now < self.faults_end_at { faults } else { &sound };
                faults.deliveries(self.rates.latency, &mut random)
            }
        }
    }

    /// Draws whether a fault that does not concern a single call is injected now.
    pub(crate) fn injects(&self, fault: Fault, now: Micros, random: &mut fastrand::Rng) -> bool {
        let drawn = random.u32(0..1000);
        let rate =
            self.other_faults.iter().find(|(known, _)| *known == fault).map_or(0, |(_, r)| *r);
        now < self.faults_end_at && drawn < rate
    }

    /// How much later the index shows the write with this number of the item with this name. The
    /// decision is derived from both, so that it does not depend on other draws.
    pub(crate) fn index_lag(&self, item: &str, write: u64, now: Micros) -> Micros {
        match now < self.faults_end_at {
            true => digest(&[&self.seed, &"lag", &item, &write]) % (self.index_lag + 1),
            false => 0,
        }
    }

    /// How much later the provider lists this machine.
    pub(crate) fn machine_lag(&self, machine: &str) -> Micros {
        digest(&[&self.seed, &"listing", &machine]) % (self.listing_lag + 1)
    }

    /// Whether the words of this process's calls are needed, to record or select them.
    pub(crate) fn needs_words(&self, process: &str) -> bool {
        self.watched.as_deref() == Some(process)
            || self.scripts.iter().any(|scripted| scripted.script.concerns(process))
    }

    /// Decides the behaviour of a call.
    pub(crate) fn behaviour(
        &self,
        request: CallRequest<'_>,
        now: Micros,
        random: &mut fastrand::Rng,
    ) -> CallBehaviour {
        let CallRequest { process, number, service, words } = request;
        if self.watched.as_deref() == Some(process) {
            self.watched_calls
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(words.to_owned());
        }
        // Exactly one draw from the process's source for each call, so that skipping one fault does
        // not change the others.
        let mut own = fastrand::Rng::with_seed(random.u64(..));
        let latency = self.rates.latency.max(1);
        let sound = match self.fixed_durations {
            true => CallBehaviour::sound(latency / 2, latency / 2),
            false => CallBehaviour::sound(own.u64(0..latency), own.u64(0..latency)),
        };
        let scripted = self.scripts.iter().find(|scripted| scripted.applies_to(request, now));
        if let Some(scripted) = scripted {
            return scripted.script.fault.apply_to(sound, &mut own);
        }
        if now >= self.faults_end_at {
            return sound;
        }
        let is_out =
            |outage: &Outage| outage.service == service && (outage.from..outage.to).contains(&now);
        if self.outages.iter().any(is_out) {
            return sound.with(Fault::Outage, &mut own);
        }
        if self.agents_spared && process.starts_with("agent ") {
            return sound;
        }
        let mut drawn = own.u32(0..1000);
        let call: CallSite = (process.to_owned(), number);
        for (fault, rate) in &self.rates.calls {
            if drawn < *rate {
                if self.skipped_faults.contains(&call) {
                    return sound;
                }
                self.faulty_calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
                return sound.with(*fault, &mut own);
            }
            drawn -= rate;
        }
        sound
    }
}

/// How long a lasting fault is injected into the calls of an agent, which retries
/// for ever. In microseconds.
const LASTING: Micros = 60_000_000;

/// A scripted fault, and the call that it was injected into.
#[derive(Debug)]
pub(crate) struct ScriptedFaultState {
    script: ScriptedFault,
    injected: Mutex<Option<FaultyCall>>,
}

/// The call that a scripted fault was injected into, and how often.
#[derive(Debug)]
struct FaultyCall {
    words: String,
    at: Micros,
    times: u32,
}

impl ScriptedFault {
    fn concerns(&self, process: &str) -> bool {
        let purpose = process.rsplit_once('#').map_or(process, |(purpose, _)| purpose);
        self.process == process || self.process == purpose
    }
}

impl ScriptedFaultState {
    pub(crate) fn new(script: &ScriptedFault) -> ScriptedFaultState {
        ScriptedFaultState { script: script.clone(), injected: Mutex::default() }
    }

    /// Whether the fault is injected into this call. A repetition of the selected call is
    /// recognised by its words, because the process may make other calls in between.
    fn applies_to(&self, request: CallRequest<'_>, now: Micros) -> bool {
        let ScriptedFault { process, selector, fault } = &self.script;
        if !self.script.concerns(request.process) {
            return false;
        }
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = &mut *injected else {
            let selected = match selector {
                CallSelector::Call(number) => request.number == *number,
                CallSelector::First(words) => request.words.starts_with(words),
            };
            if selected {
                *injected = Some(FaultyCall { words: request.words.to_owned(), at: now, times: 1 });
            }
            return selected;
        };
        let lasts = match process.starts_with("agent ") {
            true => now < first.at + LASTING,
            false => first.times < Retry::SHORT.attempts,
        };
        let again = fault.lasts() && lasts && first.words == request.words;
        first.times += u32::from(again);
        again
    }
}

impl CallFault {
    fn apply_to(self, sound: CallBehaviour, own: &mut fastrand::Rng) -> CallBehaviour {
        match self {
            CallFault::FailOnce | CallFault::FailForGood => sound.with(Fault::Throttled, own),
            CallFault::LoseAnswer | CallFault::LoseAnswers => sound.with(Fault::AnswerLost, own),
            CallFault::Repeat => sound.with(Fault::ArrivedTwice, own),
            CallFault::ArriveLate => sound.with(Fault::ArrivedLate, own),
            CallFault::DieBefore => sound.with_crash(CrashPoint::Before),
            CallFault::DieAfter => sound.with_crash(CrashPoint::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(process: &'a str, number: u32, words: &'a str) -> CallRequest<'a> {
        CallRequest { process, number, service: "store", words }
    }

    fn scripted(process: &str, selector: CallSelector, fault: CallFault) -> ScriptedFaultState {
        ScriptedFaultState::new(&ScriptedFault { process: process.to_owned(), selector, fault })
    }

    #[test]
    fn a_lasting_fault_outlasts_the_retries_of_a_mode() {
        let scripted = scripted("release 1#3", CallSelector::Call(2), CallFault::FailForGood);
        assert!(!scripted.applies_to(request("release 1#3", 1, "settings"), 0));
        assert!(!scripted.applies_to(request("release 2#4", 2, "send i-1"), 0));
        let mut number = 2;
        for _ in 0..Retry::SHORT.attempts {
            assert!(scripted.applies_to(request("release 1#3", number, "send i-1"), 0));
            assert!(
                !scripted.applies_to(request("release 1#3", number + 1, "agent status i-2"), 0)
            );
            number += 2;
        }
        assert!(!scripted.applies_to(request("release 1#3", number, "send i-1"), 0));
    }

    #[test]
    fn a_call_is_selected_by_its_number_or_its_words() {
        let once = scripted("refresh#1", CallSelector::Call(1), CallFault::FailOnce);
        assert!(once.applies_to(request("refresh#1", 1, "list"), 0));
        assert!(!once.applies_to(request("refresh#1", 2, "list"), 0));
        let first = scripted("release 1", CallSelector::First("write"), CallFault::DieAfter);
        assert!(!first.applies_to(request("release 1#5", 1, "settings"), 0));
        assert!(!first.applies_to(request("release 10#6", 1, "write release i-1"), 0));
        assert!(first.applies_to(request("release 1#5", 2, "write release i-1"), 0));
        assert!(!first.applies_to(request("release 1#7", 2, "write release i-1"), 0));
    }

    #[test]
    fn a_lasting_fault_ends_for_an_agent() {
        let scripted = scripted("agent i-1#1", CallSelector::Call(1), CallFault::LoseAnswers);
        assert!(scripted.applies_to(request("agent i-1#1", 1, "beat"), 10));
        for number in 2..40 {
            assert!(scripted.applies_to(request("agent i-1#1", number, "beat"), LASTING));
        }
        assert!(!scripted.applies_to(request("agent i-1#1", 40, "record"), LASTING));
        assert!(!scripted.applies_to(request("agent i-1#1", 41, "beat"), LASTING + 10));
    }
}
