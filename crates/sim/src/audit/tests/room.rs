//! Room below the ceiling.

use std::collections::BTreeMap;

use ondeck_core::model::ceiling::MachineCount;

use super::*;
use crate::kernel::timestamp;

fn second(second: u64) -> Timestamp {
    timestamp(second * 1_000_000)
}

/// An auditor of a history without faults, with this ceiling.
fn with_ceiling(audit: &mut Audit, ceiling: &str) {
    (audit.is_steady, audit.lists_at_once) = (true, true);
    let stored = BTreeMap::from([("max-machines".to_owned(), ceiling.to_owned())]);
    audit.stored.push((second(0), stored));
}

/// The first machines, all of them large.
fn machines(audit: &mut Audit, count: usize) -> Vec<InstanceId> {
    let ids = (1..=count).map(|number| InstanceId::new(format!("i-{number}")).unwrap());
    let ids: Vec<InstanceId> = ids.collect();
    for id in &ids {
        audit.existing(&Record { id: id.clone(), ..record(State::Idle, "", Some(9_000)) });
    }
    ids
}

#[test]
fn a_refresh_counts_no_more_than_there_have_been_since_it_began() {
    let counted = |ceiling: &str, total: u32, before: fn(&mut Audit)| {
        after(|audit| {
            with_ceiling(audit, ceiling);
            let existed = machines(audit, 2);
            before(audit);
            audit.refresh_begins(Pid(9), &BTreeMap::new(), second(100));
            let large = ResourceClass::new("large").unwrap();
            let classes = BTreeMap::from([(large, total)]);
            let count = MachineCount { total, classes, ..MachineCount::empty(second(0)) };
            audit.counts_no_more(second(100), &count, &existed);
        })
    };
    let violated = Some(Invariant::RoomIsUsed);
    assert_eq!(counted("4", 2, |_| ()), None);
    assert_eq!(counted("4", 3, |_| ()), violated);
    assert_eq!(counted("large=4", 3, |_| ()), violated);
    assert_eq!(counted("xlarge=4", 3, |_| ()), None, "another class is counted");
    let ended = |audit: &mut Audit| audit.provision_ended(Pid(1), second(90));
    assert_eq!(counted("4", 3, ended), None, "what it reserved may still count");
    let at_work = |audit: &mut Audit| drop(audit.provisions_at_work.insert(Pid(1), run("a")));
    assert_eq!(counted("4", 3, at_work), None, "it may have reserved more");
    let lags = |audit: &mut Audit| audit.lists_at_once = false;
    assert_eq!(counted("4", 3, lags), None, "not all machines are listed");
}

#[test]
fn a_provision_is_refused_only_if_there_is_no_room() {
    let refused = |ceiling: &str, ask: Ask, before: fn(&mut Audit)| {
        after(|audit| {
            with_ceiling(audit, ceiling);
            let existed = machines(audit, 2);
            before(audit);
            audit.refused_without_room(&ask, second(100), &existed);
        })
    };
    let violated = Some(Invariant::RoomIsUsed);
    assert_eq!(refused("3", Ask::of(2), |_| ()), None);
    assert_eq!(refused("4", Ask::of(2), |_| ()), violated);
    assert_eq!(refused("9 large=3", Ask::of(2), |_| ()), None);
    let other = Ask { class: "xlarge", ..Ask::of(2) };
    assert_eq!(refused("9 large=3", other, |_| ()), violated, "the limit of another class");
    let ended = |audit: &mut Audit| audit.provision_ended(Pid(1), second(110));
    assert_eq!(refused("4", Ask::of(2), ended), None, "another had reserved places meanwhile");
}
