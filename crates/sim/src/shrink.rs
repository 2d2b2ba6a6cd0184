//! Shrinks a history that violates an invariant: leaves out actions, kinds of faults and single
//! faults while the same invariant is still violated.

use crate::audit::Invariant;
use crate::history::{History, play};
use crate::plan::Plan;
use crate::wake_ups::WakeUpFaults;

/// How many histories are tried at most.
const MAX_TRIED: u32 = 600;

/// The shortest plan found that still violates the invariant.
#[derive(Debug)]
pub struct Shrunk {
    pub plan: Plan,
    /// The history of `plan`, with a journal.
    pub history: History,
    /// How many histories were played to find it.
    pub tried: u32,
}

struct Shrinker {
    invariant: Invariant,
    plan: Plan,
    tried: u32,
}

/// Shrinks a plan whose history violates `invariant`.
pub fn shrink(plan: &Plan, invariant: Invariant) -> Shrunk {
    let mut shrinker = Shrinker { invariant, plan: plan.clone(), tried: 0 };
    loop {
        let before = shrinker.size();
        shrinker.without_kinds();
        shrinker.without_actions();
        shrinker.without_single_faults();
        if shrinker.size() == before || shrinker.tried >= MAX_TRIED {
            break;
        }
    }
    let history = play(&shrinker.plan, true);
    Shrunk { plan: shrinker.plan, history, tried: shrinker.tried }
}

impl Shrinker {
    fn size(&self) -> usize {
        let plan = &self.plan;
        let kinds = plan.rates.calls.len() + plan.other_faults.len() + plan.outages.len();
        plan.actions.len()
            + kinds
            + usize::from(plan.skew > 0)
            + play(plan, false).faulty_calls.len()
    }

    /// Keeps the simpler plan if its history violates the same invariant, and
    /// returns whether it does.
    fn attempt(&mut self, simpler: Plan) -> bool {
        if self.tried >= MAX_TRIED {
            return false;
        }
        self.tried += 1;
        let is_violated = play(&simpler, false)
            .violation
            .is_some_and(|violation| violation.invariant == self.invariant);
        if is_violated {
            self.plan = simpler;
        }
        is_violated
    }

    fn without_kinds(&mut self) {
        for at in (0..self.plan.rates.calls.len()).rev() {
            let mut simpler = self.plan.clone();
            simpler.rates.calls.remove(at);
            self.attempt(simpler);
        }
        for at in (0..self.plan.other_faults.len()).rev() {
            let mut simpler = self.plan.clone();
            simpler.other_faults.remove(at);
            self.attempt(simpler);
        }
        for at in (0..self.plan.outages.len()).rev() {
            let mut simpler = self.plan.clone();
            simpler.outages.remove(at);
            self.attempt(simpler);
        }
        for at in (0..self.plan.wake_ups.as_ref().map_or(0, |it| it.rates.len())).rev() {
            let mut simpler = self.plan.clone();
            simpler.wake_ups.as_mut().map(|it| it.rates.remove(at));
            self.attempt(simpler);
        }
        if let Some(WakeUpFaults { rates, unheard: Some(_) }) = self.plan.wake_ups.clone() {
            let wake_ups = Some(WakeUpFaults { rates, unheard: None });
            self.attempt(Plan { wake_ups, ..self.plan.clone() });
        }
        if self.plan.skew > 0 {
            self.attempt(Plan { skew: 0, ..self.plan.clone() });
        }
    }

    fn without_actions(&mut self) {
        // Large parts first, because most actions do not matter.
        let mut part = self.plan.actions.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < self.plan.actions.len() {
                let mut simpler = self.plan.clone();
                let to = (from + part).min(simpler.actions.len());
                simpler.actions.drain(from..to);
                if !self.attempt(simpler) {
                    from += part;
                }
            }
            if part == 1 {
                return;
            }
            part /= 2;
        }
    }

    fn without_single_faults(&mut self) {
        let faulty_calls = play(&self.plan, false).faulty_calls;
        let mut part = faulty_calls.len().div_ceil(2).max(1);
        loop {
            for calls in faulty_calls.chunks(part) {
                if calls.iter().all(|call| self.plan.skipped_faults.contains(call)) {
                    continue;
                }
                let mut simpler = self.plan.clone();
                simpler.skipped_faults.extend(calls.iter().cloned());
                self.attempt(simpler);
            }
            if part == 1 {
                return;
            }
            part /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::violation_report;

    /// Validation times out before a machine can boot, so no provision with new machines succeeds.
    fn impossible_plan() -> Plan {
        let mut plan = Plan::of(12);
        plan.settings.insert("validation-timeout-sec".to_owned(), "1".to_owned());
        plan
    }

    #[test]
    fn irrelevant_actions_are_left_out() {
        let plan = impossible_plan();
        let history = play(&plan, false);
        let invariant = history.violation.clone().expect("no run is served").invariant;
        assert_eq!(invariant, Invariant::NoWaste, "machines are given up");
        let shrunk = shrink(&plan, invariant);
        assert!(
            plan.actions.len() > 3 && shrunk.plan.actions.len() <= 1,
            "{:?}",
            shrunk.plan.actions
        );
        assert_eq!(
            shrunk.history.violation.as_ref().map(|violation| violation.invariant),
            Some(invariant)
        );
        let report = violation_report(12, &history, &shrunk);
        assert!(report.starts_with("seed 12 violates an invariant: no waste: "), "{report}");
        assert!(report.ends_with("replay it with: cargo xtask sim --seed 12\n"), "{report}");
    }
}
