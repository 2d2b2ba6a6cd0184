//! A machine that is past its threshold, that its provider takes away, or that is preserved takes no
//! further job.

use std::time::Duration;

use ondeck_core::model::record::{Record, State};
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::signal::Signal;
use ondeck_core::testkit::MachineDefect;

use crate::harness::{Harness, label, machine, run};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn past_its_threshold_a_machine_stops_listening_before_it_ends() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Running, 20 * SECOND).await;
    harness.sleep(19 * SECOND).await;
    assert!(harness.labels.is_listening(&machine()), "its time is not up");
    harness.sleep(2 * SECOND).await;
    assert!(harness.is_alive(), "the grace is not over");
    assert!(!harness.labels.is_listening(&machine()));
    harness.sleep(58 * SECOND).await;
    assert!(harness.is_alive() && !harness.labels.is_listening(&machine()));
    harness.sleep(5 * SECOND).await;
    assert!(!harness.is_alive());
}

#[tokio::test]
async fn a_store_out_of_reach_prolongs_nothing() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Running, 20 * SECOND).await;
    harness.sleep(5 * SECOND).await;
    harness.memory.store.fail("record of an agent");
    harness.sleep(14 * SECOND).await;
    assert!(harness.labels.is_listening(&machine()));
    harness.sleep(2 * SECOND).await;
    assert!(!harness.labels.is_listening(&machine()));
}

#[tokio::test]
async fn an_expired_record_stops_the_listener_at_once() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, 1800 * SECOND).await;
    harness.sleep(5 * SECOND).await;
    let threshold = Some(harness.plane.now());
    harness.memory.store.insert(Record { threshold, ..record });
    harness.sleep(3 * SECOND).await;
    assert!(harness.is_alive() && !harness.labels.is_listening(&machine()));
}

#[tokio::test]
async fn a_machine_that_gets_more_time_listens_again() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, 10 * SECOND).await;
    harness.sleep(12 * SECOND).await;
    assert!(!harness.labels.is_listening(&machine()));
    let threshold = Some(harness.plane.now() + 1800 * SECOND);
    harness.memory.store.insert(Record { threshold, ..record });
    harness.sleep(3 * SECOND).await;
    assert!(harness.labels.is_listening(&machine()));
}

#[tokio::test]
async fn a_job_goes_on_past_the_threshold_until_the_machine_ends() {
    let mut harness = Harness::with(&[]).await;
    let busy = MachineDefect::TakesJobAfter(SECOND);
    harness.boot_defective(busy, State::Running, 20 * SECOND).await;
    harness.sleep(30 * SECOND).await;
    assert!(!harness.labels.is_listening(&machine()));
    let status = harness.status().await;
    assert!(status.heartbeat.unwrap().busy && !status.is_interrupted());
    assert_eq!(harness.labels.of(&machine()), Some(label("1")), "it still serves the run");
}

#[tokio::test]
async fn a_machine_that_expires_while_it_registers_does_not_listen() {
    let mut harness = Harness::with(&[]).await;
    let slow = MachineDefect::RegistersAfter(30 * SECOND);
    harness.boot_defective(slow, State::Claimed, 20 * SECOND).await;
    harness.sleep(45 * SECOND).await;
    assert!(harness.is_alive() && !harness.labels.is_listening(&machine()));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::RegisterFailed, &label("1")), "{report:?}");
}

#[tokio::test]
async fn a_notice_is_told_at_once_and_stops_the_listener() {
    let mut harness = Harness::with(&[("heartbeat-period-sec", "30")]).await;
    let notice = MachineDefect::InterruptedAfter(40 * SECOND);
    let record = harness.boot_defective(notice, State::Running, 1800 * SECOND).await;
    harness.sleep(39 * SECOND).await;
    assert!(!harness.status().await.is_interrupted());
    assert!(harness.labels.is_listening(&machine()));
    harness.sleep(2 * SECOND).await;
    assert!(harness.status().await.is_interrupted(), "before the next heartbeat is due");
    assert!(!harness.labels.is_listening(&machine()));

    // The run is released: the machine must not be used by another one.
    let idle = Record { state: State::Idle, run: None, ..record };
    harness.memory.store.insert(idle);
    harness.sleep(3 * SECOND).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::DeregisterFailed, &label("1")), "{report:?}");
    assert_eq!(report.detail, "spot interruption");
}

#[tokio::test]
async fn an_idle_machine_says_at_once_that_it_is_taken_away_and_serves_no_run() {
    let mut harness = Harness::with(&[]).await;
    let notice = MachineDefect::InterruptedAfter(10 * SECOND);
    let record = harness.boot_defective(notice, State::Idle, 1800 * SECOND).await;
    harness.sleep(11 * SECOND).await;
    let status = harness.status().await;
    assert!(status.is_interrupted());
    assert_eq!(status.report.unwrap().signal, Signal::PrepareFailed);
    let claimed = Record { state: State::Claimed, run: Some(run("7")), ..record };
    harness.memory.store.insert(claimed);
    harness.sleep(5 * SECOND).await;
    assert_eq!(harness.labels.of(&machine()), None);
}

#[tokio::test]
async fn a_preserved_machine_takes_no_job_and_is_not_cleaned() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, 1800 * SECOND).await;
    harness.sleep(5 * SECOND).await;
    assert!(harness.labels.is_listening(&machine()));
    harness.memory.store.insert(Record { reuse: Reuse::Preserved, ..record });
    harness.sleep(60 * SECOND).await;
    assert!(harness.is_alive() && !harness.labels.is_listening(&machine()));
    assert_eq!(harness.labels.of(&machine()), Some(label("1")), "it has not left the run");
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
}

/// As after a restart of its service.
#[tokio::test]
async fn an_agent_that_starts_on_a_preserved_machine_does_not_register() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Idle, 1800 * SECOND).await;
    let (state, reuse) = (State::Running, Reuse::Preserved);
    harness.memory.store.insert(Record { state, reuse, run: Some(run("1")), ..record });
    harness.sleep(5 * SECOND).await;
    assert_eq!(harness.labels.of(&machine()), None);
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::RegisterFailed, &label("1")), "{report:?}");
    assert!(report.detail.contains("kept for debugging"), "{}", report.detail);
}
