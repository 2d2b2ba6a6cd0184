//! The exhaustive search: explores every history of a small scene. It tries every order in which
//! calls can have their effects, and injects each of the scene's faults at every point, up to the
//! scene's number of faults.
//!
//! It runs the real code, not a model of it. A process knows only the answers that it has received.
//! So a state consists of the content of the world and of the answers that each process has
//! received so far. A state that was reached before is not explored again. That makes the number of
//! states finite. The search is complete within its bounds: calls take no time, and time passes
//! only when nothing else can happen, or as a fault.
//!
//! A refresh asks for several lists together. It uses none of them before it has all, and their answers
//! change nothing, so the order in which it is given them matters to no process. This saves most of the
//! search:
//!
//! - The answers to these lists are part of a state, and their order is not.
//! - Of two such lists, the one whose name comes second is not answered directly before the other.
//!   Any effect of another process may come before, between and after them.
//!
//! The second point misses no state. All histories that lead to a state have the same number of effects,
//! because the answers are part of it. Let `t` be a state that is missed, with the fewest effects. All
//! states with fewer effects are explored. So a choice leads to `t` that was left out: list `a`
//! after list `b`, where `b` was chosen last and comes after `a` in the order of names. Answering `a`
//! where `b` was answered leads to a state with fewer effects than `t`, which is explored, and from
//! which `b` leads to `t`. If `b` was left out there as well, that state was reached first by a list `c`
//! that comes after `b`, and the same holds for `b` and `c`. Names get later each time, so one of these
//! choices is made.

mod scenes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::audit::{Invariant, Violation};
use crate::faults::{CallBehaviour, CrashPoint, Fault, Rates};
use crate::harness::Harness;
use crate::history;
use crate::kernel::{AnswerDigests, Kernel, PendingCall};
use crate::plan::{Ask, Plan, SECOND};

pub use self::scenes::SCENES;

/// A small scenario of which every history is explored.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// The name by which the command line selects it.
    pub name: &'static str,
    /// The runs, machines and modes that take part, in words.
    pub participants: &'static str,
    /// Whether exploring it takes seconds instead of minutes.
    pub brief: bool,
    /// How many faults are injected into one history at most.
    pub max_faults: u32,
    /// The kinds of faults that are injected.
    faults: &'static [SceneFault],
    set_up: fn(&mut Harness),
}

/// The result of [`explore`].
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// How many distinct states were reached.
    pub states: u64,
    /// Steps that were taken from one state to another.
    pub steps: u64,
    /// Histories that were played to their end: one for each distinct final state.
    pub ends: u64,
    /// The number of choices in the longest history.
    pub longest: usize,
    /// The first violation that was found, and the journal of its history.
    pub violation: Option<(Violation, Vec<String>)>,
    /// Whether every state was explored.
    pub complete: bool,
}

impl Scene {
    /// Describes the faults that may be injected.
    pub fn faults_in_words(&self) -> String {
        let faults: Vec<&str> = self.faults.iter().map(|fault| fault.as_str()).collect();
        match self.max_faults {
            0 => "nothing goes wrong".to_owned(),
            1 => format!("one of: {}", faults.join(", ")),
            max => format!("up to {max} of: {}", faults.join(", ")),
        }
    }
}

/// Explores a scene until it is complete, an invariant is violated, or `max_states` are reached.
pub fn explore(scene: &Scene, max_states: u64) -> Explored {
    let mut search = Exploration {
        scene,
        visited: HashSet::new(),
        path: Vec::new(),
        found: Explored::default(),
    };
    search.found.complete = true;
    loop {
        search.play();
        let states = search.visited.len() as u64;
        if search.found.violation.is_some() || states >= max_states {
            search.found.complete = false;
            break;
        }
        if !search.backtrack() {
            break;
        }
    }
    search.found.states = search.visited.len() as u64;
    search.found
}

/// A point of a history at which there were several choices.
#[derive(Debug, Clone)]
struct Branch {
    options: usize,
    taken: usize,
    /// What each process had been answered up to this point.
    answer_digests: AnswerDigests,
}

struct Exploration<'a> {
    scene: &'a Scene,
    visited: HashSet<u64>,
    path: Vec<Branch>,
    found: Explored,
}

/// One way in which a history can go on.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// A pending call has its effect, with this fault.
    Call(PendingCall, SceneFault),
    /// The next sleeping process wakes up before any pending call has its effect.
    Wake,
}

