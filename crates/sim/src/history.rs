//! Plays one history from its beginning to the point at which nothing may be left.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::credentials::Minted;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{Pool, Store};

use crate::audit::{Invariant, Violation};
use crate::faults::{CallSite, Fault};
use crate::harness::{Harness, PROBE, ScheduledAction, Tally};
use crate::kernel::Kernel;
use crate::plan::{Ask, CLASS_NAMES, Plan, SECOND};
use crate::process::ProcessOutcome;
use crate::world::{TARGET, at_once, credentials};

/// The result of [`play`].
#[derive(Debug, Clone)]
pub struct History {
    /// The first violated invariant.
    pub violation: Option<Violation>,
    /// Events that were handled.
    pub steps: u64,
    /// Virtual time that passed.
    pub lasted: Duration,
    /// How often each fault was injected.
    pub faults: BTreeMap<Fault, u64>,
    pub tally: Tally,
    /// One line for each event, if a journal was asked for.
    pub journal: Vec<String>,
    /// The calls into which a fault was injected at random.
    pub faulty_calls: Vec<CallSite>,
    pub watched: WatchedProcess,
}

/// The calls and the outcome of the watched process of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchedProcess {
    /// The words of its calls, in order.
    pub calls: Vec<String>,
    /// `None` if the process has not ended.
    pub outcome: Option<ProcessOutcome>,
}

/// Plays the history of a plan, and writes a journal if `journal` is set.
pub fn play(plan: &Plan, journal: bool) -> History {
    let kernel = Arc::new(Kernel::new(plan.seed, false, journal));
    let mut harness = Harness::new(plan, kernel.clone());
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| play_phases(&mut harness, plan)));
    if let Err(panic) = played {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        harness.world.audit().violated(Invariant::NoPanic, words.unwrap_or_default());
    }
    let violation = harness.world.audit().violation();
    History {
        violation,
        steps: kernel.steps(),
        lasted: Duration::from_micros(kernel.now() - plan.begins_at),
        faults: kernel.faults(),
        tally: harness.tally.clone(),
        journal: kernel.journal(),
        faulty_calls: harness.faulty_calls(),
        watched: WatchedProcess {
            calls: harness.watched_calls(),
            outcome: harness.watched_outcome,
        },
    }
}

/// Longer than any machine lives after the last provision has begun: validation, the maximum
/// runtime, and the agents' grace.
pub(crate) const ALL_DEADLINES: u64 = 1_000 * SECOND;

/// The same, if refresh renews idle machines for half an hour.
const ALL_DEADLINES_OF_KEPT: u64 = 2_200 * SECOND;

/// How long no refresh runs if the plan says so.
const WITHOUT_REFRESH: u64 = 3 * 3600 * SECOND;

fn play_phases(harness: &mut Harness, plan: &Plan) {
    set_up(harness, plan);
    harness.play(plan.faults_end_at);
    if harness.is_over() {
        return;
    }

    harness.world.compute.set_capacity(usize::MAX);
    // Faults have ended: the next provision must succeed, whether or not refresh has run.
    if plan.refreshed_after_faults {
        harness.refresh(BTreeMap::new());
        harness.play(plan.faults_end_at + 30 * SECOND);
    }
    harness.provision(PROBE, &Ask::of(2));
    let deadlines = if plan.keeps_machines() { ALL_DEADLINES_OF_KEPT } else { ALL_DEADLINES };
    harness.play(plan.faults_end_at + deadlines);
    if harness.is_over() {
        return;
    }
    if let Some(kind) = harness.unfinished().first() {
        harness
            .world
            .audit()
            .violated(Invariant::EveryCallEnds, format!("{kind:?} has not come to an end"));
        return;
    }
    if let Some(id) = harness.machines_with_agents().into_iter().next() {
        let record = harness.world.audit().record(&id).cloned();
        let how = format!("{id} is alive past all deadlines: {record:?}");
        harness.world.audit().violated(Invariant::TerminatesItself, how);
        return;
    }
    let mut now = plan.faults_end_at + deadlines;
    if plan.no_refresh_for_hours {
        harness.kernel.count(Fault::NoRefresh);
        now += WITHOUT_REFRESH;
        harness.play(now);
    }
    refresh_until_empty(harness, now);
}

/// Starts the first refresh, or lets runs come before it.
fn set_up(harness: &mut Harness, plan: &Plan) {
    harness.kernel.advance_to(plan.begins_at);
    match plan.first_refresh_at {
        None => {
            write_settings(harness, plan);
            harness.refresh(plan.settings.clone());
        }
        Some(at) => harness.schedule(at, ScheduledAction::FirstRefresh),
    }
}

/// Writes what a refresh before the beginning of the history would have written.
pub(crate) fn write_settings(harness: &Harness, plan: &Plan) {
    let now = harness.kernel.true_time();
    let credentials = credentials(now + plan.token_life());
    let expires_at = credentials.expires_at;
    let minted = Minted { target: TARGET.to_owned(), minted_at: now, expires_at };
    let minted = serde_json::to_string(&minted).expect("texts and times");
    let mut settings = plan.settings.clone();
    settings.insert("credentials-minted".to_owned(), minted);
    at_once(harness.world.store.put_credentials(&credentials, &settings))
        .expect("an in-memory store");
    at_once(harness.world.pool.set_up(&classes())).expect("an in-memory pool");
}

/// Runs refresh twice and checks that nothing is left. Twice, because a ticket may be
/// hidden from the first.
fn refresh_until_empty(harness: &mut Harness, mut now: u64) {
    harness.world.machines().cancel(None);
    for _ in 0..2 {
        let nothing = ["min-idle", "on-interruption"].map(|name| (name.to_owned(), String::new()));
        harness.refresh(nothing.into());
        now += 60 * SECOND;
        harness.play(now);
        if harness.is_over() {
            return;
        }
    }
    check_nothing_left(harness);
}

/// Checks that no machine, live record, runner, ticket, open intent or note of an interruption is
/// left.
pub(crate) fn check_nothing_left(harness: &Harness) {
    let world = &harness.world;
    let left = |what: &str, things: Vec<String>| {
        if !things.is_empty() {
            world.audit().violated(Invariant::NothingLeft, format!("{what}: {}", things.join(" ")));
        }
    };
    let live = world.store.select(|record| record.state.is_live());
    left(
        "live records",
        live.iter().map(|record| format!("{} {}", record.id, record.state)).collect(),
    );
    left("machines", world.machines().alive().iter().map(ToString::to_string).collect());
    let now = world.kernel.now();
    left("runners", world.machines().runners(now).into_iter().map(|runner| runner.name).collect());
    for class in classes() {
        let depth = at_once(world.pool.depth(&class)).expect("an in-memory pool").total();
        left("tickets", (0..depth).map(|_| class.to_string()).collect());
    }
    let intents = at_once(world.store.open_intents()).expect("an in-memory store");
    left("intents", intents.iter().map(|intent| intent.id.to_string()).collect());
    let settings = at_once(Store::settings(&world.store)).unwrap_or_default();
    let notes = settings.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, _)| name);
    left("notes", notes.filter(|name| name.starts_with("interrupted-machine-")).collect());
}

fn classes() -> Vec<ResourceClass> {
    CLASS_NAMES.map(|name| ResourceClass::new(name).expect("a sound name")).to_vec()
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
    fn the_first_seeds_violate_no_invariant() {
        for seed in 0..40 {
            assert_eq!(play(&Plan::of(seed), false).violation, None, "seed {seed}");
        }
    }
}
