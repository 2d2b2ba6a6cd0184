//! The cap on what machines may cost.

use std::collections::BTreeMap;

use ondeck_core::model::ceiling::{MachineCount, Reserved};
use ondeck_core::model::departure::Departure;
use ondeck_core::model::money::Money;
use ondeck_core::model::spend::{ReservedSpend, Spend};

use super::*;
use crate::kernel::timestamp;

fn second(second: u64) -> Timestamp {
    timestamp(second * 1_000_000)
}

fn usd(dollars: f64) -> Money {
    Money::from_dollars(dollars).unwrap()
}

/// An auditor of a history without faults whose machines cost 0.085 dollars an hour, with this cap. Two
/// of them were launched at the beginning.
fn with_cap(audit: &mut Audit, cap: &str) {
    (audit.is_steady, audit.lists_at_once) = (true, true);
    let stored = [("max-spend-per-day", cap), ("max-machine-age-min", "60")];
    let stored = stored.map(|(name, value)| (name.to_owned(), value.to_owned()));
    audit.stored.push((second(0), BTreeMap::from(stored)));
    for number in 1..=2 {
        let id = InstanceId::new(format!("i-{number}")).unwrap();
        let running = record(State::Running, "a", None);
        audit.existing(&Record { id: id.clone(), threshold: Some(second(7_200)), ..running });
        audit.launched_at.insert(id, second(0));
    }
}

/// One of the machines ended after an hour.
fn one_is_gone() -> BTreeMap<InstanceId, Timestamp> {
    BTreeMap::from([(InstanceId::new("i-1").unwrap(), second(3_600))])
}

#[test]
fn what_machines_have_cost_and_cost_until_their_thresholds_keeps_the_cap() {
    let launched = |cap: &str, removed: &BTreeMap<InstanceId, Timestamp>| {
        after(|audit| {
            with_cap(audit, cap);
            audit.refresh_begins(Pid(9), &BTreeMap::new(), second(3_700));
            let intent = IntentId::new("x").unwrap();
            audit.keeps_cap((Pid(9), &intent), removed, second(3_700));
        })
    };
    let violated = Some(Invariant::SpendCap);
    assert_eq!(launched("0.341", &BTreeMap::new()), None, "two machines for two hours");
    assert_eq!(launched("0.339", &BTreeMap::new()), violated);
    assert_eq!(launched("0.256", &one_is_gone()), None, "one has lasted an hour");
    assert_eq!(launched("0.254", &one_is_gone()), violated);
    assert_eq!(launched("", &BTreeMap::new()), None);
}

#[test]
fn a_refresh_reserves_no_more_than_machines_may_cost() {
    let counted = |committed: f64, removed: &BTreeMap<InstanceId, Timestamp>| {
        counted_after(|_| {}, committed, removed)
    };
    let violated = Some(Invariant::RoomIsUsed);
    // The threshold and a run after it: 2.5 hours.
    assert_eq!(counted(0.42, &BTreeMap::new()), None);
    assert_eq!(counted(0.5, &BTreeMap::new()), violated);
    assert_eq!(counted(0.3, &one_is_gone()), None);
    assert_eq!(counted(0.42, &one_is_gone()), violated, "the end of a machine gives money back");
    let ended = |audit: &mut Audit| {
        let id = InstanceId::new("i-1").unwrap();
        audit.existing(&Record { id, ..record(State::Terminated, "", None) });
    };
    let none = BTreeMap::new();
    assert_eq!(counted_after(ended, 0.5, &none), None, "it was ended after the count");
    let launched = |audit: &mut Audit| {
        audit.launched_at.insert(InstanceId::new("i-3").unwrap(), second(4_005));
    };
    assert_eq!(counted_after(launched, 0.5, &none), None, "another was launched after the count");
}

/// What the auditor says of a refresh that has counted this much, after something else has happened.
fn counted_after(
    before: impl FnOnce(&mut Audit),
    committed: f64,
    removed: &BTreeMap<InstanceId, Timestamp>,
) -> Option<Invariant> {
    after(|audit| {
        with_cap(audit, "9");
        before(audit);
        audit.refresh_begins(Pid(9), &BTreeMap::new(), second(4_000));
        let spend = Spend {
            since: second(0),
            day: second(0).start_of_day(),
            as_of: second(4_000),
            spent: Money::ZERO,
            hourly: Money::ZERO,
            committed: usd(committed),
        };
        let count = MachineCount { spend: Some(spend), ..MachineCount::empty(second(0)) };
        audit.reserves_no_more(second(4_000), &count, removed, second(4_010));
    })
}

