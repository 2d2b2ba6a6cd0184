//! The count of machines: reservations, settlements and replacements.

use futures_util::future::join_all;

use super::arrange::{instance, morning, ms, noon};
use crate::model::ceiling::{Limits, MachineCount, Reservation, ReservationVerdict, Settlement};
use crate::model::ids::{IntentId, ResourceClass};
use crate::ports::Store;

fn class(name: &str) -> ResourceClass {
    ResourceClass::new(name).expect("a name")
}

fn intent(name: &str) -> IntentId {
    IntentId::new(name).expect("an id")
}

pub(super) fn reservation(name: &str, of: &str, count: u32) -> Reservation {
    let (intent, class) = (intent(name), class(of));
    Reservation { intent, class, count, deadline: noon(), spend: None }
}

pub(super) fn limits(pool: Option<u32>, class: Option<u32>) -> Limits {
    Limits { since: morning(), pool, class, spend: None }
}

pub(super) fn settlement(name: &str, from: u32, to: u32) -> Settlement {
    let machines = (0..to).map(|n| instance(&format!("i-{n}"))).collect();
    let (intent, class) = (intent(name), class("large"));
    Settlement { intent, class, from, to, machines, at: noon(), spend: None }
}

pub(super) async fn counted<S: Store>(store: &S) -> MachineCount {
    store.machine_count().await.expect("the store answers").expect("a count")
}

pub(super) async fn replace<S: Store>(
    store: &S,
    version: Option<u64>,
    count: &MachineCount,
) -> bool {
    store.replace_machine_count(version, count).await.expect("the store answers")
}

/// The contract of the count. The store must have none.
pub(super) async fn machine_count<S: Store>(store: &S) {
    assert_eq!(store.machine_count().await, Ok(None), "never counted");
    let one = reservation("one", "large", 1);
    let refused = store.reserve(&one, &limits(Some(9), None)).await;
    assert_eq!(refused, Ok(ReservationVerdict::Refused(None)), "nothing is admitted before");
    store.settle_reservation(&settlement("one", 1, 0)).await.expect("no effect is no error");
    assert_eq!(store.machine_count().await, Ok(None), "a settlement makes no count");

    let first = MachineCount {
        version: 1,
        recounts: 2,
        total: 3,
        classes: [(class("large"), 2), (class("xlarge"), 1)].into(),
        ..MachineCount::empty(morning())
    };
    assert!(!replace(store, Some(7), &first).await, "there is no such version");
    assert!(replace(store, None, &first).await, "there was none");
    assert_eq!(counted(store).await, first, "as it was written");
    assert!(!replace(store, None, &first).await, "there is one now");
    every_reservation(store, &first).await;
    settlements(store).await;
    replacements(store).await;
    super::spend::money(store).await;
}

/// The store decides as [`MachineCount::admits`] does, and tells by which count.
async fn every_reservation<S: Store>(store: &S, first: &MachineCount) {
    let bounds = [None, Some(0), Some(2), Some(3), Some(4), Some(6)];
    let other_ceiling = Limits { since: noon(), ..limits(Some(100), None) };
    let mut cases = vec![(reservation("other", "large", 1), other_ceiling)];
    for (of, count) in [("large", 1), ("large", 4), ("xlarge", 2), ("new", 3), ("new", 1)] {
        for pool in bounds {
            for of_class in bounds {
                let name = format!("case-{}", cases.len());
                cases.push((reservation(&name, of, count), limits(pool, of_class)));
            }
        }
    }
    for (asked, limits) in cases {
        let before = counted(store).await;
        let expected = before.clone().reserve(&asked, &limits);
        let verdict = store.reserve(&asked, &limits).await.expect("the store answers");
        let Some(after) = expected else {
            assert_eq!(verdict, ReservationVerdict::Refused(Some(before)), "{asked:?} {limits:?}");
            continue;
        };
        assert_eq!(verdict, ReservationVerdict::Granted, "{asked:?} {limits:?}");
        assert_eq!(counted(store).await, after, "{asked:?}");
        let again = store.reserve(&asked, &self::limits(None, None)).await;
        let again = again.expect("the store answers");
        assert!(matches!(again, ReservationVerdict::Refused(_)), "{again:?}");
        assert!(again.is_granted(&asked.intent), "the repetition finds the first one");
        assert_eq!(counted(store).await, after, "and is not counted twice");
        let next = MachineCount { version: after.version + 1, ..first.clone() };
        assert!(replace(store, Some(after.version), &next).await, "for the next case");
    }
}

