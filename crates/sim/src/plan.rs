//! The plan of a history, derived from a seed: which actions happen when, and
//! which faults are injected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::faults::{Fault, Rates, SkippedFaults};
use crate::kernel::{Micros, digest};
use crate::policy::{CallFault, Outage, Policy, ScriptedFault, ScriptedFaultState};

/// One second of virtual time, in microseconds.
pub(crate) const SECOND: Micros = 1_000_000;

/// The setting of the grace, in seconds.
const GRACE: &str = "self-termination-grace-sec";

/// DynamoDB's indexes follow within a second as a rule, and much later under load.
const LONGEST_INDEX_LAG: Micros = 30 * SECOND;

/// One step of a history that happens at a planned time, independently of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A run provisions machines.
    Provision { run: String, count: u32 },
    /// The provision of a run is told to stop.
    Stop { run: String },
    /// A run releases its machines.
    Release { run: String },
    /// Jobs of a run are re-run without a provision.
    Rerun { run: String },
    /// The scheduled refresh runs, with no new settings.
    Refresh,
    /// The operator runs refresh with a setting: its name and value.
    RefreshWith(&'static str, &'static str),
    /// A machine disappears. The number selects one of those that are alive then.
    Kill(usize),
    /// The agent of a machine, selected like that, is frozen for this many microseconds.
    Hang(usize, u64),
    /// The heartbeats of a machine, selected like that, do not arrive for this many microseconds.
    StopHeartbeats(usize, u64),
    /// The operator edits the record of a running machine so that it belongs to another run.
    Reassign(usize),
}

/// Everything that determines one history.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The settings that the first refresh writes.
    pub settings: BTreeMap<String, String>,
    /// The actions, each with its time in microseconds.
    pub actions: Vec<(u64, Action)>,
    /// The rates of faults in calls.
    pub rates: Rates,
    /// The rates of faults that do not concern a single call, in thousandths of the occasions.
    pub other_faults: Vec<(Fault, u32)>,
    /// Services that are unavailable for a while.
    pub outages: Vec<Outage>,
    /// How far ahead a clock may be, in milliseconds.
    pub skew: u64,
    /// How much later the store's index shows a write at most, in microseconds.
    pub index_lag: u64,
    /// No fault is injected from this time on, in microseconds.
    pub faults_end_at: u64,
    /// Whether a refresh runs after that and before the next provision.
    pub refreshed_after_faults: bool,
    /// Whether no refresh runs for hours before the last ones.
    pub no_refresh_for_hours: bool,
    /// Whether some runs want spot machines and others on-demand ones.
    pub mixed_usage: bool,
    /// Whether the store notifies agents of changes, instead of being polled.
    pub store_notifies: bool,
    /// Faults that are injected into single calls.
    pub scripts: Vec<ScriptedFault>,
    /// Whether calls, boots and jobs take the same time instead of a random one.
    pub fixed_durations: bool,
    /// The name of the process whose calls and outcome are recorded.
    pub watched: Option<String>,
    /// The capacity of the provider until faults end; `None` is unlimited.
    pub capacity: Option<usize>,
    /// The machines that never boot if they are launched before faults end, numbered from 1 in the
    /// order of their launches.
    pub never_boot: BTreeSet<u64>,
    /// Calls into which no random fault is injected.
    pub skipped_faults: SkippedFaults,
}

impl Plan {
    /// Returns the plan of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed_0f0d_ec4a_11ed);
        let faults_end_at = random.u64(300..700) * SECOND;
        let mut plan = Plan {
            seed,
            settings: settings(&mut random),
            rates: Rates {
                calls: Vec::new(),
                latency: [2_000, 40_000, 300_000][random.usize(0..3)],
            },
            faults_end_at,
            refreshed_after_faults: random.bool(),
            store_notifies: random.bool(),
            ..Plan::default()
        };
        plan.add_runs(&mut random);
        plan.add_refreshes(&mut random);
        match seed % 8 {
            0 => {}
            // Costs no machine: a heartbeat is healthy for 15 s, and the last is at most 5 s old.
            1 => plan.skew = 8_000,
            2 => plan.add_reassignment(&mut random),
            3 => {
                plan.add_faults(&mut random);
                plan.add_rush(&mut random);
            }
            _ => plan.add_faults(&mut random),
        }
        if digest(&[&seed, &"index lag"]).is_multiple_of(2) {
            plan.index_lag = LONGEST_INDEX_LAG;
            // A grace that is shorter than the lag: only the records tell what is an orphan. Where
            // calls fail, a launch may take longer than that to be recorded.
            if plan.rates.calls.is_empty() && plan.outages.is_empty() {
                plan.settings.insert(GRACE.to_owned(), "12".to_owned());
            }
        }
        plan.mixed_usage = digest(&[&seed, &"picky"]).is_multiple_of(3);
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Whether the plan has no fault except clock skew and a store whose index lags.
    pub fn is_clear(&self) -> bool {
        self.rates.calls.is_empty()
            && self.other_faults.is_empty()
            && self.outages.is_empty()
            && self.scripts.is_empty()
            && self.capacity.is_none()
            && self.never_boot.is_empty()
            && self.actions.iter().all(|(_, action)| {
                matches!(
                    action,
                    Action::Provision { .. } | Action::Release { .. } | Action::Refresh
                )
            })
    }

