//! Every history of a small scene: all orders in which calls may have their effects, with so many
//! faults at every point where one may strike.
//!
//! The real code, not a model of it. A process knows nothing but what it was told, so a state is
//! told by what stands in the world and by what each process has been told so far; a state that
//! was met before is not explored again. That makes the space finite, and the search complete for
//! its bounds: zero latency, and time that passes only when nothing else can happen, or as a fault.

mod scenes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::audit::{Invariant, Violation};
use crate::faults::{Crash, Fault, FaultSource, Rates};
use crate::harness::Harness;
use crate::history;
use crate::kernel::{Kernel, Memories, Waiting};
use crate::plan::{Plan, SECOND};

pub use self::scenes::SCENES;

/// A small situation whose schedules are all explored.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// The name by which the command line selects it.
    pub name: &'static str,
    /// Who takes part, in words.
    pub cast: &'static str,
    /// Whether it takes seconds, and not minutes.
    pub brief: bool,
    /// How many faults strike at the most.
    pub faults: u32,
    /// The faults that may strike a call.
    blows: &'static [Blow],
    set: fn(&mut Harness),
}

/// What the search came to.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// How many distinct states were reached.
    pub states: u64,
    /// Steps from one to another.
    pub steps: u64,
    /// Histories that were played to their end, which are all that end differently.
    pub ends: u64,
    /// The longest, in choices.
    pub longest: usize,
    /// Which promise was broken, and the history that broke it.
    pub broken: Option<(Violation, Vec<String>)>,
    /// Whether all of it was explored.
    pub complete: bool,
}

impl Scene {
    /// What may go wrong, in words.
    pub fn may_happen(&self) -> String {
        let blows: Vec<&str> = self.blows.iter().map(|blow| blow.as_str()).collect();
        match self.faults {
            0 => "nothing goes wrong".to_owned(),
            1 => format!("one of: {}", blows.join(", ")),
            most => format!("up to {most} of: {}", blows.join(", ")),
        }
    }
}

/// Explores a scene, up to so many states.
pub fn explore(scene: &Scene, most: u64) -> Explored {
    let mut search =
        Search { scene, visited: HashSet::new(), path: Vec::new(), found: Explored::default() };
    search.found.complete = true;
    loop {
        search.play();
        let states = search.visited.len() as u64;
        if search.found.broken.is_some() || states >= most {
            search.found.complete = false;
            break;
        }
        if !search.turn_back() {
            break;
        }
    }
    search.found.states = search.visited.len() as u64;
    search.found
}

/// One choice on the way: how many there were, and which was taken.
#[derive(Debug, Clone)]
struct Fork {
    options: usize,
    taken: usize,
    /// What processes had been told when they came to it.
    memories: Memories,
}

struct Search<'a> {
    scene: &'a Scene,
    visited: HashSet<u64>,
    path: Vec<Fork>,
    found: Explored,
}

/// What may happen next.
#[derive(Debug, Clone, Copy)]
enum Way {
    Call(Waiting, Blow),
    /// All pending calls are slow, and the next sleeping process wakes up first.
    Time,
}

/// What befalls a chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    None,
    Fails,
    AnswerLost,
    Late,
    Dies,
    /// A sleeping process wakes up before it.
    Slow,
}

impl Blow {
    fn as_str(self) -> &'static str {
        match self {
            Blow::None => "nothing",
            Blow::Fails => "a call fails",
            Blow::AnswerLost => "an answer is lost",
            Blow::Late => "a request arrives late",
            Blow::Dies => "a process dies",
            Blow::Slow => "a call is slow",
        }
    }
}

