//! What the modes tell about what they did: where machines came from, why, when, and what for.

use std::time::Duration;

use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::requirements::{Mismatch, UsageClass};
use ondeck_core::modes::provision::{MachineSource, Outcome, PoolSearch};

use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, large, request, spec};

fn whys(outcome: &Outcome) -> Vec<&str> {
    outcome.instances.iter().map(|instance| instance.why.as_str()).collect()
}

#[tokio::test]
async fn each_machine_has_its_reason() {
    let harness = Harness::new().await;
    let first = harness.provision(&request("1", 1)).await;
    assert_eq!(whys(&first), ["the pool held no ticket"]);
    harness.idle("i-a", "c6i.large").await;
    let mut second = request("1", 3);
    second.options.types = Some("c6i.* c*".parse().unwrap());
    let second = harness.provision(&second).await;
    let sources: Vec<MachineSource> =
        second.instances.iter().map(|instance| instance.source).collect();
    assert_eq!(sources, [MachineSource::Adopted, MachineSource::Warm, MachineSource::Cold]);
    assert_eq!(whys(&second), ["the run had it", "idle, matches c6i.*", "the pool had only 1"]);
}

#[tokio::test]
async fn the_search_counts_what_it_meets() {
    let harness = Harness::new().await;
    for n in 0..12 {
        harness.make_defective(&format!("i-c{n}"), MachineDefect::NeverBoots);
        harness.idle(&format!("i-c{n}"), "c6i.large").await;
    }
    let spot = || ondeck_core::model::record::MachineSpec {
        usage_class: UsageClass::Spot,
        ..spec("r6i.large")
    };
    harness.make_defective("i-spot", MachineDefect::NeverBoots);
    harness.put_idle("i-spot", spot(), Duration::from_secs(300)).await;
    harness.memory.pool.send_raw(&large(), "not even json");
    harness.idle("i-dead", "r6i.large").await;
    harness.memory.compute.kill(&id("i-dead"));
    harness.sleep(Duration::from_secs(16)).await;
    let mut picky = request("1", 1);
    picky.options.types = Some("r6*".parse().unwrap());
    let outcome = harness.provision(&picky).await;
    let expected = PoolSearch {
        asked: true,
        tickets: 15,
        claimed: 0,
        unsuitable: [(Mismatch::Usage, 1), (Mismatch::Type, 12)].into(),
        void: 1,
        lost: 0,
        unhealthy: 1,
        given_back: 0,
        hedges: 0,
    };
    assert_eq!(outcome.search, expected);
    assert_eq!(
        whys(&outcome),
        [
            "13 tickets did not fit: 1 by usage class, 12 by type; 1 machine unhealthy; 1 ticket void"
        ]
    );
}

#[tokio::test]
async fn a_lost_race_is_told_from_a_void_ticket() {
    let harness = Harness::new().await;
    let record = harness.idle("i-a", "c6i.large").await;
    assert_eq!(harness.provision(&request("1", 1)).await.count(MachineSource::Warm), 1);
    // A second ticket for what run 1 has by now.
    harness.ticket(&record).await;
    let second = harness.provision(&request("2", 1)).await;
    assert_eq!((second.search.lost, second.search.void), (1, 0));
    assert_eq!(whys(&second), ["1 race lost"]);
    // And one for what is no more.
    harness.memory.compute.kill(&id("i-a"));
    harness.sleep(Duration::from_secs(3600)).await;
    harness.refresh().await;
    let mut gone = record;
    gone.threshold = Some(harness.plane.now() + Duration::from_secs(300));
    harness.ticket(&gone).await;
    let third = harness.provision(&request("3", 1)).await;
    assert_eq!((third.search.lost, third.search.void), (0, 1));
}

#[tokio::test]
async fn milestones_come_in_order() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let outcome = harness.provision(&request("1", 2)).await;
    for instance in &outcome.instances {
        let at = &instance.milestones;
        assert_eq!(at.found.is_some(), instance.source == MachineSource::Warm);
        let moments = [
            at.found.unwrap_or_default(),
            at.owned,
            at.registered,
            at.ready,
            outcome.timings.total,
        ];
        assert!(moments.is_sorted(), "{moments:?}");
        assert!(at.ready > Duration::ZERO);
    }
    let [warm, cold] = &outcome.instances[..] else { panic!("{outcome:?}") };
    assert!(warm.milestones.ready <= cold.milestones.owned, "{outcome:?}");
}

#[tokio::test]
async fn a_failure_tells_what_was_ended_and_what_was_given_back() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    harness.make_defective("i-0001", MachineDefect::CannotRegister);
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NotReady);
    assert_eq!((outcome.terminated, outcome.returned), (vec![id("i-0001")], vec![id("i-a")]));
    assert_eq!((outcome.search.tickets, outcome.search.claimed), (1, 1));
    assert_eq!(outcome.clean_up_failures, Vec::<String>::new());
}

#[tokio::test]
async fn a_release_tells_how_long_and_what_for() {
    let harness = Harness::new().await;
    let ids = harness.provision(&request("1", 2)).await;
    harness.sleep(Duration::from_secs(600)).await;
    harness.memory.compute.kill(&ids.instances[1].id);
    let released = harness.release("1").await;
    for one in &released.instances {
        let held = one.used_for.unwrap();
        assert!((600..610).contains(&held.as_secs()), "{held:?}");
        assert_eq!(one.spec, spec("c6i.large"));
        let silent = one.id == ids.instances[1].id;
        let account = if silent { String::new() } else { format!("2 jobs on {}", one.id) };
        assert_eq!(one.account, account);
    }
}
