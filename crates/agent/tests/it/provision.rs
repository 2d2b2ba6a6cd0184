//! Creation, validation, adoption, and the three endings.

use std::time::Duration;

use ondeck_core::failure::Kind;
use ondeck_core::ids::InstanceId;
use ondeck_core::provision::{Source, provision};
use ondeck_core::record::State;
use ondeck_core::requirements::UsageClass;
use ondeck_core::stop::{Stop, StopSignal};

use crate::world::{Behaviour, World, id, names, request, run};

#[tokio::test]
async fn a_cold_run_is_launched_validated_and_activated() {
    let world = World::new().await;
    let outcome = world.provision(&request("1", 3)).await;
    assert_eq!((outcome.failure, outcome.instances.len()), (None, 3));
    assert!(outcome.instances.iter().all(|instance| instance.source == Source::Cold));
    let max_runtime = world.settings().times.max_runtime;
    for record in world.memory.store.select(|_| true) {
        assert_eq!((record.state, &record.run), (State::Running, &Some(run("1"))));
        assert_eq!(record.threshold, Some(record.updated_at + max_runtime));
    }
    assert!(world.plane.store.open_intents().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_second_attempt_adopts_what_the_first_one_got() {
    let world = World::new().await;
    let first = world.provision(&request("1", 2)).await;
    let again = world.provision(&request("1", 3)).await;
    assert_eq!((again.count(Source::Adopted), again.count(Source::Cold)), (2, 1));
    assert!(names(&again.instances).is_superset(&names(&first.instances)));
    let third = world.provision(&request("1", 3)).await;
    assert_eq!(third.count(Source::Adopted), 3);
    assert_eq!(world.alive().len(), 3);
}

#[tokio::test]
async fn a_dead_machine_is_not_adopted() {
    let world = World::new().await;
    let first = world.provision(&request("1", 1)).await;
    world.memory.compute.kill(&first.instances[0].id);
    world.pass(Duration::from_secs(16)).await;
    let again = world.provision(&request("1", 1)).await;
    assert_eq!((again.count(Source::Adopted), again.count(Source::Cold)), (0, 1));
}

#[tokio::test]
async fn without_capacity_claimed_machines_go_back_after_deregistration() {
    let world = World::new().await;
    world.idle("i-a", "c6i.large").await;
    world.idle("i-b", "c6i.large").await;
    world.memory.compute.limit(4);
    let outcome = world.provision(&request("1", 5)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, Kind::NoCapacity);
    assert_eq!(
        failure.message,
        "not enough capacity, 2 of 3 machines launched: InsufficientInstanceCapacity"
    );
    assert_eq!((outcome.instances.len(), outcome.leftovers.len()), (0, 0));
    assert_eq!(world.alive(), ["i-a", "i-b"], "what was created is gone");
    assert_eq!((world.state("i-a"), world.state("i-b")), (State::Idle, State::Idle));
    assert_eq!(world.visible().await, 2);
    let labels = world.labels.lock().unwrap().clone();
    assert!(!labels.contains_key(&id("i-a")) && !labels.contains_key(&id("i-b")), "{labels:?}");
    assert_eq!(world.provision(&request("2", 2)).await.count(Source::Warm), 2);
}

#[tokio::test]
async fn one_of_five_that_never_registers_fails_all_new_ones() {
    let world = World::new().await;
    world.expect("i-0003", Behaviour::NeverRegisters);
    world.idle("i-warm", "c6i.large").await;
    let outcome = world.provision(&request("1", 6)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, Kind::NotReady);
    assert!(
        failure.message.starts_with("machine i-0003 did not become ready: not ready within 180 s")
    );
    assert_eq!(world.alive(), ["i-warm"]);
    assert_eq!((world.state("i-warm"), world.visible().await), (State::Idle, 1));
}

#[tokio::test]
async fn a_failing_script_is_reported_without_waiting() {
    let world = World::with(&[("pre-runner-script", "exit 3")]).await;
    world.expect("i-0002", Behaviour::ScriptFails);
    let outcome = world.provision(&request("1", 2)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, Kind::NotReady);
    assert!(failure.message.contains("UD_FAILED: the pre-runner script failed: exit code 3"));
    assert!(outcome.timings.total < Duration::from_secs(5), "{:?}", outcome.timings);
    assert!(world.alive().is_empty());
}

#[tokio::test]
async fn a_machine_that_dies_between_heartbeat_and_registration_is_noticed() {
    let world = World::new().await;
    world.expect("i-0001", Behaviour::DiesRegistering);
    let outcome = world.provision(&request("1", 2)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, Kind::NotReady);
    assert!(failure.message.contains("its heartbeat stopped"), "{failure}");
    assert!(outcome.timings.total < Duration::from_secs(30), "long before the timeout");
    assert!(world.alive().is_empty());
}

#[tokio::test]
async fn a_machine_that_cannot_be_given_back_is_expired_and_said_to_be() {
    let world = World::new().await;
    world.expect("i-dirty", Behaviour::CannotBeCleaned);
    world.idle("i-dirty", "c6i.large").await;
    world.memory.compute.limit(1);
    let outcome = world.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::NoCapacity);
    assert_eq!(outcome.leftovers.len(), 1);
    assert!(outcome.leftovers[0].contains("the machine is not clean: a file cannot be removed"));
    assert_eq!(world.depth().await, 0);
    assert!(world.record("i-dirty").unwrap().is_expired(world.plane.now()));
}

#[tokio::test]
async fn the_fallback_goes_from_spot_to_on_demand_for_what_is_missing() {
    let world = World::new().await;
    let mut cheap = request("1", 2);
    cheap.usage = UsageClass::Spot;
    cheap.capacity_fallback = true;
    world.memory.compute.limit(1);
    let outcome = world.provision(&cheap).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::NoCapacity, "there is none of either");
    assert!(world.alive().is_empty());
    world.memory.compute.limit(2);
    assert_eq!(world.provision(&cheap).await.instances.len(), 2);
}

