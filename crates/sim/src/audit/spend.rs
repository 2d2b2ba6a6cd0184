//! The cap on what machines may cost in a day: computed from how long machines have really existed, and
//! not from what core reserves. A day begins at midnight in UTC.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::model::ceiling::MachineCount;
use ondeck_core::model::departure::Departure;
use ondeck_core::model::ids::{InstanceId, IntentId};
use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;

use super::ledger::on_day;
use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;
use crate::plan::spans;

const CAP: &str = "max-spend-per-day";

/// The shortest time for which a machine of a minimum stays idle.
const SHORTEST_KEPT: Duration = Duration::from_secs(30 * 60);

/// How long after its launch a machine may count by its reservation, besides the lag of lists.
const RESERVED_FOR: Duration = Duration::from_secs(60);

/// Reads an amount in dollars, without core's parser.
fn dollars(text: &str) -> Option<Money> {
    Money::from_dollars(text.parse().ok()?)
}

impl Audit {
    /// Whether there has been a cap at any time since then.
    pub(crate) fn has_cap_since(&self, time: Timestamp) -> bool {
        self.texts_since(CAP, time).iter().any(|text| !text.is_empty())
    }

    /// Machines were launched under an intent. What machines have cost on the day of its reservation, and
    /// what those that exist cost until their thresholds, must keep one of the caps that have been in force
    /// since the launcher began. `removed` says when those ended that are gone.
    pub(crate) fn keeps_cap(
        &mut self,
        (by, intent): (Pid, &IntentId),
        removed: &BTreeMap<InstanceId, Timestamp>,
        now: Timestamp,
    ) {
        let Some(began) = self.began(by) else { return };
        let caps: Vec<Option<Money>> =
            self.texts_since(CAP, began).iter().map(|text| dollars(text)).collect();
        let Some(most) = caps.into_iter().collect::<Option<Vec<Money>>>() else { return };
        let Some(most) = most.into_iter().max() else { return };
        let until = |id: &InstanceId| {
            let threshold = self.records.get(id).and_then(|record| record.threshold);
            threshold.map_or(now, |threshold| threshold.max(now))
        };
        let day = self.reserved_day(intent, now);
        let cost = self.cost(day, |id| removed.get(id).copied().unwrap_or_else(|| until(id)));
        if cost > most {
            let how = format!("machines cost {cost}, and {most} is allowed");
            self.violated(Invariant::SpendCap, how);
        }
    }

    /// Machines were launched, or a refresh has ended. What counts must not be less than what machines have
    /// cost, and cost until their thresholds, or until their greatest age if that is sooner. Not judged
    /// once the settings have changed.
    pub(crate) fn reserves_enough(
        &mut self,
        counted: &MachineCount,
        removed: &BTreeMap<InstanceId, Timestamp>,
        now: Timestamp,
    ) {
        let [(_, settings)] = self.stored.as_slice() else { return };
        let (Some(spend), true) = (&counted.spend, settings.contains_key(CAP)) else { return };
        let age = self.longest_of(&["max-machine-age-min"]);
        let least = self.cost(spend.day, |id| {
            let over = |from: Timestamp| {
                let threshold = self.records.get(id).and_then(|record| record.threshold);
                threshold.unwrap_or(now).min(from + age).max(now)
            };
            let launched = self.launched_at.get(id).copied().unwrap_or(now);
            let until = removed.get(id).copied().unwrap_or_else(|| over(launched));
            until.before(2 * SKEW).max(launched)
        });
        if spend.committed < least {
            let how = format!("{} is reserved, and {least} is needed: {spend:?}", spend.committed);
            self.violated(Invariant::Counted, how);
        }
    }

