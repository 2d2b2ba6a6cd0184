//! The outcome of a provision, and how long each phase took.

use std::time::Duration;

use super::holdings::{Holding, Moments};
use super::pool_search::PoolSearch;
use super::post_provision::CleanUp;
use super::{Attempt, Request};
use crate::lifecycle::TypedState;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::readiness::ClaimWay;
use crate::model::record::MachineSpec;
use crate::model::requirements::UsageClass;

/// The outcome of a provision. Without a failure, the run has all machines that it asked for.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub run: RunId,
    /// The label that the machines were asked for under. Unless they have labels of their own, it is what
    /// all jobs of the run may name as `runs-on`.
    pub label: Label,
    /// How many machines it asked for.
    pub requested: u32,
    /// The purchase option that was requested.
    pub usage: UsageClass,
    /// The run's machines. Empty after a failure. Of a request that leaves new machines to a refresh,
    /// these are among them although they may not be ready.
    pub instances: Vec<Provisioned>,
    pub timings: Timings,
    pub search: PoolSearch,
    pub failure: Option<Failure>,
    /// After a failure, the machines that were terminated.
    pub terminated: Vec<InstanceId>,
    /// After a failure, the machines that went back into the pool.
    pub returned: Vec<InstanceId>,
    /// After a failed rescue, the machines that the run keeps because their runners may have jobs.
    pub kept: Vec<InstanceId>,
    /// Messages about what could not be cleaned up.
    pub clean_up_failures: Vec<String>,
}

/// One machine of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provisioned {
    pub id: InstanceId,
    /// What its runner is registered with, and jobs may name as `runs-on`.
    pub label: String,
    pub source: MachineSource,
    pub spec: MachineSpec,
    pub milestones: Milestones,
    /// A short reason why this machine was chosen, or why it had to be launched.
    pub why: String,
}

/// When a machine reached each milestone, since the start of the call. No milestone is earlier than
/// the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Milestones {
    /// Its ticket was received. Only machines from the pool have this.
    pub found: Option<Duration>,
    /// It was claimed, registered after its launch, or adopted.
    pub owned: Duration,
    /// Its agent signalled that the runner is registered. The agent's clock tells this time; it is
    /// limited to the range between the neighbouring milestones.
    pub registered: Duration,
    /// It passed the checks after its claim, or its validation.
    pub ready: Duration,
}

/// Where a machine came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineSource {
    /// Claimed from the pool.
    Warm,
    /// Launched by this call.
    Cold,
    /// Owned by the run before this call.
    Adopted,
}

impl MachineSource {
    /// The value of `source` in the JSON output.
    pub fn as_str(self) -> &'static str {
        match self {
            MachineSource::Warm => "warm",
            MachineSource::Cold => "cold",
            MachineSource::Adopted => "adopted",
        }
    }
}

/// How long each phase took, and the whole call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    pub adoption: Duration,
    pub selection: Duration,
    pub creation: Duration,
    pub validation: Duration,
    /// The commit, or the clean-up after a failure.
    pub post_provision: Duration,
    pub total: Duration,
}

/// The phases that [`Timings`] tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Adoption,
    Selection,
    Creation,
    Validation,
    PostProvision,
}

/// How long each phase took; `None` if it was not entered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PhaseSpans {
    /// When the first phase began, in steady time.
    pub(super) started: Duration,
    pub(super) adoption: Option<Duration>,
    pub(super) selection: Option<Duration>,
    pub(super) creation: Option<Duration>,
    pub(super) validation: Option<Duration>,
    pub(super) post_provision: Option<Duration>,
}

/// Measures the phases by steady time.
#[derive(Debug, Clone)]
pub(super) struct Stopwatch {
    started: Duration,
    entered: Vec<(Phase, Duration)>,
}

impl Stopwatch {
    pub(super) fn new(now: Duration) -> Stopwatch {
        Stopwatch { started: now, entered: Vec::new() }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Duration) {
        self.entered.push((phase, now));
    }

    /// The phase that was entered last; adoption comes first.
    pub(super) fn phase(&self) -> Phase {
        self.entered.last().map_or(Phase::Adoption, |(phase, _)| *phase)
    }

    /// The phases that were entered, up to now.
    pub(super) fn spans(&self, now: Duration) -> PhaseSpans {
        let mut spans = PhaseSpans { started: self.started, ..PhaseSpans::default() };
        let ends = self.entered.iter().skip(1).map(|(_, at)| *at).chain([now]);
        for ((phase, from), to) in self.entered.iter().zip(ends) {
            let spent = match phase {
                Phase::Adoption => &mut spans.adoption,
                Phase::Selection => &mut spans.selection,
                Phase::Creation => &mut spans.creation,
                Phase::Validation => &mut spans.validation,
                Phase::PostProvision => &mut spans.post_provision,
            };
            *spent.get_or_insert_default() += to.saturating_sub(*from);
        }
        spans
    }

