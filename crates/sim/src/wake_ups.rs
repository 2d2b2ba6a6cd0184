//! Wake-ups of a history: whether agents are woken, and the faults of that.
//!
//! They are apart from all other faults. Every invariant that holds without these faults must hold with
//! them: an agent that misses a wake-up notices a change a little later, and an agent that gets a false
//! one finds that nothing has changed.

use crate::faults::Fault;
use crate::kernel::{Micros, digest};

const SECOND: Micros = 1_000_000;

/// How much later than usual a wake-up arrives at most. SQS keeps one no longer.
const LATEST: Micros = 60 * SECOND;

/// The faults of wake-ups, in a history whose agents are woken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WakeUpFaults {
    /// How often each kind happens, in thousandths of the wake-ups.
    pub rates: Vec<(Fault, u32)>,
    /// When no agent hears any, in microseconds.
    pub unheard: Option<(u64, u64)>,
}

/// What becomes of a wake-up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deliveries {
    /// After which times it arrives.
    pub(crate) after: Vec<Micros>,
    /// After which time a false one arrives at another machine.
    pub(crate) forged_after: Option<Micros>,
    pub(crate) faults: Vec<Fault>,
}

impl WakeUpFaults {
    /// The faults of the history with this seed; `None` if its agents are not woken. They are not drawn, so
    /// that the rest of the history does not depend on them.
    pub(crate) fn of(seed: u64) -> Option<WakeUpFaults> {
        let chosen = digest(&[&seed, &"wake-ups"]);
        if chosen.is_multiple_of(4) {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(chosen);
        let mut rates = Vec::new();
        for fault in [Fault::WakeUpLost, Fault::WakeUpTwice, Fault::WakeUpLate, Fault::WakeUpForged]
        {
            if random.bool() {
                rates.push((fault, [100, 300, 900][random.usize(0..3)]));
            }
        }
        let from = random.u64(0..400) * SECOND;
        let unheard = (from, from + random.u64(5..200) * SECOND);
        Some(WakeUpFaults { rates, unheard: (random.u8(0..3) == 0).then_some(unheard) })
    }

    pub(crate) fn are_unheard(&self, now: Micros) -> bool {
        self.unheard.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// What becomes of a wake-up that usually takes up to `latency`.
    pub(crate) fn deliveries(&self, latency: Micros, random: &mut fastrand::Rng) -> Deliveries {
        let rate = |fault| self.rates.iter().find(|(it, _)| *it == fault).map_or(0, |(_, it)| *it);
        let mut deliveries = Deliveries::default();
        let usual = random.u64(0..latency.max(1));
        let mut happens = |fault| {
            let happens = random.u32(0..1000) < rate(fault);
            if happens {
                deliveries.faults.push(fault);
            }
            happens.then(|| random.u64(0..LATEST))
        };
        deliveries.forged_after = happens(Fault::WakeUpForged);
        if happens(Fault::WakeUpLost).is_some() {
            return deliveries;
        }
        let late = happens(Fault::WakeUpLate).unwrap_or(0);
        let again = happens(Fault::WakeUpTwice);
        deliveries.after.push(usual + late);
        deliveries.after.extend(again.map(|later| usual + later));
        deliveries
    }
}
