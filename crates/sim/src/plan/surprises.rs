//! What a history may have besides its faults. The numbers are not drawn, so that the rest of each
//! history stays as it is.

use std::time::Duration;

use ondeck_core::modes::refresh::SHORTEST_LIMIT;

use super::settings::{CAP, CLASS_NAMES};
use super::{Action, Plan, SECOND};
use crate::faults::Fault;
use crate::kernel::{Micros, digest, timestamp};

/// EC2 lists a new machine within seconds as a rule.
const LONGEST_LISTING_LAG: Micros = 20 * SECOND;

/// The time limit of refreshes in a function that is called each minute.
const USUAL_LIMIT: Duration = Duration::from_secs(45);

/// The setting of the ceiling.
const CEILING: &str = "max-machines";

/// The least time between two scheduled refreshes.
const SHORTEST_PERIOD: u64 = 45;

impl Plan {
    pub(super) fn add_surprises(&mut self) {
        let seed = self.seed;
        let chance = |what: &str| digest(&[&seed, &what]);
        let (corrupt, lists_late) = (chance("corrupt ticket"), chance("listing lag"));
        let (first_refresh, stops) = (chance("first refresh"), chance("stopped refresh"));
        self.lists_waiting_jobs = chance("waiting jobs").is_multiple_of(2);
        let limits = chance("forge limits").is_multiple_of(8) && !self.is_clear();
        let last = self.faults_end_at / SECOND;
        if corrupt.is_multiple_of(5) {
            let class = CLASS_NAMES[usize::from(corrupt.is_multiple_of(3))];
            let at = (30 + corrupt % (last - 30)) * SECOND;
            self.actions.push((at, Action::CorruptTicket(class)));
        }
        if lists_late.is_multiple_of(4) {
            self.listing_lag = LONGEST_LISTING_LAG;
        }
        if first_refresh.is_multiple_of(12) && self.is_clear() {
            // A provision waits for it for a minute. A scheduled refresh would set up the pool as well.
            self.first_refresh_at = Some((10 + first_refresh % (SHORTEST_PERIOD - 10)) * SECOND);
        }
        let is_told_to_stop = |(fault, _): &(Fault, u32)| *fault == Fault::ToldToStop;
        if chance("again").is_multiple_of(3) {
            self.provision_again();
        }
        let limit = chance("time limit");
        if limit.is_multiple_of(3) {
            self.time_limit =
                Some([SHORTEST_LIMIT, USUAL_LIMIT][usize::from(limit.is_multiple_of(2))]);
        }
        let operates = chance("operator");
        // Drained machines are missing from a minimum until a refresh has launched others.
        if operates.is_multiple_of(4) && !self.settings.contains_key("min-idle") {
            self.let_operators_work();
        }
        let ceiling = chance("ceiling");
        if ceiling.is_multiple_of(6) && !self.settings.contains_key(CEILING) {
            let most = ["3", "5", "6 large=4", "large=3 xlarge=2"];
            let most = most[usize::try_from(ceiling / 6 % 4).unwrap_or_default()];
            self.settings.insert(CEILING.to_owned(), most.to_owned());
        }
        if limits && !self.only_deaths() {
            self.other_faults.push((Fault::ForgeLimits, 400));
        }
        if stops.is_multiple_of(2) && self.other_faults.iter().any(is_told_to_stop) {
            self.stop_some_refreshes();
        }
    }

    /// Lets some runs ask for the same once more, as a workflow does that is re-run.
    fn provision_again(&mut self) {
        let asked = self.actions.iter().filter_map(|(at, action)| match action {
            Action::Provision { .. } => Some((*at, action.clone())),
            _ => None,
        });
        let asked: Vec<(Micros, Action)> = asked.collect();
        for (at, action) in asked {
            let after = digest(&[&self.seed, &"again", &at]);
            if after.is_multiple_of(3) {
                self.actions.push((at + (20 + after % 60) * SECOND, action));
            }
        }
    }

    /// Lets some histories begin so that a day of the cap ends while runs come and go, and a few that have no
    /// cap.
    pub(super) fn begin_before_midnight(&mut self) {
        let chosen = digest(&[&self.seed, &"midnight"]);
        let one_in = if self.settings.contains_key(CAP) { 2 } else { 24 };
        if !chosen.is_multiple_of(one_in) {
            return;
        }
        let day = Duration::from_secs(24 * 3_600);
        let midnight = (timestamp(0) + day).start_of_day().since(timestamp(0));
        let until_midnight = (60 + chosen / 24 % (self.faults_end_at / SECOND - 60)) * SECOND;
        self.postpone(u64::try_from(midnight.as_micros()).unwrap_or_default() - until_midnight);
    }

    /// Moves all times of the plan.
    fn postpone(&mut self, by: Micros) {
        self.begins_at += by;
        self.faults_end_at += by;
        let outages = self.outages.iter_mut().flat_map(|it| [&mut it.from, &mut it.to]);
        let actions = self.actions.iter_mut().map(|(at, _)| at);
        let unheard = self.wake_ups.iter_mut().flat_map(|it| &mut it.unheard);
        let unheard = unheard.flat_map(|(from, to)| [from, to]);
        for at in outages.chain(actions).chain(unheard).chain(&mut self.first_refresh_at) {
            *at += by;
        }
    }

    /// Lets operators drain and retire machines and terminate idle ones, a few times.
    fn let_operators_work(&mut self) {
        let last = self.faults_end_at / SECOND;
        for nth in 0..6_u64 {
            let drawn = digest(&[&self.seed, &"operator", &nth]);
            let at = (20 + drawn % (last - 20)) * SECOND;
            let machine = usize::try_from(drawn / 7 % 11).unwrap_or_default();
            let action = match drawn % 7 {
                0 => Action::Drain(None),
                1 | 2 => Action::Drain(Some(machine)),
                3 | 4 => Action::Retire(machine),
                _ => Action::Terminate(machine),
            };
            self.actions.push((at, action));
        }
    }

    /// Tells some refreshes to stop, some seconds after they have begun.
    fn stop_some_refreshes(&mut self) {
        let begins = self
            .actions
            .iter()
            .filter(|(_, action)| matches!(action, Action::Refresh | Action::RefreshWith(_)));
        let begins: Vec<Micros> = begins.map(|(at, _)| *at).collect();
        for at in begins {
            let after = digest(&[&self.seed, &"stopped refresh", &at]);
            if after.is_multiple_of(2) {
                self.actions.push((at + after % (12 * SECOND), Action::StopRefresh));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_histories_with_a_cap_cross_midnight_while_runs_come_and_go() {
        let (mut all, mut crossing) = (0, 0);
        for seed in 0..2_000 {
            let plan = Plan::of(seed);
            let capped = plan.settings.contains_key(CAP);
            all += u32::from(capped);
            assert!(plan.actions.iter().all(|(at, _)| *at > plan.begins_at), "seed {seed}");
            if plan.begins_at == 0 {
                continue;
            }
            crossing += u32::from(capped);
            let [first, last] = [plan.begins_at, plan.faults_end_at].map(timestamp);
            assert!(first.start_of_day() < last.start_of_day(), "seed {seed}");
        }
        assert!(all > 150 && crossing * 3 > all && crossing < all, "{crossing} of {all}");
    }
}
