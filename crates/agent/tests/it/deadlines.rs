//! When the agent terminates its own machine.

use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::Clock;
use ondeck_core::testkit::MachineDefect;

use crate::harness::{ClockBehind, Harness, label, machine, run};

#[tokio::test]
async fn a_machine_terminates_itself_after_its_threshold_and_the_grace() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(30 * 60 + 55)).await;
    assert!(harness.is_alive(), "within the grace");
    harness.sleep(Duration::from_secs(10)).await;
    assert!(!harness.is_alive(), "without any refresh");
}

#[tokio::test]
async fn a_machine_that_is_claimed_at_the_last_moment_stays_alive() {
    let mut harness = Harness::with(&[("self-termination-grace-sec", "0.001")]).await;
    let idle = harness.boot_in(State::Idle, Duration::from_secs(300)).await;
    let threshold = idle.threshold.unwrap();
    // One millisecond before the machine terminates itself, and after the agent's last read.
    harness.sleep(threshold.since(harness.plane.now()) - Duration::from_millis(1)).await;
    harness.memory.store.insert(Record {
        state: State::Claimed,
        run: Some(run("1")),
        threshold: Some(threshold + Duration::from_secs(300)),
        ..idle
    });
    harness.sleep(Duration::from_secs(5)).await;
    assert!(harness.is_alive());
}

/// The store's first answer corrects the agent's clock. The correction must not make the
/// machine an hour older.
#[tokio::test]
async fn a_machine_without_a_record_terminates_itself_at_the_boot_deadline() {
    for clock_behind in [false, true] {
        let mut harness = Harness::with(&[]).await;
        let clock = harness.plane.clock.clone();
        let clock: Arc<dyn Clock> = match clock_behind {
            true => Arc::new(ClockBehind::new(clock)),
            false => clock,
        };
        harness.boot(clock);
        harness.sleep(Duration::from_secs(175)).await;
        assert!(harness.is_alive(), "clock behind: {clock_behind}");
        harness.sleep(Duration::from_secs(10)).await;
        assert!(!harness.is_alive(), "clock behind: {clock_behind}");
    }
}

/// Otherwise the machine would look dead, or as if its clock were wrong, until the next heartbeat.
#[tokio::test]
async fn a_heartbeat_during_which_the_clock_was_corrected_is_sent_again() {
    let mut harness = Harness::with(&[]).await;
    harness.insert_record(State::Created, Duration::from_secs(300));
    harness.boot(Arc::new(ClockBehind::new(harness.plane.clock.clone())));
    harness.sleep(Duration::from_secs(2)).await;
    let heartbeat = harness.status().await.heartbeat.unwrap();
    let age = harness.plane.now().distance(heartbeat.at);
    assert!(age < Duration::from_secs(3), "{age:?}");
}

#[tokio::test]
async fn a_terminated_machine_terminates_itself_without_grace() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Idle, Duration::from_secs(300)).await;
    harness.memory.store.insert(Record { state: State::Terminated, threshold: None, ..record });
    harness.sleep(Duration::from_secs(6)).await;
    assert!(!harness.is_alive());
}

/// Releases a machine whose run leaves it no idle time. Its agent hears of that when the grace is over
/// as well, and its runner takes `stops_after` to stop.
async fn released_unheard(stops_after: Duration) -> Harness {
    let mut harness = Harness::with(&[("self-termination-grace-sec", "1")]).await;
    let defect = MachineDefect::StopsAfter(stops_after);
    let half_an_hour = Duration::from_secs(30 * 60);
    let record = harness.boot_defective(defect, State::Running, half_an_hour).await;
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(label("1")));
    let threshold = Some(harness.plane.now().before(Duration::from_secs(10)));
    harness.memory.store.insert(Record { state: State::Idle, run: None, threshold, ..record });
    harness
}

/// The release waits for its report, and would take the machine for a silent one.
#[tokio::test]
async fn a_machine_that_hears_late_of_its_release_leaves_the_run_before_it_terminates() {
    let harness = released_unheard(Duration::from_secs(15)).await;
    harness.sleep(Duration::from_secs(10)).await;
    assert!(harness.is_alive(), "its runner is stopping");
    assert!(harness.heartbeat_age().await <= Duration::from_secs(2), "it is not silent");
    harness.sleep(Duration::from_secs(15)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Deregistered, &label("1")), "{report:?}");
    assert_eq!(harness.labels.of(&machine()), None, "its runner is not listed any more");
    assert!(!harness.is_alive());
}

#[tokio::test]
async fn a_machine_that_cannot_leave_a_run_terminates_itself_nevertheless() {
    let harness = released_unheard(Duration::from_secs(3_600)).await;
    harness.sleep(Duration::from_secs(30)).await;
    assert!(!harness.is_alive());
}