    fn timings(&self, now: Duration) -> Timings {
        let spans = self.spans(now);
        Timings {
            adoption: spans.adoption.unwrap_or_default(),
            selection: spans.selection.unwrap_or_default(),
            creation: spans.creation.unwrap_or_default(),
            validation: spans.validation.unwrap_or_default(),
            post_provision: spans.post_provision.unwrap_or_default(),
            total: now.saturating_sub(self.started),
        }
    }
}

impl Outcome {
    /// The outcome of a request that was refused before anything was done.
    pub fn refused(request: &Request, failure: Failure) -> Outcome {
        Outcome {
            run: request.run.clone(),
            label: request.label(),
            requested: request.options.count,
            usage: request.options.usage,
            instances: Vec::new(),
            timings: Timings::default(),
            search: PoolSearch::default(),
            failure: Some(failure),
            terminated: Vec::new(),
            returned: Vec::new(),
            kept: Vec::new(),
            clean_up_failures: Vec::new(),
        }
    }

    /// What all jobs of the run may name as `runs-on`; `None` if each machine has a label of its own, and
    /// the run asked for several.
    pub fn runs_on(&self) -> Option<String> {
        let label = self.label.to_string();
        match self.instances.as_slice() {
            [only] => Some(only.label.clone()),
            machines if machines.iter().all(|machine| machine.label == label) => Some(label),
            _ => None,
        }
    }

    pub fn count(&self, source: MachineSource) -> usize {
        self.instances.iter().filter(|instance| instance.source == source).count()
    }
}

impl Attempt<'_> {
    pub(super) fn finished(&self, failure: Option<Failure>, clean_up: CleanUp) -> Outcome {
        let stopwatch = self.holdings.stopwatch();
        let mut instances = Vec::new();
        if failure.is_none() {
            let started = stopwatch.started;
            let holdings = &self.holdings;
            instances.extend(holdings.adopted().iter().map(|h| self.provisioned(h, started)));
            instances.extend(holdings.claimed().iter().map(|h| self.provisioned(h, started)));
            instances.extend(holdings.created().iter().map(|h| self.provisioned(h, started)));
        }
        Outcome {
            run: self.request.run.clone(),
            label: self.label.clone(),
            requested: self.request.options.count,
            usage: self.request.options.usage,
            instances,
            timings: stopwatch.timings(self.plane.clock.steady()),
            search: self.holdings.search(),
            failure,
            terminated: clean_up.terminated,
            returned: clean_up.returned,
            kept: clean_up.kept,
            clean_up_failures: clean_up.failures,
        }
    }

    fn provisioned<S: TypedState>(&self, held: &Holding<S>, started: Duration) -> Provisioned {
        let spec = held.instance.spec();
        Provisioned {
            id: held.instance.id().clone(),
            label: match &held.label {
                Some(own) => own.to_string(),
                None => self.label.to_string(),
            },
            source: held.source,
            spec: spec.clone(),
            milestones: held.moments.since(started),
            why: self.why(held.source, held.way, spec),
        }
    }

    fn why(&self, source: MachineSource, way: Option<ClaimWay>, spec: &MachineSpec) -> String {
        let way = match way {
            None => "",
            Some(ClaimWay::Ready) => ", was online",
            Some(ClaimWay::Registers) => ", had to register",
        };
        let pattern = self.requirements.types.covering(&spec.instance_type);
        match (source, pattern) {
            (MachineSource::Adopted, _) => "the run had it".to_owned(),
            (MachineSource::Warm, Some(pattern)) => format!("idle, matches {pattern}{way}"),
            (MachineSource::Warm, None) => format!("idle{way}"),
            (MachineSource::Cold, _) => {
                let shortage = self.holdings.search().shortage();
                match spec.usage_class == self.requirements.usage {
                    true => shortage,
                    false => format!("{shortage}; no capacity on {}", self.requirements.usage),
                }
            }
        }
    }
}

impl Moments {
    pub(super) fn since(self, started: Duration) -> Milestones {
        let since = |at: Duration| at.saturating_sub(started);
        let owned = since(self.owned);
        let ready = self.ready.map(since).unwrap_or_default().max(owned);
        let registered = self.registered.map_or(ready, since);
        Milestones {
            found: self.found.map(since),
            owned,
            registered: registered.clamp(owned, ready),
            ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_clock_does_not_put_milestones_out_of_order() {
        let at = Duration::from_millis;
        let milestones = |registered: u64| {
            let registered = Some(at(registered));
            let moments = Moments {
                found: Some(at(1010)),
                owned: at(1020),
                registered,
                ready: Some(at(1100)),
            };
            moments.since(at(1000)).registered
        };
        for (said, told) in [(1050, 50), (0, 20), (9000, 100), (1020, 20), (1100, 100)] {
            assert_eq!(milestones(said), Duration::from_millis(told), "said at {said}");
        }
    }
}
