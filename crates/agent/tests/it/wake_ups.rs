//! Agents that are woken instead of polling.

use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::{PortError, Store};
use ondeck_core::testkit::Hearing;

use crate::harness::{Harness, label, machine, run};

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// An idle machine whose store announces changes.
async fn idle() -> (Harness, Record) {
    idle_with(&[]).await
}

async fn idle_with(settings: &[(&str, &str)]) -> (Harness, Record) {
    let mut harness = Harness::with(settings).await;
    harness.memory.store.announce(Hearing::Works);
    let record = harness.boot_in(State::Idle, HOUR).await;
    // Between two looks, which are 15 s apart.
    harness.sleep(MINUTE + Duration::from_secs(2)).await;
    (harness, record)
}

/// Writes a claim, as the control plane does, without waking the agent.
fn claim(harness: &Harness, idle: &Record, of: &str) -> Record {
    let (state, run) = (State::Claimed, Some(run(of)));
    let claimed = Record { state, run, ..idle.clone() };
    harness.memory.store.insert(claimed.clone());
    claimed
}

async fn is_registered_for(harness: &Harness, run: &str) -> bool {
    let report = harness.status().await.report;
    report.is_some_and(|report| report.says(Signal::Registered, &label(run)))
}

/// How often the agent has called the store for records and heartbeats.
fn calls(harness: &Harness) -> [usize; 2] {
    let calls = harness.memory.store.calls();
    ["record of an agent", "beat of an agent"].map(|call| calls.get(call).copied().unwrap_or(0))
}

async fn calls_within(harness: &Harness, span: Duration) -> [usize; 2] {
    let before = calls(harness);
    harness.sleep(span).await;
    let after = calls(harness);
    [after[0] - before[0], after[1] - before[1]]
}

#[tokio::test]
async fn a_claim_is_noticed_by_its_wake_up() {
    let (harness, idle) = idle().await;
    claim(&harness, &idle, "1");
    harness.sleep(Duration::from_millis(300)).await;
    assert!(!is_registered_for(&harness, "1").await, "the agent does not poll");
    harness.memory.store.wake(&[machine()]);
    harness.sleep(Duration::from_millis(1)).await;
    assert!(is_registered_for(&harness, "1").await);
}

#[tokio::test]
async fn an_idle_agent_looks_four_times_a_minute_and_beats_six_times() {
    let (harness, _) = idle().await;
    let [looks, beats] = calls_within(&harness, 10 * MINUTE).await;
    assert!((38..=42).contains(&looks), "{looks}");
    assert!((58..=62).contains(&beats), "{beats}");
}

#[tokio::test]
async fn the_wake_up_of_another_machine_is_none() {
    let (harness, idle) = idle().await;
    claim(&harness, &idle, "1");
    harness.memory.store.wake(&[InstanceId::new("i-other").unwrap()]);
    harness.sleep(Duration::from_millis(300)).await;
    assert!(!is_registered_for(&harness, "1").await);
}

#[tokio::test]
async fn a_lost_wake_up_delays_a_claim_by_three_heartbeat_periods() {
    let (harness, idle) = idle().await;
    let claimed = claim(&harness, &idle, "1");
    harness.sleep(Duration::from_secs(15)).await;
    assert!(is_registered_for(&harness, "1").await);
    // The next ones are lost, too, and are noticed by polling.
    harness.sleep(MINUTE).await;
    let next = Record { run: Some(run("2")), ..claimed };
    harness.memory.store.insert(next.clone());
    harness.sleep(Duration::from_millis(1_500)).await;
    assert!(is_registered_for(&harness, "2").await, "it polls");
    // Once a change is announced, the agent relies on wake-ups again.
    harness.memory.store.insert(Record { state: State::Idle, run: None, ..next.clone() });
    harness.memory.store.wake(&[machine()]);
    harness.sleep(MINUTE).await;
    let [looks, _] = calls_within(&harness, MINUTE).await;
    assert!(looks <= 6, "{looks}");
}

/// Otherwise a lost wake-up would cost the machine.
#[tokio::test]
async fn an_agent_looks_twice_while_a_mode_waits_for_its_answer() {
    for setting in ["claim-registration-timeout-sec", "release-timeout-sec"] {
        let (harness, idle) = idle_with(&[(setting, "8")]).await;
        claim(&harness, &idle, "1");
        harness.sleep(Duration::from_secs(4)).await;
        assert!(is_registered_for(&harness, "1").await, "{setting}");
    }
}

