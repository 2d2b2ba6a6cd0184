//! Several labels in one run: each provision has machines, a demand and a rescue of its own, and the
//! run has them all.

use std::collections::BTreeSet;

use futures_util::future::join;
use ondeck_core::model::label::Label;
use ondeck_core::model::record::State;
use ondeck_core::modes::provision::{MachineSource, Provisioned, Request};

use super::harness::{Harness, id, label, names, request, run};

fn under(suffix: &str, run_id: &str, count: u32) -> Request {
    let mut request = request(run_id, count);
    request.options.label_suffix = Some(suffix.parse().unwrap());
    request
}

fn registered(harness: &Harness, instances: &[Provisioned]) -> BTreeSet<Option<Label>> {
    instances.iter().map(|instance| harness.labels.of(&instance.id)).collect()
}

#[tokio::test]
async fn each_label_of_a_run_has_machines_of_its_own() {
    let harness = Harness::new().await;
    let build = harness.provision(&under("build", "1", 1)).await;
    let tests = harness.provision(&under("tests", "1", 2)).await;
    let plain = harness.provision(&request("1", 1)).await;
    for (outcome, label) in [
        (&build, under("build", "1", 1).label()),
        (&tests, under("tests", "1", 2).label()),
        (&plain, label("1")),
    ] {
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.count(MachineSource::Adopted), 0, "{label}");
        assert_eq!(registered(&harness, &outcome.instances), [Some(label)].into());
    }
    assert!(names(&build.instances).is_disjoint(&names(&tests.instances)));
    let owned = harness.memory.store.select(|record| record.run == Some(run("1")));
    assert_eq!(owned.len(), 4, "the run owns all of them");
}

#[tokio::test]
async fn provisions_of_two_labels_at_the_same_time_do_not_disturb_each_other() {
    let harness = Harness::new().await;
    for name in ["i-a", "i-b", "i-c"] {
        harness.idle(name, "c6i.large").await;
    }
    let (build, tests) = (under("build", "1", 2), under("tests", "1", 3));
    let (build, tests) = join(harness.provision(&build), harness.provision(&tests)).await;
    assert_eq!((build.failure, tests.failure), (None, None));
    assert_eq!((build.instances.len(), tests.instances.len()), (2, 3));
    assert!(names(&build.instances).is_disjoint(&names(&tests.instances)));
    for (instances, suffix) in [(&build.instances, "build"), (&tests.instances, "tests")] {
        assert_eq!(registered(&harness, instances), [Some(under(suffix, "1", 1).label())].into());
    }
}

#[tokio::test]
async fn a_repeated_provision_adopts_the_machines_of_its_label() {
    let harness = Harness::new().await;
    let first = harness.provision(&under("build", "1", 2)).await;
    harness.provision(&under("tests", "1", 2)).await;
    let again = harness.provision(&under("build", "1", 2)).await;
    assert_eq!(again.count(MachineSource::Adopted), 2);
    assert_eq!(names(&again.instances), names(&first.instances));
    assert_eq!(harness.alive().len(), 4);
}

#[tokio::test]
async fn a_failed_provision_leaves_the_machines_of_other_labels() {
    let harness = Harness::new().await;
    let build = harness.provision(&under("build", "1", 2)).await;
    harness.memory.compute.set_capacity(1);
    let tests = harness.provision(&under("tests", "1", 3)).await;
    assert!(tests.failure.is_some());
    for instance in &build.instances {
        assert_eq!(harness.state(instance.id.as_str()), State::Running);
        assert_eq!(harness.labels.of(&instance.id), Some(under("build", "1", 1).label()));
    }
}

#[tokio::test]
async fn release_takes_the_machines_of_all_labels() {
    let harness = Harness::new().await;
    harness.provision(&under("build", "1", 1)).await;
    harness.provision(&under("tests", "1", 2)).await;
    harness.provision(&request("1", 1)).await;
    harness.provision(&under("build", "2", 1)).await;
    let released = harness.release("1").await;
    assert_eq!((released.instances.len(), released.failure()), (4, None));
    assert!(harness.memory.store.select(|record| record.run == Some(run("1"))).is_empty());
    assert_eq!(harness.memory.store.select(|record| record.run == Some(run("2"))).len(), 1);

    let next = harness.provision(&under("tests", "3", 4)).await;
    assert_eq!(next.count(MachineSource::Warm), 4);
    assert_eq!(
        registered(&harness, &next.instances),
        [Some(under("tests", "3", 1).label())].into()
    );
}

/// An agent of a version without labels registers with the run's id, and no job would find it.
#[tokio::test]
async fn a_machine_that_registered_under_another_label_is_not_handed_over() {
    use ondeck_core::model::signal::Signal;
    use ondeck_core::testkit::MachineDefect;
    let harness = Harness::with(&[("claim-registration-timeout-sec", "5")]).await;
    harness.make_defective("i-old", MachineDefect::NeverBoots);
    harness.idle("i-old", "c6i.large").await;
    harness.signal_as_agent("i-old", Signal::Registered, "1").await;
    let outcome = harness.provision(&under("build", "1", 1)).await;
    assert_eq!(outcome.failure, None);
    assert!(!names(&outcome.instances).contains("i-old"), "{outcome:?}");
    assert_ne!(harness.record("i-old").map(|record| record.state), Some(State::Running));
    assert_eq!(harness.labels.of(&id("i-old")), None);
}

#[tokio::test]
async fn demands_are_kept_for_each_label() {
    let harness = Harness::new().await;
    harness.provision(&under("build", "1", 1)).await;
    harness.provision(&under("tests", "1", 2)).await;
    harness.provision(&under("tests", "1", 3)).await;
    let demands = harness.plane.store.demands(&[run("1")]).await.unwrap();
    let asked: Vec<_> =
        demands.iter().map(|demand| (demand.label().to_string(), demand.options.count)).collect();
    assert_eq!(asked, [("1-build".to_owned(), 1), ("1-tests".to_owned(), 3)]);
    assert_eq!(demands[1].again(2).label(), under("tests", "1", 2).label());
}