impl Search<'_> {
    /// Returns a new stage with the scene set up on it.
    fn begin(&self, journal: bool) -> Harness {
        let plan = plan(self.scene.faults == 0);
        let mut stage = Harness::new(&plan, Arc::new(Kernel::new(1, true, journal)));
        // On the way to the last fork, everything is known.
        if !self.path.is_empty() {
            stage.kernel.doze();
        }
        history::write_settings(&stage, &plan);
        (self.scene.set)(&mut stage);
        stage
    }

    fn play(&mut self) {
        let mut stage = self.begin(false);
        let Search { scene, visited, path, found } = self;
        let mut depth = 0;
        let ended = drive(&mut stage, scene, |stage, options, left| {
            depth += 1;
            found.longest = found.longest.max(depth);
            found.steps += 1;
            if let Some(fork) = path.get(depth - 1) {
                if depth == path.len() {
                    stage.kernel.remember(fork.memories.clone());
                }
                return Some(fork.taken);
            }
            // A state with as many faults left was met before: so was all that follows.
            if !visited.insert(stage.digest() ^ u64::from(left) << 60) {
                return None;
            }
            path.push(Fork { options, taken: 0, memories: stage.kernel.memories() });
            Some(0)
        });
        if ended && (stage.is_over() || visited.insert(stage.digest())) {
            found.ends += 1;
            finish(&mut stage);
            if let Some(violation) = stage.world.audit().violation() {
                self.found.broken = Some((violation, self.retell()));
            }
        }
    }

    /// Plays the same again, with a journal.
    fn retell(&self) -> Vec<String> {
        let mut stage = self.begin(true);
        let mut forks = self.path.iter();
        if drive(&mut stage, self.scene, |_, _, _| forks.next().map(|fork| fork.taken)) {
            finish(&mut stage);
        }
        stage.kernel.journal()
    }

    /// Goes back to the last fork that has an untried way; `false` if there is none.
    fn turn_back(&mut self) -> bool {
        while let Some(fork) = self.path.last_mut() {
            if fork.taken + 1 < fork.options {
                fork.taken += 1;
                return true;
            }
            self.path.pop();
        }
        false
    }
}

/// Goes on until the modes are done, by the ways that `pick` takes where there are several.
/// `false` if it takes none.
fn drive(
    stage: &mut Harness,
    scene: &Scene,
    mut pick: impl FnMut(&Harness, usize, u32) -> Option<usize>,
) -> bool {
    let mut left = scene.faults;
    loop {
        wake(stage);
        let under_way = stage.kernel.choices().iter().any(|call| call.orphaned);
        if stage.is_over() || stage.unfinished().is_empty() && !under_way {
            return true;
        }
        let ways = ways(stage, scene.blows, left);
        let way = match ways.len() {
            0 if pass(stage, u64::MAX) => continue,
            0 => return true,
            1 => ways[0],
            many => match pick(stage, many, left) {
                Some(at) => ways[at],
                None => return false,
            },
        };
        left -= take(stage, way);
    }
}

/// Lets time pass to the next event, and that happen; `false` if there is none until then.
fn pass(stage: &mut Harness, until: u64) -> bool {
    let Some(event) = stage.kernel.next(until) else { return false };
    let told = stage.kernel.handle(event);
    stage.told(told);
    true
}

/// The ways to go on. A call whose time no other process can observe is made at once.
fn ways(stage: &Harness, blows: &[Blow], faults: u32) -> Vec<Way> {
    const UNSEEN: [&str; 9] = [
        "settings",
        "put settings",
        "set up store",
        "set up pool",
        "set up compute",
        "put demand",
        "beat",
        "forget",
        "prepare",
    ];
    let waiting = stage.kernel.choices();
    if let Some(unseen) = waiting.iter().find(|call| UNSEEN.contains(&call.what)) {
        return vec![Way::Call(*unseen, Blow::None)];
    }
    let mut options: Vec<Way> = waiting.iter().map(|call| Way::Call(*call, Blow::None)).collect();
    if faults == 0 {
        return options;
    }
    for call in waiting.iter().filter(|call| !call.orphaned) {
        for blow in blows.iter().filter(|blow| **blow != Blow::Slow) {
            let changes = changes_something(call.what);
            if changes || !matches!(blow, Blow::Late | Blow::AnswerLost) {
                options.push(Way::Call(*call, *blow));
            }
        }
    }
    if blows.contains(&Blow::Slow) && !waiting.is_empty() && stage.kernel.due().is_some() {
        options.push(Way::Time);
    }
    options
}

fn changes_something(what: &str) -> bool {
    const CHANGES: [&str; 9] = [
        "write",
        "report",
        "send",
        "delete",
        "put back",
        "put intent",
        "launch",
        "terminate",
        "mark ticketed",
    ];
    CHANGES.contains(&what)
}

/// Goes one step. Gives how many faults that took.
fn take(stage: &mut Harness, option: Way) -> u32 {
    let mut random = fastrand::Rng::with_seed(0);
    let sound = FaultSource::sound(0, 0);
    let (told, faults) = match option {
        Way::Call(call, blow) => {
            let fate = match blow {
                Blow::None | Blow::Slow => sound,
                Blow::Fails => sound.with(Fault::Throttled, &mut random),
                Blow::AnswerLost => sound.with(Fault::AnswerLost, &mut random),
                Blow::Late => sound.with(Fault::ArrivedLate, &mut random),
                Blow::Dies => sound.deadly(Crash::Before),
            };
            (stage.kernel.choose(call.id, fate), u32::from(blow != Blow::None))
        }
        Way::Time => {
            pass(stage, u64::MAX);
            return 1;
        }
    };
    stage.told(told);
    faults
}

