//! The agent by itself: deadlines, and runs that come and go.

use std::time::Duration;

use ondeck_core::model::ids::IntentId;
use ondeck_core::model::record::State;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::Machine;

use crate::world::{Behaviour, World, id, request, run, spec};

#[tokio::test]
async fn self_termination_past_the_threshold_and_the_grace() {
    let world = World::new().await;
    world.provision(&request("1", 1)).await;
    world.pass(Duration::from_secs(30 * 60 + 55)).await;
    assert_eq!(world.alive().len(), 1, "within the grace");
    world.pass(Duration::from_secs(10)).await;
    assert!(world.alive().is_empty(), "with no refresh running");
}

#[tokio::test]
async fn lost_heartbeats_are_made_up_for_soon() {
    let world = World::new().await;
    world.idle("i-a", "c6i.large").await;
    let mut oldest = Duration::ZERO;
    world.memory.store.lose_beats(2);
    for _ in 0..80 {
        world.pass(Duration::from_millis(250)).await;
        let status = world.plane.store.agent_status(&[id("i-a")]).await.unwrap();
        oldest = oldest.max(world.plane.now().since(status[0].heartbeat.unwrap()));
    }
    let (period, twice_lost) = (Duration::from_secs(5), Duration::from_millis(7_500));
    assert!(oldest > period && oldest <= twice_lost, "a beat, two lost ones: {oldest:?}");
}

#[tokio::test]
async fn a_machine_that_was_claimed_at_the_last_moment_does_not_end_itself() {
    let world = World::with(&[("self-termination-grace-sec", "0.001")]).await;
    let idle = world.idle("i-a", "c6i.large").await;
    let threshold = idle.threshold.unwrap();
    // One millisecond before its end, and after its last look.
    world.pass(threshold.since(world.plane.now()) - Duration::from_millis(1)).await;
    let mut claimed = idle.clone();
    claimed.state = State::Claimed;
    claimed.run = Some(run("1"));
    claimed.threshold = Some(threshold + Duration::from_secs(300));
    world.memory.store.plant(claimed);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.alive(), ["i-a"]);
}

/// Whatever its clock says at first: the first answer of the store tells what time it is, and does
/// not make the machine an hour older.
#[tokio::test]
async fn a_machine_without_a_record_ends_itself_at_the_boot_deadline() {
    for behaviour in [Behaviour::Sound, Behaviour::ClockBehind] {
        let world = World::new().await;
        let machine = Machine {
            id: id("i-lost"),
            spec: spec("c6i.large"),
            intent: IntentId::new("x").unwrap(),
            launched_at: world.plane.now(),
        };
        world.expect("i-lost", behaviour);
        world.memory.compute.plant(machine);
        world.pass(Duration::from_secs(175)).await;
        assert_eq!(world.alive(), ["i-lost"], "{behaviour:?}");
        world.pass(Duration::from_secs(10)).await;
        assert!(world.alive().is_empty(), "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_terminated_machine_ends_itself_without_grace() {
    let world = World::new().await;
    let mut record = world.idle("i-a", "c6i.large").await;
    record.state = State::Terminated;
    record.threshold = None;
    world.memory.store.plant(record);
    world.pass(Duration::from_secs(6)).await;
    assert!(world.alive().is_empty());
}

#[tokio::test]
async fn a_run_that_follows_another_directly_is_a_release_and_an_assignment() {
    let world = World::new().await;
    world.provision(&request("1", 1)).await;
    let machine = world.alive()[0].clone();
    let mut record = world.record(&machine).unwrap();
    record.run = Some(run("2"));
    world.memory.store.plant(record);
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.labels.lock().unwrap()[&id(&machine)], run("2"));
    let status = world.plane.store.agent_status(&[id(&machine)]).await.unwrap();
    assert!(status[0].report.as_ref().unwrap().says(Signal::Registered, &run("2")));
}

#[tokio::test]
async fn heartbeats_go_on_while_the_machine_works() {
    let world = World::new().await;
    world.provision(&request("1", 1)).await;
    let machine = id(&world.alive()[0]);
    for _ in 0..20 {
        world.pass(Duration::from_secs(7)).await;
        let beat = world.plane.store.agent_status(std::slice::from_ref(&machine)).await.unwrap()[0]
            .heartbeat;
        assert!(world.plane.now().since(beat.unwrap()) <= Duration::from_secs(5));
    }
}