/// A fault that is injected into a chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SceneFault {
    None,
    Fails,
    AnswerLost,
    Late,
    Dies,
    /// A sleeping process wakes up before the call has its effect.
    Slow,
}

impl SceneFault {
    fn as_str(self) -> &'static str {
        match self {
            SceneFault::None => "nothing",
            SceneFault::Fails => "a call fails",
            SceneFault::AnswerLost => "an answer is lost",
            SceneFault::Late => "a request arrives late",
            SceneFault::Dies => "a process dies",
            SceneFault::Slow => "a call is slow",
        }
    }
}

impl Exploration<'_> {
    /// Returns a new harness in which the scene is set up.
    fn begin(&self, journal: bool) -> Harness {
        let plan = plan(self.scene.max_faults == 0);
        let mut harness = Harness::new(&plan, Arc::new(Kernel::new(1, true, journal)));
        // The digests up to the last branch are known from the history that reached it.
        if !self.path.is_empty() {
            harness.kernel.stop_tracking_answers();
        }
        history::write_settings(&harness, &plan);
        (self.scene.set_up)(&mut harness);
        harness
    }

    fn play(&mut self) {
        let mut harness = self.begin(false);
        let Exploration { scene, visited, path, found } = self;
        let mut depth = 0;
        let is_at_end = drive(&mut harness, scene, |harness, options, left| {
            depth += 1;
            found.longest = found.longest.max(depth);
            found.steps += 1;
            if let Some(branch) = path.get(depth - 1) {
                if depth == path.len() {
                    harness.kernel.track_answers_from(branch.answer_digests.clone());
                }
                return Some(branch.taken);
            }
            // This state was reached before with as many faults left, so all that
            // follows it is known.
            if !visited.insert(harness.digest() ^ u64::from(left) << 60) {
                return None;
            }
            path.push(Branch {
                options,
                taken: 0,
                answer_digests: harness.kernel.answer_digests(),
            });
            Some(0)
        });
        if is_at_end && (harness.is_over() || visited.insert(harness.digest())) {
            found.ends += 1;
            finish(&mut harness);
            if let Some(violation) = harness.world.audit().violation() {
                self.found.violation = Some((violation, self.replay()));
            }
        }
    }

    /// Plays the current path again, and returns its journal.
    fn replay(&self) -> Vec<String> {
        let mut harness = self.begin(true);
        let mut branches = self.path.iter();
        if drive(&mut harness, self.scene, |_, _, _| branches.next().map(|branch| branch.taken)) {
            finish(&mut harness);
        }
        harness.kernel.journal()
    }

    /// Goes back to the last branch with an untried choice. Returns `false` if there is none.
    fn backtrack(&mut self) -> bool {
        while let Some(branch) = self.path.last_mut() {
            if branch.taken + 1 < branch.options {
                branch.taken += 1;
                return true;
            }
            self.path.pop();
        }
        false
    }
}

/// Plays until all modes have exited. Where there are several choices, `pick` returns the index of
/// the one to take. Returns `false` if `pick` returns `None`, or if every choice is left to a history in
/// which the lists of a refresh are answered in the order of their names.
fn drive(
    harness: &mut Harness,
    scene: &Scene,
    mut pick: impl FnMut(&Harness, usize, u32) -> Option<usize>,
) -> bool {
    let mut left = scene.max_faults;
    let mut last_list: Option<LastList> = None;
    loop {
        wake(harness);
        let under_way = harness.kernel.pending_calls().iter().any(|call| call.abandoned);
        if harness.is_over() || harness.unfinished().is_empty() && !under_way {
            return true;
        }
        let mut choices = choices(harness, scene.faults, left);
        if choices.is_empty() {
            match advance(harness, u64::MAX) {
                true => continue,
                false => return true,
            }
        }
        if let Some(last) = &last_list {
            choices.retain(|choice| !last.comes_too_late(*choice));
        }
        let choice = match choices.len() {
            0 => return false,
            1 => choices[0],
            many => match pick(harness, many, left) {
                Some(at) => choices[at],
                None => return false,
            },
        };
        last_list = LastList::of(harness, choice);
        left -= apply(harness, choice);
        if let Some(last) = &last_list {
            last.assert_unused(harness);
        }
    }
}

/// The list that a refresh was given in the last step, without a fault.
struct LastList {
    list: PendingCall,
    /// The calls that were pending before the step.
    pending: Vec<u64>,
}

