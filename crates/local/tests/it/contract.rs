use std::sync::Arc;
use std::time::{Duration, Instant};

use ondeck_core::model::demand::Demand;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::Request;
use ondeck_core::ports::{AgentStore, Clock, Store};
use ondeck_core::testkit::VirtualClock;
use ondeck_core::testkit::contract::{
    StatusOfRemoved, ceiling_race, claim_race, history_suite, pool_duplicates_suite,
    pool_passes_untouched, pool_suite, spend_race, store_suite,
};
use ondeck_local::{Db, LocalPool, LocalStore};

use crate::harness::{LocalHarness, RealClock, instance, run};

#[tokio::test]
async fn the_store_meets_its_contract() {
    let harness = LocalHarness::new();
    store_suite(&harness.store(), StatusOfRemoved::Deleted).await;
}

/// No other call deletes them.
#[tokio::test]
async fn a_demand_is_deleted_by_a_later_one_when_its_time_is_over() {
    let (harness, day) = (LocalHarness::new(), Duration::from_secs(24 * 3_600));
    let store = harness.store();
    let asked = |name: &str, days: u32| {
        Demand::of(&Request::of_run(run(name)), Timestamp::from_millis(0) + days * day)
    };
    let (first, second) = (asked("1", 0), asked("2", 29));
    for demand in [&first, &second] {
        assert_eq!(store.replace_demand(None, demand).await, Ok(true));
    }
    let both = [run("1"), run("2")];
    assert_eq!(store.demands(&both).await, Ok(vec![first, second.clone()]));
    let third = asked("3", 31);
    assert_eq!(store.replace_demand(None, &third).await, Ok(true));
    assert_eq!(store.demands(&both).await, Ok(vec![second]));
}

#[tokio::test]
async fn what_has_happened_meets_its_contract() {
    let harness = LocalHarness::new();
    history_suite(&harness.store()).await;
}

#[tokio::test]
async fn a_claim_has_one_winner_through_many_connections() {
    let harness = LocalHarness::new();
    let stores: Vec<LocalStore> =
        (0..8).map(|_| LocalStore::new(Db::open(&harness.home).unwrap())).collect();
    claim_race(&stores.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn places_and_money_are_given_once_through_many_connections() {
    let harness = LocalHarness::new();
    let stores: Vec<LocalStore> =
        (0..8).map(|_| LocalStore::new(Db::open(&harness.home).unwrap())).collect();
    ceiling_race(&stores.iter().collect::<Vec<_>>()).await;
    spend_race(&stores.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn the_pool_meets_its_contract() {
    let harness = LocalHarness::new();
    let clock = Arc::new(VirtualClock::new());
    let pool = LocalPool::new(harness.db.clone(), clock.clone());
    pool_suite(&pool, &|span| clock.advance(span)).await;

    let class = ResourceClass::new("raw").unwrap();
    for body in ["", "{ no ticket", "é\n\0"] {
        pool.send_raw(&class, body).await.unwrap();
        pool_passes_untouched(&pool, &class, body).await;
    }
}

#[tokio::test]
async fn the_pool_delivers_twice_if_the_setting_says_so() {
    let harness = LocalHarness::new();
    harness.set(&[("local-duplicate-tickets", "true")]).await;
    let pool = LocalPool::new(harness.db.clone(), Arc::new(VirtualClock::new()));
    pool_duplicates_suite(&pool).await;
}

#[tokio::test]
async fn events_are_kept_in_the_order_of_commits() {
    let harness = LocalHarness::new();
    let store = harness.store();
    claim_race(&[&store]).await;
    let events = store.events().await.unwrap();
    let steps: Vec<&str> = events.iter().map(|event| event.transition.as_str()).collect();
    assert_eq!(steps, ["register", "activate", "release", "claim"]);
    assert_eq!(events[0].from, None);
    for pair in events.windows(2) {
        assert_eq!(Some(pair[0].to), pair[1].from, "each begins where the last one ended");
    }
    assert!(events[2].run.is_none() && events[3].run.is_some());
}

/// `news` returns early after a change by another process, and waits if there is none.
#[tokio::test]
async fn news_reach_other_processes() {
    let harness = LocalHarness::new();
    let (agent, other) = (harness.store(), LocalStore::new(Db::open(&harness.home).unwrap()));
    let long = Duration::from_secs(60);
    let clock = RealClock;
    // The first call has no earlier version to compare with, so it returns at once.
    agent.news(&clock, long, long).await;
    let span = Duration::from_millis(50);
    let quiet = agent.news(&clock, span, span);
    let started = Instant::now();
    quiet.await;
    assert!(started.elapsed() >= Duration::from_millis(50), "nothing has happened");
    agent
        .beat(&instance("i-1"), &Heartbeat::new(clock.now(), Duration::from_secs(5)))
        .await
        .unwrap();
    let told = async {
        other
            .beat(&instance("i-2"), &Heartbeat::new(clock.now(), Duration::from_secs(5)))
            .await
            .unwrap();
    };
    let heard = tokio::time::timeout(long / 2, async {
        tokio::join!(agent.news(&clock, long, long), told)
    });
    heard.await.expect("the other's change is news, one's own is not");
}
