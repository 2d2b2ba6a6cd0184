use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

const NANOS: f64 = 1e9;
const HOUR_MS: i128 = 3_600_000;

/// An amount in US dollars, in whole billionths, so that the parts of an amount add up to it. It may be
/// negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(i64);

impl Money {
    pub const ZERO: Money = Money(0);

    /// From dollars, to the nearest billionth. `None` if it is no finite number or too large.
    pub fn from_dollars(dollars: f64) -> Option<Money> {
        let nanos = (dollars * NANOS).round();
        (nanos.abs() < 9e18).then_some(Money(nanos as i64))
    }

    /// From whole billionths of a dollar.
    pub fn from_nanos(nanos: i64) -> Money {
        Money(nanos)
    }

    /// In whole billionths of a dollar.
    pub fn nanos(self) -> i64 {
        self.0
    }

    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANOS
    }

    /// What a span costs if an hour costs this, to the nearest billionth.
    #[must_use]
    pub fn for_span(self, span: Duration) -> Money {
        let millis = i128::try_from(span.as_millis()).unwrap_or(i128::MAX);
        let nanos = i128::from(self.0).saturating_mul(millis).saturating_add(HOUR_MS / 2) / HOUR_MS;
        Money(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// So many times this.
    #[must_use]
    pub fn times(self, count: u64) -> Money {
        Money(self.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
    }
}

impl Add for Money {
    type Output = Money;
    fn add(self, other: Money) -> Money {
        Money(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Money) {
        *self = *self + other;
    }
}

impl Sub for Money {
    type Output = Money;
    fn sub(self, other: Money) -> Money {
        Money(self.0.saturating_sub(other.0))
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Money>>(amounts: I) -> Money {
        amounts.fold(Money::ZERO, Money::add)
    }
}

impl fmt::Display for Money {
    /// In cents from a dollar on, and in hundredths of a cent below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let text = match self.dollars().abs() {
            0.0 => "$0".to_owned(),
            little if little < 0.000_05 => "<$0.0001".to_owned(),
            some if some < 0.999_95 => format!("{sign}${some:.4}"),
            much => format!("{sign}${much:.2}"),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(amount: f64) -> Money {
        Money::from_dollars(amount).unwrap()
    }

    #[test]
    fn amounts_are_shown_as_precisely_as_they_are_large() {
        for (amount, shown) in [
            (0.0, "$0"),
            (0.000_01, "<$0.0001"),
            (0.0123, "$0.0123"),
            (-0.5, "-$0.5000"),
            (0.999_99, "$1.00"),
            (1234.567, "$1234.57"),
            (-3.2, "-$3.20"),
        ] {
            assert_eq!(dollars(amount).to_string(), shown);
        }
        assert_eq!(format!("{:>8}", dollars(2.0)), "   $2.00");
    }

    #[test]
    fn an_hour_costs_its_price_and_a_part_its_share() {
        let price = dollars(0.085);
        assert_eq!(price.for_span(Duration::from_secs(3_600)), price);
        assert_eq!(price.for_span(Duration::from_secs(900)), dollars(0.021_25));
        assert_eq!(price.for_span(Duration::ZERO), Money::ZERO);
        assert_eq!(price.times(3), dollars(0.255));
        assert_eq!(dollars(1.0) - dollars(3.0), dollars(-2.0));
        for bad in [f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Money::from_dollars(bad), None);
        }
    }
}