impl LastList {
    /// `None` if the choice is anything else than to answer such a list.
    fn of(harness: &Harness, choice: Choice) -> Option<LastList> {
        match choice {
            Choice::Call(list, SceneFault::None) if list.is_list => {
                let pending = harness.kernel.pending_calls().iter().map(|call| call.id).collect();
                Some(LastList { list, pending })
            }
            _ => None,
        }
    }

    /// Panics if the refresh has made a call since, although it waits for another list. The search relies
    /// on that it does not.
    fn assert_unused(&self, harness: &Harness) {
        let mut calls = harness.kernel.pending_calls();
        calls.retain(|call| call.pid == self.list.pid);
        let has_all = !calls.iter().any(|call| call.is_list);
        let unused = calls.iter().all(|call| self.pending.contains(&call.id));
        assert!(has_all || unused, "a refresh has used {} before its other lists", self.list.what);
    }

    /// Whether the choice is to answer, without a fault, another list that the same refresh waited for
    /// before this one was answered, and whose name comes first. The state that it leads to is also
    /// reached when the two are answered in the order of their names, so it need not be made.
    fn comes_too_late(&self, choice: Choice) -> bool {
        let Choice::Call(call, SceneFault::None) = choice else { return false };
        let are_together = call.pid == self.list.pid && self.pending.contains(&call.id);
        are_together && call.is_list && call.what < self.list.what
    }
}

/// Advances time to the next event and handles it. Returns `false` if there is none up to `until`.
fn advance(harness: &mut Harness, until: u64) -> bool {
    let Some(event) = harness.kernel.next(until) else { return false };
    let instruction = harness.kernel.handle(event);
    harness.follow(instruction);
    true
}

/// Returns the ways in which the history can go on, if `left` more faults may be injected. A call
/// whose order no other process can observe has its effect at once, and so has a count of tickets, which
/// is a guess in any case. Calls by which a process asks the same several times over have their effects
/// together.
fn choices(harness: &Harness, faults: &[SceneFault], left: u32) -> Vec<Choice> {
    const AT_ONCE: [&str; 12] = [
        "settings",
        "put settings",
        "set up store",
        "set up pool",
        "set up compute",
        "put demand",
        "replace demand",
        "put summary",
        "beat",
        "forget",
        "prepare",
        "depth",
    ];
    let mut waiting = harness.kernel.pending_calls();
    if let Some(call) = waiting.iter().find(|call| AT_ONCE.contains(&call.what)) {
        return vec![Choice::Call(*call, SceneFault::None)];
    }
    let mut asked = HashSet::new();
    waiting.retain(|call| asked.insert((call.question, call.abandoned)));
    let mut options: Vec<Choice> =
        waiting.iter().map(|call| Choice::Call(*call, SceneFault::None)).collect();
    if left == 0 {
        return options;
    }
    for call in waiting.iter().filter(|call| !call.abandoned) {
        for fault in faults.iter().filter(|fault| **fault != SceneFault::Slow) {
            let changes = changes_something(call.what);
            if changes || !matches!(fault, SceneFault::Late | SceneFault::AnswerLost) {
                options.push(Choice::Call(*call, *fault));
            }
        }
    }
    if faults.contains(&SceneFault::Slow)
        && !waiting.is_empty()
        && harness.kernel.next_due().is_some()
    {
        options.push(Choice::Wake);
    }
    options
}

