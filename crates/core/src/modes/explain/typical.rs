//! How long the phases of a provision usually take in this pool.

use std::time::Duration;

use crate::model::ids::RunId;
use crate::model::settings::Settings;
use crate::model::summary::{CallOrigin, CallResult, Phases, ProvisionSummary};

/// The phases of a provision, as the ledger lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseName {
    Preparation,
    Adoption,
    Selection,
    Creation,
    Validation,
    CleanUp,
    Total,
}

impl PhaseName {
    pub const ALL: [PhaseName; 7] = [
        PhaseName::Preparation,
        PhaseName::Adoption,
        PhaseName::Selection,
        PhaseName::Creation,
        PhaseName::Validation,
        PhaseName::CleanUp,
        PhaseName::Total,
    ];

    /// How long the phase took; `None` if the call did not enter it.
    pub fn of(self, phases: &Phases) -> Option<u64> {
        match self {
            PhaseName::Preparation => phases.preparation_ms,
            PhaseName::Adoption => phases.adoption_ms,
            PhaseName::Selection => phases.selection_ms,
            PhaseName::Creation => phases.creation_ms,
            PhaseName::Validation => phases.validation_ms,
            PhaseName::CleanUp => phases.clean_up_ms,
            PhaseName::Total => Some(phases.total_ms),
        }
    }
}

/// The median and the 95th percentile of some spans, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    pub median: u64,
    pub p95: u64,
    /// How many spans these are of.
    pub count: usize,
}

/// What is usual in the pool, from recent calls of other runs that handed over their machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Typical {
    /// How many calls the values come from.
    pub calls: usize,
    /// The 95th percentile of the time that a registration takes, which refresh stores.
    pub registration_p95: Option<Duration>,
    /// The same of the time that a machine takes to serve a run that found it registered.
    pub ready_p95: Option<Duration>,
    phases: Vec<Phases>,
}

impl Typical {
    pub(super) fn of(recent: &[ProvisionSummary], run: &RunId, settings: &Settings) -> Typical {
        let is_comparable = |call: &&ProvisionSummary| {
            let succeeded = call.ending.result == CallResult::HandingOver;
            succeeded && call.origin == CallOrigin::Run && call.run != *run
        };
        let phases: Vec<Phases> =
            recent.iter().filter(is_comparable).map(|call| call.phases).collect();
        let Settings { registration_p95, ready_p95, .. } = settings;
        let (registration_p95, ready_p95) = (*registration_p95, *ready_p95);
        Typical { calls: phases.len(), registration_p95, ready_p95, phases }
    }

    /// How long a phase usually takes; `None` if no recent call entered it.
    pub fn phase(&self, name: PhaseName) -> Option<Spread> {
        let mut spans: Vec<u64> = self.phases.iter().filter_map(|each| name.of(each)).collect();
        spans.sort_unstable();
        let rank = |percent: usize| spans.get((spans.len() * percent).div_ceil(100).max(1) - 1);
        Some(Spread { median: *rank(50)?, p95: *rank(95)?, count: spans.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_percentile_are_of_the_calls_that_entered_the_phase() {
        let took = |ms: u64| Phases { selection_ms: Some(ms), ..Phases::default() };
        let phases = (1..=100).rev().map(took).chain([Phases::default()]).collect();
        let typical = Typical { calls: 101, phases, ..Typical::default() };
        let spread = typical.phase(PhaseName::Selection).unwrap();
        assert_eq!((spread.median, spread.p95, spread.count), (50, 95, 100));
        assert_eq!(typical.phase(PhaseName::Creation), None);
        let one = Typical { calls: 1, phases: vec![took(7)], ..Typical::default() };
        let spread = one.phase(PhaseName::Selection).unwrap();
        assert_eq!((spread.median, spread.p95), (7, 7));
    }
}