    /// A refresh has succeeded, and has counted this. If it was alone, no more may be reserved than
    /// machines have cost until a refresh could see that they are gone, and than those that exist may
    /// still cost.
    pub(crate) fn reserves_no_more(
        &mut self,
        began: Timestamp,
        counted: &MachineCount,
        removed: &BTreeMap<InstanceId, Timestamp>,
        now: Timestamp,
    ) {
        for id in removed.iter().filter(|(_, at)| **at + SKEW < began).map(|(id, _)| id) {
            self.paid_until.entry(id.clone()).or_insert(now);
        }
        let ended = self.provision_ended.is_none_or(|ended| ended + 2 * SKEW < began);
        let alone = self.is_alone(began) && self.provisions_at_work.is_empty() && ended;
        let Some(spend) = counted.spend.as_ref().filter(|_| alone && self.is_steady) else {
            return;
        };
        if !self.lists_at_once || self.stored_since(began).len() != 1 {
            return;
        }
        let longest = self.longest_life();
        let after_threshold = self.longest_of(&["max-runtime-min", "debug-on-failure-min"]);
        let is_today = [began.before(SKEW), now + SKEW].map(Timestamp::start_of_day);
        if !is_today.contains(&spend.day) {
            let how = format!("a refresh counts at {now} for another day: {spend:?}");
            return self.violated(Invariant::Counted, how);
        }
        let until = |id: &InstanceId| {
            let launched = self.launched_at.get(id).copied().unwrap_or(now) + longest;
            let threshold = self.records.get(id).and_then(|record: &Record| record.threshold);
            let threshold = threshold.map(|threshold| threshold + after_threshold + self.grace);
            threshold.map_or(launched, |threshold| launched.max(threshold)) + 2 * SKEW
        };
        // What the refresh has launched itself keeps what it has reserved, which may be for the times of a
        // run, until the next count.
        if self.launched_at.values().any(|launched| *launched >= began) {
            return;
        }
        // A machine that is over by now may have been counted before that, by a threshold that is not known
        // any more.
        let is_over = |record: &Record| record.threshold.is_none_or(|threshold| threshold <= now);
        let mut unpaid = self.launched_at.keys().filter(|id| !self.paid_until.contains_key(*id));
        if unpaid.any(|id| self.records.get(id).is_some_and(is_over)) {
            return;
        }
        let most = self.cost(spend.day, |id| match self.paid_until.get(id) {
            Some(paid) => *paid + 2 * SKEW,
            None => until(id),
        });
        if spend.committed > most {
            let how = format!("{} is reserved of {most}: {spend:?}", spend.committed);
            self.violated(Invariant::RoomIsUsed, how);
        }
    }

    /// A refresh has succeeded, and has counted this. If it was alone and more is committed than the cap, as
    /// after midnight, it has drained every idle machine that would cost less then.
    pub(crate) fn drains_what_does_not_fit(
        &mut self,
        began: Timestamp,
        counted: &MachineCount,
        now: Timestamp,
    ) {
        let ([(_, settings)], Some(spend)) = (self.stored.as_slice(), &counted.spend) else {
            return;
        };
        let Some(cap) = settings.get(CAP).and_then(|text| dollars(text)) else { return };
        let ended = self.provision_ended.is_none_or(|ended| ended + 2 * SKEW < began);
        let alone = self.is_alone(began) && self.provisions_at_work.is_empty() && ended;
        if !alone || !self.is_steady || spend.committed <= cap {
            return;
        }
        let longest = self.longest_life();
        let fits_less = |record: &&Record| {
            let launched = self.launched_at.get(&record.id).copied().unwrap_or(began);
            let threshold = record.threshold.unwrap_or(now);
            record.state == State::Idle
                && record.departure != Departure::Drained
                && threshold > now + SKEW
                && launched + RESERVED_FOR < began
                && self.changed_at.get(&record.id).is_none_or(|at| *at + SKEW < began)
                && threshold + self.grace + SKEW < launched + longest
        };
        let kept = self.records.values().find(fits_less).map(|record| record.id.clone());
        if let Some(id) = kept {
            let how = format!("{} is committed of {cap}, and {id} stays", spend.committed);
            self.violated(Invariant::SpendCap, how);
        }
    }

    /// What all machines cost on a day, until the times that `until` tells.
    fn cost(&self, day: Timestamp, until: impl Fn(&InstanceId) -> Timestamp) -> Money {
        let prices = Prices::built_in();
        let of = |(id, from): (&InstanceId, &Timestamp)| {
            let spec = self.specs.get(id)?;
            Some(on_day(prices.on_demand(&spec.instance_type)?, day, *from, until(id)))
        };
        self.launched_at.iter().filter_map(of).sum()
    }

    /// How long a machine may exist that no run uses again at its age.
    fn longest_life(&self) -> Duration {
        let kept = self.stored.iter().any(|(_, settings)| settings.contains_key("min-idle"));
        let idle = self.longest_of(&["idle-time-sec"]);
        let idle = if kept { idle.max(SHORTEST_KEPT) } else { idle };
        let age = self.longest_of(&["max-machine-age-min"]);
        age.max(self.longest_of(&["created-timeout-sec"]))
            + idle
            + self.longest_of(&["claim-timeout-sec", "max-runtime-min", "debug-on-failure-min"])
            + self.grace
    }

    /// The sum of some times, each the longest that was ever stored.
    fn longest_of(&self, inputs: &[&str]) -> Duration {
        let longest = |input: &&str| {
            let stored = self.stored.iter();
            stored.filter_map(|(_, settings)| spans::span(settings, input)).max()
        };
        inputs.iter().filter_map(longest).sum()
    }
}