#[test]
fn what_is_reserved_is_not_less_than_machines_cost() {
    let reserved = |committed: f64, removed: &BTreeMap<InstanceId, Timestamp>| {
        after(|audit| {
            with_cap(audit, "9");
            let spend = Spend {
                since: second(0),
                day: second(0).start_of_day(),
                as_of: second(3_000),
                spent: Money::ZERO,
                hourly: Money::ZERO,
                committed: usd(committed),
            };
            let count = MachineCount { spend: Some(spend), ..MachineCount::empty(second(0)) };
            audit.reserves_enough(&count, removed, second(3_000));
        })
    };
    let short = Some(Invariant::Counted);
    // Two machines until they are an hour old.
    assert_eq!(reserved(0.17, &BTreeMap::new()), None);
    assert_eq!(reserved(0.16, &BTreeMap::new()), short);
    let gone = BTreeMap::from([(InstanceId::new("i-1").unwrap(), second(1_800))]);
    assert_eq!(reserved(0.13, &gone), None, "one has lasted half an hour");
    assert_eq!(reserved(0.12, &gone), short);
}

#[test]
fn only_what_a_day_costs_counts_below_the_cap() {
    let hour = 3_600;
    let midnight = second(0).start_of_day() + Duration::from_secs(24 * hour);
    let until = midnight.since(second(0)).as_secs();
    let launched = |reserved: Timestamp, cap: &str, now: u64| {
        after(|audit| {
            with_cap(audit, cap);
            for (number, at) in [(1, until - hour), (2, until - 2 * hour)] {
                let id = InstanceId::new(format!("i-{number}")).unwrap();
                let running = record(State::Running, "a", None);
                let threshold = Some(second(until + 2 * hour));
                audit.existing(&Record { id: id.clone(), threshold, ..running });
                audit.launched_at.insert(id, second(at));
            }
            let intent = IntentId::new("x").unwrap();
            audit.reserved_days.insert(intent.clone(), reserved.start_of_day());
            audit.refresh_begins(Pid(9), &BTreeMap::new(), second(now));
            audit.keeps_cap((Pid(9), &intent), &BTreeMap::new(), second(now));
        })
    };
    let violated = Some(Invariant::SpendCap);
    // One has cost an hour and the other two of them before midnight, and each two after it.
    let (before, after) = (until - 60, until + 60);
    assert_eq!(launched(second(0), "0.256", before), None);
    assert_eq!(launched(second(0), "0.254", before), violated);
    assert_eq!(launched(second(0), "0.256", after), None, "it was reserved before midnight");
    assert_eq!(launched(midnight, "0.341", after), None);
    assert_eq!(launched(midnight, "0.339", after), violated);
}

/// A count with these amounts, and one reservation of so much an hour, for two hours from 10 h on.
fn count(recounts: u64, spent: f64, committed: f64, reserved: Option<f64>) -> MachineCount {
    let hour = Duration::from_secs(3_600);
    let day = second(0).start_of_day();
    let (from, until) = (day + 10 * hour, day + 12 * hour);
    let of_launch = |hourly| Reserved {
        class: ResourceClass::new("large").unwrap(),
        count: 1,
        deadline: until,
        settled_at: None,
        machines: Vec::new(),
        spend: Some(ReservedSpend { hourly: usd(hourly), from, until }),
    };
    let reserved = reserved.map(|hourly| (IntentId::new("x").unwrap(), of_launch(hourly)));
    let spend = Spend {
        since: second(0),
        day,
        as_of: day + 9 * hour,
        spent: usd(spent),
        hourly: usd(1.0),
        committed: usd(committed),
    };
    let reservations = reserved.into_iter().collect();
    MachineCount { recounts, reservations, spend: Some(spend), ..MachineCount::empty(second(0)) }
}

fn changed(before: &MachineCount, next: &MachineCount) -> Option<Invariant> {
    after(|audit| {
        with_cap(audit, "9");
        audit.count_changes(Some(before), Some(next));
    })
}