#[tokio::test]
async fn a_look_that_fails_after_its_wake_up_is_made_again_soon() {
    let (harness, idle) = idle().await;
    let store = &harness.memory.store;
    let wake_in_vain = async || {
        store.fail("record of an agent");
        store.wake(&[machine()]);
        harness.sleep(Duration::from_millis(100)).await;
        store.repair();
    };
    let claimed = claim(&harness, &idle, "1");
    wake_in_vain().await;
    assert!(!is_registered_for(&harness, "1").await, "the look has failed");
    harness.sleep(Duration::from_millis(300)).await;
    assert!(is_registered_for(&harness, "1").await, "after the poll of a waiting agent");

    harness.sleep(MINUTE).await;
    store.insert(Record { state: State::Idle, run: None, ..claimed });
    wake_in_vain().await;
    harness.sleep(Duration::from_millis(1_100)).await;
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::Deregistered, "after the poll of an agent with a run");
}

#[tokio::test]
async fn a_store_that_cannot_announce_changes_is_polled() {
    let (harness, idle) = idle().await;
    let reason = "access denied".to_owned();
    let denied = PortError::Unusable { service: "SQS", reason, hint: String::new() };
    harness.memory.store.announce(Hearing::Fails(denied));
    harness.sleep(MINUTE).await;
    let [looks, _] = calls_within(&harness, MINUTE).await;
    assert!((230..=250).contains(&looks), "every 250 ms: {looks}");
    claim(&harness, &idle, "1");
    harness.sleep(Duration::from_millis(300)).await;
    assert!(is_registered_for(&harness, "1").await);
    harness.memory.store.announce(Hearing::Works);
    harness.memory.store.wake(&[machine()]);
    harness.sleep(MINUTE).await;
    let [looks, _] = calls_within(&harness, MINUTE).await;
    assert!(looks <= 6, "it is woken again: {looks}");
}

#[tokio::test]
async fn false_wake_ups_cost_a_few_looks_a_second_and_change_nothing() {
    let (harness, idle) = idle().await;
    let before = calls(&harness);
    for _ in 0..600 {
        harness.memory.store.wake(&[machine()]);
        harness.sleep(Duration::from_millis(10)).await;
    }
    let looks = calls(&harness)[0] - before[0];
    assert!((20..=32).contains(&looks), "within six seconds: {looks}");
    assert_eq!(harness.labels.of(&machine()), None);
    claim(&harness, &idle, "1");
    harness.memory.store.wake(&[machine()]);
    harness.sleep(Duration::from_secs(1)).await;
    assert!(is_registered_for(&harness, "1").await, "a true one is not lost among them");
}

/// No wake-up announces that a threshold has moved. An agent that did not look would take its machine for
/// expired, and let it take no job.
#[tokio::test]
async fn a_threshold_that_is_near_is_read_again_before_it_passes() {
    let mut harness = Harness::with(&[]).await;
    harness.memory.store.announce(Hearing::Works);
    let record = harness.boot_in(State::Running, Duration::from_secs(14)).await;
    harness.sleep(Duration::from_secs(2)).await;
    let later = record.threshold.map(|threshold| threshold + HOUR);
    harness.memory.store.insert(Record { threshold: later, ..record });
    harness.sleep(Duration::from_secs(20)).await;
    assert!(harness.labels.is_listening(&machine()));
}

/// A machine is healthy for three of the periods that its last heartbeat announced. Neither another
/// setting nor a run that begins or ends may leave a gap.
#[tokio::test]
async fn an_idle_machine_stays_healthy_while_its_heartbeat_period_changes() {
    for (from, to) in [("5", "60"), ("60", "5"), ("1", "30"), ("30", "1")] {
        let (harness, idle) = idle_with(&[("heartbeat-period-sec", from)]).await;
        let settings = [("heartbeat-period-sec".to_owned(), to.to_owned())].into();
        harness.plane.store.put_settings(&settings).await.unwrap();
        let claimed = claim(&harness, &idle, "1");
        harness.memory.store.wake(&[machine()]);
        for second in 0..400 {
            if second == 200 {
                harness.memory.store.insert(Record { run: None, ..idle.clone() });
                harness.memory.store.wake(&[machine()]);
            }
            harness.sleep(Duration::from_secs(1)).await;
            let beat = harness.status().await.heartbeat.unwrap();
            assert!(beat.is_healthy(harness.plane.now()), "{from} to {to}: {beat:?}");
        }
        assert_eq!(claimed.id, machine());
    }
}

#[tokio::test]
async fn a_machine_that_gets_a_run_beats_at_the_usual_pace_at_once() {
    let (harness, idle) = idle().await;
    let period = |seconds| Some(Duration::from_secs(seconds));
    let announced =
        |beat: ondeck_core::model::signal::AgentStatus| beat.heartbeat.map(|it| it.period);
    assert_eq!(announced(harness.status().await), period(10));
    claim(&harness, &idle, "1");
    harness.memory.store.wake(&[machine()]);
    harness.sleep(Duration::from_secs(5)).await;
    assert_eq!(announced(harness.status().await), period(5));
}
