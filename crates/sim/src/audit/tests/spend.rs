//! The cap on what machines may cost.

use std::collections::BTreeMap;

use ondeck_core::model::ceiling::MachineCount;
use ondeck_core::model::money::Money;
use ondeck_core::model::spend::Spend;

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
            audit.keeps_cap(Pid(9), removed, second(3_700));
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
