//! What a history consists of, as it follows from a seed: who does what and when, and what goes
//! wrong.

use std::collections::{BTreeMap, BTreeSet};

use crate::faults::{Fault, Rates, Spared};
use crate::kernel::{Micros, digest};
use crate::policy::{CallFault, Outage, Policy, Script, Scripted};

/// One second of virtual time, in microseconds.
pub(crate) const SECOND: Micros = 1_000_000;

/// One action that happens at its time, independently of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A run asks for machines.
    Provision {
        /// The run that asks.
        run: String,
        /// How many machines it asks for.
        count: u32,
    },
    /// The provision of a run is told to stop.
    Stop {
        /// The run whose provision stops.
        run: String,
    },
    /// A run gives its machines back.
    Release {
        /// The run that releases its machines.
        run: String,
    },
    /// Jobs of a run are run again, and no process provisions for them.
    Rerun {
        /// The run whose jobs start again.
        run: String,
    },
    /// The scheduled refresh runs, with no new settings.
    Refresh,
    /// The operator refreshes and gives a setting, by name and value.
    RefreshWith(&'static str, &'static str),
    /// A machine is gone. Which one, counts among those that live then.
    Kill(usize),
    /// An agent stands still, for so many microseconds.
    Hang(usize, u64),
    /// An agent's heartbeats do not arrive, for so many microseconds.
    StopHeart(usize, u64),
    /// The operator gives a running machine to another run by hand.
    Reassign(usize),
}

/// What happens in one history, as it follows from a seed.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Where it comes from.
    pub seed: u64,
    /// What refresh is given.
    pub settings: BTreeMap<String, String>,
    /// What happens, at which microsecond.
    pub deeds: Vec<(u64, Action)>,
    /// How calls go wrong.
    pub rates: Rates,
    /// How often other things go wrong, in thousandths of the occasions.
    pub mishaps: Vec<(Fault, u32)>,
    /// Which services go away.
    pub outages: Vec<Outage>,
    /// How far ahead a clock may be, in milliseconds.
    pub skew: u64,
    /// From when on nothing goes wrong, in microseconds.
    pub calm_at: u64,
    /// Whether refresh runs on after that, before the last.
    pub tended: bool,
    /// Whether refresh has not run for hours when it does at last.
    pub neglected: bool,
    /// Whether some runs want machines that others have no use for.
    pub picky: bool,
    /// Whether agents are told of news, or must look for it.
    pub store_tells: bool,
    /// Single calls that go wrong, and how.
    pub scripts: Vec<Script>,
    /// Whether everything takes as long as it usually does, and nothing is left to dice.
    pub steady: bool,
    /// A process whose calls and whose end are written down, by name.
    pub watched: Option<String>,
    /// The most machines that the provider has at once, until nothing goes wrong any more.
    pub capacity: Option<usize>,
    /// Which machines never come up, in the order of their launches from 1, until then.
    pub stillborn: BTreeSet<u64>,
    /// Faults of calls that are left out.
    pub spared: Spared,
}

impl Plan {
    /// The history of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed_0f0d_ec4a_11ed);
        let calm_at = random.u64(300..700) * SECOND;
        let mut plan = Plan {
            seed,
            settings: settings(&mut random),
            rates: Rates {
                calls: Vec::new(),
                latency: [2_000, 40_000, 300_000][random.usize(0..3)],
            },
            calm_at,
            tended: random.bool(),
            store_tells: random.bool(),
            ..Plan::default()
        };
        plan.runs(&mut random);
        plan.cron(&mut random);
        match seed % 8 {
            0 => {}
            // As much as costs no machine: the healthy three periods of a heart, less one.
            1 => plan.skew = 8_000,
            2 => plan.reassign(&mut random),
            3 => {
                plan.go_wrong(&mut random);
                plan.rush(&mut random);
            }
            _ => plan.go_wrong(&mut random),
        }
        plan.picky = digest(&[&seed, &"picky"]).is_multiple_of(3);
        plan.deeds.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Whether nothing goes wrong in it.
    pub fn is_clear(&self) -> bool {
        self.rates.calls.is_empty()
            && self.mishaps.is_empty()
            && self.outages.is_empty()
            && self.scripts.is_empty()
            && self.capacity.is_none()
            && self.stillborn.is_empty()
            && self.deeds.iter().all(|(_, deed)| {
                matches!(deed, Action::Provision { .. } | Action::Release { .. } | Action::Refresh)
            })
    }

