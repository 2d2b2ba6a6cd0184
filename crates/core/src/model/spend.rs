//! The cap on what machines may cost in a day: what they have cost, and what they may still cost.
//!
//! It is a part of the [`MachineCount`](crate::model::ceiling::MachineCount), so that one conditional
//! write reserves places and money. Amounts are list prices on demand, also of spot machines. A day
//! begins at midnight in UTC.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::money::Money;
use crate::model::timestamp::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What machines cost on one day: never less than they have cost, and may cost until its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spend {
    /// When the cap was set for which refresh counted. A spend for another cap is void: machines were
    /// launched in between without being counted.
    pub since: Timestamp,
    /// The midnight at which the day begins.
    pub day: Timestamp,
    /// Until when `spent` is known.
    pub as_of: Timestamp,
    /// What machines have cost from midnight until `as_of`.
    pub spent: Money,
    /// What an hour costs of all machines that count without a reservation.
    pub hourly: Money,
    /// `spent`, and what may be added to it until the end of the day.
    pub committed: Money,
}

/// The cap that a reservation must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendLimit {
    /// When the cap was set.
    pub since: Timestamp,
    pub cap: Money,
    /// The midnight at which the day begins that the launch is for.
    pub day: Timestamp,
}

/// What the machines of one launch may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservedSpend {
    /// What an hour of all of them costs.
    pub hourly: Money,
    /// When the launch was reserved, which is before it.
    pub from: Timestamp,
    /// When the last of them is gone.
    pub until: Timestamp,
}

/// What is left of a [`ReservedSpend`] once it is known what was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendSettlement {
    /// The day that the money was reserved on. If the spend is of another day, the settlement has no
    /// effect: refresh corrects it when it has counted.
    pub day: Timestamp,
    /// What an hour of the reservation costs. With another price, the settlement has no effect: it has
    /// been made before, and its answer was lost.
    pub reserved: Money,
    /// What an hour of the launched machines costs.
    pub hourly: Money,
    /// How much of the day's money is given back.
    pub back: Money,
}

/// The end of the day that begins at `day`.
pub fn end_of(day: Timestamp) -> Timestamp {
    day + DAY
}

/// What a machine costs on the day that begins at `day`, if it exists in this time.
pub fn on_day(hourly: Money, day: Timestamp, from: Timestamp, until: Timestamp) -> Money {
    hourly.for_span(until.min(end_of(day)).since(from.max(day)))
}

/// Reads an amount in dollars above zero.
pub fn dollars(text: &str) -> Result<Money, String> {
    let number = text.trim().parse::<f64>().ok().and_then(Money::from_dollars);
    number.filter(|amount| *amount > Money::ZERO).ok_or_else(|| {
        let text = crate::model::excerpt::quoted(text);
        format!("is not an amount in dollars above 0: {text}")
    })
}

impl Spend {
    /// Whether there is money for a reservation: the one meaning of the condition that stores
    /// translate.
    pub fn admits(&self, reserved: &ReservedSpend, limit: &SpendLimit) -> bool {
        self.since == limit.since
            && self.day == limit.day
            && self.committed + reserved.on(self.day, self.day) <= limit.cap
    }

    /// What is reserved beyond what machines have cost.
    pub fn reserved(&self) -> Money {
        self.committed - self.spent
    }

    /// The spend at the beginning of a later day, if everything that counts may be there for
    /// `longest`, and launches cost what they have reserved.
    #[must_use]
    pub fn carried_over(
        &self,
        day: Timestamp,
        longest: Duration,
        reserved: impl Iterator<Item = ReservedSpend>,
    ) -> Spend {
        let open: Money = reserved.map(|reserved| reserved.on(day, day)).sum();
        let (as_of, spent) = (day, Money::ZERO);
        let committed = open + on_day(self.hourly, day, day, day + longest);
        Spend { day, as_of, spent, committed, ..self.clone() }
    }

    /// What machines have cost until `now` on the day of `now`, if each that counted has existed until
    /// then. `now` must not be before `as_of`.
    pub fn spent_until(
        &self,
        now: Timestamp,
        reserved: impl Iterator<Item = ReservedSpend>,
    ) -> Money {
        let day = now.start_of_day();
        let before = if self.day == day { self.spent } else { Money::ZERO };
        let of_launches = reserved
            .map(|reserved| on_day(reserved.hourly, day, reserved.from.max(self.as_of), now));
        before + on_day(self.hourly, day, self.as_of, now) + of_launches.sum()
    }
}

