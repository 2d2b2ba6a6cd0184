//! Time and money by what machines were used for.

use std::ops::{Add, AddAssign};
use std::time::Duration;

use crate::model::money::Money;

/// What a machine is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// It was launched and is not ready.
    Booting,
    /// No run has it.
    Idle,
    /// A run has it.
    Busy,
}

/// A time, and what it cost. The money of time without a price is not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    pub time: Duration,
    pub money: Money,
}

/// What some machines were used for, and what that cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub booting: Part,
    pub idle: Part,
    pub busy: Part,
    /// The part of the above that events do not tell: the use is a guess, or whether the machine existed.
    pub uncertain: Part,
    /// The part of the above that has no price.
    pub unpriced: Duration,
}

/// How a time counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Priced {
    pub(super) used: Use,
    pub(super) per_hour: Option<Money>,
    pub(super) is_certain: bool,
}

impl Tally {
    pub fn total(&self) -> Part {
        self.booting + self.idle + self.busy
    }

    /// Whether events are missing.
    pub fn is_approximate(&self) -> bool {
        self.uncertain.time > Duration::ZERO
    }

    pub(super) fn add(&mut self, price: Priced, time: Duration) {
        let money = price.per_hour.map_or(Money::ZERO, |hour| hour.for_span(time));
        let part = Part { time, money };
        match price.used {
            Use::Booting => self.booting += part,
            Use::Idle => self.idle += part,
            Use::Busy => self.busy += part,
        }
        if !price.is_certain {
            self.uncertain += part;
        }
        if price.per_hour.is_none() {
            self.unpriced += time;
        }
    }
}

impl Add for Part {
    type Output = Part;
    fn add(self, other: Part) -> Part {
        Part { time: self.time + other.time, money: self.money + other.money }
    }
}

impl AddAssign for Part {
    fn add_assign(&mut self, other: Part) {
        *self = *self + other;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.booting += other.booting;
        self.idle += other.idle;
        self.busy += other.busy;
        self.uncertain += other.uncertain;
        self.unpriced += other.unpriced;
    }
}