    /// Whether requests may arrive after they were given up.
    pub(crate) fn is_late(&self) -> bool {
        self.rates.calls.iter().any(|(fault, _)| *fault == Fault::ArrivedLate)
            || self.scripts.iter().any(|script| script.harm == CallFault::ArriveLate)
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            seed: self.seed,
            rates: self.rates.clone(),
            mishaps: self.mishaps.clone(),
            outages: self.outages.clone(),
            calm_at: self.calm_at,
            spared: self.spared.clone(),
            scripts: self.scripts.iter().map(Scripted::new).collect(),
            steady: self.steady,
            watched: self.watched.clone(),
            store_tells: self.store_tells,
            ..Policy::default()
        }
    }

    fn runs(&mut self, random: &mut fastrand::Rng) {
        for run in 1..=random.u32(2..6) {
            let at = random.u64(5..self.calm_at / SECOND / 2) * SECOND;
            let deed = Action::Provision { run: run.to_string(), count: random.u32(1..4) };
            self.deeds.push((at, deed));
        }
    }

    /// Many runs within a few minutes, so that some ask while others leave.
    fn rush(&mut self, random: &mut fastrand::Rng) {
        self.settings.insert("idle-time-sec".to_owned(), "200".to_owned());
        for run in 10..22 {
            let at = random.u64(60 * SECOND..240 * SECOND);
            let deed = Action::Provision { run: run.to_string(), count: random.u32(1..3) };
            self.deeds.push((at, deed));
        }
    }

    fn cron(&mut self, random: &mut fastrand::Rng) {
        let period = [45, 90, 200][random.usize(0..3)] * SECOND;
        let mut at = period;
        while at < self.calm_at {
            self.deeds.push((at, Action::Refresh));
            at += period;
        }
    }

    fn reassign(&mut self, random: &mut fastrand::Rng) {
        self.mishaps.push((Fault::Reassigned, 0));
        let at = random.u64(60..self.calm_at / SECOND) * SECOND;
        self.deeds.push((at, Action::Reassign(random.usize(0..4))));
    }

    fn go_wrong(&mut self, random: &mut fastrand::Rng) {
        // Few kinds at once, so that each has histories in which it is not drowned by others.
        for fault in [
            Fault::Throttled,
            Fault::RequestLost,
            Fault::AnswerLost,
            Fault::ArrivedLate,
            Fault::ArrivedTwice,
            Fault::Slow,
        ] {
            if random.u8(0..3) == 0 {
                self.rates.calls.push((fault, [4, 15, 60][random.usize(0..3)]));
            }
        }
        for (fault, rate) in [
            (Fault::Crash, 350),
            (Fault::AgentCrash, 300),
            (Fault::FalselyEmpty, 150),
            (Fault::TicketTwice, 200),
            (Fault::Reordered, 400),
            (Fault::NoCapacity, 250),
            (Fault::NeverBoots, 150),
            (Fault::RunnerFails, 20),
            (Fault::RunnerDies, 60),
            (Fault::SpotNotice, 150),
            (Fault::NeverReleased, 200),
        ] {
            if random.u8(0..3) == 0 {
                self.mishaps.push((fault, rate));
            }
        }
        if random.bool() {
            self.skew = random.u64(1_000..=10_000);
        }
        // So often that now and then even the last order of a launch meets it.
        if digest(&[&self.seed, &"busy"]).is_multiple_of(3) {
            self.mishaps.push((Fault::Busy, 800));
        }
        self.disturb(random);
    }

    fn disturb(&mut self, random: &mut fastrand::Rng) {
        let last = self.calm_at / SECOND;
        for _ in 0..random.u32(0..3) {
            let run = random.u32(1..4).to_string();
            let at = random.u64(5..last) * SECOND + random.u64(0..SECOND);
            let deed = match random.u8(0..4) {
                0 => Action::Stop { run },
                1 => Action::Release { run },
                2 => Action::Rerun { run },
                _ => Action::Provision { run, count: random.u32(1..4) },
            };
            self.deeds.push((at, deed));
        }
        for _ in 0..random.u32(0..4) {
            let at = random.u64(20..last) * SECOND + random.u64(0..SECOND);
            let (nth, span) = (random.usize(0..6), random.u64(1..120) * SECOND);
            let deed = match random.u8(0..3) {
                0 => Action::Kill(nth),
                1 => Action::Hang(nth, span),
                _ => Action::StopHeart(nth, span),
            };
            self.deeds.push((at, deed));
        }
        if random.u8(0..4) == 0 {
            let service = ["store", "pool", "compute", "forge"][random.usize(0..4)];
            let from = random.u64(10..last) * SECOND;
            let to = from + random.u64(1..90) * SECOND;
            self.outages.push(Outage { service, from, to });
        }
        match random.u8(0..4) {
            0 => {
                self.neglected = true;
                self.deeds.retain(|(_, deed)| *deed != Action::Refresh);
            }
            1 => {
                let again = self.deeds.iter().filter(|(_, deed)| *deed == Action::Refresh).cloned();
                let again: Vec<(u64, Action)> = again.collect();
                self.deeds.extend(again);
            }
            _ => {}
        }
    }
}

fn settings(random: &mut fastrand::Rng) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: &str| settings.insert(name.to_owned(), value.to_owned());
    set("claim-timeout-sec", "120");
    set("created-timeout-sec", "240");
    set("validation-timeout-sec", "90");
    set("idle-time-sec", ["20", "90", "200"][random.usize(0..3)]);
    set("max-runtime-min", ["3", "8"][random.usize(0..2)]);
    set("release-timeout-sec", "40");
    set("self-termination-grace-sec", "30");
    set("boot-deadline-sec", "90");
    set("agent-poll-waiting-sec", ["0.25", "1"][random.usize(0..2)]);
    set("agent-poll-running-sec", "1.5");
    set("signal-poll-sec", ["0.05", "0.3"][random.usize(0..2)]);
    set("retention-min", "10");
    if random.u8(0..6) == 0 {
        set("min-idle", "large=1");
    }
    settings
}
