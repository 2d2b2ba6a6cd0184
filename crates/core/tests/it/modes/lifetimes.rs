//! Machines that have served long enough, and machines that are adopted with little time left.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::lifecycle::{Instance, Running};
use ondeck_core::model::record::State;
use ondeck_core::modes::provision::{MachineSource, Request};
use ondeck_core::modes::release::Disposition;
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, request};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_machine_that_is_too_old_does_not_return_to_the_pool() {
    let harness = Harness::patient(&[("max-machine-age-min", "20")]).await;
    harness.provision(&request("1", 1)).await;
    harness.sleep(10 * MINUTE).await;
    assert_eq!(harness.release("1").await.instances[0].disposition, Disposition::Pooled);
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
    harness.sleep(11 * MINUTE).await;
    let released = harness.release("2").await;
    assert_eq!(released.instances[0].disposition, Disposition::Terminated);
    assert_eq!(released.failure(), None, "that is no failure");
    assert!(harness.alive().is_empty());
    assert_eq!(harness.provision(&request("3", 1)).await.count(MachineSource::Cold), 1);
}

#[tokio::test]
async fn a_machine_that_has_served_enough_runs_does_not_return_to_the_pool() {
    let harness = Harness::patient(&[("max-runs-per-machine", "3")]).await;
    for (run, expected) in [
        ("1", Disposition::Pooled),
        ("2", Disposition::Pooled),
        ("3", Disposition::Terminated),
        ("4", Disposition::Pooled),
    ] {
        harness.provision(&request(run, 1)).await;
        assert_eq!(harness.release(run).await.instances[0].disposition, expected, "{run}");
    }
    assert_eq!(harness.memory.compute.terminated(), [id("i-0001")]);
}

/// To be warmed up is not to be used.
#[tokio::test]
async fn a_machine_that_refresh_has_warmed_up_has_served_no_run_yet() {
    let harness = Harness::patient(&[("max-runs-per-machine", "1"), ("min-idle", "large=2")]).await;
    let first = harness.idle_machines();
    for _ in 0..12 {
        harness.sleep(5 * MINUTE).await;
        harness.refresh().await;
    }
    assert_eq!(harness.idle_machines(), first, "nothing was replaced");
    assert_eq!(harness.provision(&request("1", 1)).await.count(MachineSource::Warm), 1);
    let released = harness.release("1").await;
    assert_eq!(released.instances[0].disposition, Disposition::Terminated);
}

#[tokio::test]
async fn old_machines_are_replaced_one_by_one_and_never_below_the_minimum() {
    let harness =
        Harness::patient(&[("max-machine-age-min", "120"), ("min-idle", "large=4")]).await;
    let first = harness.idle_machines();
    let mut most = 0;
    for _ in 0..40 {
        harness.sleep(5 * MINUTE).await;
        most = most.max(harness.refresh().await.rotated.len());
    }
    assert_eq!(most, 1, "at one refresh");
    let mut now_idle = BTreeSet::new();
    for event in harness.memory.store.events() {
        match event.to {
            State::Idle => now_idle.insert(event.id.clone()),
            _ => now_idle.remove(&event.id),
        };
        let ends = event.transition == "reap";
        assert!(!ends || now_idle.len() >= 4, "its replacement is idle before: {event:?}");
    }
    assert!(harness.idle_machines().is_disjoint(&first), "all were replaced");
    assert_eq!(harness.memory.compute.terminated().len(), 4, "each once");
}

#[tokio::test]
async fn a_tenth_of_many_idle_machines_is_replaced_at_once() {
    let harness = Harness::patient(&[("idle-time-sec", "86400")]).await;
    harness.provision(&request("1", 30)).await;
    harness.release("1").await;
    harness.sleep(60 * MINUTE).await;
    let outcome = harness.refresh_with(&[("max-machine-age-min", "60")]).await;
    assert_eq!(
        (outcome.rotated.len(), outcome.warmed),
        (3, 0),
        "none is needed, so none is launched"
    );
    assert_eq!(harness.refresh().await.rotated.len(), 2, "a tenth of 27");
}

#[tokio::test]
async fn an_old_machine_stays_if_it_cannot_be_replaced() {
    let harness = Harness::patient(&[("max-machine-age-min", "60"), ("min-idle", "large=2")]).await;
    let first = harness.idle_machines();
    harness.memory.compute.set_capacity(2);
    for _ in 0..24 {
        harness.sleep(5 * MINUTE).await;
        let outcome = harness.refresh().await;
        assert_eq!(outcome.rotated, []);
    }
    assert_eq!(harness.idle_machines(), first);
}

