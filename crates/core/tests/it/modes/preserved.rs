//! `debug-on-failure-min`: the machines of a failed run stay for people, outside the pool.

use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::lifecycle::{Instance, Running};
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::record::State;
use ondeck_core::modes::plane::NotCommitted;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::release::{Disposition, Outcome, release_failed};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, label, request, run};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// How long machines of failed runs stay.
const DEBUG: (&str, &str) = ("debug-on-failure-min", "20");

async fn fail(harness: &Harness, run_id: &str) -> Outcome {
    release_failed(&harness.plane, &run(run_id), &TimeOverrides::default()).await.unwrap()
}

/// A pool that preserves machines for 20 minutes, in which the run 1 has failed with this many.
async fn failed_with(machines: u32, settings: &[(&str, &str)]) -> Harness {
    let harness = Harness::patient(&[&[DEBUG], settings].concat()).await;
    assert_eq!(harness.provision(&request("1", machines)).await.failure, None);
    fail(&harness, "1").await;
    harness
}

#[tokio::test]
async fn the_machines_of_a_failed_run_stay_as_they_are() {
    let harness = Harness::patient(&[DEBUG]).await;
    harness.provision(&request("1", 2)).await;
    let before = harness.plane.now();
    let released = fail(&harness, "1").await;
    assert_eq!((released.failure(), released.instances.len()), (None, 2));
    for machine in &released.instances {
        let Disposition::Preserved(until) = machine.disposition else { panic!("{machine:?}") };
        assert!(until >= before + 20 * MINUTE && until < before + 21 * MINUTE, "{until}");
        let record = harness.record(machine.id.as_str()).unwrap();
        assert_eq!((record.threshold, record.run.clone()), (Some(until), Some(run("1"))));
        assert!(record.is_preserved());
    }
    harness.sleep(2 * MINUTE).await;
    assert_eq!(harness.labels.of(&id("i-0001")), Some(label("1")), "nothing is cleaned");
    assert!(!harness.labels.is_listening(&id("i-0001")), "and no further job is taken");
    assert_eq!((harness.depth().await, harness.alive().len()), (0, 2));
    let other = harness.provision(&request("2", 1)).await;
    assert_eq!(other.count(MachineSource::Cold), 1, "no run gets one of them");
}

#[tokio::test]
async fn machines_return_to_the_pool_unless_the_setting_and_the_release_say_otherwise() {
    let off = Harness::new().await;
    off.provision(&request("1", 1)).await;
    assert_eq!(fail(&off, "1").await.instances[0].disposition, Disposition::Pooled);
    let on = Harness::with(&[DEBUG]).await;
    on.provision(&request("1", 1)).await;
    assert_eq!(on.release("1").await.instances[0].disposition, Disposition::Pooled);
}

#[tokio::test]
async fn no_release_ends_it_and_refresh_does_at_its_threshold() {
    let harness = failed_with(1, &[]).await;
    let again = harness.release("1").await;
    assert!(matches!(again.instances[0].disposition, Disposition::Preserved(_)), "{again:?}");
    harness.memory.forge.complete(run("1"));
    for _ in 0..3 {
        harness.sleep(6 * MINUTE).await;
        let outcome = harness.refresh().await;
        assert_eq!((outcome.completed, outcome.reaped), (vec![], vec![]));
    }
    assert_eq!(harness.alive(), ["i-0001"]);
    harness.sleep(2 * MINUTE + SECOND).await;
    assert_eq!(harness.refresh().await.reaped, [id("i-0001")]);
    assert_eq!((harness.alive(), harness.state("i-0001")), (vec![], State::Terminated));
    let reasons = harness.memory.store.events();
    let reap = reasons.iter().find(|event| event.transition == "reap").unwrap();
    assert_eq!(reap.why, "kept for debugging long enough");
}

#[tokio::test]
async fn it_terminates_itself_without_a_refresh() {
    let harness = failed_with(1, &[]).await;
    harness.sleep(20 * MINUTE).await;
    assert_eq!(harness.alive(), ["i-0001"], "the grace");
    harness.sleep(2 * MINUTE).await;
    assert_eq!(harness.alive(), [""; 0]);
}

#[tokio::test]
async fn a_rerun_gets_other_machines() {
    let harness = failed_with(1, &[]).await;
    let again = harness.provision(&request("1", 1)).await;
    assert_eq!((again.count(MachineSource::Adopted), again.count(MachineSource::Cold)), (0, 1));
    let released = harness.release("1").await;
    let of = |name: &str| released.instances.iter().find(|it| it.id == id(name)).unwrap();
    assert_eq!(of("i-0002").disposition, Disposition::Pooled);
    assert!(matches!(of("i-0001").disposition, Disposition::Preserved(_)));
}

#[tokio::test]
async fn a_rescue_does_not_count_it() {
    let harness = failed_with(1, &[]).await;
    harness.memory.forge.queue_job(&run("1"));
    assert_eq!(harness.refresh().await.rescued, [label("1")]);
    assert_eq!(harness.alive().len(), 2);
}

#[tokio::test]
async fn it_counts_for_the_ceiling() {
    let harness = failed_with(2, &[("max-machines", "2")]).await;
    let failure = harness.provision(&request("2", 1)).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::AtCeiling);
    harness.sleep(21 * MINUTE).await;
    harness.refresh().await;
    assert_eq!(harness.provision(&request("2", 1)).await.failure, None);
}

#[tokio::test]
async fn its_interruption_is_no_reason_to_rerun_jobs() {
    let harness = Harness::patient(&[DEBUG, ("on-interruption", "rerun")]).await;
    harness.make_defective("i-0001", MachineDefect::InterruptedAfter(5 * MINUTE));
    harness.provision(&request("1", 1)).await;
    fail(&harness, "1").await;
    harness.memory.forge.complete(run("1"));
    harness.memory.forge.fail_job(run("1"), 7, id("i-0001"));
    // The notice has come, and then the threshold.
    for span in [10 * MINUTE, 12 * MINUTE, MINUTE] {
        harness.sleep(span).await;
        assert_eq!(harness.refresh().await.rerun, [], "after {span:?}");
    }
    assert_eq!(harness.memory.forge.reruns(), []);
}

#[tokio::test]
async fn changes_that_were_decided_before_are_refused() {
    let harness = Harness::patient(&[DEBUG]).await;
    harness.provision(&request("1", 1)).await;
    let record = harness.record("i-0001").unwrap();
    let running = Instance::<Running>::believe(&record).unwrap();
    fail(&harness, "1").await;
    let now = harness.plane.now();
    let release = harness.plane.apply(running.release(now, MINUTE)).await;
    assert!(matches!(release, Err(NotCommitted::Refused(_))), "{release:?}");
    let renewal = harness.plane.apply(running.renew(now, now + MINUTE)).await;
    assert!(matches!(renewal, Err(NotCommitted::Refused(_))), "{renewal:?}");
    let preserved = harness.record("i-0001").unwrap();
    assert!(Instance::<Running>::believe(&preserved).is_none());
}
