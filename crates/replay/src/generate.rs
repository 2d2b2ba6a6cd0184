//! A history that follows from a seed: a week of a team that works on weekdays.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Random;
use ondeck_core::testkit::SeededRandom;

use crate::history::{History, HistoryRun};

/// 2026-11-02, a Monday, at midnight.
const BEGIN: u64 = 1_793_577_600_000;
const MINUTE: u64 = 60_000;
const DAYS: u64 = 7;
/// How many of 1,000 minutes of an hour have the start of a run, on a weekday, by hour in UTC.
const STARTS: [u64; 24] = [
    8, 8, 8, 8, 8, 8, 30, 120, 300, 480, 480, 480, 300, 480, 480, 480, 480, 300, 150, 60, 25, 25,
    25, 25,
];
/// On Saturday and Sunday there are so many times fewer.
const WEEKEND: u64 = 12;
/// How many machines a run has, with the share of runs that do, in percent.
const SIZES: [(u32, u64); 4] = [(1, 45), (2, 20), (4, 25), (8, 10)];
/// The share of runs of the class xlarge, in percent. The others are of large.
const XLARGE: u64 = 15;
/// Each night at two there is one run of this many machines, for this many minutes.
const NIGHTLY: (u64, u32, u64) = (2, 12, 40);

/// A week of runs. Only whole numbers are drawn and compared, so a seed gives the same history on every
/// computer.
pub fn generate(seed: u64) -> History {
    let random = SeededRandom::new(seed);
    let below = |limit: u64| random.number() % limit;
    let mut runs = Vec::new();
    for minute in 0..DAYS * 24 * 60 {
        let (day, hour) = (minute / (24 * 60), minute / 60 % 24);
        let rarer = if day >= 5 { WEEKEND } else { 1 };
        let start = Timestamp::from_millis(BEGIN + minute * MINUTE);
        if hour == NIGHTLY.0 && minute % 60 == 0 {
            let length = Duration::from_millis(NIGHTLY.2 * MINUTE);
            runs.push(HistoryRun { start, machines: NIGHTLY.1, length, class: class("large") });
        }
        if below(1_000 * rarer) >= STARTS[hour as usize] {
            continue;
        }
        let machines = weighted(below(100));
        // Two draws make lengths in the middle more frequent; large runs take longer.
        let longer = if machines >= 8 { 10 } else { 0 };
        let minutes = 3 + below(9) + below(13) + longer;
        let name = if below(100) < XLARGE { "xlarge" } else { "large" };
        runs.push(HistoryRun {
            start: start + Duration::from_secs(below(60)),
            machines,
            length: Duration::from_millis(minutes * MINUTE),
            class: class(name),
        });
    }
    History::new(runs).expect("there is a run each night")
}

fn class(name: &str) -> ondeck_core::model::ids::ResourceClass {
    name.parse().expect("a sound name")
}

fn weighted(mut drawn: u64) -> u32 {
    for (value, share) in SIZES {
        if drawn < share {
            return value;
        }
        drawn -= share;
    }
    SIZES[0].0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_history_and_another_seed_another() {
        let history = generate(1);
        assert_eq!(history, generate(1));
        assert_ne!(history, generate(2));
        assert_eq!(History::from_csv(&history.to_csv()).unwrap(), history);
    }

    #[test]
    fn it_is_a_week_with_most_runs_on_weekdays_and_a_large_one_each_night() {
        let history = generate(1);
        let week = Duration::from_secs(7 * 24 * 3_600);
        let monday = Timestamp::parse("2026-11-02T00:00:00Z").unwrap();
        assert!(history.since() >= monday && history.until() < monday + week);
        let runs = history.runs();
        assert!((1_200..1_800).contains(&runs.len()), "{}", runs.len());
        let weekend = Timestamp::from_millis(BEGIN + 5 * 24 * 60 * MINUTE);
        let late = runs.iter().filter(|run| run.start >= weekend).count();
        assert!(late * 10 < runs.len(), "{late}");
        let nightly = runs.iter().filter(|run| run.machines == 12).count();
        assert_eq!(nightly, 7);
    }
}