fn asking(run: &str, count: u32, max_runtime: Duration) -> Request {
    let mut request = request(run, count);
    request.times.0.push(("max-runtime-min", max_runtime));
    request
}

#[tokio::test]
async fn an_adopted_machine_has_the_time_that_is_asked_for() {
    let harness = Harness::patient(&[]).await;
    harness.provision(&asking("1", 2, 10 * MINUTE)).await;
    harness.sleep(10 * MINUTE - Duration::from_secs(2)).await;
    let outcome = harness.provision(&asking("1", 2, 45 * MINUTE)).await;
    assert_eq!(outcome.count(MachineSource::Adopted), 2);
    for name in ["i-0001", "i-0002"] {
        let left = harness.record(name).unwrap().threshold.unwrap().since(harness.plane.now());
        assert!(left > 45 * MINUTE - Duration::from_secs(1), "{name} has {left:?} left");
    }
    let before = harness.record("i-0001").unwrap().threshold;
    harness.provision(&asking("1", 2, MINUTE)).await;
    assert_eq!(harness.record("i-0001").unwrap().threshold, before, "more than asked for stays");
}

#[tokio::test]
async fn an_adopted_machine_has_that_time_also_after_the_run_has_waited_for_others() {
    let harness = Harness::patient(&[]).await;
    harness.provision(&asking("1", 1, 10 * MINUTE)).await;
    harness.sleep(5 * MINUTE).await;
    harness.make_defective("i-0002", MachineDefect::NeverRegisters);
    let asked = asking("1", 2, 10 * MINUTE);
    let (outcome, ()) = tokio::join!(harness.provision(&asked), async {
        while harness.alive().len() < 2 {
            tokio::task::yield_now().await;
        }
        harness.sleep(2 * MINUTE).await;
        harness
            .signal_as_agent("i-0002", ondeck_core::model::signal::Signal::Registered, "1")
            .await;
    });
    assert_eq!(outcome.failure, None);
    let left = harness.record("i-0001").unwrap().threshold.unwrap().since(harness.plane.now());
    assert!(left > 10 * MINUTE - Duration::from_secs(5), "{left:?} left after the wait");
}

#[tokio::test]
async fn a_machine_that_cannot_be_renewed_is_replaced() {
    let harness = Harness::patient(&[]).await;
    harness.provision(&asking("1", 1, MINUTE)).await;
    // It is released while the second provision looks at it.
    let asked = asking("1", 1, 10 * MINUTE);
    for turns in 0..12 {
        let run = format!("run-{turns}");
        let harness = Harness::patient(&[]).await;
        harness.provision(&asking(&run, 1, MINUTE)).await;
        let asked = Request { run: run.parse().unwrap(), ..asked.clone() };
        let (provisioned, _) = tokio::join!(harness.provision(&asked), async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            harness.release(&run).await
        });
        if provisioned.failure.is_some() {
            continue;
        }
        for machine in &provisioned.instances {
            let record = harness.record(machine.id.as_str()).unwrap();
            let released = record.state == State::Idle;
            let left = record.threshold.unwrap().since(harness.plane.now());
            assert!(released || left > 9 * MINUTE, "{turns} turns: {record:?}");
        }
    }
}

#[tokio::test]
async fn a_run_that_is_released_while_it_waits_gives_back_what_it_has_claimed() {
    let harness = Harness::new().await;
    harness.idle("i-adopted", "c6i.large").await;
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    let slow = MachineDefect::RegistersAfter(Duration::from_secs(20));
    harness.make_defective("i-claimed", slow);
    harness.idle("i-claimed", "c6i.large").await;
    let asked = request("1", 2);
    let release = async {
        harness.plane.clock.sleep(Duration::from_secs(2)).await;
        let released = Instance::<Running>::believe(&harness.record("i-adopted").unwrap()).unwrap();
        let change = released.release(harness.plane.now(), Duration::from_secs(600));
        harness.plane.apply(change).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(harness.provision(&asked), release);
    let failure = outcome.failure.expect("an adopted machine was lost");
    assert!(failure.to_string().contains("i-adopted"), "{failure}");
    assert_eq!(outcome.returned, [id("i-claimed")]);
    assert_eq!(harness.state("i-claimed"), State::Idle);
    assert_eq!(harness.alive().len(), 2, "no machine was terminated");
}
