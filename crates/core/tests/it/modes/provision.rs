//! Creation, validation, adoption, and the three endings.

use std::time::Duration;

use ondeck_core::inputs::times::Times;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::{TypePatterns, UsageClass};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::Signal;
use ondeck_core::modes::provision::{MachineSource, provision};
use ondeck_core::ports::Order;
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::{MachineDefect, PartialLaunch};

use super::harness::{Harness, id, names, request, run};

#[tokio::test]
async fn a_cold_run_is_launched_validated_and_activated() {
    let harness = Harness::new().await;
    let outcome = harness.provision(&request("1", 3)).await;
    assert_eq!((outcome.failure, outcome.instances.len()), (None, 3));
    assert!(outcome.instances.iter().all(|instance| instance.source == MachineSource::Cold));
    let max_runtime = Times::default().max_runtime;
    for record in harness.memory.store.select(|_| true) {
        assert_eq!((record.state, &record.run), (State::Running, &Some(run("1"))));
        assert_eq!(record.threshold, Some(record.updated_at + max_runtime));
    }
    assert!(harness.plane.store.open_intents().await.unwrap().is_empty());
}

#[tokio::test]
async fn before_the_first_refresh_it_waits_for_one() {
    let harness = Harness::without_refresh();
    let waiting = request("1", 1);
    let refresh = async {
        harness.sleep(Duration::from_secs(45)).await;
        harness.refresh().await;
    };
    let (outcome, ()) = tokio::join!(harness.provision(&waiting), refresh);
    assert_eq!((outcome.failure, outcome.instances.len()), (None, 1));
}

#[tokio::test]
async fn without_a_refresh_it_fails_when_its_patience_is_over() {
    for (given, patience, seconds) in [
        (None, None, 60),
        (Some(7), None, 7),
        (Some(0), None, 0),
        (Some(7), Some(20), 20),
        (None, Some(0), 0),
    ] {
        let harness = Harness::without_refresh();
        let mut request = request("1", 1);
        let given =
            given.map(|span| ("registration-token-patience-sec", Duration::from_secs(span)));
        request.times.0.extend(given);
        request.set_up_patience = patience.map(Duration::from_secs);
        let before = harness.plane.now();
        let failure = harness.provision(&request).await.failure.unwrap();
        let waited = harness.plane.now().since(before);
        assert_eq!(waited, Duration::from_secs(seconds), "{given:?} {patience:?}");
        assert_eq!(failure.kind, FailureKind::NotSetUp);
        assert!(failure.hint.contains("run ondeck refresh"), "{failure:?}");
        let words = format!("no refresh has run within {seconds} s");
        assert_eq!(failure.message.contains(&words), seconds > 0, "{failure}");
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_not_waited_for_as_if_it_were_not_set_up() {
    let harness = Harness::without_refresh();
    harness.memory.store.fail("settings");
    let before = harness.plane.now();
    let failure = harness.provision(&request("1", 1)).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(harness.plane.now().since(before) < Duration::from_secs(30));
}

#[tokio::test]
async fn a_wait_for_the_first_refresh_can_be_stopped() {
    let harness = Harness::without_refresh();
    let (switch, stop) = StopSignal::new();
    let waiting = request("1", 1);
    let interrupt = async {
        harness.sleep(Duration::from_secs(5)).await;
        switch.raise(Stop::Interrupted);
    };
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &waiting, &stop), interrupt);
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Interrupted);
}

#[tokio::test]
async fn a_second_attempt_adopts_what_the_first_one_got() {
    let harness = Harness::new().await;
    let first = harness.provision(&request("1", 2)).await;
    let again = harness.provision(&request("1", 3)).await;
    assert_eq!((again.count(MachineSource::Adopted), again.count(MachineSource::Cold)), (2, 1));
    assert!(names(&again.instances).is_superset(&names(&first.instances)));
    let third = harness.provision(&request("1", 3)).await;
    assert_eq!(third.count(MachineSource::Adopted), 3);
    assert_eq!(harness.alive().len(), 3);
}