    /// How long agents and refresh spare a machine whose time is up.
    pub(crate) fn grace(&self) -> Duration {
        let seconds = self.settings.get(GRACE).and_then(|text| text.parse().ok());
        Duration::from_secs(seconds.unwrap_or(60))
    }

    /// Whether requests may arrive after their callers have stopped waiting.
    pub(crate) fn has_late_requests(&self) -> bool {
        self.rates.calls.iter().any(|(fault, _)| *fault == Fault::ArrivedLate)
            || self.scripts.iter().any(|script| script.fault == CallFault::ArriveLate)
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            seed: self.seed,
            rates: self.rates.clone(),
            other_faults: self.other_faults.clone(),
            outages: self.outages.clone(),
            faults_end_at: self.faults_end_at,
            index_lag: self.index_lag,
            skipped_faults: self.skipped_faults.clone(),
            scripts: self.scripts.iter().map(ScriptedFaultState::new).collect(),
            fixed_durations: self.fixed_durations,
            watched: self.watched.clone(),
            store_notifies: self.store_notifies,
            ..Policy::default()
        }
    }

    fn add_runs(&mut self, random: &mut fastrand::Rng) {
        for run in 1..=random.u32(2..6) {
            let at = random.u64(5..self.faults_end_at / SECOND / 2) * SECOND;
            let action = Action::Provision { run: run.to_string(), count: random.u32(1..4) };
            self.actions.push((at, action));
        }
    }

    /// Adds many runs within a few minutes, so that some provision while others release.
    fn add_rush(&mut self, random: &mut fastrand::Rng) {
        self.settings.insert("idle-time-sec".to_owned(), "200".to_owned());
        for run in 10..22 {
            let at = random.u64(60 * SECOND..240 * SECOND);
            let action = Action::Provision { run: run.to_string(), count: random.u32(1..3) };
            self.actions.push((at, action));
        }
    }

    fn add_refreshes(&mut self, random: &mut fastrand::Rng) {
        let period = [45, 90, 200][random.usize(0..3)] * SECOND;
        let mut at = period;
        while at < self.faults_end_at {
            self.actions.push((at, Action::Refresh));
            at += period;
        }
    }

    fn add_reassignment(&mut self, random: &mut fastrand::Rng) {
        self.other_faults.push((Fault::Reassigned, 0));
        let at = random.u64(60..self.faults_end_at / SECOND) * SECOND;
        self.actions.push((at, Action::Reassign(random.usize(0..4))));
    }

    fn add_faults(&mut self, random: &mut fastrand::Rng) {
        // Few kinds in one history, so that no kind is always hidden by the others.
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
                self.other_faults.push((fault, rate));
            }
        }
        if random.bool() {
            self.skew = random.u64(1_000..=10_000);
        }
        // So often that sometimes even the last retry of an order is throttled.
        if digest(&[&self.seed, &"busy"]).is_multiple_of(3) {
            self.other_faults.push((Fault::Busy, 800));
        }
        self.add_disruptions(random);
    }

    fn add_disruptions(&mut self, random: &mut fastrand::Rng) {
        let last = self.faults_end_at / SECOND;
        for _ in 0..random.u32(0..3) {
            let run = random.u32(1..4).to_string();
            let at = random.u64(5..last) * SECOND + random.u64(0..SECOND);
            let action = match random.u8(0..4) {
                0 => Action::Stop { run },
                1 => Action::Release { run },
                2 => Action::Rerun { run },
                _ => Action::Provision { run, count: random.u32(1..4) },
            };
            self.actions.push((at, action));
        }
        for _ in 0..random.u32(0..4) {
            let at = random.u64(20..last) * SECOND + random.u64(0..SECOND);
            let (nth, span) = (random.usize(0..6), random.u64(1..120) * SECOND);
            let action = match random.u8(0..3) {
                0 => Action::Kill(nth),
                1 => Action::Hang(nth, span),
                _ => Action::StopHeartbeats(nth, span),
            };
            self.actions.push((at, action));
        }
        if random.u8(0..4) == 0 {
            let service = ["store", "pool", "compute", "forge"][random.usize(0..4)];
            let from = random.u64(10..last) * SECOND;
            let to = from + random.u64(1..90) * SECOND;
            self.outages.push(Outage { service, from, to });
        }
        match random.u8(0..4) {
            0 => {
                self.no_refresh_for_hours = true;
                self.actions.retain(|(_, action)| *action != Action::Refresh);
            }
            1 => {
                let again =
                    self.actions.iter().filter(|(_, action)| *action == Action::Refresh).cloned();
                let again: Vec<(u64, Action)> = again.collect();
                self.actions.extend(again);
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
    set(GRACE, "30");
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
