//! The fault sweep: every call of a process, harmed in every way, in scenes that leave nothing to
//! dice. Each history is judged as any other is, to its very end.

mod scenario;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use self::scenario::Scenario;
use crate::audit::Violation;
use crate::history::History;
use crate::policy::CallFault;
use crate::process::Ending;
use crate::report::{grouped, worth_seeing};

/// One harm to one call of one scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The name of its scenario.
    pub scenario: &'static str,
    /// Which call of the process under test, from 1.
    pub call: u32,
    /// What is done to it.
    pub harm: CallFault,
}

/// What came of one scenario.
#[derive(Debug, Clone)]
pub struct Row {
    /// The name of the scenario.
    pub scenario: &'static str,
    /// How the process under test ends when no fault is injected.
    pub unharmed: Option<Ending>,
    /// How many calls it makes then.
    pub calls: usize,
    /// How it ended when harmed, how often.
    pub endings: BTreeMap<Ending, u64>,
    /// Histories with a harm.
    pub histories: u64,
    /// Histories that broke a promise.
    pub broken: u64,
}

/// What came of a sweep.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// One row for each scenario.
    pub rows: Vec<Row>,
    /// The cases that broke a promise; those of no harm at all have call 0.
    pub broken: Vec<(Case, Violation)>,
    /// The case, where there was only one.
    pub only: Option<Case>,
}

/// Plays all cases that are `wanted`, on all processors.
pub fn sweep(wanted: impl Fn(&Case) -> bool + Sync) -> Sweep {
    let scenarios = Scenario::all();
    let mut rows: Vec<Row> = Vec::new();
    let mut broken = Vec::new();
    let mut cases: Vec<(usize, Case)> = Vec::new();
    for (at, scenario) in scenarios.iter().enumerate() {
        let unharmed = scenario.play(None, false);
        let case = |call, harm| Case { scenario: scenario.name, call, harm };
        if let Some(violation) = unharmed.violation {
            broken.push((case(0, CallFault::FailOnce), violation));
        }
        let calls = unharmed.watched.calls.len();
        assert!(calls > 0, "no process is called as {} says", scenario.name);
        let all = (1..).take(calls).flat_map(|call| CallFault::ALL.map(|harm| case(call, harm)));
        cases.extend(all.filter(&wanted).map(|case| (at, case)));
        rows.push(Row {
            scenario: scenario.name,
            unharmed: unharmed.watched.ending,
            calls,
            endings: BTreeMap::new(),
            histories: 0,
            broken: 0,
        });
    }
    let played = all_of(&cases, |(at, case)| {
        let history = scenarios[*at].play(Some((case.call, case.harm)), false);
        (history.watched.ending, history.violation)
    });
    let only = cases.first().filter(|_| cases.len() == 1).map(|(_, case)| *case);
    for ((at, case), (ending, violation)) in cases.into_iter().zip(played) {
        let row = &mut rows[at];
        row.histories += 1;
        row.broken += u64::from(violation.is_some());
        if let Some(ending) = ending {
            *row.endings.entry(ending).or_default() += 1;
        }
        broken.extend(violation.map(|violation| (case, violation)));
    }
    rows.retain(|row| row.histories > 0);
    Sweep { rows, broken, only }
}

/// What `work` makes of each, in the same order.
fn all_of<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(thing) = things.get(at) else { break };
                    let result = work(thing);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(at, result);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