#[tokio::test]
async fn a_dead_machine_is_not_adopted() {
    let harness = Harness::new().await;
    let first = harness.provision(&request("1", 1)).await;
    harness.memory.compute.kill(&first.instances[0].id);
    harness.sleep(Duration::from_secs(16)).await;
    let again = harness.provision(&request("1", 1)).await;
    assert_eq!((again.count(MachineSource::Adopted), again.count(MachineSource::Cold)), (0, 1));
}

#[tokio::test]
async fn without_capacity_claimed_machines_go_back_after_deregistration() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    harness.idle("i-b", "c6i.large").await;
    harness.memory.compute.set_capacity(4);
    let outcome = harness.provision(&request("1", 5)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::NoCapacity);
    assert_eq!(
        failure.message,
        "not enough capacity, 2 of 3 machines launched: InsufficientInstanceCapacity"
    );
    assert_eq!((outcome.instances.len(), outcome.clean_up_failures.len()), (0, 0));
    assert_eq!(harness.alive(), ["i-a", "i-b"], "what was created is gone");
    assert_eq!((harness.state("i-a"), harness.state("i-b")), (State::Idle, State::Idle));
    assert_eq!(harness.visible().await, 2);
    for machine in ["i-a", "i-b"] {
        assert_eq!(harness.labels.of(&id(machine)), None, "{machine} is still registered");
    }
    assert_eq!(harness.provision(&request("2", 2)).await.count(MachineSource::Warm), 2);
}

#[tokio::test]
async fn one_of_five_that_never_registers_fails_all_new_ones() {
    let harness = Harness::new().await;
    harness.make_defective("i-0003", MachineDefect::NeverRegisters);
    harness.idle("i-warm", "c6i.large").await;
    let outcome = harness.provision(&request("1", 6)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::NotReady);
    assert!(
        failure.message.starts_with("machine i-0003 did not become ready: not ready within 180 s")
    );
    assert_eq!(harness.alive(), ["i-warm"]);
    assert_eq!((harness.state("i-warm"), harness.visible().await), (State::Idle, 1));
}

#[tokio::test]
async fn a_failing_script_is_reported_without_waiting() {
    let harness = Harness::with(&[("pre-runner-script", "exit 3")]).await;
    harness.make_defective("i-0002", MachineDefect::ScriptFails);
    let outcome = harness.provision(&request("1", 2)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::NotReady);
    assert!(failure.message.contains("UD_FAILED: the pre-runner script failed: exit code 3"));
    assert!(outcome.timings.total < Duration::from_secs(5), "{:?}", outcome.timings);
    assert!(harness.alive().is_empty());
}

#[tokio::test]
async fn a_machine_that_dies_between_heartbeat_and_registration_is_noticed() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::DiesRegistering);
    let outcome = harness.provision(&request("1", 2)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::NotReady);
    assert!(failure.message.contains("its heartbeat stopped"), "{failure}");
    assert!(outcome.timings.total < Duration::from_secs(30), "long before the timeout");
    assert!(harness.alive().is_empty());
}

/// The sign says in which direction the machine's clock is 30 s off.
#[tokio::test]
async fn a_new_machine_whose_clock_differs_fails_with_a_word_about_clocks() {
    for (offset, words) in [
        (30_000, "become ready: the clocks differ: its last heartbeat is "),
        (-30_000, "become ready: its heartbeat stopped, or the clocks differ: its last "),
    ] {
        let harness = Harness::new().await;
        harness.make_defective("i-0001", MachineDefect::NeverBoots);
        let request = request("1", 1);
        let beat = async {
            while harness.record("i-0001").is_none() {
                tokio::task::yield_now().await;
            }
            harness.beat_by_another_clock("i-0001", offset).await;
        };
        let (outcome, ()) = tokio::join!(harness.provision(&request), beat);
        let failure = outcome.failure.unwrap();
        assert_eq!(failure.kind, FailureKind::NotReady);
        assert!(failure.message.contains(words), "{failure}");
        assert!(failure.hint.contains("compare its clock"), "{failure:?}");
        assert!(outcome.timings.total < Duration::from_secs(30), "long before the timeout");
    }
}

