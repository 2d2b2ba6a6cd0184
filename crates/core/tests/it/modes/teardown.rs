//! Teardown that waits for runs: until they end, or until it has waited long enough.

use std::time::Duration;

use ondeck_core::model::record::State;
use ondeck_core::modes::teardown::{Options, cancel, teardown};
use ondeck_core::ports::Store;
use ondeck_core::runtime::stop::StopSignal;

use super::harness::{Harness, request};

const WAIT: Duration = Duration::from_secs(600);

fn waiting() -> Options {
    Options { force: false, wait: WAIT }
}

#[tokio::test]
async fn a_run_that_outlasts_the_wait_keeps_its_machines_and_the_pool_stays_closed() {
    let harness = Harness::new().await;
    let provisioned = harness.provision(&request("1", 2)).await;
    let began = harness.plane.clock.steady();
    let outcome = teardown(&harness.plane, &[], waiting(), &StopSignal::never()).await;
    let waited = harness.plane.clock.steady().saturating_sub(began);
    assert!(waited >= WAIT && waited < WAIT + Duration::from_secs(30), "{waited:?}");

    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind.exit_code(), 12, "{failure}");
    assert!(outcome.closed && outcome.machines.is_empty(), "{:?}", outcome.machines);
    assert_eq!(outcome.in_use.len(), 2);
    for instance in &provisioned.instances {
        let record = harness.record(instance.id.as_str()).unwrap();
        assert_eq!(record.state, State::Running, "its jobs go on");
    }
    let settings = harness.memory.store.settings().await.unwrap();
    assert!(settings.contains_key("closed-at"), "{settings:?}");

    assert!(cancel(&harness.plane).await.unwrap());
    assert_eq!(harness.release("1").await.failure(), None);
}

#[tokio::test]
async fn a_pool_whose_runs_have_ended_does_not_wait() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 2)).await;
    harness.release("1").await;
    let began = harness.plane.clock.steady();
    let outcome = teardown(&harness.plane, &[], waiting(), &StopSignal::never()).await;
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    assert_eq!(outcome.machines.len(), 2);
    let waited = harness.plane.clock.steady().saturating_sub(began);
    assert!(waited < WAIT, "{waited:?}");
}
