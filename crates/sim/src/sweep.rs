//! The fault sweep: plays each scenario once for every call of its process and every kind of
//! fault, with that fault injected into that call. Nothing else is random. The auditor checks each
//! history to its end.

mod scenario;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use self::scenario::Scenario;
use crate::audit::Violation;
use crate::history::History;
use crate::policy::CallFault;
use crate::process::ProcessOutcome;
use crate::report::{grouped, readable_journal};

/// One fault that is injected into one call of one scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub scenario: &'static str,
    /// The number of the call of the process under test, from 1; 0 injects no fault.
    pub call: u32,
    pub fault: CallFault,
}

/// The figures of one scenario.
#[derive(Debug, Clone)]
pub struct ScenarioResult {
    pub scenario: &'static str,
    /// The outcome of the process under test when no fault is injected.
    pub without_fault: Option<ProcessOutcome>,
    /// How many calls it makes when no fault is injected.
    pub calls: usize,
    /// How often the process came to each outcome when a fault was injected.
    pub outcomes: BTreeMap<ProcessOutcome, u64>,
    /// Histories that were played with a fault.
    pub histories: u64,
    /// How many of these violated an invariant.
    pub violations: u64,
}

/// The result of [`sweep`].
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    pub rows: Vec<ScenarioResult>,
    /// The cases that violated an invariant.
    pub violations: Vec<(Case, Violation)>,
    /// The case, if only one was wanted.
    pub only: Option<Case>,
}

/// Plays the cases for which `wanted` returns true, on all processors.
pub fn sweep(wanted: impl Fn(&Case) -> bool + Sync) -> Sweep {
    let scenarios = Scenario::all();
    let mut rows: Vec<ScenarioResult> = Vec::new();
    let mut violations = Vec::new();
    let mut cases: Vec<(usize, Case)> = Vec::new();
    for (at, scenario) in scenarios.iter().enumerate() {
        let without_fault = scenario.play(None, false);
        let case = |call, fault| Case { scenario: scenario.name, call, fault };
        if let Some(violation) = without_fault.violation {
            violations.push((case(0, CallFault::FailOnce), violation));
        }
        let calls = without_fault.watched.calls.len();
        assert!(calls > 0, "the process under test of {} makes no call", scenario.name);
        let all = (1..).take(calls).flat_map(|call| CallFault::ALL.map(|fault| case(call, fault)));
        cases.extend(all.filter(&wanted).map(|case| (at, case)));
        rows.push(ScenarioResult {
            scenario: scenario.name,
            without_fault: without_fault.watched.outcome,
            calls,
            outcomes: BTreeMap::new(),
            histories: 0,
            violations: 0,
        });
    }
    let played = map_all(&cases, |(at, case)| {
        let history = scenarios[*at].play(Some((case.call, case.fault)), false);
        (history.watched.outcome, history.violation)
    });
    let only = cases.first().filter(|_| cases.len() == 1).map(|(_, case)| *case);
    for ((at, case), (outcome, violation)) in cases.into_iter().zip(played) {
        let row = &mut rows[at];
        row.histories += 1;
        row.violations += u64::from(violation.is_some());
        if let Some(outcome) = outcome {
            *row.outcomes.entry(outcome).or_default() += 1;
        }
        violations.extend(violation.map(|violation| (case, violation)));
    }
    rows.retain(|row| row.histories > 0);
    Sweep { rows, violations, only }
}

/// Applies `work` to each item on all processors, and returns the results in the same order.
fn map_all<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = work(item);
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
            "{:<28} {:>6} {:>10} {:>10} {:>8} {:>7} {:>6} {:>10}\n",
            "scenario",
            "calls",
            "histories",
            "succeeded",
            "gave up",
            "failed",
            "died",
            "violations"
        );
        let mut add =
            |name: &str, calls: u64, histories: u64, outcomes: [u64; 4], violations: u64| {
                let [succeeded, gave_up, failed, died] = outcomes.map(grouped);
                let (calls, histories) = (grouped(calls), grouped(histories));
                let violations = grouped(violations);
                writeln!(
                text,
                "{name:<28} {calls:>6} {histories:>10} {succeeded:>10} {gave_up:>8} {failed:>7} \
                 {died:>6} {violations:>10}"
            )
            .expect("a string takes all");
            };
        let mut sum = (0, 0, [0; 4], 0);
        for row in &self.rows {
            let outcomes =
                ProcessOutcome::ALL.map(|outcome| row.outcomes.get(&outcome).copied().unwrap_or(0));
            add(row.scenario, row.calls as u64, row.histories, outcomes, row.violations);
            sum.0 += row.calls as u64;
            sum.1 += row.histories;
            sum.2 = std::array::from_fn(|at| sum.2[at] + outcomes[at]);
            sum.3 += row.violations;
        }
        add("all", sum.0, sum.1, sum.2, sum.3);
        text
    }
}

