//! How many idle machines refresh keeps, of which kind, and when.

mod grammar;
mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::ids::ResourceClass;
use crate::model::money::Money;
use crate::model::requirements::{TypePatterns, UsageClass};
use crate::model::timestamp::Timestamp;

use self::window::Window;

/// In minutes.
const DAY: u64 = 24 * 60;

/// The setting `min-idle`: a list of entries, each of which holds always or in a time window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MinIdle {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    window: Option<Window>,
    minimums: Vec<Minimum>,
}

/// A number of idle machines of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minimum {
    pub class: ResourceClass,
    pub usage: UsageClass,
    /// The instance types to accept; `None` for those that the provider recommends.
    pub types: Option<TypePatterns>,
    pub count: u32,
}

/// Machines of the same kind have equal keys.
type Kind = (ResourceClass, UsageClass, Option<String>);

impl Minimum {
    fn kind(&self) -> Kind {
        let types = self.types.as_ref().map(|types| {
            let mut patterns: Vec<&str> = types.iter().collect();
            patterns.sort_unstable();
            patterns.join(" ")
        });
        (self.class.clone(), self.usage, types)
    }
}

impl MinIdle {
    /// The minimums in force at a moment, each kind of machine once, in the order of class, usage
    /// class and patterns. If several entries name the same kind, the largest count holds.
    pub fn at(&self, now: Timestamp) -> Vec<Minimum> {
        let mut largest: BTreeMap<Kind, Minimum> = BTreeMap::new();
        let open = self.entries.iter().filter(|entry| entry.holds_at(now));
        for minimum in open.flat_map(|entry| &entry.minimums) {
            let known = largest.entry(minimum.kind()).or_insert_with(|| minimum.clone());
            known.count = known.count.max(minimum.count);
        }
        largest.into_values().collect()
    }

    /// The class and the count of every minimum, whenever it holds, in the order in which they were
    /// given.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceClass, u32)> {
        let minimums = self.entries.iter().flat_map(|entry| &entry.minimums);
        minimums.map(|minimum| (&minimum.class, minimum.count))
    }

    /// Every minimum, whenever it holds.
    pub fn all(&self) -> impl Iterator<Item = &Minimum> {
        self.entries.iter().flat_map(|entry| &entry.minimums)
    }

    /// The first minimum for machines of the same kind as an earlier one with the same window.
    pub fn repeated(&self) -> Option<String> {
        let minimums = self.entries.iter().flat_map(|entry| {
            entry.minimums.iter().map(|minimum| (&entry.window, minimum.kind(), minimum))
        });
        let mut earlier: Vec<(&Option<Window>, Kind)> = Vec::new();
        for (window, kind, minimum) in minimums {
            if earlier.iter().any(|one| (one.0, &one.1) == (window, &kind)) {
                return Some(minimum.to_string());
            }
            earlier.push((window, kind));
        }
        None
    }

    /// How many machine-hours the minimums ask for in the week that begins at `from`, by class.
    /// Classes without any are left out.
    pub fn machine_hours_a_week(&self, from: Timestamp) -> BTreeMap<ResourceClass, f64> {
        let mut minutes: BTreeMap<ResourceClass, u64> = BTreeMap::new();
        for (minimums, length) in self.of_week(from) {
            for minimum in minimums {
                *minutes.entry(minimum.class).or_default() += u64::from(minimum.count) * length;
            }
        }
        minutes.retain(|_, minutes| *minutes > 0);
        minutes.into_iter().map(|(class, minutes)| (class, minutes as f64 / 60.0)).collect()
    }

    /// The largest sum over the minimums that hold at the same time, of those in the week that begins at
    /// `from`.
    pub fn most_in_a_week(&self, from: Timestamp, of: impl Fn(&Minimum) -> u32) -> u32 {
        let sum = |minimums: &[Minimum]| minimums.iter().map(&of).fold(0, u32::saturating_add);
        self.of_week(from).map(|(minimums, _)| sum(&minimums)).max().unwrap_or(0)
    }

    /// What the minimums cost on the dearest day, in UTC, of the week that begins with the day of `from`,
    /// if an hour of a machine of each costs so much.
    pub fn dearest_day(&self, from: Timestamp, hourly: impl Fn(&Minimum) -> Money) -> Money {
        let first = from.start_of_day();
        let begins = (0..7).map(|day| first + Duration::from_secs(day * DAY * 60));
        let cost = |begin| {
            let parts = self.parts(begin, DAY).flat_map(|(minimums, length)| {
                let length = Duration::from_secs(60 * length);
                minimums.into_iter().map(move |it| (it, length))
            });
            parts.map(|(it, length)| hourly(&it).times(it.count.into()).for_span(length)).sum()
        };
        begins.map(cost).max().unwrap_or_default()
    }

    /// The parts of the week that begins at `from`: which minimums hold, and for how many minutes.
    fn of_week(&self, from: Timestamp) -> impl Iterator<Item = (Vec<Minimum>, u64)> {
        self.parts(from, 7 * DAY)
    }

    /// The same of a span of so many minutes.
    fn parts(&self, from: Timestamp, span: u64) -> impl Iterator<Item = (Vec<Minimum>, u64)> {
        const MINUTE: u64 = 60_000;
        // Windows begin and end at whole minutes.
        let first = from.millis() / MINUTE;
        let end = first + span;
        let step = self.step().unwrap_or(span);
        let next = move |minute: u64| ((minute / step + 1) * step).min(end);
        let minutes = std::iter::successors(Some(first), move |minute| {
            Some(next(*minute)).filter(|it| *it < end)
        });
        minutes.map(move |minute| {
            (self.at(Timestamp::from_millis(minute * MINUTE)), next(minute) - minute)
        })
    }

    /// The longest part of an hour, in minutes, at multiples of which every window begins and ends, in
    /// UTC too: all zones differ from it by quarters of an hour. `None` without a window.
    fn step(&self) -> Option<u64> {
        const QUARTER: u64 = 15;
        let windows = self.entries.iter().filter_map(|entry| entry.window.as_ref());
        let steps = windows.map(|window| window.span.step());
        steps.reduce(greatest_common_divisor).map(|step| greatest_common_divisor(step, QUARTER))
    }
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

impl Entry {
    fn holds_at(&self, now: Timestamp) -> bool {
        self.window.as_ref().is_none_or(|window| window.contains(now))
    }
}

#[cfg(test)]
mod tests;
