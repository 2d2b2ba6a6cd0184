//! The plan of a history, derived from a seed: which actions happen when, and
//! which faults are injected.

mod ask;
mod disruptions;
mod labels;
mod minimums;
mod settings;
pub(crate) mod spans;
mod surprises;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::reuse::Reuse;

use crate::faults::{Fault, Rates, SkippedFaults};
use crate::kernel::{Micros, digest};
use crate::policy::{CallFault, Outage, Policy, ScriptedFault, ScriptedFaultState};
use crate::wake_ups::WakeUpFaults;

pub use self::ask::Ask;
pub(crate) use self::ask::contradict;
pub(crate) use self::minimums::{Kept, kept};
use self::settings::GRACE;
pub(crate) use self::settings::{CLASS_NAMES, is_unsound};

/// One second of virtual time, in microseconds.
pub(crate) const SECOND: Micros = 1_000_000;

/// DynamoDB's indexes follow within a second as a rule, and much later under load.
const LONGEST_INDEX_LAG: Micros = 30 * SECOND;

/// One step of a history that happens at a planned time, independently of all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A run provisions machines.
    Provision { run: String, ask: Ask },
    /// The provision of a run is told to stop.
    Stop { run: String },
    /// Each refresh that is at work is told to stop.
    StopRefresh,
    /// A text that is no ticket gets into the queue of a class.
    CorruptTicket(&'static str),
    /// A run releases its machines.
    Release { run: String },
    /// Jobs of a run are re-run without a provision.
    Rerun { run: String },
    /// The scheduled refresh runs, with no new settings.
    Refresh,
    /// The operator runs refresh with settings: their names and values.
    RefreshWith(Vec<(&'static str, &'static str)>),
    /// A machine disappears. The number selects one of those that are alive then.
    Kill(usize),
    /// The agent of a machine, selected like that, is frozen for this many microseconds.
    Hang(usize, u64),
    /// The heartbeats of a machine, selected like that, do not arrive for this many microseconds.
    StopHeartbeats(usize, u64),
    /// The store refuses the agent of a machine, selected like that, for this many microseconds.
    Deny(usize, u64),
    /// The operator edits the record of a running machine so that it belongs to another run.
    Reassign(usize),
    /// An operator drains a machine, selected like that, or all.
    Drain(Option<usize>),
    /// An operator lets refresh replace a machine, selected like that, when it is idle.
    Retire(usize),
    /// An operator terminates a machine, selected like that, unless a run has it.
    Terminate(usize),
    /// An administrator deletes the runner of a machine, selected like that of those that are registered
    /// under a label of their own.
    DeleteRunner(usize),
    /// The listener of a machine, selected like that, is killed.
    KillListener(usize),
    /// What the agent of a machine, selected like that, says of its registration is not answered for this
    /// many microseconds; it arrives or not.
    StopNotes(usize, u64),
    /// The forge is out of reach for a machine, selected like that, for this many microseconds.
    CutOff(usize, u64),
    /// The forge refuses the version of all runners for this many microseconds.
    RefuseVersion(u64),
    /// A job of another run names the label of a machine, selected like that.
    ForeignJob(usize),
}