impl Case {
    /// Plays the case with a journal. Returns `None` if there is no scenario of that name.
    pub fn replay(&self) -> Option<History> {
        let scenario = Scenario::all().into_iter().find(|one| one.name == self.scenario)?;
        let fault = (self.call > 0).then_some((self.call, self.fault));
        Some(scenario.play(fault, true))
    }

    /// Describes the history of the case, with the command that replays it.
    pub fn report(&self, history: &History) -> String {
        let mut text = String::new();
        let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes all");
        let asked = self.call.checked_sub(1).and_then(|at| history.watched.calls.get(at as usize));
        let asked = asked.map_or("nothing", |asked| asked.trim());
        line(&format!("{}, call {}: {asked}", self.scenario, self.call));
        line(&format!("fault: {}, outcome: {:?}", self.fault.as_str(), history.watched.outcome));
        for event in readable_journal(&history.journal) {
            line(&event);
        }
        match &history.violation {
            Some(violation) => line(&format!("=> {violation}")),
            None => line("no invariant violated"),
        }
        line(&format!(
            "replay it with: cargo xtask sim --sweep --scenario {} --call {} --fault {}",
            self.scenario,
            self.call,
            self.fault.as_str()
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fault_in_one_call_of_provision_violates_an_invariant() {
        check_sweep(|case| case.scenario.starts_with("provision"));
    }

    #[test]
    fn no_fault_in_one_call_of_the_other_scenarios_violates_an_invariant() {
        check_sweep(|case| !case.scenario.starts_with("provision"));
    }

    /// Injects every fault into the calls of a release, one fault into each call of the other
    /// modes, and one into every fourth call of an agent, which mostly reads its record.
    /// `cargo xtask sim --sweep` plays all cases.
    fn check_sweep(wanted: impl Fn(&Case) -> bool + Sync) {
        let some = |case: &Case| {
            let call = case.call as usize;
            let turn = CallFault::ALL[(call + call / CallFault::ALL.len()) % CallFault::ALL.len()]
                == case.fault;
            match case.scenario {
                "agent" | "agent-ready" => turn && call.is_multiple_of(4),
                other => turn || other.starts_with("release"),
            }
        };
        let swept = sweep(|case| wanted(case) && some(case));
        assert_eq!(swept.violations, [], "{}", swept.shown());
        for row in &swept.rows {
            let reached = |outcome| row.outcomes.contains_key(&outcome);
            assert!(reached(ProcessOutcome::Died), "{row:?}");
            assert!(row.without_fault.is_some_and(reached), "{row:?}");
            // A provision that is told to stop cleans up, and an agent goes on, even if a fault is
            // injected into one of their calls.
            let others = row
                .outcomes
                .keys()
                .any(|e| *e != ProcessOutcome::Died && Some(*e) != row.without_fault);
            let steadfast = matches!(row.scenario, "provision-stopped" | "agent" | "agent-ready");
            assert!(others || steadfast, "{row:?}");
        }
    }

    #[test]
    fn a_case_plays_the_same_with_a_journal() {
        let case = Case { scenario: "provision-warm", call: 6, fault: CallFault::LoseAnswer };
        let (first, second) = (case.replay().unwrap(), case.replay().unwrap());
        assert_eq!(first.journal, second.journal);
        let scenario = Scenario::all().into_iter().find(|one| one.name == case.scenario).unwrap();
        let plain = scenario.play(Some((case.call, case.fault)), false);
        assert_eq!((plain.steps, plain.watched), (first.steps, first.watched.clone()));
        assert!(
            case.report(&first).contains("call 6: write claim i-000"),
            "{}",
            case.report(&first)
        );
    }
}