/// Lets every process act that is due now.
fn wake(stage: &mut Harness) {
    let now = stage.kernel.now();
    while !stage.is_over() && pass(stage, now) {}
}

/// Lets everything happen in the plainest order until the modes are done.
fn settle(stage: &mut Harness) {
    plainly(stage, |stage| stage.unfinished().is_empty(), 3600 * SECOND);
}

fn plainly(stage: &mut Harness, enough: impl Fn(&Harness) -> bool, span: u64) {
    let until = stage.kernel.now() + span;
    loop {
        wake(stage);
        if stage.is_over() {
            return;
        }
        if let Some(call) = stage.kernel.choices().first() {
            take(stage, Way::Call(*call, Blow::None));
            continue;
        }
        if enough(stage) {
            return;
        }
        if !pass(stage, until) {
            return stage.kernel.pass(until);
        }
    }
}

/// From here on nothing goes wrong: the next provision succeeds, and in the end nothing is left.
fn finish(stage: &mut Harness) {
    if stage.is_over() {
        return;
    }
    stage.kernel.doze();
    stage.world.compute.set_capacity(usize::MAX);
    stage.provision(crate::harness::PROBE, 1);
    plainly(stage, |_| false, history::ALL_DEADLINES);
    if stage.is_over() {
        return;
    }
    if let Some(task) = stage.unfinished().first() {
        stage.world.audit().broken(Invariant::Ends, format!("{task:?} has not come to an end"));
        return;
    }
    if let Some(id) = stage.attended().first() {
        let how = format!("{id} is alive past all deadlines");
        stage.world.audit().broken(Invariant::EndsItself, how);
        return;
    }
    stage.world.yard().cancel(None);
    for _ in 0..2 {
        stage.refresh([("min-idle".to_owned(), String::new())].into());
        plainly(stage, |_| false, 60 * SECOND);
    }
    history::nothing_left(stage);
}

/// Nothing goes wrong by dice, agents hear of news, and hearts beat seldom, so that only what
/// matters happens.
fn plan(clear: bool) -> Plan {
    let mut settings = BTreeMap::new();
    for (name, value) in [
        ("heartbeat-period-sec", "100"),
        ("claim-registration-timeout-sec", "4"),
        ("claim-timeout-sec", "120"),
        ("created-timeout-sec", "240"),
        ("validation-timeout-sec", "60"),
        ("max-runtime-min", "5"),
        ("release-timeout-sec", "8"),
        ("self-termination-grace-sec", "30"),
        ("boot-deadline-sec", "90"),
        ("agent-poll-waiting-sec", "500"),
        ("agent-poll-running-sec", "500"),
        ("signal-poll-sec", "4"),
        ("pickup-patience-sec", "0"),
        ("rescue", "off"),
        ("retention-min", "60"),
        ("resource-class-config", r#"{"large":{"cpu":2,"mem":4096}}"#),
    ] {
        settings.insert(name.to_owned(), value.to_owned());
    }
    Plan {
        seed: 1,
        settings,
        rates: Rates { calls: Vec::new(), latency: 1 },
        // Not by dice, but it may happen.
        mishaps: if clear { Vec::new() } else { vec![(Fault::Crash, 0)] },
        store_tells: true,
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::run_id;

    /// Found by a seed: the claims of two workers by two tickets of one machine, in the same
    /// millisecond, looked like one that was repeated.
    #[test]
    fn one_machine_is_not_claimed_by_two_tickets_of_different_idle_states() {
        let twins = SCENES.iter().find(|scene| scene.name == "twins").expect("there is one");
        let found = explore(&Scene { blows: &[Blow::Fails], ..*twins }, u64::MAX);
        assert_eq!(found.broken, None);
        assert!(found.complete && found.states > 200, "{} states", found.states);
    }

    #[test]
    fn what_breaks_a_promise_is_found_and_told() {
        let scene = Scene {
            name: "haunted",
            cast: "a run, and an idle machine that still works for another",
            brief: true,
            faults: 0,
            blows: &[],
            set: |stage| {
                stage.plant_idle("i-0901", 1);
                settle(stage);
                let id = ondeck_core::model::ids::InstanceId::new("i-0901").expect("a sound id");
                stage.world.yard().believe(&id, Some(&run_id("9")));
                stage.provision("1", 1);
            },
        };
        let found = explore(&scene, u64::MAX);
        let (violation, journal) = found.broken.expect("it is haunted");
        assert_eq!(violation.promise, Invariant::Belief);
        assert!(journal.iter().any(|line| line.contains("write claim i-0901")), "{journal:#?}");
        assert!(!found.complete);
    }
}