/// Everything that determines one history.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// When the history begins, in microseconds. All times of the plan are later.
    pub begins_at: u64,
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
    /// How much later the provider lists a new machine at most, in microseconds.
    pub listing_lag: u64,
    /// When the first refresh runs, in microseconds, if none has run before the history.
    pub first_refresh_at: Option<u64>,
    /// No fault is injected from this time on, in microseconds.
    pub faults_end_at: u64,
    /// How long each refresh may take; `None` if it waits for the machines that it launches.
    pub time_limit: Option<Duration>,
    /// Whether a refresh runs after that and before the next provision.
    pub refreshed_after_faults: bool,
    /// Whether no refresh runs for hours before the last ones.
    pub no_refresh_for_hours: bool,
    /// Whether no random fault is injected into the calls of agents.
    pub agents_spared: bool,
    /// How long the credentials of agents are valid, in seconds; 0 is two hours.
    pub token_life: u64,
    /// Whether the store notifies agents of changes, instead of being polled.
    pub store_notifies: bool,
    /// How agents are woken; `None` if they are not, and go by `store_notifies`.
    pub wake_ups: Option<WakeUpFaults>,
    /// Whether the forge lists waiting jobs together with the open runs.
    pub lists_waiting_jobs: bool,
    /// Faults that are injected into single calls.
    pub scripts: Vec<ScriptedFault>,
    /// Whether calls, boots and jobs take the same time instead of a random one.
    pub fixed_durations: bool,
    /// Whether runs have more jobs than machines, and last for minutes.
    pub long_runs: bool,
    /// Whether jobs last longer than machines that the provider takes away.
    pub long_jobs: bool,
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
            settings: settings::drawn(&mut random),
            rates: Rates {
                calls: Vec::new(),
                latency: [2_000, 40_000, 300_000][random.usize(0..3)],
            },
            faults_end_at,
            refreshed_after_faults: random.bool(),
            store_notifies: random.bool(),
            wake_ups: WakeUpFaults::of(seed),
            ..Plan::default()
        };
        plan.add_runs(&mut random);
        plan.add_refreshes(&mut random);
        match seed % 12 {
            0 => {
                plan.add_rush(&mut random);
                plan.add_reruns(&mut random);
            }
            // Costs no machine: a heartbeat is healthy for 15 s, and the last is at most 5 s old.
            1 => plan.skew = 8_000,
            2 => plan.add_reassignment(&mut random),
            3 => {
                plan.add_faults(&mut random);
                plan.add_rush(&mut random);
            }
            4 | 5 if digest(&[&seed, &"interruptions"]).is_multiple_of(5) => {
                plan.add_interruptions(&mut random);
            }
            4 | 5 => {
                plan.add_rush(&mut random);
                plan.add_one_kind_of_fault(&mut random);
            }
            6 => plan.keep_steady(&mut random),
            8..=10 if digest(&[&seed, &"labels"]).is_multiple_of(2) => {
                match seed % 12 {
                    10 => plan.add_failing_rescues(&mut random),
                    _ => plan.add_faults(&mut random),
                }
                plan.add_labels(&mut random);
            }
            11 if digest(&[&seed, &"rescues"]).is_multiple_of(2) => {
                plan.add_failing_rescues(&mut random);
            }
            _ => plan.add_faults(&mut random),
        }
        let tokens_count = plan.is_clear() || plan.only(Fault::SetUpRefused);
        if tokens_count && digest(&[&seed, &"tokens"]).is_multiple_of(2) {
            // Refresh runs at least every 200 s, and no run lasts longer than that.
            plan.token_life = 500;
            plan.settings.insert("registration-token-refresh-min".to_owned(), "1".to_owned());
        }
        if digest(&[&seed, &"settings"]).is_multiple_of(3) {
            plan.add_changed_settings(&mut random);
        }
        if digest(&[&seed, &"index lag"]).is_multiple_of(2) {
            plan.index_lag = LONGEST_INDEX_LAG;
            // A grace that is shorter than the lag: only the records tell what is an orphan. Where
            // calls fail, a launch may take longer than that to be recorded.
            let unheard = plan.other_faults.iter().any(|(fault, _)| *fault == Fault::LaunchUnheard);
            if plan.rates.calls.is_empty() && plan.outages.is_empty() && !unheard {
                plan.settings.insert(GRACE.to_owned(), "12".to_owned());
            }
        }
        plan.forbid_reuse();
        plan.add_surprises();
        plan.add_machine_labels();
        plan.begin_before_midnight();
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }

    /// In some histories no machine is reused, and in some others a part of the runs asks for machines
    /// of its own. The numbers are not drawn, so that the rest of each history stays as it is.
    fn forbid_reuse(&mut self) {
        // An agent that has served its only run serves no other, even if the operator edits its record.
        if self.actions.iter().any(|(_, action)| matches!(action, Action::Reassign(_))) {
            return;
        }
        match digest(&[&self.seed, &"reuse"]) % 10 {
            0 => drop(self.settings.insert("reuse".to_owned(), "never".to_owned())),
            1 | 2 => {
                let seed = self.seed;
                for (_, action) in &mut self.actions {
                    let Action::Provision { run, ask } = action else { continue };
                    if digest(&[&seed, &"reuse", run]).is_multiple_of(2) {
                        ask.reuse = Reuse::Never;
                    }
                }
            }
            _ => {}
        }
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
                    Action::Provision { .. }
                        | Action::Release { .. }
                        | Action::CorruptTicket(_)
                        | Action::Rerun { .. }
                        | Action::Refresh
                        | Action::RefreshWith(_)
                )
            })
    }

    /// Whether calls and queues work.
    pub(crate) fn calls_work(&self) -> bool {
        // Faults that hit neither calls nor queues nor agents.
        const ELSEWHERE: [Fault; 12] = [
            Fault::LaunchRefused,
            Fault::LaunchUnheard,
            Fault::NoCapacity,
            Fault::Busy,
            Fault::NeverBoots,
            Fault::SlowRegistration,
            Fault::SetUpRefused,
            Fault::ForgeLimits,
            Fault::Crash,
            Fault::ToldToStop,
            Fault::MachineDies,
            Fault::NeverReleased,
        ];
        self.rates.calls.is_empty()
            && self.outages.is_empty()
            && self.scripts.is_empty()
            && self.other_faults.iter().all(|(fault, _)| ELSEWHERE.contains(fault))
    }

    /// Whether machines die or are taken away, and nothing else fails.
    pub(crate) fn only_deaths(&self) -> bool {
        let is_other = |action: &Action| !matches!(action, Action::Kill(_));
        let actions = self.actions.iter().filter(|(_, action)| is_other(action)).cloned();
        let without = Plan { actions: actions.collect(), ..self.without(Fault::SpotNotice) };
        without.only(Fault::MachineDies)
    }

    /// The plan without one kind of fault.
    pub(crate) fn without(&self, fault: Fault) -> Plan {
        let others = self.other_faults.iter().filter(|(other, _)| *other != fault);
        Plan { other_faults: others.copied().collect(), ..self.clone() }
    }

    /// Whether heartbeats arrive, and clocks agree on their age.
    pub(crate) fn agents_beat(&self) -> bool {
        let keeps_one_from_beating = |action: &Action| {
            matches!(action, Action::Hang(..) | Action::StopHeartbeats(..) | Action::Reassign(_))
        };
        let hindered = self.actions.iter().any(|(_, action)| keeps_one_from_beating(action));
        self.calls_work() && self.skew == 0 && !hindered
    }

    /// Whether this is the only kind of fault.
    pub(crate) fn only(&self, fault: Fault) -> bool {
        let without = Plan { other_faults: Vec::new(), ..self.clone() };
        without.is_clear() && self.other_faults.iter().all(|(other, _)| *other == fault)
    }

    /// Whether refresh keeps a minimum of idle machines at any time of the history.
    pub(crate) fn keeps_machines(&self) -> bool {
        let keeps = |action: &Action| match action {
            Action::RefreshWith(given) => {
                given.iter().any(|(name, value)| *name == "min-idle" && !value.is_empty())
            }
            _ => false,
        };
        self.settings.contains_key("min-idle") || self.actions.iter().any(|(_, a)| keeps(a))
    }

    /// How long agents and refresh spare a machine whose time is up.
    pub(crate) fn grace(&self) -> Duration {
        let seconds = self.settings.get(GRACE).and_then(|text| text.parse().ok());
        Duration::from_secs(seconds.unwrap_or(60))
    }

    pub(crate) fn token_life(&self) -> Duration {
        Duration::from_secs(if self.token_life == 0 { 7_200 } else { self.token_life })
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
            listing_lag: self.listing_lag,
            lists_waiting_jobs: self.lists_waiting_jobs,
            skipped_faults: self.skipped_faults.clone(),
            scripts: self.scripts.iter().map(ScriptedFaultState::new).collect(),
            fixed_durations: self.fixed_durations,
            watched: self.watched.clone(),
            agents_spared: self.agents_spared,
            token_life: self.token_life(),
            store_notifies: self.store_notifies,
            wake_ups: self.wake_ups.clone(),
            ..Policy::default()
        }
    }

    fn add_runs(&mut self, random: &mut fastrand::Rng) {
        for run in 1..=random.u32(2..6) {
            let at = random.u64(5..self.faults_end_at / SECOND / 2) * SECOND;
            let ask = Ask::drawn(random.u32(1..4), random);
            let action = Action::Provision { run: run.to_string(), ask };
            self.actions.push((at, action));
        }
    }

    /// Adds many runs within a few minutes, so that some provision while others release.
    fn add_rush(&mut self, random: &mut fastrand::Rng) {
        self.settings.insert("idle-time-sec".to_owned(), "200".to_owned());
        for run in 10..22 {
            let at = random.u64(60 * SECOND..240 * SECOND);
            let ask = Ask::drawn(random.u32(1..3), random);
            let action = Action::Provision { run: run.to_string(), ask };
            self.actions.push((at, action));
        }
    }

    /// Lets some runs ask twice, under two labels, at about the same time.
    fn add_labels(&mut self, random: &mut fastrand::Rng) {
        let mut others = Vec::new();
        for (at, action) in &mut self.actions {
            let Action::Provision { run, ask } = action else { continue };
            if random.bool() {
                ask.suffix = Some("build");
                let tests = Ask { suffix: Some("tests"), ..Ask::drawn(random.u32(1..3), random) };
                let other = Action::Provision { run: run.clone(), ask: tests };
                others.push((*at + random.u64(0..20 * SECOND), other));
            }
        }
        self.actions.extend(others);
    }

    /// Lets failed jobs of runs that were released run again, without a provision.
    fn add_reruns(&mut self, random: &mut fastrand::Rng) {
        let runs = self.actions.iter().filter_map(|(at, action)| match action {
            Action::Provision { run, .. } => Some((*at, run.clone())),
            _ => None,
        });
        let runs: Vec<(u64, String)> = runs.collect();
        for (at, run) in runs {
            let at = at + random.u64(250..400) * SECOND;
            if random.u8(0..4) == 0 && at + 60 * SECOND < self.faults_end_at {
                self.actions.push((at, Action::Rerun { run }));
            }
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

    /// Keeps a minimum of idle machines, with few runs or none, for long enough that machines
    /// which are not kept expire and are launched again.
    fn keep_steady(&mut self, random: &mut fastrand::Rng) {
        let minimum = minimums::TEXTS[random.usize(0..minimums::TEXTS.len())];
        self.settings.insert("min-idle".to_owned(), minimum.to_owned());
        self.settings.insert("agent-poll-waiting-sec".to_owned(), "1".to_owned());
        if random.bool() {
            self.actions.retain(|(_, action)| !matches!(action, Action::Provision { .. }));
        }
        self.faults_end_at = random.u64(1_000..3_000) * SECOND;
        self.actions.retain(|(_, action)| *action != Action::Refresh);
        self.add_refreshes(random);
    }
}
