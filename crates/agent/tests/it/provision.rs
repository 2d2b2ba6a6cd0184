//! Creation, validation, adoption, and the three endings.

use std::time::Duration;

use ondeck_core::inputs::times::Times;
use ondeck_core::model::failure::Kind;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::Signal;
use ondeck_core::modes::provision::{Source, provision};
use ondeck_core::ports::Order;
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::Scant;

use crate::world::{Behaviour, World, id, names, request, run};

#[tokio::test]
async fn a_cold_run_is_launched_validated_and_activated() {
    let world = World::new().await;
    let outcome = world.provision(&request("1", 3)).await;
    assert_eq!((outcome.failure, outcome.instances.len()), (None, 3));
    assert!(outcome.instances.iter().all(|instance| instance.source == Source::Cold));
    let max_runtime = Times::default().max_runtime;
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
async fn a_machine_that_cannot_be_ended_is_not_said_to_be() {
    let world = World::new().await;
    world.expect("i-0001", Behaviour::CannotRegister);
    let request = request("1", 1);
    let (outcome, ()) = tokio::join!(world.provision(&request), async {
        while world.record("i-0001").is_none() {
            tokio::task::yield_now().await;
        }
        world.memory.compute.go_down();
    });
    assert_eq!(outcome.failure.unwrap().kind, Kind::NotReady);
    assert_eq!(outcome.ended, []);
    assert_eq!(
        outcome.leftovers,
        ["i-0001 was not ended: compute is out of reach: it is down"],
        "and is left to its deadline"
    );
}

#[tokio::test]
async fn the_fallback_goes_from_spot_to_on_demand_for_what_is_missing() {
    let world = World::new().await;
    let mut cheap = request("1", 2);
    cheap.usage = UsageClass::Spot;
    world.memory.compute.lack(UsageClass::Spot);
    let outcome = world.provision(&cheap).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::NoCapacity, "nobody asked to fall back");
    cheap.capacity_fallback = true;
    let outcome = world.provision(&cheap).await;
    assert_eq!(outcome.failure, None);
    let usage = outcome.instances.iter().map(|instance| instance.spec.usage_class);
    assert_eq!(usage.collect::<Vec<_>>(), [UsageClass::OnDemand; 2]);
    let again = world.provision(&cheap).await;
    assert_eq!(again.count(Source::Adopted), 2, "what it got that way is what it has");
    world.memory.compute.limit(3);
    cheap.count = 5;
    let outcome = world.provision(&cheap).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::NoCapacity, "there are not enough of either");
    assert_eq!(world.alive().len(), 2);
}

