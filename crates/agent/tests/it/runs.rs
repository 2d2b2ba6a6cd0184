//! Heartbeats, and a run that follows another.

use std::time::Duration;

use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::Signal;

use crate::harness::{Harness, machine, run};

#[tokio::test]
async fn a_lost_heartbeat_is_repeated_soon() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Idle, Duration::from_secs(300)).await;
    let mut oldest = Duration::ZERO;
    harness.memory.store.lose_heartbeats(2);
    for _ in 0..80 {
        harness.sleep(Duration::from_millis(250)).await;
        oldest = oldest.max(harness.heartbeat_age().await);
    }
    let (period, two_lost) = (Duration::from_secs(5), Duration::from_millis(7_500));
    assert!(oldest > period && oldest <= two_lost, "one period and two lost beats: {oldest:?}");
}

#[tokio::test]
async fn heartbeats_go_on_while_the_machine_works() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    for _ in 0..20 {
        harness.sleep(Duration::from_secs(7)).await;
        assert!(harness.heartbeat_age().await <= Duration::from_secs(5));
    }
}

#[tokio::test]
async fn an_agent_leaves_its_run_and_serves_the_next_one() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(run("1")));
    harness.memory.store.insert(Record { run: Some(run("2")), ..record });
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(run("2")));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &run("2")), "{report:?}");
}
