//! Where the time of a run's provisions went, beside what is usual in the pool.

use ondeck_core::model::readiness::ClaimWay;
use ondeck_core::model::summary::{MachineNote, ProvisionSummary};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::explain::{PhaseName, RunStory};

use super::super::wire::millis;

/// How long one phase of one call took.
#[derive(Debug, Clone)]
pub(super) struct LedgerRow {
    /// When the call began.
    pub(super) call: Timestamp,
    pub(super) phase: &'static str,
    pub(super) ms: u64,
    /// The median of recent calls of other runs.
    pub(super) median: Option<u64>,
    /// The 95th percentile of them.
    pub(super) p95: Option<u64>,
}

/// The phases of each call that it entered, and what its slowest machines took from their claim until they
/// served the run, which is part of the selection or of the validation.
pub(super) fn rows(story: &RunStory) -> Vec<LedgerRow> {
    let mut rows = Vec::new();
    for call in &story.calls {
        let row = |phase, ms, median, p95| LedgerRow { call: call.began, phase, ms, median, p95 };
        for phase in PhaseName::ALL {
            let Some(ms) = phase.of(&call.phases) else { continue };
            if phase == PhaseName::Total {
                let ways = [
                    ("ready claim", true, story.typical.ready_p95),
                    ("registration", false, story.typical.registration_p95),
                ];
                rows.extend(ways.into_iter().filter_map(|(phase, was_ready, usual)| {
                    Some(row(phase, slowest(call, was_ready)?, None, usual.map(millis)))
                }));
            }
            let typical = story.typical.phase(phase);
            let (median, p95) = (typical.map(|it| it.median), typical.map(|it| it.p95));
            rows.push(row(name(phase), ms, median, p95));
        }
    }
    rows
}

/// How long the slowest of the warm machines took from its claim until it served the run: of those that were
/// registered before, or of the others.
fn slowest(call: &ProvisionSummary, was_ready: bool) -> Option<u64> {
    let is_one = |note: &&MachineNote| (note.way == Some(ClaimWay::Ready)) == was_ready;
    let warm = call.machines.iter().filter(|note| note.source == "warm").filter(is_one);
    warm.filter_map(|note| Some(note.registered_ms?.saturating_sub(note.owned_ms))).max()
}

fn name(phase: PhaseName) -> &'static str {
    match phase {
        PhaseName::Preparation => "preparation",
        PhaseName::Adoption => "adoption",
        PhaseName::Selection => "selection",
        PhaseName::Creation => "creation",
        PhaseName::Validation => "validation",
        PhaseName::CleanUp => "clean-up",
        PhaseName::Total => "total",
    }
}
