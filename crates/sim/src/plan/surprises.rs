//! What a history may have besides its faults. The numbers are not drawn, so that the rest of each
//! history stays as it is.

use super::settings::CLASS_NAMES;
use super::{Action, Plan, SECOND};
use crate::faults::Fault;
use crate::kernel::{Micros, digest};

/// EC2 lists a new machine within seconds as a rule.
const LONGEST_LISTING_LAG: Micros = 20 * SECOND;

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