impl Sweep {
    /// Returns the rows as a table.
    pub fn shown(&self) -> String {
        let mut text = format!(
            "{:<28} {:>6} {:>10} {:>10} {:>8} {:>7} {:>6} {:>7}\n",
            "scenario", "calls", "histories", "succeeded", "gave up", "failed", "died", "broken"
        );
        let mut add = |name: &str, calls: u64, histories: u64, endings: [u64; 4], broken: u64| {
            let [succeeded, gave_up, failed, died] = endings.map(grouped);
            let (calls, histories, broken) = (grouped(calls), grouped(histories), grouped(broken));
            writeln!(
                text,
                "{name:<28} {calls:>6} {histories:>10} {succeeded:>10} {gave_up:>8} {failed:>7} \
                 {died:>6} {broken:>7}"
            )
            .expect("a string takes all");
        };
        let mut sum = (0, 0, [0; 4], 0);
        for row in &self.rows {
            let endings = Ending::ALL.map(|ending| row.endings.get(&ending).copied().unwrap_or(0));
            add(row.scenario, row.calls as u64, row.histories, endings, row.broken);
            sum.0 += row.calls as u64;
            sum.1 += row.histories;
            sum.2 = std::array::from_fn(|at| sum.2[at] + endings[at]);
            sum.3 += row.broken;
        }
        add("all", sum.0, sum.1, sum.2, sum.3);
        text
    }
}

impl Case {
    /// Plays it once more, with a journal.
    pub fn replay(&self) -> Option<History> {
        let scenario = Scenario::all().into_iter().find(|one| one.name == self.scenario)?;
        let harm = (self.call > 0).then_some((self.call, self.harm));
        Some(scenario.play(harm, true))
    }

    /// What happened, and how to see it again.
    pub fn told(&self, history: &History) -> String {
        let mut text = String::new();
        let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes all");
        let asked = self.call.checked_sub(1).and_then(|at| history.watched.calls.get(at as usize));
        let asked = asked.map_or("nothing", |asked| asked.trim());
        line(&format!("{}, call {}: {asked}", self.scenario, self.call));
        line(&format!("harm: {}, ending: {:?}", self.harm.as_str(), history.watched.ending));
        for event in worth_seeing(&history.journal) {
            line(&event);
        }
        match &history.violation {
            Some(violation) => line(&format!("=> {violation}")),
            None => line("no promise broken"),
        }
        line(&format!(
            "replay it with: cargo xtask sim --sweep --scenario {} --call {} --harm {}",
            self.scenario,
            self.call,
            self.harm.as_str()
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fault_in_one_call_of_provision_breaks_a_promise() {
        nothing_breaks(|case| case.scenario.starts_with("provision"));
    }

    #[test]
    fn no_fault_in_one_call_of_the_other_scenarios_breaks_a_promise() {
        nothing_breaks(|case| !case.scenario.starts_with("provision"));
    }

    /// Every harm to the calls of a release, one to each call of the others, and to every fourth
    /// of an agent, which mostly looks; `cargo xtask sim --sweep` does them all.
    fn nothing_breaks(wanted: impl Fn(&Case) -> bool + Sync) {
        let some = |case: &Case| {
            let call = case.call as usize;
            let turn = CallFault::ALL[(call + call / CallFault::ALL.len()) % CallFault::ALL.len()]
                == case.harm;
            match case.scenario {
                "agent" => turn && call.is_multiple_of(4),
                other => turn || other.starts_with("release"),
            }
        };
        let swept = sweep(|case| wanted(case) && some(case));
        assert_eq!(swept.broken, [], "{}", swept.shown());
        for row in &swept.rows {
            let reached = |ending| row.endings.contains_key(&ending);
            assert!(reached(Ending::Died), "{row:?}");
            assert!(row.unharmed.is_some_and(reached), "{row:?}");
            // A provision that is told to stop dumps, even if a call of it is harmed.
            let others = row.endings.keys().any(|e| *e != Ending::Died && Some(*e) != row.unharmed);
            assert!(others || row.scenario == "provision-stopped", "{row:?}");
        }
    }

    #[test]
    fn a_case_plays_the_same_with_a_journal() {
        let case = Case { scenario: "provision-warm", call: 6, harm: CallFault::LoseAnswer };
        let (first, second) = (case.replay().unwrap(), case.replay().unwrap());
        assert_eq!(first.journal, second.journal);
        let scenario = Scenario::all().into_iter().find(|one| one.name == case.scenario).unwrap();
        let plain = scenario.play(Some((case.call, case.harm)), false);
        assert_eq!((plain.steps, plain.watched), (first.steps, first.watched.clone()));
        assert!(case.told(&first).contains("call 6: write claim i-000"), "{}", case.told(&first));
    }
}