#[tokio::test]
async fn a_machine_that_cannot_be_given_back_is_expired_and_said_to_be() {
    let harness = Harness::new().await;
    harness.make_defective("i-dirty", MachineDefect::CannotBeCleaned);
    harness.idle("i-dirty", "c6i.large").await;
    harness.memory.compute.set_capacity(1);
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    assert_eq!(outcome.clean_up_failures.len(), 1);
    assert!(
        outcome.clean_up_failures[0].contains("the machine is not clean: a file cannot be removed")
    );
    assert_eq!(harness.depth().await, 0);
    assert!(harness.record("i-dirty").unwrap().is_expired(harness.plane.now()));
}

#[tokio::test]
async fn a_machine_that_cannot_be_ended_is_not_said_to_be() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::CannotRegister);
    let request = request("1", 1);
    let (outcome, ()) = tokio::join!(harness.provision(&request), async {
        while harness.record("i-0001").is_none() {
            tokio::task::yield_now().await;
        }
        harness.memory.compute.go_down();
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NotReady);
    assert_eq!(outcome.terminated, []);
    assert_eq!(
        outcome.clean_up_failures,
        ["i-0001 was not terminated: compute is out of reach: it is down"],
        "and is left to its deadline"
    );
}

#[tokio::test]
async fn the_fallback_goes_from_spot_to_on_demand_for_what_is_missing() {
    let harness = Harness::new().await;
    let mut cheap = request("1", 2);
    cheap.options.usage = UsageClass::Spot;
    harness.memory.compute.withhold(UsageClass::Spot);
    let outcome = harness.provision(&cheap).await;
    assert_eq!(
        outcome.failure.unwrap().kind,
        FailureKind::NoCapacity,
        "the request does not allow the fallback"
    );
    cheap.options.capacity_fallback = true;
    let outcome = harness.provision(&cheap).await;
    assert_eq!(outcome.failure, None);
    let usage = outcome.instances.iter().map(|instance| instance.spec.usage_class);
    assert_eq!(usage.collect::<Vec<_>>(), [UsageClass::OnDemand; 2]);
    let again = harness.provision(&cheap).await;
    assert_eq!(again.count(MachineSource::Adopted), 2, "what it got that way is what it has");
    harness.memory.compute.set_capacity(3);
    cheap.options.count = 5;
    let outcome = harness.provision(&cheap).await;
    assert_eq!(
        outcome.failure.unwrap().kind,
        FailureKind::NoCapacity,
        "there are not enough of either"
    );
    assert_eq!(harness.alive().len(), 2);
}