#[tokio::test]
async fn the_fallback_tries_the_same_once_more_before_it_gives_up_on_it() {
    use UsageClass::{OnDemand, Spot};
    let none = Scant::Short(0);
    for (usage, scant, orders, got) in [
        (Spot, vec![none], vec![(Spot, 2), (Spot, 2)], vec![Spot; 2]),
        (Spot, vec![Scant::Short(1)], vec![(Spot, 2), (Spot, 1)], vec![Spot; 2]),
        (Spot, vec![none; 2], vec![(Spot, 2), (Spot, 2), (OnDemand, 2)], vec![OnDemand; 2]),
        (Spot, vec![none; 3], vec![(Spot, 2), (Spot, 2), (OnDemand, 2)], vec![]),
        (OnDemand, vec![none], vec![(OnDemand, 2), (OnDemand, 2)], vec![OnDemand; 2]),
        (OnDemand, vec![none; 2], vec![(OnDemand, 2), (OnDemand, 2)], vec![]),
    ] {
        let world = World::new().await;
        world.memory.compute.serve_next(scant.clone());
        let mut request = request("1", 2);
        (request.options.usage, request.options.capacity_fallback) = (usage, true);
        let outcome = world.provision(&request).await;
        assert_eq!(world.memory.compute.ordered(), orders, "{usage} {scant:?}");
        let classes = outcome.instances.iter().map(|instance| instance.spec.usage_class);
        assert_eq!(classes.collect::<Vec<_>>(), got, "{usage} {scant:?}");
        let failed = outcome.failure.map(|failure| failure.kind);
        assert_eq!(failed, got.is_empty().then_some(Kind::NoCapacity), "{usage} {scant:?}");
        assert_eq!(world.alive().len(), got.len());
    }
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_for_the_rest_and_nobody_falls_back() {
    use UsageClass::Spot;
    for fallback in [false, true] {
        let world = World::new().await;
        world.memory.compute.serve_next([Scant::Busy(0), Scant::Busy(2), Scant::Busy(0)]);
        let mut cheap = request("1", 3);
        (cheap.usage, cheap.capacity_fallback) = (Spot, fallback);
        let outcome = world.provision(&cheap).await;
        assert_eq!(outcome.failure, None);
        let orders = [(Spot, 3), (Spot, 3), (Spot, 1), (Spot, 1)];
        assert_eq!(world.memory.compute.ordered(), orders, "each under an intent of its own");
        assert!(outcome.instances.iter().all(|instance| instance.spec.usage_class == Spot));
        assert!(outcome.timings.total > Duration::from_millis(25 + 50 + 100), "it was given time");
        assert!(world.plane.store.open_intents().await.unwrap().is_empty());
        assert_eq!(world.alive().len(), 3);
    }
}

#[tokio::test]
async fn a_provider_that_stays_busy_fails_the_run_and_the_claimed_go_back() {
    for fallback in [false, true] {
        let world = World::new().await;
        world.idle("i-a", "c6i.large").await;
        world.memory.compute.serve_next([Scant::Busy(1)]);
        world.memory.compute.serve_next([Scant::Busy(0); 20]);
        let mut request = request("1", 3);
        request.options.capacity_fallback = fallback;
        let outcome = world.provision(&request).await;
        let failure = outcome.failure.unwrap();
        assert_eq!((failure.kind, failure.kind.exit_code()), (Kind::Busy, 6));
        assert_eq!(
            failure.message,
            "the provider was too busy, 1 of 2 machines launched: RequestLimitExceeded"
        );
        assert_eq!(world.memory.compute.ordered().len(), 10, "there is an end to it");
        assert_eq!((outcome.returned, outcome.ended), (vec![id("i-a")], vec![id("i-0001")]));
        assert_eq!(outcome.leftovers, Vec::<String>::new());
        assert_eq!((world.alive(), world.state("i-a")), (vec!["i-a".to_owned()], State::Idle));
        assert_eq!(world.visible().await, 1);
        assert!(world.plane.store.open_intents().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_is_not_to_be_had_counts_though_the_provider_was_busy_as_well() {
    use UsageClass::{OnDemand, Spot};
    let world = World::new().await;
    world.memory.compute.lack(Spot);
    world.memory.compute.serve_next([Scant::Busy(1); 20]);
    let mut cheap = request("1", 2);
    (cheap.usage, cheap.capacity_fallback) = (Spot, true);
    let outcome = world.provision(&cheap).await;
    let ordered = world.memory.compute.ordered();
    let of = |usage| ordered.iter().filter(|(ordered, _)| *ordered == usage).count();
    assert_eq!((of(Spot), outcome.failure), (20, None), "two tries, of ten orders each");
    assert_eq!(of(OnDemand), 1);
}

#[tokio::test]
async fn a_busy_answer_that_was_lost_is_the_same_when_it_is_asked_for_again() {
    let world = World::new().await;
    let order = Order {
        intent: "a".parse().unwrap(),
        run: run("1"),
        count: 2,
        requirements: request("1", 2).requirements(&Settings::default()).unwrap(),
    };
    world.memory.compute.serve_next([Scant::Busy(1)]);
    for _ in 0..2 {
        let launched = world.plane.compute.launch(&order).await.unwrap();
        assert_eq!((launched.machines.len(), launched.passing.len()), (1, 1));
    }
    assert_eq!(world.memory.compute.ordered().len(), 1);
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
async fn a_dump_leaves_a_machine_that_is_somebody_elses_by_now() {
    let world = World::new().await;
    // A provision that was held up after its machine was activated, released and claimed again.
    let first = world.provision(&request("1", 1)).await;
    let machine = first.instances[0].id.to_string();
    world.release("1").await;
    assert_eq!(world.provision(&request("2", 1)).await.count(Source::Warm), 1);
    world.expect("i-0002", Behaviour::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 1);
    let mut intent = None;
    let (outcome, ()) = tokio::join!(provision(&world.plane, &request, &stop), async {
        while intent.is_none() {
            tokio::task::yield_now().await;
            intent = world.memory.compute.machine("i-0002").map(|machine| machine.intent);
        }
        // Its launch is made to have given the other run's machine as well.
        let mut theirs = world.memory.compute.machine(&machine).unwrap();
        theirs.intent = intent.clone().unwrap();
        world.memory.compute.plant(theirs);
        switch.raise(Stop::Terminated);
    });
    assert_eq!(outcome.failure.unwrap().kind, Kind::Stopped);
    assert_eq!(
        world.alive(),
        std::slice::from_ref(&machine),
        "its own is gone, the other's is not"
    );
    assert_eq!(world.record(&machine).unwrap().run, Some(run("2")));
}

#[tokio::test]
async fn a_dump_ends_what_it_can_when_the_provider_is_down() {
    let world = World::new().await;
    world.idle("i-a", "c6i.large").await;
    world.memory.compute.go_down();
    let outcome = world.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::Unavailable);
    assert!(!outcome.leftovers.is_empty(), "and says what it could not");
    assert_eq!(world.state("i-a"), State::Terminated, "nobody will be given it");
}

#[tokio::test]
async fn a_launch_that_never_answered_stays_open_for_refresh() {
    let world = World::with(&[("boot-deadline-sec", "86400")]).await;
    world.memory.compute.launch_unheard_and_unseen();
    let outcome = world.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::Unavailable);
    assert_eq!(world.alive().len(), 2, "launched, as nobody could know");
    assert_eq!(world.plane.store.open_intents().await.unwrap().len(), 1);

    world.memory.compute.show_all();
    world.pass(Duration::from_secs(601)).await;
    let refreshed = world.refresh().await;
    assert_eq!((refreshed.intents, refreshed.swept.len()), (1, 2));
    assert!(world.alive().is_empty());
}

#[tokio::test]
async fn a_dump_ends_the_machines_of_a_launch_that_never_answered() {
    let world = World::new().await;
    world.memory.compute.launch_unheard_and_unseen();
    world.memory.compute.show_all();
    let outcome = world.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, Kind::Unavailable);
    assert_eq!((outcome.ended.len(), outcome.leftovers), (2, vec![]));
    assert!(world.alive().is_empty(), "though they had no record");
}

#[tokio::test]
async fn a_dump_takes_the_ticket_of_what_was_just_claimed_along() {
    let world = World::new().await;
    world.idle("i-a", "c6i.large").await;
    let (switch, stop) = StopSignal::new();
    let request = request("1", 1);
    let (outcome, ()) = tokio::join!(provision(&world.plane, &request, &stop), async {
        while world.state("i-a") != State::Claimed {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.depth().await, 1, "tickets are deleted a moment later, together");
        switch.raise(Stop::Interrupted);
    });
    assert_eq!((outcome.ended, outcome.leftovers), (vec![id("i-a")], vec![]));
    assert_eq!(world.depth().await, 0);
}

#[tokio::test]
async fn what_runs_for_the_run_already_is_as_good_as_committed() {
    for (owner, failure) in [("1", None), ("2", Some(Kind::Unexpected))] {
        let world = World::new().await;
        world.idle("i-a", "c6i.large").await;
        world.expect("i-0001", Behaviour::NeverRegisters);
        let request = request("1", 2);
        let (outcome, ()) = tokio::join!(world.provision(&request), async {
            world.pass(Duration::from_secs(5)).await;
            let mut record = world.record("i-a").unwrap();
            assert_eq!(record.state, State::Claimed, "while the other machine starts");
            (record.state, record.run) = (State::Running, Some(run(owner)));
            world.memory.store.plant(record);
            world.say("i-0001", Signal::Registered, "1").await;
        });
        assert_eq!(outcome.failure.map(|failure| failure.kind), failure, "owned by {owner}");
        assert_eq!(world.record("i-a").unwrap().run, Some(run(owner)), "and left alone");
    }
}

#[tokio::test]
async fn a_dump_spares_what_another_provision_of_the_run_has() {
    let world = World::new().await;
    let record = world.idle("i-a", "c6i.large").await;
    world.ticket(&record).await;
    let sibling = world.provision(&request("1", 1)).await;
    assert_eq!(names(&sibling.instances), ["i-a".to_owned()].into());
    // The second ticket leads this one to the same machine, and it is refused.
    world.expect("i-0001", Behaviour::NeverRegisters);
    let mut other_types = request("1", 1);
    other_types.types = "c6i.large".parse().unwrap();
    other_types.count = 2;
    let (switch, stop) = StopSignal::new();
    let (outcome, ()) = tokio::join!(provision(&world.plane, &other_types, &stop), async {
        world.pass(Duration::from_secs(30)).await;
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.failure.unwrap().kind, Kind::Interrupted);
    assert_eq!(world.alive(), ["i-a"]);
    assert_eq!(world.state("i-a"), State::Running);
}

#[tokio::test]
async fn a_dump_finds_a_machine_that_two_tickets_led_to() {
    let world = World::new().await;
    let record = world.idle("i-a", "c6i.large").await;
    world.ticket(&record).await;
    world.expect("i-0001", Behaviour::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 2);
    let (outcome, ()) = tokio::join!(provision(&world.plane, &request, &stop), async {
        world.pass(Duration::from_secs(30)).await;
        assert_eq!(world.state("i-a"), State::Claimed);
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.failure.unwrap().kind, Kind::Interrupted);
    assert!(world.alive().is_empty(), "{:?}", world.alive());
    assert!(world.memory.store.select(|record| record.state.is_live()).is_empty());
}

#[tokio::test]
async fn a_bad_machine_that_cannot_be_ended_costs_the_run_nothing_else() {
    let world = World::new().await;
    world.expect("i-bad", Behaviour::CannotRegister);
    world.idle("i-bad", "c6i.large").await;
    world.idle("i-good", "c6i.large").await;
    world.memory.compute.go_down();
    let outcome = world.provision(&request("1", 1)).await;
    assert_eq!(outcome.failure, None);
    assert_eq!(names(&outcome.instances), ["i-good".to_owned()].into());
    assert_eq!(world.state("i-bad"), State::Terminated, "off the books all the same");
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
