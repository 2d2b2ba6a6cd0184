//! The ceiling: how many machines a pool and its classes may have, and how many they have.
//!
//! The store keeps one [`MachineCount`]. A launch is counted before it happens, by a
//! [`Reservation`] under its intent; refresh corrects the count by what exists. So the count may be
//! too high until the next refresh, and is never too low. With a cap on what machines may cost, the
//! count has their [`Spend`] as well.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;
use crate::model::ids::{InstanceId, IntentId, ResourceClass};
use crate::model::spend::{ReservedSpend, Spend, SpendLimit, SpendSettlement};
use crate::model::timestamp::Timestamp;

/// The most machines that may exist at once, in the pool and by class. Without a number there is no
/// limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaxMachines {
    pub pool: Option<u32>,
    pub classes: BTreeMap<ResourceClass, u32>,
}

/// How many machines exist or may exist soon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineCount {
    /// When the ceiling was set for which refresh counted. A count for another ceiling is void:
    /// machines were launched in between without being counted.
    pub since: Timestamp,
    /// Grows with every change.
    pub version: u64,
    /// How often refreshes have counted. One that began before another has counted knows less than that.
    #[serde(default)]
    pub recounts: u64,
    pub total: u32,
    pub classes: BTreeMap<ResourceClass, u32>,
    /// The launches that the lists of machines may not show yet. They are part of the numbers above.
    pub reservations: BTreeMap<IntentId, Reserved>,
    /// What the machines cost. `None` if there was no cap when refresh counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<Spend>,
}

/// The places that a launch has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserved {
    pub class: ResourceClass,
    pub count: u32,
    /// By when the outcome of the launch is known or refresh has settled its intent.
    pub deadline: Timestamp,
    /// When the launch was answered, with `count` machines; `None` if it was not.
    pub settled_at: Option<Timestamp>,
    /// The machines of an answered launch. Empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<InstanceId>,
    /// What the machines may cost; `None` if there was no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<ReservedSpend>,
}

/// A request for places, made before the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub intent: IntentId,
    pub class: ResourceClass,
    pub count: u32,
    pub deadline: Timestamp,
    /// What the machines may cost; `Some` if [`Limits::spend`] is.
    pub spend: Option<ReservedSpend>,
}

/// The ceilings that a reservation must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// When the ceiling was set.
    pub since: Timestamp,
    pub pool: Option<u32>,
    /// Of the reservation's class.
    pub class: Option<u32>,
    pub spend: Option<SpendLimit>,
}

/// The answer to a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationVerdict {
    Granted,
    /// Refused by this count; `None` if refresh has never counted.
    Refused(Option<MachineCount>),
}

/// How many of the places of a reservation are still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub intent: IntentId,
    pub class: ResourceClass,
    /// How many places the reservation has. With another number, the settlement has no effect.
    pub from: u32,
    /// How many machines there are; at most `from`.
    pub to: u32,
    /// These machines, or none if it does not matter which they are.
    pub machines: Vec<InstanceId>,
    pub at: Timestamp,
    /// What becomes of the money that was reserved; `Some` if there is a cap.
    pub spend: Option<SpendSettlement>,
}

impl MaxMachines {
    /// Whether there is any limit.
    pub fn is_set(&self) -> bool {
        self.pool.is_some() || !self.classes.is_empty()
    }

    /// The limits for machines of a class; `None` if there is none.
    pub fn limits(&self, class: &ResourceClass, since: Timestamp) -> Option<Limits> {
        let class = self.classes.get(class).copied();
        let limits = Limits { since, pool: self.pool, class, spend: None };
        (limits.pool.is_some() || limits.class.is_some()).then_some(limits)
    }
}

impl std::str::FromStr for MaxMachines {
    type Err = String;

    /// Reads `100 large=20`: a number for the pool, and one for each class that has a limit of its
    /// own. Fails if a number is missing, or given twice.
    fn from_str(text: &str) -> Result<MaxMachines, String> {
        let mut max = MaxMachines::default();
        for word in text.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty()) {
            let (class, number) = match word.split_once('=') {
                Some((class, number)) => (Some(class), number),
                None => (None, word),
            };
            let number: u32 = number.parse().map_err(|_| {
                format!("is not of the form COUNT or CLASS=COUNT: {}", quoted(word))
            })?;
            let earlier = match class {
                None => max.pool.replace(number),
                Some(class) => {
                    let class = ResourceClass::new(class).map_err(|error| error.to_string())?;
                    max.classes.insert(class, number)
                }
            };
            if earlier.is_some() {
                return Err(format!("gives a second number for the same: {}", quoted(word)));
            }
        }
        Ok(max)
    }
}

