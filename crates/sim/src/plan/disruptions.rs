//! The faults and disruptions that a plan draws.

use super::settings::{self, ON_INTERRUPTION};
use super::{Action, Ask, Plan, SECOND};
use crate::faults::Fault;
use crate::kernel::digest;
use crate::policy::Outage;

impl Plan {
    /// Adds many kinds of faults.
    pub(super) fn add_faults(&mut self, random: &mut fastrand::Rng) {
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
            (Fault::LaunchRefused, 200),
            (Fault::LaunchUnheard, 150),
            (Fault::SlowRegistration, 150),
            (Fault::SetUpRefused, 150),
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
        self.agents_spared = digest(&[&self.seed, &"spared"]).is_multiple_of(2);
        self.add_disruptions(random);
        let denied = digest(&[&self.seed, &"denied"]);
        if denied.is_multiple_of(5) {
            let (at, span) = (60 + denied % 200, 90 + denied % 240);
            let nth = usize::try_from(denied % 7).unwrap_or_default();
            self.actions.push((at * SECOND, Action::Deny(nth, span * SECOND)));
        }
    }

    /// Adds faults of one kind, none of which is a machine's own failure. So no idle machine may
    /// be lost.
    pub(super) fn add_one_kind_of_fault(&mut self, random: &mut fastrand::Rng) {
        self.agents_spared = true;
        let rates: &[(Fault, u32)] = match random.u8(0..10) {
            0 => &[(Fault::LaunchRefused, 600)],
            1 => &[(Fault::LaunchUnheard, 500)],
            2 => &[(Fault::NoCapacity, 500), (Fault::Busy, 500)],
            3 => &[(Fault::SlowRegistration, 400)],
            4 => &[(Fault::SetUpRefused, 500)],
            5 => &[(Fault::NeverBoots, 400)],
            6 => &[(Fault::Crash, 500)],
            7 => &[(Fault::NeverReleased, 500)],
            8 => {
                self.add_deaths(random);
                &[(Fault::MachineDies, 0)]
            }
            _ => {
                self.add_stops(random);
                &[(Fault::ToldToStop, 0)]
            }
        };
        self.other_faults.extend(rates);
    }

    /// Lets machines die while jobs wait for them.
    fn add_deaths(&mut self, random: &mut fastrand::Rng) {
        self.long_runs = true;
        self.settings.insert("max-runtime-min".to_owned(), "8".to_owned());
        for _ in 0..random.u32(2..9) {
            let at = random.u64(60..self.faults_end_at / SECOND) * SECOND;
            self.actions.push((at, Action::Kill(random.usize(0..40))));
        }
    }

    /// Lets machines die while jobs wait for them, or be taken away, so that refreshes rescue their
    /// runs: two at once in some histories. In others, a part of what a rescue launches is not there
    /// in time, while jobs start on the rest.
    pub(super) fn add_failing_rescues(&mut self, random: &mut fastrand::Rng) {
        self.agents_spared = true;
        self.add_deaths(random);
        self.other_faults.push((Fault::MachineDies, 0));
        match random.u8(0..4) {
            0 => self.other_faults.push((Fault::NeverBoots, 250)),
            1 => self.other_faults.push((Fault::SlowRegistration, 300)),
            2 => {
                self.settings.insert(ON_INTERRUPTION.to_owned(), "rerun".to_owned());
                self.other_faults.push((Fault::SpotNotice, 500));
            }
            _ => self.refresh_twice(),
        }
    }

    /// Lets the provider take machines away from their jobs, and refreshes re-run these.
    pub(super) fn add_interruptions(&mut self, random: &mut fastrand::Rng) {
        self.agents_spared = true;
        self.long_jobs = true;
        self.settings.insert("max-runtime-min".to_owned(), "8".to_owned());
        self.settings.insert(ON_INTERRUPTION.to_owned(), "rerun".to_owned());
        self.other_faults.push((Fault::SpotNotice, 600));
        self.faults_end_at = random.u64(1_000..1_600) * SECOND;
        self.actions.retain(|(_, action)| *action != Action::Refresh);
        self.add_refreshes(random);
    }

    /// Starts a second refresh with each.
    fn refresh_twice(&mut self) {
        let again = self.actions.iter().filter(|(_, action)| *action == Action::Refresh).cloned();
        let again: Vec<(u64, Action)> = again.collect();
        self.actions.extend(again);
    }

    /// Tells provisions to stop within the seconds in which they claim and launch.
    fn add_stops(&mut self, random: &mut fastrand::Rng) {
        let begins: Vec<(u64, String)> = self
            .actions
            .iter()
            .filter_map(|(at, action)| match action {
                Action::Provision { run, .. } => Some((*at, run.clone())),
                _ => None,
            })
            .collect();
        for (at, run) in begins {
            if random.u8(0..3) > 0 {
                let after = [SECOND, 4 * SECOND, 20 * SECOND][random.usize(0..3)];
                self.actions.push((at + random.u64(0..after), Action::Stop { run }));
            }
        }
    }

    /// Lets the operator change settings while runs come and go.
    pub(super) fn add_changed_settings(&mut self, random: &mut fastrand::Rng) {
        let last = self.faults_end_at / SECOND;
        for _ in 0..random.u32(1..4) {
            let at = random.u64(30..last) * SECOND + random.u64(0..SECOND);
            let mut given = settings::change(self.skew == 0, random);
            if self.settings.contains_key(settings::CAP) {
                given.retain(|(name, value)| *name != settings::AGE || !value.is_empty());
            }
            self.actions.push((at, Action::RefreshWith(given)));
        }
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
                _ => Action::Provision { run, ask: Ask::drawn(random.u32(1..4), random) },
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
            1 => self.refresh_twice(),
            _ => {}
        }
    }
}