#[tokio::test]
async fn the_fallback_tries_the_same_once_more_before_it_gives_up_on_it() {
    use UsageClass::{OnDemand, Spot};
    let none = PartialLaunch::NoCapacity(0);
    for (usage, scant, orders, got) in [
        (Spot, vec![none], vec![(Spot, 2), (Spot, 2)], vec![Spot; 2]),
        (Spot, vec![PartialLaunch::NoCapacity(1)], vec![(Spot, 2), (Spot, 1)], vec![Spot; 2]),
        (Spot, vec![none; 2], vec![(Spot, 2), (Spot, 2), (OnDemand, 2)], vec![OnDemand; 2]),
        (Spot, vec![none; 3], vec![(Spot, 2), (Spot, 2), (OnDemand, 2)], vec![]),
        (OnDemand, vec![none], vec![(OnDemand, 2), (OnDemand, 2)], vec![OnDemand; 2]),
        (OnDemand, vec![none; 2], vec![(OnDemand, 2), (OnDemand, 2)], vec![]),
    ] {
        let harness = Harness::new().await;
        harness.memory.compute.serve_next(scant.clone());
        let mut request = request("1", 2);
        (request.options.usage, request.options.capacity_fallback) = (usage, true);
        let outcome = harness.provision(&request).await;
        assert_eq!(harness.memory.compute.ordered(), orders, "{usage} {scant:?}");
        let classes = outcome.instances.iter().map(|instance| instance.spec.usage_class);
        assert_eq!(classes.collect::<Vec<_>>(), got, "{usage} {scant:?}");
        let failed = outcome.failure.map(|failure| failure.kind);
        assert_eq!(failed, got.is_empty().then_some(FailureKind::NoCapacity), "{usage} {scant:?}");
        assert_eq!(harness.alive().len(), got.len());
    }
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_for_the_rest_without_a_fallback() {
    use UsageClass::Spot;
    for fallback in [false, true] {
        let harness = Harness::new().await;
        harness.memory.compute.serve_next([
            PartialLaunch::Throttled(0),
            PartialLaunch::Throttled(2),
            PartialLaunch::Throttled(0),
        ]);
        let mut cheap = request("1", 3);
        (cheap.options.usage, cheap.options.capacity_fallback) = (Spot, fallback);
        let outcome = harness.provision(&cheap).await;
        assert_eq!(outcome.failure, None);
        let orders = [(Spot, 3), (Spot, 3), (Spot, 1), (Spot, 1)];
        assert_eq!(harness.memory.compute.ordered(), orders, "each under an intent of its own");
        assert!(outcome.instances.iter().all(|instance| instance.spec.usage_class == Spot));
        assert!(outcome.timings.total > Duration::from_millis(25 + 50 + 100), "it was given time");
        assert!(harness.plane.store.open_intents().await.unwrap().is_empty());
        assert_eq!(harness.alive().len(), 3);
    }
}

#[tokio::test]
async fn a_provider_that_stays_busy_fails_the_run_and_the_claimed_go_back() {
    for fallback in [false, true] {
        let harness = Harness::new().await;
        harness.idle("i-a", "c6i.large").await;
        harness.memory.compute.serve_next([PartialLaunch::Throttled(1)]);
        harness.memory.compute.serve_next([PartialLaunch::Throttled(0); 20]);
        let mut request = request("1", 3);
        request.options.capacity_fallback = fallback;
        let outcome = harness.provision(&request).await;
        let failure = outcome.failure.unwrap();
        assert_eq!((failure.kind, failure.kind.exit_code()), (FailureKind::Busy, 6));
        assert_eq!(
            failure.message,
            "the provider was too busy, 1 of 2 machines launched: RequestLimitExceeded"
        );
        assert_eq!(harness.memory.compute.ordered().len(), 10, "there is an end to it");
        assert_eq!((outcome.returned, outcome.terminated), (vec![id("i-a")], vec![id("i-0001")]));
        assert_eq!(outcome.clean_up_failures, Vec::<String>::new());
        assert_eq!((harness.alive(), harness.state("i-a")), (vec!["i-a".to_owned()], State::Idle));
        assert_eq!(harness.visible().await, 1);
        assert!(harness.plane.store.open_intents().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_is_not_to_be_had_counts_though_the_provider_was_busy_as_well() {
    use UsageClass::{OnDemand, Spot};
    let harness = Harness::new().await;
    harness.memory.compute.withhold(Spot);
    harness.memory.compute.serve_next([PartialLaunch::Throttled(1); 20]);
    let mut cheap = request("1", 2);
    (cheap.options.usage, cheap.options.capacity_fallback) = (Spot, true);
    let outcome = harness.provision(&cheap).await;
    let ordered = harness.memory.compute.ordered();
    let of = |usage| ordered.iter().filter(|(ordered, _)| *ordered == usage).count();
    assert_eq!((of(Spot), outcome.failure), (20, None), "two tries, of ten orders each");
    assert_eq!(of(OnDemand), 1);
}

#[tokio::test]
async fn a_busy_answer_that_was_lost_is_the_same_when_it_is_asked_for_again() {
    let harness = Harness::new().await;
    let order = Order {
        intent: "a".parse().unwrap(),
        run: run("1"),
        count: 2,
        requirements: request("1", 2)
            .requirements(&Settings::default(), TypePatterns::any())
            .unwrap(),
    };
    harness.memory.compute.serve_next([PartialLaunch::Throttled(1)]);
    for _ in 0..2 {
        let launched = harness.plane.compute.launch(&order, &Settings::default()).await.unwrap();
        assert_eq!((launched.machines.len(), launched.passing.len()), (1, 1));
    }
    assert_eq!(harness.memory.compute.ordered().len(), 1);
}

#[tokio::test]
async fn told_to_stop_it_undoes_what_it_touched_and_nothing_else() {
    for moment in [0, 1, 5, 20, 100, 400] {
        let harness = Harness::new().await;
        harness.make_defective("i-0001", MachineDefect::NeverRegisters);
        for name in ["i-a", "i-b"] {
            harness.idle(name, "c6i.large").await;
        }
        let other = harness.provision(&request("other", 1)).await;
        let (switch, stop) = StopSignal::new();
        let request = request("1", 3);
        let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            switch.raise(Stop::Interrupted);
        });
        assert_eq!(outcome.failure.unwrap().kind, FailureKind::Interrupted);
        assert!(outcome.clean_up_failures.is_empty(), "{:?}", outcome.clean_up_failures);
        assert!(harness.memory.store.select(|r| r.run == Some(run("1"))).is_empty(), "at {moment}");
        let others = names(&other.instances);
        let live: Vec<InstanceId> =
            harness.memory.store.select(|r| r.state.is_live()).into_iter().map(|r| r.id).collect();
        assert!(live.iter().any(|id| others.contains(id.as_str())), "the other run keeps its own");
        assert_eq!(live.len(), 2, "and the other idle one stays, at {moment}");
        for machine in harness.plane.compute.machines().await.unwrap() {
            assert!(live.contains(&machine.id), "{} has no record, at {moment}", machine.id);
        }
    }
}

#[tokio::test]
async fn a_clean_up_leaves_a_machine_that_another_run_owns_by_now() {
    let harness = Harness::new().await;
    // A provision that was held up after its machine was activated, released and claimed again.
    let first = harness.provision(&request("1", 1)).await;
    let machine = first.instances[0].id.to_string();
    harness.release("1").await;
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
    harness.make_defective("i-0002", MachineDefect::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 1);
    let mut intent = None;
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        while intent.is_none() {
            tokio::task::yield_now().await;
            intent = harness.memory.compute.machine("i-0002").map(|machine| machine.intent);
        }
        // Its launch is made to have given the other run's machine as well.
        let mut theirs = harness.memory.compute.machine(&machine).unwrap();
        theirs.intent = intent.clone().unwrap();
        harness.memory.compute.insert(theirs);
        switch.raise(Stop::Terminated);
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Stopped);
    assert_eq!(
        harness.alive(),
        std::slice::from_ref(&machine),
        "its own is gone, the other's is not"
    );
    assert_eq!(harness.record(&machine).unwrap().run, Some(run("2")));
}

#[tokio::test]
async fn a_launch_that_never_answered_stays_open_for_refresh() {
    let harness = Harness::with(&[("boot-deadline-sec", "86400")]).await;
    harness.memory.compute.lose_launches();
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Unavailable);
    assert_eq!(harness.alive().len(), 2, "launched, although the answer was lost");
    assert_eq!(harness.plane.store.open_intents().await.unwrap().len(), 1);

    harness.memory.compute.list_all();
    harness.sleep(Duration::from_secs(601)).await;
    let refreshed = harness.refresh().await;
    assert_eq!((refreshed.settled_intents, refreshed.orphans.len()), (1, 2));
    assert!(harness.alive().is_empty());
}

