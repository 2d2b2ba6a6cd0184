//! One history from its beginning to the point where nothing may be left.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{Pool, Store};

use crate::audit::{Invariant, Violation};
use crate::faults::{Fault, Place};
use crate::harness::{Harness, PROBE, Tally};
use crate::kernel::Kernel;
use crate::plan::{Plan, SECOND};
use crate::process::Ending;
use crate::world::at_once;

/// What came of a history.
#[derive(Debug, Clone)]
pub struct History {
    /// The promise that was broken first.
    pub violation: Option<Violation>,
    /// How many events were handled.
    pub steps: u64,
    /// How much virtual time passed.
    pub lasted: Duration,
    /// What went wrong, how often.
    pub faults: BTreeMap<Fault, u64>,
    /// What came of the modes.
    pub tally: Tally,
    /// Event by event, if that was asked for.
    pub journal: Vec<String>,
    /// The calls that something befell.
    pub struck: Vec<Place>,
    /// What the watched process did.
    pub watched: Watched,
}

/// What a process did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// Its calls, in order.
    pub calls: Vec<String>,
    /// Its end, unless its machine went away under it, or it has none.
    pub ending: Option<Ending>,
}

/// Plays the history of a plan, with a journal if asked for, and returns what came of it.
pub fn play(plan: &Plan, journal: bool) -> History {
    let kernel = Arc::new(Kernel::new(plan.seed, false, journal));
    let mut stage = Harness::new(plan, kernel.clone());
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| to_the_end(&mut stage, plan)));
    if let Err(panic) = played {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        stage.world.audit().broken(Invariant::NoPanic, words.unwrap_or_default());
    }
    let violation = stage.world.audit().violation();
    History {
        violation,
        steps: kernel.steps(),
        lasted: Duration::from_micros(kernel.now()),
        faults: kernel.faults(),
        tally: stage.tally.clone(),
        journal: kernel.journal(),
        struck: stage.struck(),
        watched: Watched { calls: stage.asked(), ending: stage.ending },
    }
}

/// How long the longest-lived thing lasts after the last run has asked for machines, and then
/// some: validation, a run's time, the agents' grace.
pub(crate) const ALL_DEADLINES: u64 = 1_000 * SECOND;

/// How long no refresh runs, in histories that neglect it.
const HOURS: u64 = 3 * 3600 * SECOND;

fn to_the_end(stage: &mut Harness, plan: &Plan) {
    set_up(stage, plan);
    stage.play(plan.calm_at);
    if stage.is_over() {
        return;
    }

    stage.world.compute.set_capacity(usize::MAX);
    // Faults have stopped: the next provision succeeds, whether or not refresh has run.
    if plan.tended {
        stage.refresh(BTreeMap::new());
        stage.play(plan.calm_at + 30 * SECOND);
    }
    stage.provision(PROBE, 2);
    stage.play(plan.calm_at + ALL_DEADLINES);
    if stage.is_over() {
        return;
    }
    if let Some(task) = stage.unfinished().first() {
        stage.world.audit().broken(Invariant::Ends, format!("{task:?} has not come to an end"));
        return;
    }
    if let Some(id) = stage.attended().into_iter().next() {
        let record = stage.world.audit().record(&id).cloned();
        let how = format!("{id} is alive past all deadlines: {record:?}");
        stage.world.audit().broken(Invariant::EndsItself, how);
        return;
    }
    let mut now = plan.calm_at + ALL_DEADLINES;
    if plan.neglected {
        stage.kernel.count(Fault::NoRefresh);
        now += HOURS;
        stage.play(now);
    }
    clear_up(stage, now);
}

/// The first refresh, before anything goes wrong.
fn set_up(stage: &mut Harness, plan: &Plan) {
    write_settings(stage, plan);
    stage.refresh(plan.settings.clone());
}

/// What a refresh before the beginning of the history has left.
pub(crate) fn write_settings(stage: &Harness, plan: &Plan) {
    at_once(Store::put_settings(&stage.world.store, &plan.settings)).expect("a store in memory");
    at_once(stage.world.pool.set_up(&[large()])).expect("a pool in memory");
}

/// Two refreshes, since the first may meet a ticket that is hidden; and then nothing is left.
fn clear_up(stage: &mut Harness, mut now: u64) {
    stage.world.yard().cancel(None);
    for _ in 0..2 {
        stage.refresh([("min-idle".to_owned(), String::new())].into());
        now += 60 * SECOND;
        stage.play(now);
        if stage.is_over() {
            return;
        }
    }
    nothing_left(stage);
}

/// Checks that nothing is left that costs money or misleads a run.
pub(crate) fn nothing_left(stage: &Harness) {
    let world = &stage.world;
    let left = |what: &str, things: Vec<String>| {
        if !things.is_empty() {
            world.audit().broken(Invariant::NothingLeft, format!("{what}: {}", things.join(" ")));
        }
    };
    let live = world.store.select(|record| record.state.is_live());
    left(
        "live records",
        live.iter().map(|record| format!("{} {}", record.id, record.state)).collect(),
    );
    left("machines", world.yard().alive().iter().map(ToString::to_string).collect());
    left("runners", world.yard().runners().into_iter().map(|runner| runner.name).collect());
    let depth = at_once(world.pool.depth(&large())).expect("a pool in memory").total();
    left("tickets", (0..depth).map(|_| "1".to_owned()).collect());
    let intents = at_once(world.store.open_intents()).expect("a store in memory");
    left("intents", intents.iter().map(|intent| intent.id.to_string()).collect());
}

fn large() -> ResourceClass {
    ResourceClass::new("large").expect("a sound name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_one_history() {
        for seed in [0, 3, 5, 6] {
            let (first, again) = (play(&Plan::of(seed), true), play(&Plan::of(seed), true));
            assert!(first.journal.len() > 100, "seed {seed} hardly does anything");
            assert_eq!(first.journal, again.journal, "seed {seed}");
            let silent = play(&Plan::of(seed), false);
            assert_eq!((silent.steps, silent.faults), (first.steps, first.faults), "seed {seed}");
        }
    }

    #[test]
    fn the_first_seeds_keep_every_promise() {
        for seed in 0..40 {
            assert_eq!(play(&Plan::of(seed), false).violation, None, "seed {seed}");
        }
    }
}
