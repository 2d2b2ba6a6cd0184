//! Money in the count of machines: it is reserved and given back in the same write as places.

use std::time::Duration;

use futures_util::future::join_all;

use super::arrange::{morning, noon};
use super::ceiling::{counted, limits, replace, reservation, settlement};
use crate::model::ceiling::{Limits, MachineCount, Reservation, ReservationVerdict, Settlement};
use crate::model::money::Money;
use crate::model::spend::{ReservedSpend, Spend, SpendLimit, SpendSettlement};
use crate::ports::Store;

const HOUR: Duration = Duration::from_secs(3_600);

fn cents(cents: i64) -> Money {
    Money::from_nanos(cents * 10_000_000)
}

fn spend(committed: i64) -> Spend {
    Spend {
        since: morning(),
        day: noon().start_of_day(),
        as_of: noon(),
        spent: cents(100),
        hourly: cents(25),
        committed: cents(committed),
    }
}

fn capped(cap: i64, pool: Option<u32>) -> Limits {
    let limit = SpendLimit { since: morning(), cap: cents(cap), day: noon().start_of_day() };
    Limits { spend: Some(limit), ..limits(pool, None) }
}

/// A launch of one machine that costs so many cents an hour, for two hours.
fn costing(name: &str, hourly: i64) -> Reservation {
    let (from, until) = (noon(), noon() + 2 * HOUR);
    let spend = Some(ReservedSpend { hourly: cents(hourly), from, until });
    Reservation { spend, ..reservation(name, "large", 1) }
}

/// The contract of the money. The store must have a count.
pub(super) async fn money<S: Store>(store: &S) {
    let read = counted(store).await;
    let empty = MachineCount { version: read.version + 1, ..MachineCount::empty(morning()) };
    let first = MachineCount { spend: Some(spend(300)), ..empty };
    assert!(replace(store, Some(read.version), &first).await);
    assert_eq!(counted(store).await, first, "as it was written");
    every_reservation(store, &first).await;
    settlements(store, &first).await;
    let read = counted(store).await;
    let without = MachineCount { version: read.version + 1, spend: None, ..read.clone() };
    assert!(replace(store, Some(read.version), &without).await);
    assert_eq!(counted(store).await, without, "the cap is gone");
    let refused = store.reserve(&costing("late", 1), &capped(9_000, None)).await;
    assert_eq!(
        refused,
        Ok(ReservationVerdict::Refused(Some(without))),
        "nothing was counted for it"
    );
}

/// The store decides as [`MachineCount::admits`] does.
async fn every_reservation<S: Store>(store: &S, first: &MachineCount) {
    let mut cases = Vec::new();
    for hourly in [0, 1, 100, 5_000] {
        for cap in [0, 299, 300, 301, 302, 499, 500, 501] {
            for pool in [None, Some(0), Some(1)] {
                let name = format!("money-{}", cases.len());
                cases.push((costing(&name, hourly), capped(cap, pool)));
            }
        }
    }
    let limit = SpendLimit { since: noon(), ..capped(900, None).spend.expect("a cap") };
    cases.push((costing("other-cap", 1), Limits { spend: Some(limit), ..limits(None, None) }));
    let limit = SpendLimit { since: morning(), day: limit.day + 24 * HOUR, ..limit };
    cases.push((costing("other-day", 1), Limits { spend: Some(limit), ..limits(None, None) }));
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
        let again = store.reserve(&asked, &limits).await.expect("the store answers");
        assert!(again.is_granted(&asked.intent), "the repetition finds the first one");
        assert_eq!(counted(store).await, after, "and is not paid for twice");
        let next = MachineCount { version: after.version + 1, ..first.clone() };
        assert!(replace(store, Some(after.version), &next).await, "for the next case");
    }
}

async fn settlements<S: Store>(store: &S, first: &MachineCount) {
    let granted = store.reserve(&costing("m-1", 100), &capped(600, None)).await;
    assert_eq!(granted, Ok(ReservationVerdict::Granted));
    let day = noon().start_of_day();
    let needed = |day, reserved, hourly, back| {
        let (reserved, hourly, back) = (cents(reserved), cents(hourly), cents(back));
        let money = SpendSettlement { day, reserved, hourly, back };
        Settlement { spend: Some(money), ..settlement("m-1", 1, 1) }
    };
    let none = Settlement { to: 0, machines: Vec::new(), ..needed(day, 25, 0, 50) };
    for (settlement, effect) in [
        (needed(day, 99, 25, 150), false),
        (needed(day, 100, 25, 150), true),
        (needed(day, 100, 25, 150), false),
        (none.clone(), true),
        (none, false),
    ] {
        let before = counted(store).await;
        let settled = before.clone().settle(&settlement);
        assert_eq!(settled.is_some(), effect, "{settlement:?}");
        store.settle_reservation(&settlement).await.expect("the store answers");
        assert_eq!(counted(store).await, settled.unwrap_or(before), "{settlement:?}");
    }
    let spend = counted(store).await.spend.expect("there is a cap");
    assert_eq!(Some(spend), first.spend, "all that was reserved is given back, and once");

    // The day has begun anew meanwhile: places are given back, and refresh counts the money.
    let empty = counted(store).await;
    let granted = store.reserve(&costing("m-2", 100), &capped(600, None)).await;
    assert_eq!(granted, Ok(ReservationVerdict::Granted));
    let before = counted(store).await;
    let late = needed(day + 24 * HOUR, 100, 0, 200);
    let late =
        Settlement { to: 0, machines: Vec::new(), intent: costing("m-2", 100).intent, ..late };
    let settled = before.clone().settle(&late).expect("the places are given back");
    for _ in 0..2 {
        store.settle_reservation(&late).await.expect("the store answers");
        assert_eq!(counted(store).await, settled, "once");
    }
    assert_eq!((settled.total, settled.spend), (empty.total, before.spend));
}

/// Many launches reserve money concurrently, through several handles of the same store, while the count
/// is replaced: no more is granted than the cap, and nothing of it is left over.
pub async fn spend_race<S: Store>(stores: &[&S]) {
    stores[0].set_up().await.expect("the store can be set up");
    let read = stores[0].machine_count().await.expect("the store answers");
    let version = read.map(|read| read.version);
    let empty = MachineCount::empty(morning());
    let next = version.unwrap_or_default() + 1;
    let start = MachineCount { version: next, spend: Some(spend(100)), ..empty };
    assert!(replace(stores[0], version, &start).await, "nothing else runs yet");
    let asked: Vec<Reservation> =
        (0..48).map(|n| costing(&format!("money-race-{n}"), 50)).collect();
    let race = asked.iter().enumerate().map(|(n, asked)| async move {
        let store = stores[n % stores.len()];
        let verdict = store.reserve(asked, &capped(1_350, Some(20))).await;
        if n % 8 == 0 {
            let read = counted(store).await;
            let next = MachineCount { version: read.version + 1, ..read.clone() };
            replace(store, Some(read.version), &next).await;
        }
        verdict.expect("the store answers").is_granted(&asked.intent)
    });
    let granted = join_all(race).await.into_iter().filter(|granted| *granted).count();
    assert_eq!(granted, 12, "of 13.50 dollars, 1 is spent, and each launch needs 1");
    let count = counted(stores[0]).await;
    let committed = count.spend.expect("there is a cap").committed;
    assert_eq!((count.total, committed), (12, cents(1_300)));
}