#[tokio::test]
async fn a_rollback_ends_the_machines_of_a_launch_that_never_answered() {
    let harness = Harness::new().await;
    harness.memory.compute.lose_launches();
    harness.memory.compute.list_all();
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Unavailable);
    assert_eq!((outcome.terminated.len(), outcome.clean_up_failures), (2, vec![]));
    assert!(harness.alive().is_empty(), "though they had no record");
}

#[tokio::test]
async fn a_clean_up_deletes_the_ticket_of_what_was_just_claimed() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    harness.memory.pool.fail("delete");
    let (switch, stop) = StopSignal::new();
    let request = request("1", 1);
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        while harness.state("i-a") != State::Claimed {
            tokio::task::yield_now().await;
        }
        assert_eq!(harness.depth().await, 1, "the pool does not delete it");
        harness.memory.pool.repair();
        switch.raise(Stop::Interrupted);
    });
    assert_eq!((outcome.returned, outcome.clean_up_failures), (vec![id("i-a")], vec![]));
    assert_eq!(harness.depth().await, 1, "that of its new idle state");
}

#[tokio::test]
async fn what_runs_for_the_run_already_is_as_good_as_committed() {
    for (owner, failure) in [("1", None), ("2", Some(FailureKind::Unexpected))] {
        let harness = Harness::new().await;
        harness.idle("i-a", "c6i.large").await;
        harness.make_defective("i-0001", MachineDefect::NeverRegisters);
        let request = request("1", 2);
        let (outcome, ()) = tokio::join!(harness.provision(&request), async {
            harness.sleep(Duration::from_secs(5)).await;
            let mut record = harness.record("i-a").unwrap();
            assert_eq!(record.state, State::Claimed, "while the other machine starts");
            (record.state, record.run) = (State::Running, Some(run(owner)));
            harness.memory.store.insert(record);
            harness.signal_as_agent("i-0001", Signal::Registered, "1").await;
        });
        assert_eq!(outcome.failure.map(|failure| failure.kind), failure, "owned by {owner}");
        assert_eq!(harness.record("i-a").unwrap().run, Some(run(owner)), "and left alone");
    }
}

