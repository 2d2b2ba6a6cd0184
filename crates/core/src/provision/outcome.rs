//! What came of a provision, and what each phase of it cost.

use std::time::Duration;

use super::holdings::Held;
use super::{Attempt, Request};
use crate::failure::Failure;
use crate::ids::{InstanceId, RunId};
use crate::lifecycle::Phase as LifePhase;
use crate::record::MachineSpec;
use crate::time::Timestamp;

/// What came of it. Without a failure, the run has all that it asked for.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The run.
    pub run: RunId,
    /// How many machines it asked for.
    pub requested: u32,
    /// What it has now; empty where there is a failure.
    pub instances: Vec<Provisioned>,
    /// What each phase cost.
    pub timings: Timings,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// What could not be cleared up, in words.
    pub leftovers: Vec<String>,
}

/// One machine of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provisioned {
    /// Which.
    pub id: InstanceId,
    /// Where it came from.
    pub source: Source,
    /// What it is.
    pub spec: MachineSpec,
    /// How long after the start it was ready.
    pub ready: Duration,
}

/// Where a machine came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Out of the pool.
    Warm,
    /// Newly launched.
    Cold,
    /// The run had it already.
    Adopted,
}

impl Source {
    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Warm => "warm",
            Source::Cold => "cold",
            Source::Adopted => "adopted",
        }
    }
}

/// The latency ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Finding what the run has already.
    pub adoption: Duration,
    /// Claiming from the pool.
    pub selection: Duration,
    /// Launching.
    pub creation: Duration,
    /// Waiting for new machines.
    pub validation: Duration,
    /// Committing, or clearing up.
    pub post_provision: Duration,
    /// All of it.
    pub total: Duration,
}

/// The phases of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Adoption,
    Selection,
    Creation,
    Validation,
    PostProvision,
}

#[derive(Debug, Clone)]
pub(super) struct Stopwatch {
    started: Timestamp,
    entered: Vec<(Phase, Timestamp)>,
}

impl Stopwatch {
    pub(super) fn new(now: Timestamp) -> Stopwatch {
        Stopwatch { started: now, entered: Vec::new() }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.entered.push((phase, now));
    }

    fn timings(&self, now: Timestamp) -> Timings {
        let mut timings = Timings { total: now.since(self.started), ..Timings::default() };
        let ends = self.entered.iter().skip(1).map(|(_, at)| *at).chain([now]);
        for ((phase, from), to) in self.entered.iter().zip(ends) {
            let spent = match phase {
                Phase::Adoption => &mut timings.adoption,
                Phase::Selection => &mut timings.selection,
                Phase::Creation => &mut timings.creation,
                Phase::Validation => &mut timings.validation,
                Phase::PostProvision => &mut timings.post_provision,
            };
            *spent += to.since(*from);
        }
        timings
    }
}

impl Outcome {
    /// Nothing was even begun.
    pub fn refused(request: &Request, failure: Failure) -> Outcome {
        Outcome {
            run: request.run.clone(),
            requested: request.count,
            instances: Vec::new(),
            timings: Timings::default(),
            failure: Some(failure),
            leftovers: Vec::new(),
        }
    }

    /// How many of the machines came from `source`.
    pub fn count(&self, source: Source) -> usize {
        self.instances.iter().filter(|instance| instance.source == source).count()
    }
}

impl Attempt<'_> {
    pub(super) fn finished(&self, failure: Option<Failure>, leftovers: Vec<String>) -> Outcome {
        let stopwatch = self.holdings.stopwatch();
        let mut instances = Vec::new();
        if failure.is_none() {
            let started = stopwatch.started;
            instances.extend(self.holdings.adopted().iter().map(|h| provisioned(h, started)));
            instances.extend(self.holdings.claimed().iter().map(|h| provisioned(h, started)));
            instances.extend(self.holdings.created().iter().map(|h| provisioned(h, started)));
        }
        Outcome {
            run: self.request.run.clone(),
            requested: self.request.count,
            instances,
            timings: stopwatch.timings(self.plane.now()),
            failure,
            leftovers,
        }
    }
}

fn provisioned<S: LifePhase>(held: &Held<S>, started: Timestamp) -> Provisioned {
    Provisioned {
        id: held.instance.id().clone(),
        source: held.source,
        spec: held.instance.spec().clone(),
        ready: held.ready_at.map(|at| at.since(started)).unwrap_or_default(),
    }
}
