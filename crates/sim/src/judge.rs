//! A bounded judge of one build: fixed seeds, the sweep and the brief scenes, until an invariant is
//! violated.

use crate::explore::{SCENES, explore};
use crate::seeds::play_seeds;
use crate::sweep::{Scenario, sweep};

/// The seeds that are played first, because they find most bugs soonest, and those that are played
/// last.
const SEEDS: [std::ops::Range<u64>; 2] = [0..300, 300..900];

/// More states than any brief scene has. A bug may make a scene endless.
const MAX_STATES: u64 = 300_000;

/// Describes the first violation; `None` if there is none.
pub fn judge() -> Option<String> {
    let [first, last] = SEEDS;
    by_seeds(first).or_else(by_sweep).or_else(by_scenes).or_else(|| by_seeds(last))
}

fn by_seeds(seeds: std::ops::Range<u64>) -> Option<String> {
    let (seed, history) = play_seeds(seeds, 1).violations.into_iter().next()?;
    Some(format!("seed {seed}: {}", history.violation?))
}

fn by_sweep() -> Option<String> {
    Scenario::all().iter().find_map(|scenario| {
        let (case, violation) =
            sweep(|case| case.scenario == scenario.name).violations.into_iter().next()?;
        let fault = case.fault.as_str();
        Some(format!("sweep, {} call {} {fault}: {violation}", case.scenario, case.call))
    })
}

fn by_scenes() -> Option<String> {
    SCENES.iter().filter(|scene| scene.brief).find_map(|scene| {
        let explored = explore(scene, MAX_STATES);
        match explored.violation {
            Some((violation, _)) => Some(format!("scene {}: {violation}", scene.name)),
            None if !explored.complete => Some(format!("scene {}: never ends", scene.name)),
            None => None,
        }
    })
}