async fn settlements<S: Store>(store: &S) {
    for (name, count) in [("s-1", 5), ("s-2", 2)] {
        let granted = store.reserve(&reservation(name, "large", count), &limits(None, None)).await;
        assert_eq!(granted, Ok(ReservationVerdict::Granted));
    }
    for (settlement, effect) in [
        (settlement("s-1", 4, 2), false),
        (settlement("unknown", 5, 2), false),
        (settlement("s-1", 5, 3), true),
        (settlement("s-1", 5, 3), false),
        (settlement("s-2", 2, 2), true),
        (settlement("s-1", 3, 0), true),
        (settlement("s-1", 3, 0), false),
    ] {
        let before = counted(store).await;
        let settled = before.clone().settle(&settlement);
        assert_eq!(settled.is_some(), effect, "{settlement:?}");
        store.settle_reservation(&settlement).await.expect("the store answers");
        assert_eq!(counted(store).await, settled.unwrap_or(before), "{settlement:?}");
    }
}

/// A replacement does not undo a reservation or a settlement that was made since the reading.
async fn replacements<S: Store>(store: &S) {
    let read = counted(store).await;
    let next = MachineCount { version: read.version + 1, total: 0, ..read.clone() };
    let late = store.reserve(&reservation("late", "large", 1), &limits(None, None)).await;
    assert_eq!(late, Ok(ReservationVerdict::Granted));
    assert!(!replace(store, Some(read.version), &next).await, "a reservation came first");
    let read = counted(store).await;
    assert!(read.reservations.contains_key(&intent("late")));
    store.settle_reservation(&settlement("late", 1, 0)).await.expect("the store answers");
    let next = MachineCount { version: read.version + 1, ..read.clone() };
    assert!(!replace(store, Some(read.version), &next).await, "a settlement came first");
    let read = counted(store).await;
    let next = MachineCount {
        since: noon(),
        version: read.version + 1,
        recounts: read.recounts + 1,
        total: 4,
        classes: [(class("xlarge"), 4)].into(),
        reservations: read.reservations.clone().into_iter().take(1).collect(),
        spend: None,
    };
    assert!(replace(store, Some(read.version), &next).await);
    assert_eq!(counted(store).await, next, "all of it is replaced");
    store.forget(noon() + ms(60_000)).await.expect("the store answers");
    assert_eq!(counted(store).await, next, "and nothing of it is pruned");
}

/// Many launches reserve places concurrently, through several handles of the same store, while the
/// count is replaced: no more are granted than there are places, and none are left over.
pub async fn ceiling_race<S: Store>(stores: &[&S]) {
    stores[0].set_up().await.expect("the store can be set up");
    let read = stores[0].machine_count().await.expect("the store answers");
    let version = read.map(|read| read.version);
    let empty = MachineCount::empty(morning());
    let start = MachineCount { version: version.unwrap_or_default() + 1, ..empty };
    assert!(replace(stores[0], version, &start).await, "nothing else runs yet");
    let asked: Vec<Reservation> =
        (0..48).map(|n| reservation(&format!("race-{n}"), ["large", "xlarge"][n % 2], 1)).collect();
    let race = asked.iter().enumerate().map(|(n, asked)| async move {
        let store = stores[n % stores.len()];
        let limits = limits(Some(17), (n % 2 == 0).then_some(6));
        let verdict = store.reserve(asked, &limits).await.expect("the store answers");
        if n % 8 == 0 {
            let read = counted(store).await;
            let next = MachineCount { version: read.version + 1, ..read.clone() };
            replace(store, Some(read.version), &next).await;
        }
        verdict.is_granted(&asked.intent)
    });
    let granted = join_all(race).await;
    let of_large = granted.iter().step_by(2).filter(|granted| **granted).count();
    let all = granted.iter().filter(|granted| **granted).count();
    assert_eq!(all, 17, "each place was given once");
    assert!(of_large <= 6, "no more of a class than its limit: {of_large}");
    let count = counted(stores[0]).await;
    assert_eq!((count.total, count.reservations.len()), (17, 17));
}
