//! `--machine-source`: whether provision claims idle machines, launches new ones, or both.

use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::record::State;
use ondeck_core::modes::provision::{MachineSource, Request, SourcePolicy};

use super::harness::{Harness, request};

fn from(source: SourcePolicy, run_id: &str, count: u32) -> Request {
    let mut request = request(run_id, count);
    request.options.machine_source = source;
    request
}

#[tokio::test]
async fn any_takes_idle_machines_first_and_launches_the_rest() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let outcome = harness.provision(&from(SourcePolicy::Any, "1", 2)).await;
    assert_eq!(outcome.failure, None);
    assert_eq!((outcome.count(MachineSource::Warm), outcome.count(MachineSource::Cold)), (1, 1));
}

#[tokio::test]
async fn pool_takes_idle_machines_only() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    harness.idle("i-b", "c6i.large").await;
    let outcome = harness.provision(&from(SourcePolicy::Pool, "1", 2)).await;
    assert_eq!((outcome.failure.clone(), outcome.count(MachineSource::Warm)), (None, 2));
}

#[tokio::test]
async fn a_pool_that_is_too_small_fails_without_a_launch_and_gets_its_machines_back() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let outcome = harness.provision(&from(SourcePolicy::Pool, "1", 2)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::NoCapacity);
    assert_eq!(failure.message, "not enough idle machines in the pool: 1 of 2 found");
    assert!(failure.hint.contains("--machine-source any"), "{}", failure.hint);
    assert_eq!(harness.alive(), ["i-a"], "nothing was launched");
    assert_eq!((harness.state("i-a"), harness.visible().await), (State::Idle, 1));
    let outcome = harness.provision(&from(SourcePolicy::Pool, "2", 1)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 1, "the machine can be claimed again");
}

#[tokio::test]
async fn new_launches_and_leaves_the_pool_alone() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let outcome = harness.provision(&from(SourcePolicy::New, "1", 2)).await;
    assert_eq!((outcome.failure.clone(), outcome.count(MachineSource::Cold)), (None, 2));
    assert_eq!((harness.state("i-a"), harness.visible().await), (State::Idle, 1));
}

#[tokio::test]
async fn machines_that_the_run_has_count_with_every_source() {
    for source in [SourcePolicy::Any, SourcePolicy::Pool, SourcePolicy::New] {
        let harness = Harness::new().await;
        harness.provision(&request("1", 2)).await;
        let again = harness.provision(&from(source, "1", 2)).await;
        assert_eq!(again.failure, None, "{source:?}");
        assert_eq!(again.count(MachineSource::Adopted), 2, "{source:?}");
        assert_eq!(harness.alive().len(), 2, "{source:?}");
    }
}