#[tokio::test]
async fn told_to_stop_it_dumps_what_it_touched_and_nothing_else() {
    for moment in [0, 1, 5, 20, 100, 400] {
        let world = World::new().await;
        world.expect("i-0001", Behaviour::NeverRegisters);
        for name in ["i-a", "i-b"] {
            world.idle(name, "c6i.large").await;
        }
        let other = world.provision(&request("other", 1)).await;
        let (switch, stop) = StopSignal::new();
        let request = request("1", 3);
        let (outcome, ()) = tokio::join!(provision(&world.plane, &request, &stop), async {
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            switch.raise(Stop::Interrupted);
        });
        assert_eq!(outcome.failure.unwrap().kind, Kind::Interrupted);
        assert!(outcome.leftovers.is_empty(), "{:?}", outcome.leftovers);
        assert!(world.memory.store.select(|r| r.run == Some(run("1"))).is_empty(), "at {moment}");
        let others = names(&other.instances);
        let live: Vec<InstanceId> =
            world.memory.store.select(|r| r.state.is_live()).into_iter().map(|r| r.id).collect();
        assert!(live.iter().any(|id| others.contains(id.as_str())), "the other run keeps its own");
        for machine in world.plane.compute.machines().await.unwrap() {
            assert!(live.contains(&machine.id), "{} has no record, at {moment}", machine.id);
        }
    }
}

#[tokio::test]
async fn counts_that_make_no_sense_are_refused() {
    let world = World::new().await;
    for count in [0, 1001, u32::MAX] {
        let failure = world.provision(&request("1", count)).await.failure.unwrap();
        assert_eq!(failure.kind, Kind::InvalidInput);
        assert!(failure.message.ends_with(&count.to_string()), "{failure}");
    }
    assert!(world.alive().is_empty());
}