impl MachineCount {
    /// A count of nothing.
    pub fn empty(since: Timestamp) -> MachineCount {
        MachineCount {
            since,
            version: 0,
            recounts: 0,
            total: 0,
            classes: BTreeMap::new(),
            reservations: BTreeMap::new(),
            spend: None,
        }
    }

    pub fn of_class(&self, class: &ResourceClass) -> u32 {
        self.classes.get(class).copied().unwrap_or_default()
    }

    /// Whether a reservation keeps the limits and is new: the one meaning of the condition that
    /// stores translate.
    pub fn admits(&self, reservation: &Reservation, limits: &Limits) -> bool {
        let fits = |count: u32, limit: Option<u32>| {
            limit.is_none_or(|limit| {
                u64::from(count) + u64::from(reservation.count) <= u64::from(limit)
            })
        };
        self.since == limits.since
            && fits(self.total, limits.pool)
            && fits(self.of_class(&reservation.class), limits.class)
            && !self.reservations.contains_key(&reservation.intent)
            && self.has_money(reservation, limits)
    }

    fn has_money(&self, reservation: &Reservation, limits: &Limits) -> bool {
        let Some(limit) = &limits.spend else { return true };
        match (&self.spend, &reservation.spend) {
            (Some(spend), Some(asked)) => spend.admits(asked, limit),
            _ => false,
        }
    }

    /// What the launches with a reservation may cost.
    pub fn reserved_spends(&self) -> impl Iterator<Item = ReservedSpend> {
        self.reservations.values().filter_map(|reserved| reserved.spend)
    }

    /// The count with the spend of a later day, as if all machines that count may be there for
    /// `longest` from midnight on. `None` if it has no spend, or one of that day or a later one.
    #[must_use]
    pub fn on_day(mut self, day: Timestamp, longest: Duration) -> Option<MachineCount> {
        let spend = self.spend.as_ref().filter(|spend| spend.day < day)?;
        self.spend = Some(spend.carried_over(day, longest, self.reserved_spends()));
        self.version += 1;
        Some(self)
    }

    /// The count after a reservation; `None` if it is refused.
    #[must_use]
    pub fn reserve(mut self, reservation: &Reservation, limits: &Limits) -> Option<MachineCount> {
        if !self.admits(reservation, limits) {
            return None;
        }
        let Reservation { intent, class, count, deadline, spend } = reservation.clone();
        self.version += 1;
        self.total = self.total.saturating_add(count);
        *self.classes.entry(class.clone()).or_default() += count;
        if let (Some(of_day), Some(asked), Some(_)) = (&mut self.spend, &spend, &limits.spend) {
            of_day.committed += asked.on(of_day.day, of_day.day);
        }
        let (settled_at, machines) = (None, Vec::new());
        let reserved = Reserved { class, count, deadline, settled_at, machines, spend };
        self.reservations.insert(intent, reserved);
        Some(self)
    }

    /// The count after a settlement; `None` if it has no effect, because the reservation is gone, or has
    /// another number of places or another price. Money that was reserved on another day stays reserved,
    /// until refresh counts.
    #[must_use]
    pub fn settle(mut self, settlement: &Settlement) -> Option<MachineCount> {
        let reserved = self.reservations.get_mut(&settlement.intent)?;
        if reserved.count != settlement.from || settlement.to > settlement.from {
            return None;
        }
        if let Some(money) = &settlement.spend
            && let Some(of_day) = self.spend.as_mut().filter(|spend| spend.day == money.day)
        {
            let cost = reserved.spend.as_mut().filter(|cost| cost.hourly == money.reserved)?;
            cost.hourly = money.hourly;
            of_day.committed = of_day.committed - money.back;
        }
        (reserved.count, reserved.settled_at) = (settlement.to, Some(settlement.at));
        reserved.machines.clone_from(&settlement.machines);
        let given_back = settlement.from - settlement.to;
        self.version += 1;
        self.total = self.total.saturating_sub(given_back);
        let of_class = self.classes.entry(settlement.class.clone()).or_default();
        *of_class = of_class.saturating_sub(given_back);
        Some(self)
    }
}

impl Reserved {
    /// Whether a list of machines that was begun at `listed_at` may lack machines of this launch. A
    /// launched machine is listed `lag` after its launch at the latest.
    pub fn may_be_unlisted(&self, listed_at: Timestamp, lag: Duration) -> bool {
        listed_at < self.settled_at.unwrap_or(self.deadline) + lag
    }
}