#[test]
fn what_is_committed_moves_as_reservations_do() {
    let (short, over) = (Some(Invariant::Counted), Some(Invariant::RoomIsUsed));
    let counted = |committed: f64, reserved| count(1, 3.0, committed, reserved);
    let before = counted(5.0, None);
    assert_eq!(changed(&before, &counted(7.0, Some(1.0))), None, "a launch is reserved");
    assert_eq!(changed(&before, &counted(6.9, Some(1.0))), short);
    assert_eq!(changed(&before, &counted(7.1, Some(1.0))), over);
    let before = counted(7.0, Some(1.0));
    assert_eq!(changed(&before, &counted(5.5, Some(0.25))), None, "cheaper types were launched");
    assert_eq!(changed(&before, &counted(4.0, Some(0.25))), short, "it is given back twice");
    assert_eq!(changed(&before, &counted(7.0, Some(0.25))), over, "it is not given back");
    assert_eq!(changed(&before, &counted(5.5, Some(1.0))), short, "it is given back again");
    assert_eq!(changed(&before, &count(1, 2.0, 5.5, Some(0.25))), short, "less was spent");
}

#[test]
fn a_count_covers_what_is_spent_and_reserved() {
    let short = Some(Invariant::Counted);
    let before = count(1, 3.0, 9.0, None);
    assert_eq!(changed(&before, &count(2, 4.0, 6.0, Some(1.0))), None);
    assert_eq!(changed(&before, &count(2, 4.0, 5.9, Some(1.0))), short);
    assert_eq!(changed(&before, &count(2, 2.9, 6.0, Some(1.0))), short, "less was spent");
}

#[test]
fn a_day_begins_with_what_runs_over_midnight() {
    let hour = Duration::from_secs(3_600);
    let began = |hourly: f64, committed: f64| {
        let before = count(1, 3.0, 9.0, Some(1.0));
        let mut next = count(1, 0.0, committed, Some(1.0));
        let day = second(0).start_of_day() + 24 * hour;
        for reserved in next.reservations.values_mut() {
            let (from, until) = (day.before(hour), day + 2 * hour);
            reserved.spend = Some(ReservedSpend { hourly: usd(1.0), from, until });
        }
        let spend = next.spend.as_mut().unwrap();
        (spend.day, spend.as_of, spend.hourly) = (day, day, usd(hourly));
        changed(&before, &next)
    };
    let short = Some(Invariant::Counted);
    // The machines may get an hour old, and the launch lasts for two hours.
    assert_eq!(began(1.0, 3.0), None);
    assert_eq!(began(1.0, 2.9), short);
    assert_eq!(began(0.5, 3.0), short, "what the machines cost in an hour stays");
}

#[test]
fn a_refresh_counts_for_its_own_day() {
    let counted = |days: u64| {
        after(|audit| {
            with_cap(audit, "9");
            audit.refresh_begins(Pid(9), &BTreeMap::new(), second(4_000));
            let mut count = count(1, 0.0, 0.1, None);
            let day = Duration::from_secs(24 * 3_600);
            count.spend.as_mut().unwrap().day = second(0).start_of_day() + day * days as u32;
            audit.reserves_no_more(second(4_000), &count, &BTreeMap::new(), second(4_010));
        })
    };
    assert_eq!(counted(0), None);
    assert_eq!(counted(1), Some(Invariant::Counted));
}

#[test]
fn idle_machines_that_do_not_fit_are_drained() {
    let left = |committed: f64, state: State, departure: Departure, threshold: u64| {
        after(|audit| {
            with_cap(audit, "9");
            let stored = &mut audit.stored[0].1;
            stored.insert("idle-time-sec".to_owned(), "90".to_owned());
            let kept = record(state, "", None);
            let threshold = Some(second(threshold));
            audit.existing(&Record { threshold, departure, ..kept });
            let count = count(1, 0.0, committed, None);
            audit.drains_what_does_not_fit(second(1_000), &count, second(1_010));
        })
    };
    let violated = Some(Invariant::SpendCap);
    assert_eq!(left(9.1, State::Idle, Departure::None, 1_200), violated);
    assert_eq!(left(9.0, State::Idle, Departure::None, 1_200), None, "it fits");
    assert_eq!(left(9.1, State::Running, Departure::None, 1_200), None, "a run has it");
    assert_eq!(left(9.1, State::Idle, Departure::Drained, 1_200), None);
    assert_eq!(left(9.1, State::Idle, Departure::None, 1_015), None, "its time is up");
    assert_eq!(left(9.1, State::Idle, Departure::None, 9_000), None, "nothing is saved");
}
