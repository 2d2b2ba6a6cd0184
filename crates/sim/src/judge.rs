//! Judges one build by a part of the simulation, until an invariant is violated.

use crate::explore::{SCENES, explore};
use crate::seeds::play_seeds;
use crate::sweep::{Scenario, sweep};

/// What judges a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judge {
    /// The histories of these seeds.
    Seeds(std::ops::Range<u64>),
    Sweep,
    BriefScenes,
}

/// More states than any brief scene has. A bug may make a scene endless.
const MAX_STATES: u64 = 300_000;

impl Judge {
    /// Describes the first violation; `None` if there is none.
    pub fn judge(self) -> Option<String> {
        match self {
            Judge::Seeds(seeds) => by_seeds(seeds),
            Judge::Sweep => by_sweep(),
            Judge::BriefScenes => by_scenes(),
        }
    }
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