impl ReservationVerdict {
    /// Whether the launch under this intent is counted. A reservation that is repeated because its
    /// answer was lost is refused, and found in the count.
    pub fn is_granted(&self, intent: &IntentId) -> bool {
        match self {
            ReservationVerdict::Granted => true,
            ReservationVerdict::Refused(found) => {
                found.as_ref().is_some_and(|found| found.reservations.contains_key(intent))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::money::Money;

    fn class(name: &str) -> ResourceClass {
        name.parse().unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn reservation(intent: &str, of: &str, count: u32) -> Reservation {
        let (intent, class) = (intent.parse().unwrap(), class(of));
        Reservation { intent, class, count, deadline: at(600), spend: None }
    }

    fn limits(pool: Option<u32>, class: Option<u32>) -> Limits {
        Limits { since: at(0), pool, class, spend: None }
    }

    #[test]
    fn a_ceiling_is_read_from_its_text() {
        let read = |text: &str| text.parse::<MaxMachines>();
        let max = read("100 large=20,xlarge=0\n").unwrap();
        assert_eq!(max.pool, Some(100));
        assert_eq!(max.classes, [(class("large"), 20), (class("xlarge"), 0)].into());
        assert_eq!(read("large=20").unwrap().pool, None);
        assert!(!read(" ").unwrap().is_set() && read("0").unwrap().is_set());
        for (text, problem) in [
            ("many", "COUNT or CLASS=COUNT: \"many\""),
            ("-1", "COUNT or CLASS=COUNT"),
            ("1.5", "COUNT or CLASS=COUNT"),
            ("4294967296", "COUNT or CLASS=COUNT"),
            ("large=", "COUNT or CLASS=COUNT"),
            ("=3", "resource class"),
            ("a=b=3", "COUNT or CLASS=COUNT"),
            ("1 2", "second number"),
            ("large=1 large=1", "second number"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_reservation_keeps_both_limits() {
        let count = MachineCount {
            total: 8,
            classes: [(class("large"), 3), (class("xlarge"), 5)].into(),
            ..MachineCount::empty(at(0))
        };
        for (of, asked, pool, of_class, granted) in [
            ("large", 2, Some(10), None, true),
            ("large", 3, Some(10), None, false),
            ("large", 2, Some(10), Some(5), true),
            ("large", 2, Some(10), Some(4), false),
            ("large", 2, None, Some(5), true),
            ("large", 2, None, Some(4), false),
            ("small", 2, Some(10), Some(2), true),
            ("small", 2, Some(10), Some(1), false),
            ("small", 1, Some(7), None, false),
            ("small", u32::MAX, Some(u32::MAX), None, false),
        ] {
            let asked = reservation("a", of, asked);
            let limits = limits(pool, of_class);
            assert_eq!(count.admits(&asked, &limits), granted, "{asked:?} {limits:?}");
            let after = count.clone().reserve(&asked, &limits);
            assert_eq!(after.is_some(), granted);
            if let Some(after) = after {
                assert_eq!(after.total, 8 + asked.count);
                assert_eq!(
                    after.of_class(&asked.class),
                    count.of_class(&asked.class) + asked.count
                );
                assert!(after.version > count.version);
                assert!(!after.admits(&asked, &Limits { pool: None, class: None, ..limits }));
            }
        }
        let other = Limits { since: at(1), ..limits(None, None) };
        assert!(!count.admits(&reservation("a", "large", 1), &other), "of another ceiling");
    }

    #[test]
    fn a_settlement_gives_back_what_was_not_launched_and_only_once() {
        let reserved = MachineCount::empty(at(0))
            .reserve(&reservation("a", "large", 5), &limits(Some(9), None))
            .unwrap();
        let settlement = |from, to| Settlement {
            intent: "a".parse().unwrap(),
            class: class("large"),
            from,
            to,
            machines: vec!["i-1".parse().unwrap()],
            at: at(9),
            spend: None,
        };
        let settled = reserved.clone().settle(&settlement(5, 3)).unwrap();
        assert_eq!((settled.total, settled.of_class(&class("large"))), (3, 3));
        assert_eq!(settled.reservations.values().next().unwrap().settled_at, Some(at(9)));
        assert_eq!(settled.clone().settle(&settlement(5, 3)), None, "a repetition");
        assert_eq!(settled.clone().settle(&settlement(3, 4)), None, "more than there were");
        assert_eq!(settled.settle(&settlement(3, 0)).unwrap().total, 0);
        let unknown = Settlement { intent: "b".parse().unwrap(), ..settlement(5, 3) };
        assert_eq!(reserved.settle(&unknown), None);
    }

    const HOUR: u64 = 3_600;

    fn usd(dollars: f64) -> Money {
        Money::from_dollars(dollars).unwrap()
    }

    /// A count whose spend is of the first day, with a reservation of two dollars until midnight.
    fn with_money() -> (MachineCount, Limits) {
        let spend = Spend {
            since: at(5),
            day: at(0),
            as_of: at(0),
            spent: usd(1.0),
            hourly: usd(0.25),
            committed: usd(3.0),
        };
        let count = MachineCount { spend: Some(spend), ..MachineCount::empty(at(0)) };
        let limit = SpendLimit { since: at(5), cap: usd(5.0), day: at(0) };
        (count, Limits { spend: Some(limit), ..limits(None, None) })
    }

    fn costing(intent: &str, hourly: f64) -> Reservation {
        let money =
            ReservedSpend { hourly: usd(hourly), from: at(22 * HOUR), until: at(30 * HOUR) };
        Reservation { spend: Some(money), ..reservation(intent, "large", 2) }
    }

    #[test]
    fn places_and_money_are_reserved_together() {
        let (count, limits) = with_money();
        for (asked, pool, granted) in [
            (costing("a", 1.0), None, true),
            (costing("a", 1.001), None, false),
            (costing("a", 1.0), Some(1), false),
            (reservation("a", "large", 1), None, false),
        ] {
            let limits = Limits { pool, ..limits };
            let after = count.clone().reserve(&asked, &limits);
            assert_eq!(after.is_some(), granted, "{asked:?} {limits:?}");
        }
        let full = count.clone().reserve(&costing("a", 1.0), &limits).unwrap();
        assert_eq!((full.total, full.spend.as_ref().unwrap().committed), (2, usd(5.0)));
        assert!(!full.admits(&costing("b", 0.1), &limits));
        let uncounted = MachineCount { spend: None, ..count };
        assert!(!uncounted.admits(&costing("a", 0.1), &limits), "the cap was not counted for");
    }

    #[test]
    fn money_that_a_launch_does_not_need_returns_once_and_only_on_its_day() {
        let (count, limits) = with_money();
        let full = count.reserve(&costing("a", 1.0), &limits).unwrap();
        let (day, reserved) = (at(0), usd(1.0));
        let money = SpendSettlement { day, reserved, hourly: usd(0.25), back: usd(1.5) };
        let settlement = Settlement {
            intent: "a".parse().unwrap(),
            class: class("large"),
            from: 2,
            to: 1,
            machines: Vec::new(),
            at: at(23 * HOUR),
            spend: Some(money),
        };
        let settled = full.clone().settle(&settlement).unwrap();
        assert_eq!(settled.spend.as_ref().unwrap().committed, usd(3.5));
        assert_eq!(settled.reserved_spends().next().unwrap().hourly, usd(0.25));
        assert_eq!(settled.settle(&settlement), None, "a repetition");
        let all = Settlement { to: 2, ..settlement.clone() };
        let settled = full.clone().settle(&all).unwrap();
        assert_eq!(settled.settle(&all), None, "a repetition of one that keeps all places");
        let next_day = full.on_day(at(24 * HOUR), Duration::from_secs(2 * HOUR)).unwrap();
        let carried = usd(0.25 * 2.0 + 1.0 * 6.0);
        assert_eq!(next_day.spend.as_ref().unwrap().committed, carried);
        let late = next_day.clone().settle(&settlement).unwrap();
        assert_eq!((late.total, &late.spend), (1, &next_day.spend), "its day is over: places only");
        assert_eq!(late.settle(&settlement), None, "a repetition on the next day");
        assert_eq!(next_day.clone().on_day(at(24 * HOUR), Duration::ZERO), None);
        assert_eq!(next_day.on_day(at(0), Duration::ZERO), None, "a day does not come again");
    }

    #[test]
    fn a_launch_may_be_unlisted_for_a_while() {
        let lag = Duration::from_secs(60);
        let open = Reserved {
            class: class("large"),
            count: 1,
            deadline: at(600),
            settled_at: None,
            machines: Vec::new(),
            spend: None,
        };
        let settled = Reserved { settled_at: Some(at(100)), ..open.clone() };
        for (reserved, listed_at, may) in
            [(&open, 659, true), (&open, 660, false), (&settled, 159, true), (&settled, 160, false)]
        {
            assert_eq!(reserved.may_be_unlisted(at(listed_at), lag), may, "{listed_at}");
        }
    }
}
