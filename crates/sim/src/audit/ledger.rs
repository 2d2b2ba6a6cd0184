//! The money in the count of machines, change by change: what is committed moves by what reservations
//! move by, and by nothing else.

use std::time::Duration;

use ondeck_core::model::ceiling::{MachineCount, Reserved};
use ondeck_core::model::ids::IntentId;
use ondeck_core::model::money::Money;
use ondeck_core::model::spend::Spend;
use ondeck_core::model::timestamp::Timestamp;

use super::{Audit, Invariant};
use crate::plan::spans;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What a price by the hour amounts to on the day that begins at `day`, from a time until another.
pub(super) fn on_day(hourly: Money, day: Timestamp, from: Timestamp, until: Timestamp) -> Money {
    hourly.for_span(until.min(day + DAY).since(from.max(day)))
}

/// What the launches with a reservation may cost on a day, from a time on.
fn reserved(count: &MachineCount, day: Timestamp, after: Timestamp) -> Money {
    let spends = count.reservations.values().filter_map(|reserved: &Reserved| reserved.spend);
    spends.map(|it| on_day(it.hourly, day, it.from.max(after), it.until)).sum()
}

impl Audit {
    /// One call has changed the count, or has left it as it was.
    pub(crate) fn count_changes(
        &mut self,
        before: Option<&MachineCount>,
        after: Option<&MachineCount>,
    ) {
        let Some(after) = after.filter(|after| before != Some(*after)) else { return };
        let Some(spend) = &after.spend else { return };
        for intent in after.reservations.keys() {
            self.reserved_days.entry(intent.clone()).or_insert(spend.day);
        }
        let known = before.and_then(|before| Some((before, before.spend.as_ref()?)));
        match known.filter(|(_, was)| was.since == spend.since) {
            Some((before, was)) if before.recounts == after.recounts && was.day == spend.day => {
                self.balances((before, was), (after, spend));
            }
            Some((before, was)) if before.recounts == after.recounts => {
                self.begins_a_day(was, (after, spend));
            }
            known => self.recounts(known.map(|(_, was)| was), (after, spend)),
        }
    }

    /// A launch was reserved, or settled.
    fn balances(
        &mut self,
        (before, was): (&MachineCount, &Spend),
        (after, spend): (&MachineCount, &Spend),
    ) {
        let of = |count: &MachineCount| reserved(count, spend.day, spend.day);
        let expected = was.committed + of(after) - of(before);
        let how = format!("{} is committed instead of {expected}: {was:?}", spend.committed);
        let same = (was.spent, was.hourly, was.as_of) == (spend.spent, spend.hourly, spend.as_of);
        if spend.committed < expected || !same {
            self.violated(Invariant::Counted, how);
        } else if spend.committed > expected {
            self.violated(Invariant::RoomIsUsed, how);
        }
    }

    /// A launch has begun a day: all that counted may still be there, for as long as it takes to reach the
    /// greatest age at least.
    fn begins_a_day(&mut self, was: &Spend, (after, spend): (&MachineCount, &Spend)) {
        let stored = self.stored.iter();
        let ages = stored.filter_map(|(_, all)| spans::span(all, "max-machine-age-min"));
        let age = ages.min().unwrap_or_default();
        let until = spend.day + age;
        let least =
            reserved(after, spend.day, spend.day) + on_day(was.hourly, spend.day, spend.day, until);
        if spend.committed < least || spend.day < was.day || spend.hourly != was.hourly {
            let how = format!("{least} runs over midnight: {spend:?} after {was:?}");
            self.violated(Invariant::Counted, how);
        }
    }

    /// A refresh has counted. What it has found to be spent does not become less on a day.
    fn recounts(&mut self, was: Option<&Spend>, (after, spend): (&MachineCount, &Spend)) {
        let least = spend.spent + reserved(after, spend.day, spend.as_of);
        let was = was.filter(|was| was.day == spend.day);
        if spend.committed < least || was.is_some_and(|was| spend.spent < was.spent) {
            let how = format!("{least} is needed: {spend:?} after {was:?}");
            self.violated(Invariant::Counted, how);
        }
    }

    /// The day for which a launch was reserved; that of `now` if it was not.
    pub(super) fn reserved_day(&self, intent: &IntentId, now: Timestamp) -> Timestamp {
        self.reserved_days.get(intent).copied().unwrap_or(now.start_of_day())
    }
}
