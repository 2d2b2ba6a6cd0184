//! What cost reads of a pool, and what it makes of it.

use std::time::Duration;

use ondeck_core::model::prices::Prices;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{Account, Cut, MOST_EVENTS, account, read};

use super::harness::{Harness, id, request, run};

const MINUTE: Duration = Duration::from_secs(60);

async fn since(harness: &Harness, since: Timestamp) -> Account {
    let reading = read(&harness.plane, &*harness.memory.store, since, MOST_EVENTS).await.unwrap();
    assert_eq!(reading.cut, None);
    account(&reading.events, &reading.records, &Prices::built_in(), &reading.window)
}

#[tokio::test]
async fn each_part_of_a_life_is_found_again() {
    let harness = Harness::patient(&[]).await;
    let start = harness.plane.now();
    harness.provision(&request("1", 2)).await;
    harness.sleep(5 * MINUTE).await;
    harness.release("1").await;
    harness.sleep(2 * MINUTE).await;
    harness.provision(&request("2", 1)).await;
    harness.sleep(3 * MINUTE).await;

    let all = since(&harness, start).await;
    assert!(!all.total.is_approximate(), "{all:#?}");
    assert_eq!(all.machines.len(), 2);
    let time = |text: &str| all.runs[&Some(run(text))].tally.busy.time;
    // What provisions and releases take comes on top.
    assert!((10 * MINUTE..11 * MINUTE).contains(&time("1")), "{:?}", time("1"));
    assert!((3 * MINUTE..4 * MINUTE).contains(&time("2")), "{:?}", time("2"));
    assert!(all.total.idle.time >= 4 * MINUTE, "{:?}", all.total);
    let cold = all.always_cold.unwrap();
    assert_eq!((cold.hand_overs, cold.warm, cold.boots), (3, 1, 2));

    // The beginning is within the life of the machines: owners and types are known all the same.
    let late = since(&harness, start + 4 * MINUTE).await;
    assert!(!late.total.is_approximate(), "{late:#?}");
    assert!(late.unpriced.is_empty() && late.runs.contains_key(&Some(run("1"))), "{late:#?}");
    assert!(late.total.busy.time < all.total.busy.time);
}

#[tokio::test]
async fn the_type_of_a_machine_is_known_after_its_record_is_deleted() {
    let harness = Harness::patient(&[("idle-time-sec", "7200")]).await;
    let start = harness.plane.now();
    for name in ["1", "2"] {
        harness.provision(&request(name, 1)).await;
        harness.sleep(5 * MINUTE).await;
        harness.release(name).await;
        harness.sleep(60 * MINUTE).await;
    }
    harness.sleep(60 * MINUTE).await;
    harness.refresh().await;
    assert!(!harness.record("i-0001").unwrap().state.is_live());
    harness.plane.store.remove(&[id("i-0001")]).await.unwrap();

    let whole = since(&harness, start).await;
    assert!(whole.unpriced.is_empty() && !whole.total.is_approximate(), "{whole:#?}");
    // The event of its registration is before those that are read for this.
    let part = since(&harness, start + 50 * MINUTE).await;
    assert!(part.unpriced.is_empty() && !part.total.is_approximate(), "{part:#?}");
    assert_eq!((&part.machines[0].id, part.machines.len()), (&id("i-0001"), 1));
    assert_eq!(part.machines[0].from, start + 50 * MINUTE);
    assert_eq!(part.machines[0].to, whole.machines[0].to);
}

#[tokio::test]
async fn of_too_many_events_the_latest_are_read_and_the_account_begins_with_them() {
    let harness = Harness::patient(&[]).await;
    let start = harness.plane.now();
    for name in ["1", "2", "3"] {
        harness.provision(&request(name, 1)).await;
        harness.sleep(5 * MINUTE).await;
        harness.release(name).await;
    }
    let reading = read(&harness.plane, &*harness.memory.store, start, 2).await.unwrap();
    assert_eq!(reading.cut, Some(Cut::TooMany));
    assert!(reading.window.since > start + 10 * MINUTE, "{:?}", reading.window);
    let part = account(&reading.events, &reading.records, &Prices::built_in(), &reading.window);
    assert_eq!(part.runs.keys().collect::<Vec<_>>(), [&Some(run("3"))]);
}