impl ReservedSpend {
    /// What it costs on the day that begins at `day`, from a moment on.
    pub fn on(&self, day: Timestamp, after: Timestamp) -> Money {
        on_day(self.hourly, day, self.from.max(after), self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(&format!("2026-11-{text}Z")).unwrap()
    }

    fn usd(amount: f64) -> Money {
        Money::from_dollars(amount).unwrap()
    }

    fn reserved(hourly: f64, from: &str, until: &str) -> ReservedSpend {
        ReservedSpend { hourly: usd(hourly), from: at(from), until: at(until) }
    }

    fn spend() -> Spend {
        Spend {
            since: at("10T00:00:00"),
            day: at("19T00:00:00"),
            as_of: at("19T12:00:00"),
            spent: usd(3.0),
            hourly: usd(0.5),
            committed: usd(5.0),
        }
    }

    #[test]
    fn an_amount_is_in_dollars_above_zero() {
        assert_eq!(dollars(" 10 "), Ok(usd(10.0)));
        assert_eq!(dollars("0.25"), Ok(usd(0.25)));
        for wrong in ["", "0", "-1", "ten", "$10", "NaN", "inf", "1e300", "0.0000000001"] {
            assert!(dollars(wrong).unwrap_err().contains("dollars above 0"), "{wrong}");
        }
    }

    #[test]
    fn only_the_part_within_the_day_counts() {
        let day = at("19T00:00:00");
        for (from, until, after, hours) in [
            ("19T10:00:00", "19T12:00:00", "19T00:00:00", 2.0),
            ("19T22:00:00", "20T12:00:00", "19T00:00:00", 2.0),
            ("18T10:00:00", "19T01:00:00", "19T00:00:00", 1.0),
            ("18T10:00:00", "20T10:00:00", "19T00:00:00", 24.0),
            ("18T10:00:00", "18T12:00:00", "19T00:00:00", 0.0),
            ("20T10:00:00", "20T12:00:00", "19T00:00:00", 0.0),
            ("19T10:00:00", "19T12:00:00", "19T11:30:00", 0.5),
            ("19T10:00:00", "19T12:00:00", "19T13:00:00", 0.0),
        ] {
            let cost = reserved(2.0, from, until).on(day, at(after));
            assert_eq!(cost, usd(2.0 * hours), "{from} to {until} after {after}");
        }
    }

    #[test]
    fn money_is_reserved_up_to_the_cap_of_its_day() {
        let limit = |cap| SpendLimit { since: spend().since, cap: usd(cap), day: spend().day };
        let two = reserved(1.0, "19T12:00:00", "19T14:00:00");
        assert!(spend().admits(&two, &limit(7.0)));
        assert!(!spend().admits(&two, &limit(6.999_999_999)));
        assert!(!spend().admits(&two, &SpendLimit { since: at("11T00:00:00"), ..limit(99.0) }));
        assert!(!spend().admits(&two, &SpendLimit { day: at("20T00:00:00"), ..limit(99.0) }));
        assert_eq!(spend().reserved(), usd(2.0));
    }

    #[test]
    fn what_counts_is_spent_as_time_goes_by_once() {
        let spent = |now: &str, launches: &[ReservedSpend]| {
            spend().spent_until(at(now), launches.iter().copied())
        };
        assert_eq!(spent("19T12:00:00", &[]), usd(3.0));
        assert_eq!(spent("19T14:00:00", &[]), usd(4.0));
        let later = reserved(1.0, "19T13:00:00", "19T20:00:00");
        assert_eq!(spent("19T14:00:00", &[later]), usd(5.0));
        let earlier = reserved(1.0, "19T09:00:00", "19T20:00:00");
        assert_eq!(spent("19T14:00:00", &[earlier]), usd(6.0), "until noon it is in `spent`");
        assert_eq!(spent("20T02:00:00", &[]), usd(1.0), "of the new day only");
        assert_eq!(spent("20T02:00:00", &[later]), usd(3.0));
    }

    #[test]
    fn a_new_day_begins_with_what_may_still_be_there() {
        let launches = [reserved(1.0, "19T23:00:00", "20T02:00:00")];
        let day = at("20T00:00:00");
        let next = spend().carried_over(day, Duration::from_secs(4 * 3_600), launches.into_iter());
        let expected = Spend {
            day,
            as_of: day,
            spent: Money::ZERO,
            committed: usd(4.0 * 0.5 + 2.0),
            ..spend()
        };
        assert_eq!(next, expected);
        let week = Duration::from_secs(7 * 24 * 3_600);
        assert_eq!(spend().carried_over(day, week, [].into_iter()).committed, usd(12.0));
    }
}