#[tokio::test]
async fn a_clean_up_spares_what_another_provision_of_the_run_has() {
    let harness = Harness::new().await;
    let record = harness.idle("i-a", "c6i.large").await;
    harness.ticket(&record).await;
    let sibling = harness.provision(&request("1", 1)).await;
    assert_eq!(names(&sibling.instances), ["i-a".to_owned()].into());
    // The second ticket leads this one to the same machine, and it is refused.
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    let mut other_types = request("1", 1);
    other_types.options.types = Some("c6i.large".parse().unwrap());
    other_types.options.count = 2;
    let (switch, stop) = StopSignal::new();
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &other_types, &stop), async {
        harness.sleep(Duration::from_secs(30)).await;
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Interrupted);
    assert_eq!(harness.alive(), ["i-a"]);
    assert_eq!(harness.state("i-a"), State::Running);
}

#[tokio::test]
async fn a_clean_up_finds_a_machine_that_two_tickets_led_to() {
    let harness = Harness::new().await;
    let record = harness.idle("i-a", "c6i.large").await;
    harness.ticket(&record).await;
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 2);
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        harness.sleep(Duration::from_secs(30)).await;
        assert_eq!(harness.state("i-a"), State::Claimed);
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Interrupted);
    assert_eq!((outcome.returned, outcome.terminated), (vec![id("i-a")], vec![id("i-0001")]));
    assert_eq!((harness.alive(), harness.state("i-a")), (vec!["i-a".to_owned()], State::Idle));
}

#[tokio::test]
async fn a_bad_machine_that_cannot_be_ended_costs_the_run_nothing_else() {
    let harness = Harness::new().await;
    harness.make_defective("i-bad", MachineDefect::CannotRegister);
    harness.idle("i-bad", "c6i.large").await;
    harness.idle("i-good", "c6i.large").await;
    harness.memory.compute.go_down();
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.failure, None);
    assert_eq!(names(&outcome.instances), ["i-good".to_owned()].into());
    assert_eq!(harness.state("i-bad"), State::Terminated, "off the books all the same");
}

#[tokio::test]
async fn counts_that_make_no_sense_are_refused() {
    let harness = Harness::new().await;
    for count in [0, 1001, u32::MAX] {
        let failure = harness.provision(&request("1", count)).await.failure.unwrap();
        assert_eq!(failure.kind, FailureKind::InvalidInput);
        assert!(failure.message.ends_with(&count.to_string()), "{failure}");
    }
    assert!(harness.alive().is_empty());
}
