//! Heartbeats, and a run that follows another.

use std::time::Duration;

use ondeck_core::model::label::Label;
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::signal::Signal;
use ondeck_core::testkit::MachineDefect;

use crate::harness::{Harness, label, machine, run};

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
    assert_eq!(harness.labels.of(&machine()), Some(label("1")));
    harness.memory.store.insert(Record { run: Some(run("2")), ..record });
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(label("2")));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("2")), "{report:?}");
}

/// Its jobs would wait without a word until the run's time is up.
#[tokio::test]
async fn a_runner_that_cannot_be_restarted_is_reported() {
    let mut harness = Harness::with(&[]).await;
    let minute = Duration::from_secs(60);
    let defect = MachineDefect::DiesAfter(minute, 3 * minute);
    harness.boot_defective(defect, State::Running, 30 * minute).await;
    harness.sleep(minute / 2).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
    harness.sleep(minute).await;
    let report = harness.status().await.report.unwrap();
    let failure = report.failure_for(&label("1")).unwrap();
    assert!(failure.ends_with("UD_REG_FAILED: its version is refused"), "{failure}");
    harness.sleep(4 * minute).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "it works again: {report:?}");
    assert!(harness.labels.is_listening(&machine()));
}

/// The release and the claim under the other label come between two reads of the record.
#[tokio::test]
async fn an_agent_registers_anew_under_another_label_of_the_same_run() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(3)).await;
    let large = Label::new(run("1"), "large".parse().ok());
    harness.memory.store.insert(Record { suffix: large.suffix.clone(), ..record });
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(large.clone()));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &large), "{report:?}");
}

/// The claim and its end come between two reads of the record.
#[tokio::test]
async fn an_agent_that_has_missed_a_claim_says_that_it_is_free() {
    let mut harness = Harness::with(&[]).await;
    let idle = harness.boot_in(State::Idle, Duration::from_secs(300)).await;
    harness.sleep(Duration::from_secs(1)).await;
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::Prepared, "an earlier process may have left a runner behind");
    for generation in [1, 5] {
        let counts = Counts { generation, ..idle.counts };
        harness.memory.store.insert(Record { counts, ..idle.clone() });
        harness.sleep(Duration::from_secs(1)).await;
        let report = harness.status().await.report.unwrap();
        assert!(report.is_free_in(generation, None), "{report:?}");
        assert_eq!((report.run.as_ref(), report.generation), (None, Some(generation)));
        harness.sleep(Duration::from_secs(10)).await;
        assert_eq!(harness.status().await.report.unwrap(), report, "once for each idle state");
    }
}

#[tokio::test]
async fn an_agent_that_leaves_a_run_names_the_idle_state() {
    let mut harness = Harness::with(&[]).await;
    let running = harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(3)).await;
    let counts = Counts { generation: 4, ..running.counts };
    let idle = Record { state: State::Idle, run: None, counts, ..running };
    harness.memory.store.insert(idle);
    harness.sleep(Duration::from_secs(10)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Deregistered, &label("1")), "its account is kept: {report:?}");
    assert_eq!((report.generation, report.detail.as_str()), (Some(4), "2 jobs on i-a"));
}
