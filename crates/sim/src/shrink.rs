//! Makes a history that breaks a promise as short as it will go: leaves out deeds, kinds of
//! faults and single faults, as long as the same promise is still broken.

use crate::audit::Invariant;
use crate::history::{History, play};
use crate::plan::Plan;

/// The most histories that are tried.
const MOST: u32 = 600;

/// What is left of a history.
#[derive(Debug)]
pub struct Shrunk {
    /// The plan without what does not matter.
    pub plan: Plan,
    /// Its history, with a journal.
    pub history: History,
    /// How many histories it took.
    pub tried: u32,
}

struct Shrinker {
    promise: Invariant,
    plan: Plan,
    tried: u32,
}

/// Shrinks a plan that is known to break `promise`.
pub fn shrink(plan: &Plan, promise: Invariant) -> Shrunk {
    let mut shrinker = Shrinker { promise, plan: plan.clone(), tried: 0 };
    loop {
        let before = shrinker.size();
        shrinker.without_kinds();
        shrinker.without_deeds();
        shrinker.without_single_faults();
        if shrinker.size() == before || shrinker.tried >= MOST {
            break;
        }
    }
    let history = play(&shrinker.plan, true);
    Shrunk { plan: shrinker.plan, history, tried: shrinker.tried }
}

impl Shrinker {
    fn size(&self) -> usize {
        let plan = &self.plan;
        let kinds = plan.rates.calls.len() + plan.mishaps.len() + plan.outages.len();
        plan.deeds.len() + kinds + usize::from(plan.skew > 0) + play(plan, false).struck.len()
    }

    /// Takes the simpler plan if it is as bad.
    fn attempt(&mut self, simpler: Plan) -> bool {
        if self.tried >= MOST {
            return false;
        }
        self.tried += 1;
        let as_bad =
            play(&simpler, false).violation.is_some_and(|broken| broken.promise == self.promise);
        if as_bad {
            self.plan = simpler;
        }
        as_bad
    }

    fn without_kinds(&mut self) {
        for at in (0..self.plan.rates.calls.len()).rev() {
            let mut simpler = self.plan.clone();
            simpler.rates.calls.remove(at);
            self.attempt(simpler);
        }
        for at in (0..self.plan.mishaps.len()).rev() {
            let mut simpler = self.plan.clone();
            simpler.mishaps.remove(at);
            self.attempt(simpler);
        }
        for at in (0..self.plan.outages.len()).rev() {
            let mut simpler = self.plan.clone();
            simpler.outages.remove(at);
            self.attempt(simpler);
        }
        if self.plan.skew > 0 {
            self.attempt(Plan { skew: 0, ..self.plan.clone() });
        }
    }

    fn without_deeds(&mut self) {
        // Many at once first, as most do not matter.
        let mut part = self.plan.deeds.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < self.plan.deeds.len() {
                let mut simpler = self.plan.clone();
                let to = (from + part).min(simpler.deeds.len());
                simpler.deeds.drain(from..to);
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
        let struck = play(&self.plan, false).struck;
        let mut part = struck.len().div_ceil(2).max(1);
        loop {
            for places in struck.chunks(part) {
                if places.iter().all(|place| self.plan.spared.contains(place)) {
                    continue;
                }
                let mut simpler = self.plan.clone();
                simpler.spared.extend(places.iter().cloned());
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
    use crate::report::broken;

    /// Machines have no time to come up, so no run can be served by new ones.
    fn hopeless() -> Plan {
        let mut plan = Plan::of(8);
        plan.settings.insert("validation-timeout-sec".to_owned(), "1".to_owned());
        plan
    }

    #[test]
    fn what_does_not_matter_is_left_out() {
        let plan = hopeless();
        let history = play(&plan, false);
        let promise = history.violation.clone().expect("no run is served").promise;
        assert_eq!(promise, Invariant::NoWaste, "machines are given up");
        let shrunk = shrink(&plan, promise);
        assert!(plan.deeds.len() > 3 && shrunk.plan.deeds.len() <= 1, "{:?}", shrunk.plan.deeds);
        assert_eq!(shrunk.history.violation.as_ref().map(|broken| broken.promise), Some(promise));
        let told = broken(8, &history, &shrunk);
        assert!(told.starts_with("seed 8 breaks a promise: no waste: "), "{told}");
        assert!(told.ends_with("replay it with: cargo xtask sim --seed 8\n"), "{told}");
    }
}