fn changes_something(what: &str) -> bool {
    const CHANGES: [&str; 10] = [
        "write",
        "write together",
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

/// Takes one step. Returns how many faults it injected.
fn apply(harness: &mut Harness, choice: Choice) -> u32 {
    let mut random = fastrand::Rng::with_seed(0);
    let sound = CallBehaviour::sound(0, 0);
    match choice {
        Choice::Call(call, fault) => {
            let behaviour = match fault {
                SceneFault::None | SceneFault::Slow => sound,
                SceneFault::Fails => sound.with(Fault::Throttled, &mut random),
                SceneFault::AnswerLost => sound.with(Fault::AnswerLost, &mut random),
                SceneFault::Late => sound.with(Fault::ArrivedLate, &mut random),
                SceneFault::Dies => sound.with_crash(CrashPoint::Before),
            };
            let mut same = harness.kernel.pending_calls();
            same.retain(|other| other.id != call.id && other.question == call.question);
            let instruction = harness.kernel.choose(call.id, behaviour);
            harness.follow(instruction);
            for other in same {
                let is_pending = |it: &PendingCall| it.id == other.id;
                if harness.kernel.pending_calls().iter().any(is_pending) && !harness.is_over() {
                    let instruction = harness.kernel.choose(other.id, sound);
                    harness.follow(instruction);
                }
            }
            u32::from(fault != SceneFault::None)
        }
        Choice::Wake => {
            advance(harness, u64::MAX);
            1
        }
    }
}

/// Handles all events that are due now.
fn wake(harness: &mut Harness) {
    let now = harness.kernel.now();
    while !harness.is_over() && advance(harness, now) {}
}

/// Plays without choices or faults until all modes have exited.
fn run_until_done(harness: &mut Harness) {
    run_in_order(harness, |harness| harness.unfinished().is_empty(), 3600 * SECOND);
}

/// Plays for `span` or until `enough` returns true. Calls have their effects in the order in which
/// they were made, without faults.
fn run_in_order(harness: &mut Harness, enough: impl Fn(&Harness) -> bool, span: u64) {
    let until = harness.kernel.now() + span;
    loop {
        wake(harness);
        if harness.is_over() {
            return;
        }
        if let Some(call) = harness.kernel.pending_calls().first() {
            apply(harness, Choice::Call(*call, SceneFault::None));
            continue;
        }
        if enough(harness) {
            return;
        }
        if !advance(harness, until) {
            return harness.kernel.advance_to(until);
        }
    }
}

/// Plays to the end without faults, and checks that the next provision succeeds and
/// that nothing is left.
fn finish(harness: &mut Harness) {
    if harness.is_over() {
        return;
    }
    harness.kernel.stop_tracking_answers();
    harness.world.compute.set_capacity(usize::MAX);
    harness.provision(crate::harness::PROBE, &Ask::of(1));
    run_in_order(harness, |_| false, history::ALL_DEADLINES);
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
    if let Some(id) = harness.machines_with_agents().first() {
        let how = format!("{id} is alive past all deadlines");
        harness.world.audit().violated(Invariant::TerminatesItself, how);
        return;
    }
    harness.world.machines().cancel(None);
    for _ in 0..2 {
        harness.refresh([("min-idle".to_owned(), String::new())].into());
        run_in_order(harness, |_| false, 60 * SECOND);
    }
    history::check_nothing_left(harness);
}

/// The plan of every scene. Nothing in it is random. Agents are notified of changes and send few
/// heartbeats, so that few events are irrelevant to the scene.
fn plan(without_faults: bool) -> Plan {
    let mut settings = BTreeMap::new();
    for (name, value) in [
        ("heartbeat-period-sec", "60"),
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
        ("signal-poll-sec", "20"),
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
        // Rate 0: never at random. The entry says that faults may occur, see `Plan::is_clear`.
        other_faults: if without_faults { Vec::new() } else { vec![(Fault::Crash, 0)] },
        store_notifies: true,
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::run_id;

    /// A seed found this bug: two workers claimed one machine by two tickets in the same
    /// millisecond, and the second claim was taken for a repetition of the first.
    #[test]
    fn one_machine_is_not_claimed_by_two_tickets_of_different_idle_states() {
        let twins = SCENES.iter().find(|scene| scene.name == "twins").expect("there is one");
        let found = explore(&Scene { faults: &[SceneFault::Fails], ..*twins }, u64::MAX);
        assert_eq!(found.violation, None);
        assert!(found.complete && found.states > 200, "{} states", found.states);
    }

    #[test]
    fn a_violation_is_found_and_its_journal_returned() {
        let scene = Scene {
            name: "still-serving",
            participants: "a run, and an idle machine that still works for another",
            brief: true,
            max_faults: 0,
            faults: &[],
            set_up: |harness| {
                harness.add_idle("i-0901", 1);
                run_until_done(harness);
                let id = ondeck_core::model::ids::InstanceId::new("i-0901").expect("a sound id");
                harness.world.machines().set_serving(&id, Some(&(&run_id("9")).into()));
                harness.provision("1", &Ask::of(1));
            },
        };
        let found = explore(&scene, u64::MAX);
        let (violation, journal) = found.violation.expect("the agent serves another run");
        assert_eq!(violation.invariant, Invariant::ServesOwner);
        assert!(journal.iter().any(|line| line.contains("write claim i-0901")), "{journal:#?}");
        assert!(!found.complete);
    }
}
