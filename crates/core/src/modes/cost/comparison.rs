//! What the same runs would have cost otherwise: with a new machine for each hand-over, and on
//! GitHub-hosted runners. Either may be cheaper than the pool, and is then a negative saving.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::life::{Life, Span};
use super::tally::Tally;
use super::{Use, Window, used};
use crate::model::ids::{ResourceClass, RunId};
use crate::model::money::Money;
use crate::model::prices::Prices;
use crate::model::record::{MachineSpec, State};
use crate::model::timestamp::Timestamp;

/// The control plane's jobs of a run, provision and release, each of which GitHub charges for.
const JOBS_OF_CONTROL: u64 = 2;

/// A pool that launches a machine for each hand-over and terminates it after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlwaysCold {
    /// How many machines runs were given.
    pub hand_overs: usize,
    /// How many of these were not booted for their run.
    pub warm: usize,
    /// How many boots were seen, and how long they took on average.
    pub boots: usize,
    pub mean_boot: Duration,
    /// What a boot for each hand-over would have cost.
    pub boots_would_cost: Money,
    /// What boots and idle machines did cost.
    pub boots_and_idle_cost: Money,
    /// For how long runs would have waited for boots, added up over the warm hand-overs.
    pub waiting_saved: Duration,
    /// How many machines are not compared, because they have no price.
    pub left_out: usize,
}

impl AlwaysCold {
    /// What the pool saved; negative if it cost more.
    pub fn saving(&self) -> Money {
        self.boots_would_cost - self.boots_and_idle_cost
    }
}

/// The same runs on GitHub-hosted Linux runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosted {
    /// Each time that a run had a machine, as one job.
    pub jobs: usize,
    /// The minutes that GitHub would have charged for.
    pub minutes: u64,
    pub would_cost: Money,
    /// What the machines did cost, all of their time.
    pub machines_cost: Money,
    /// What GitHub charges for the jobs that provision and release.
    pub control_jobs_cost: Money,
    /// How many machines are not compared: they have no price, or GitHub has no runner of their size.
    pub left_out: usize,
}

impl Hosted {
    /// What the pool saved; negative if it cost more.
    pub fn saving(&self) -> Money {
        self.would_cost - self.machines_cost - self.control_jobs_cost
    }
}

/// What the comparisons need of the machines.
#[derive(Debug, Default)]
pub(super) struct Basis {
    boots: BTreeMap<ResourceClass, (usize, Duration)>,
    /// The class and the price of each machine that was handed over, and whether it was from the pool.
    hand_overs: Vec<(ResourceClass, Money, bool)>,
    boots_and_idle: Money,
    unpriced: usize,
    jobs: usize,
    minutes: u64,
    hosted: Money,
    machines: Money,
    runs: BTreeSet<RunId>,
    without_runner: usize,
}

impl Basis {
    /// Adds one machine, whose `spans` are those within the window.
    pub(super) fn enter(
        &mut self,
        prices: &Prices,
        window: &Window,
        spec: Option<&MachineSpec>,
        tally: &Tally,
        life: &Life,
        spans: &[Span],
    ) {
        let is_within = |at: Timestamp| at >= window.since && at < window.until;
        let price = spec.and_then(|spec| Some((spec, prices.per_hour(spec)?)));
        let Some((spec, per_hour)) = price else {
            self.unpriced += 1;
            self.without_runner += 1;
            return;
        };
        for (_, took) in life.boots.iter().filter(|(at, _)| is_within(*at)) {
            let (count, all) = self.boots.entry(spec.resource_class.clone()).or_default();
            (*count, *all) = (*count + 1, *all + *took);
        }
        for (_, is_warm) in life.hand_overs.iter().filter(|(at, _)| is_within(*at)) {
            self.hand_overs.push((spec.resource_class.clone(), per_hour, *is_warm));
        }
        self.boots_and_idle += tally.booting.money + tally.idle.money;
        self.as_jobs(prices, spec, tally, spans);
    }

    fn as_jobs(&mut self, prices: &Prices, spec: &MachineSpec, tally: &Tally, spans: &[Span]) {
        let holds = holds(spans);
        let job = |(_, length): &(Option<RunId>, Duration)| prices.hosted_job(spec, *length);
        let is_offered = prices.hosted_job(spec, Duration::ZERO).is_some();
        if !is_offered {
            self.without_runner += 1;
            return;
        }
        for (minutes, cost) in holds.iter().filter_map(job) {
            self.jobs += 1;
            self.minutes += minutes;
            self.hosted += cost;
        }
        self.machines += tally.total().money;
        self.runs.extend(holds.into_iter().filter_map(|(run, _)| run));
    }

    pub(super) fn always_cold(&self) -> Option<AlwaysCold> {
        let count: usize = self.boots.values().map(|(count, _)| count).sum();
        let all: Duration = self.boots.values().map(|(_, all)| *all).sum();
        let mean_boot = mean(count, all)?;
        if self.hand_overs.is_empty() {
            return None;
        }
        // A class without a boot is taken to boot as the others do.
        let boot = |class: &ResourceClass| {
            self.boots.get(class).and_then(|(count, all)| mean(*count, *all)).unwrap_or(mean_boot)
        };
        let would_cost = self.hand_overs.iter().map(|(class, hour, _)| hour.for_span(boot(class)));
        let warm = || self.hand_overs.iter().filter(|(.., is_warm)| *is_warm);
        Some(AlwaysCold {
            hand_overs: self.hand_overs.len(),
            warm: warm().count(),
            boots: count,
            mean_boot,
            boots_would_cost: would_cost.sum(),
            boots_and_idle_cost: self.boots_and_idle,
            waiting_saved: warm().map(|(class, ..)| boot(class)).sum(),
            left_out: self.unpriced,
        })
    }

    pub(super) fn hosted(&self, prices: &Prices) -> Option<Hosted> {
        let runs = u64::try_from(self.runs.len()).unwrap_or(u64::MAX);
        let control_job = prices.smallest_hosted_job()?;
        (self.jobs > 0).then(|| Hosted {
            jobs: self.jobs,
            minutes: self.minutes,
            would_cost: self.hosted,
            machines_cost: self.machines,
            control_jobs_cost: control_job.times(JOBS_OF_CONTROL.saturating_mul(runs)),
            left_out: self.without_runner,
        })
    }
}

fn mean(count: usize, all: Duration) -> Option<Duration> {
    all.checked_div(u32::try_from(count).ok()?)
}

/// How long each run had the machine, from its hand-over on.
fn holds(spans: &[Span]) -> Vec<(Option<RunId>, Duration)> {
    let mut holds: Vec<(Option<RunId>, Duration, Timestamp)> = Vec::new();
    let is_hold = |span: &&Span| {
        span.state == State::Running && used(span.state, span.run.as_ref()).0 == Use::Busy
    };
    for span in spans.iter().filter(is_hold) {
        let length = span.to.since(span.from);
        match holds.last_mut() {
            Some((run, all, end)) if *run == span.run && *end == span.from => {
                (*all, *end) = (*all + length, span.to);
            }
            _ => holds.push((span.run.clone(), length, span.to)),
        }
    }
    holds.into_iter().map(|(run, length, _)| (run, length)).collect()
}
