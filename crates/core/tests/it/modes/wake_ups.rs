//! Which changes wake an agent, and what is left of machines that are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::lifecycle::{Instance, Running};
use ondeck_core::modes::plane::NotCommitted;
use ondeck_core::modes::refresh;
use ondeck_core::runtime::stop::StopSignal;

use super::harness::{Harness, id, request, run};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn an_agent_is_woken_by_the_changes_that_it_has_to_act_on() {
    let harness = Harness::new().await;
    let (plane, store) = (&harness.plane, &harness.memory.store);
    let machine = harness.provision(&request("1", 1)).await.instances[0].id.clone();
    assert!(store.woken().is_empty(), "a new machine looks by itself");
    let count = |expected: usize, what: &str| {
        let woken = store.woken();
        assert_eq!(woken, vec![machine.clone(); expected], "{what}");
    };
    let running = Instance::<Running>::believe(&harness.record(machine.as_str()).unwrap()).unwrap();
    let now = || plane.now();
    let running = plane.apply(running.renew(now(), now() + HOUR)).await.unwrap();
    count(0, "a running machine gets more time");
    let idle = plane.apply(running.release(now(), HOUR)).await.unwrap();
    count(1, "release");
    let idle = plane.apply(idle.renew(now(), now() + HOUR)).await.unwrap();
    count(1, "an idle machine gets more time");
    let claimed = plane.apply(idle.claim(&run("2"), now(), HOUR)).await.unwrap();
    count(2, "claim");
    let idle = plane.apply(claimed.give_back(now(), HOUR)).await.unwrap();
    count(3, "give back");
    let claimed = plane.apply(idle.claim(&run("3"), now(), HOUR)).await.unwrap();
    count(4, "claim again");
    let refused = plane.apply(idle.claim(&run("4"), now(), HOUR)).await;
    assert!(matches!(refused, Err(NotCommitted::Refused(_))), "{refused:?}");
    count(4, "a refused claim");
    let running = plane.apply(claimed.commit(now(), HOUR)).await.unwrap();
    count(4, "commit");
    let expired = plane.apply(running.expire(now())).await.unwrap();
    count(5, "expire");
    plane.apply(expired.reap(now())).await.unwrap();
    count(5, "reap");
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_wakes_the_agent_once() {
    let harness = Harness::new().await;
    let machine = harness.provision(&request("1", 1)).await.instances[0].id.clone();
    harness.memory.store.lose_answers("release", 2);
    let running = Instance::<Running>::believe(&harness.record(machine.as_str()).unwrap()).unwrap();
    harness.plane.apply(running.release(harness.plane.now(), HOUR)).await.unwrap();
    assert_eq!(harness.memory.store.woken(), [machine]);
}

#[tokio::test]
async fn refresh_deletes_what_woke_machines_that_are_gone() {
    let harness = Harness::new().await;
    let store = &harness.memory.store;
    let machine = harness.provision(&request("1", 1)).await.instances[0].id.clone();
    store.keep_wake_ups_of(&id("i-gone"));
    assert_eq!(store.wake_ups_kept(), [machine.clone(), id("i-gone")]);

    harness.memory.compute.go_down();
    let given = BTreeMap::new();
    let outcome = refresh::refresh(&harness.plane, &given, &StopSignal::never()).await.unwrap();
    assert!(outcome.failure.is_some());
    assert_eq!(store.wake_ups_kept().len(), 2, "without a list of machines none is gone");
    harness.memory.compute.repair();

    store.fail("prune_wake_ups");
    let outcome = harness.refresh().await;
    assert_eq!(outcome.failure, None);
    let is_told = |warning: &String| warning.contains("wake-up queues");
    assert!(outcome.warnings.iter().any(is_told), "{:?}", outcome.warnings);
    store.repair();

    let outcome = harness.refresh().await;
    assert_eq!((outcome.failure, store.wake_ups_kept()), (None, vec![machine]));
}
