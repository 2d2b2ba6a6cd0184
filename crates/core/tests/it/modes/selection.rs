//! Selection: the cases that the specification names, and the ones that it should have.

use std::time::Duration;

use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::signal::Signal;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::ports::Pool;
use ondeck_core::testkit::{Calls, MachineDefect};

use super::harness::{Harness, id, label, large, names, request, run, spec};

#[tokio::test]
async fn a_warm_run_gets_what_the_pool_has() {
    let harness = Harness::new().await;
    for name in ["i-a", "i-b", "i-c"] {
        harness.idle(name, "c6i.large").await;
    }
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.count(MachineSource::Warm), 2);
    assert_eq!(harness.visible().await, 1, "the third ticket is there for others");
    for instance in &outcome.instances {
        let record = harness.record(instance.id.as_str()).unwrap();
        assert_eq!((record.state, record.run), (State::Running, Some(run("1"))));
        assert_eq!(harness.labels.of(&instance.id), Some(label("1")));
    }
}

#[tokio::test]
async fn collision_one_of_two_runs_wins_and_the_other_launches() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let (first, second) = (request("1", 1), request("2", 1));
    let (one, other) = tokio::join!(harness.provision(&first), harness.provision(&second));
    assert_eq!((one.failure.clone(), other.failure.clone()), (None, None));
    let warm = one.count(MachineSource::Warm) + other.count(MachineSource::Warm);
    let cold = one.count(MachineSource::Cold) + other.count(MachineSource::Cold);
    assert_eq!((warm, cold), (1, 1));
    assert!(names(&one.instances).is_disjoint(&names(&other.instances)));
    harness.assert_never_shared();
}

#[tokio::test]
async fn many_runs_on_a_small_pool_never_share() {
    let harness = Harness::new().await;
    harness.memory.pool.deliver_twice();
    for n in 0..6 {
        harness.idle(&format!("i-{n}"), "c6i.large").await;
    }
    let requests: Vec<_> = (0..5).map(|n| request(&n.to_string(), 2)).collect();
    let outcomes =
        futures_util::future::join_all(requests.iter().map(|r| harness.provision(r))).await;
    let warm: usize = outcomes.iter().map(|outcome| outcome.count(MachineSource::Warm)).sum();
    let all: usize = outcomes.iter().map(|outcome| outcome.instances.len()).sum();
    assert_eq!((warm, all), (6, 10), "every idle machine is used, and none twice");
    harness.assert_never_shared();
    assert_eq!(harness.depth().await, 0, "duplicates are deleted as they are met");
}

#[tokio::test]
async fn relative_exhaustion_with_one_unsuitable_ticket() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let mut picky = request("1", 1);
    picky.options.types = Some("r6*".parse().unwrap());
    let outcome = harness.provision(&picky).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    assert_eq!(harness.visible().await, 1, "the unsuitable ticket is back at once");
    let other = harness.provision(&request("2", 1)).await;
    assert_eq!(
        other.count(MachineSource::Warm),
        1,
        "what is exhausted for one run is not for another"
    );
}

#[tokio::test]
async fn exhaustion_with_many_unsuitable_tickets_meets_each_once() {
    let harness = Harness::new().await;
    for n in 0..200 {
        harness.make_defective(&format!("i-{n}"), MachineDefect::NeverBoots);
        harness.idle(&format!("i-{n}"), "c6i.large").await;
    }
    let mut picky = request("1", 3);
    picky.options.types = Some("r6*".parse().unwrap());
    let outcome = harness.provision(&picky).await;
    assert_eq!(outcome.count(MachineSource::Cold), 3);
    // Three at first, then four tens while the queue tells how many there are, then the rest, then
    // nothing, which three more confirm.
    let calls = harness.memory.pool.calls();
    assert_eq!(calls["receive"], 1 + 4 + 157_usize.div_ceil(10) + 1 + 3, "{calls:?}");
    assert_eq!(calls["put_back"], 1, "{calls:?}");
    assert!(!calls.contains_key("delete"), "{calls:?}");
    assert_eq!(harness.visible().await, 200, "all of them are there for others");
}

#[tokio::test]
async fn the_cost_of_a_warm_provision_grows_with_what_is_asked_for_alone() {
    for (wanted, receives) in [(1, 1), (10, 1), (50, 5)] {
        let harness = Harness::new().await;
        for n in 0..60 {
            harness.idle(&format!("i-{n}"), "c6i.large").await;
        }
        let (before, pool_before) = (harness.memory.store.calls(), harness.memory.pool.calls());
        let outcome = harness.provision(&request("1", wanted)).await;
        assert_eq!(outcome.count(MachineSource::Warm), wanted as usize);
        let (store, pool) = (harness.memory.store.calls(), harness.memory.pool.calls());
        let of = |calls: &Calls, call| calls.get(call).copied().unwrap_or(0);
        assert_eq!(of(&pool, "receive") - of(&pool_before, "receive"), receives);
        let writes = of(&store, "write") - of(&before, "write");
        assert_eq!(writes, 2 * wanted as usize, "one claim and one commit each");
        assert!(of(&pool, "delete") <= receives + 2, "batched: {pool:?}");
        // One every 5 ms for 100 ms, then one every 50 ms until the slowest agent has noticed, within
        // 250 ms, and a few while the batches of tickets come in.
        let reads = of(&store, "agent_status") - of(&before, "agent_status");
        assert!(reads <= 24 + 3 * receives, "batched: {reads}");
        assert_eq!(of(&store, "list"), of(&before, "list"), "nothing reads the fleet");
    }
}

#[tokio::test]
async fn a_pool_that_does_not_delete_tickets_delays_no_hand_over() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    harness.memory.pool.fail("delete");
    let begun = harness.plane.now();
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!((outcome.failure.clone(), outcome.count(MachineSource::Warm)), (None, 1));
    let handed_over = harness.record("i-a").unwrap().updated_at.since(begun);
    assert!(handed_over < Duration::from_millis(500), "{handed_over:?}");
    let ended = harness.plane.now().since(begun);
    assert!(ended < Duration::from_secs(3), "it does not wait for the deletes for long: {ended:?}");
    harness.memory.pool.repair();
    assert_eq!(harness.depth().await, 1, "the ticket stays");
}

#[tokio::test]
async fn a_ticket_of_an_earlier_idle_state_wins_nothing() {
    let harness = Harness::with(&[("agent-poll-running-sec", "5")]).await;
    let record = harness.idle("i-a", "c6i.large").await;
    // A second ticket, as a retried send or a refresh beside a release may leave.
    harness.ticket(&record).await;
    let first = harness.provision(&request("1", 1)).await;
    assert_eq!(first.count(MachineSource::Warm), 1);
    let (hasty, times) = (request("2", 1), Default::default());
    let one = run("1");
    let release = ondeck_core::modes::release::release(&harness.plane, &one, &times);
    // While the agent is still registered for run 1, run 2 meets the old ticket.
    let (released, hasty) = tokio::join!(release, async {
        while harness.state("i-a") != State::Idle {
            tokio::task::yield_now().await;
        }
        harness.provision(&hasty).await
    });
    assert_eq!(released.unwrap().failure(), None);
    assert_eq!(hasty.count(MachineSource::Cold), 1, "the old ticket is worthless");
    assert_eq!(harness.state("i-a"), State::Idle);
    assert_eq!(harness.provision(&request("3", 1)).await.count(MachineSource::Warm), 1);
}

#[tokio::test]
async fn a_suitable_ticket_behind_many_unsuitable_ones_is_found() {
    let harness = Harness::new().await;
    for n in 0..57 {
        harness.make_defective(&format!("i-{n}"), MachineDefect::NeverBoots);
        harness.idle(&format!("i-{n}"), "c6i.large").await;
    }
    harness.idle("i-r", "r6i.large").await;
    let mut picky = request("1", 1);
    picky.options.types = Some("r6*".parse().unwrap());
    let outcome = harness.provision(&picky).await;
    assert_eq!(names(&outcome.instances), ["i-r".to_owned()].into());
    assert_eq!(harness.visible().await, 57);
}

#[tokio::test]
async fn more_than_a_run_can_use_is_there_for_others_while_it_checks_what_it_took() {
    let harness = Harness::new().await;
    harness.make_defective("i-mute", MachineDefect::NeverRegisters);
    harness.idle("i-r", "r6i.large").await;
    for name in ["i-a", "i-b", "i-c", "i-mute"] {
        harness.idle(name, "c6i.large").await;
    }
    let mut picky = request("1", 1);
    picky.options.types = Some("c6i.*".parse().unwrap());
    let (outcome, ()) = tokio::join!(harness.provision(&picky), async {
        harness.sleep(Duration::from_secs(1)).await;
        assert_eq!(harness.state("i-mute"), State::Claimed);
        assert_eq!(harness.visible().await, 4, "the one that does not fit, and three that do");
    });
    assert_eq!(outcome.count(MachineSource::Warm), 1);
    assert_eq!(harness.visible().await, 4, "the one that was slow to register is back");
}

#[tokio::test]
async fn an_instance_that_keeps_coming_round_ends_the_search() {
    let harness = Harness::new().await;
    let mut record = harness.idle("i-a", "c6i.large").await;
    for _ in 0..8 {
        record.counts.generation += 1;
        harness.memory.store.insert(record.clone());
        harness.ticket(&record).await;
    }
    // All of the tickets but the last are of idle states that are over.
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!((outcome.search.void, outcome.count(MachineSource::Cold)), (5, 1));
    assert_eq!(harness.visible().await, 4, "those that were not met stay");
}

#[tokio::test]
async fn many_tickets_of_one_idle_state_are_met_once() {
    let harness = Harness::new().await;
    let mut renewed = harness.idle("i-a", "c6i.large").await;
    for _ in 0..8 {
        renewed.threshold = Some(renewed.threshold.unwrap() + Duration::from_secs(1));
        harness.memory.store.insert(renewed.clone());
        harness.ticket(&renewed).await;
    }
    harness.idle("i-b", "c6i.large").await;
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!((outcome.search.void, outcome.count(MachineSource::Warm)), (0, 2));
    assert_eq!(harness.visible().await, 0, "all tickets of a claimed machine are deleted");
}

#[tokio::test]
async fn a_ticket_from_before_a_renewal_still_claims() {
    let harness = Harness::new().await;
    let announced = harness.idle("i-a", "c6i.large").await;
    let later = Some(announced.threshold.unwrap() + Duration::from_secs(600));
    harness.memory.store.insert(Record { threshold: later, ..announced });
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 1);
}

#[tokio::test]
async fn a_bad_machine_sends_the_run_to_the_pool_again() {
    let harness = Harness::new().await;
    harness.make_defective("i-mute", MachineDefect::NeverRegisters);
    harness.idle("i-mute", "c6i.large").await;
    let request = request("1", 3);
    let (outcome, ()) = tokio::join!(harness.provision(&request), async {
        harness.sleep(Duration::from_secs(5)).await;
        assert_eq!(harness.state("i-mute"), State::Claimed);
        for name in ["i-a", "i-b", "i-c"] {
            harness.idle(name, "c6i.large").await;
        }
    });
    assert_eq!(harness.state("i-mute"), State::Idle);
    assert_eq!((outcome.count(MachineSource::Warm), outcome.count(MachineSource::Cold)), (1, 2));
    assert_eq!(harness.visible().await, 3, "what it took and has no worker for is back at once");
}

#[tokio::test]
async fn a_picky_run_does_not_make_others_launch() {
    let harness = Harness::new().await;
    for n in 0..30 {
        harness.idle(&format!("i-{n}"), "c6i.large").await;
    }
    let mut picky = request("1", 1);
    picky.options.types = Some("r6*".parse().unwrap());
    let plain = request("2", 2);
    let (picky, plain) = tokio::join!(harness.provision(&picky), harness.provision(&plain));
    assert_eq!(picky.count(MachineSource::Cold), 1);
    assert_eq!(plain.count(MachineSource::Warm), 2);
}

#[tokio::test]
async fn expired_and_malformed_tickets_are_dropped() {
    let harness = Harness::new().await;
    harness.make_defective("i-old", MachineDefect::NeverBoots);
    harness.put_idle("i-old", spec("c6i.large"), Duration::from_millis(1)).await;
    harness.sleep(Duration::from_secs(1)).await;
    harness.memory.pool.send_raw(&large(), "{\"instanceId\":7}");
    harness.memory.pool.send_raw(&large(), "not even json");
    harness.idle("i-new", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-new".to_owned()].into());
    let outcome = harness.provision(&request("2", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    assert_eq!(harness.depth().await, 0);
}

#[tokio::test]
async fn a_ticket_of_another_usage_class_is_left_for_others() {
    let harness = Harness::new().await;
    let mut spot = spec("c6i.large");
    spot.usage_class = UsageClass::Spot;
    harness.put_idle("i-spot", spot, Duration::from_secs(300)).await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    let mut cheap = request("2", 1);
    cheap.options.usage = UsageClass::Spot;
    assert_eq!(names(&harness.provision(&cheap).await.instances), ["i-spot".to_owned()].into());
}

#[tokio::test]
async fn a_claim_past_the_threshold_is_refused() {
    let harness = Harness::new().await;
    let mut record = harness.idle("i-a", "c6i.large").await;
    // The ticket promises more than the record keeps.
    record.threshold = Some(harness.plane.now());
    harness.memory.store.insert(record);
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    assert_eq!(harness.state("i-a"), State::Idle, "left to the reaper");
    assert_eq!(harness.depth().await, 0, "and its ticket is gone");
}

#[tokio::test]
async fn a_stale_heartbeat_fails_the_check_at_once() {
    let harness = Harness::new().await;
    harness.idle("i-dead", "c6i.large").await;
    harness.memory.compute.kill(&id("i-dead"));
    harness.sleep(Duration::from_secs(16)).await;
    harness.idle("i-sound", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-sound".to_owned()].into());
    assert!(outcome.timings.selection < Duration::from_secs(2), "{:?}", outcome.timings);
    assert_eq!(harness.state("i-dead"), State::Terminated);
}

#[tokio::test]
async fn an_idle_machine_whose_clock_differs_is_discarded_with_a_word_about_clocks() {
    for (offset, words) in [
        (30_000, "the clocks differ: its last heartbeat is "),
        (-30_000, "its heartbeat stopped, or the clocks differ: its last heartbeat is "),
    ] {
        let harness = Harness::new().await;
        harness.idle("i-a", "c6i.large").await;
        harness.memory.compute.kill(&id("i-a"));
        // Its agent ends at its next turn, and writes nothing after that.
        harness.sleep(Duration::from_secs(1)).await;
        harness.beat_by_another_clock("i-a", offset).await;
        let outcome = harness.provision(&request("1", 1)).await;
        assert_eq!(outcome.count(MachineSource::Cold), 1);
        let events = harness.memory.store.events();
        let why = &events.iter().find(|event| event.transition == "reap").unwrap().why;
        assert!(why.starts_with(words), "{why}");
    }
}

#[tokio::test]
async fn a_machine_that_beats_but_does_not_register_goes_back_after_the_timeout() {
    let harness = Harness::new().await;
    harness.make_defective("i-mute", MachineDefect::NeverRegisters);
    harness.idle("i-mute", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    assert!(outcome.timings.selection >= Duration::from_secs(60));
    assert_eq!(harness.state("i-mute"), State::Idle);
    assert!(harness.alive().contains(&"i-mute".to_owned()));
    let events = harness.memory.store.events();
    let why = &events.iter().find(|e| e.transition == "give-back").unwrap().why;
    assert!(why.contains("did not register in time"), "{why}");
}

#[tokio::test]
async fn the_wrong_run_id_in_a_signal_does_not_count() {
    let harness = Harness::new().await;
    harness.make_defective("i-mute", MachineDefect::NeverRegisters);
    harness.idle("i-mute", "c6i.large").await;
    harness.signal_as_agent("i-mute", Signal::Registered, "another").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 0);
    assert_eq!(harness.state("i-mute"), State::Idle);
}

#[tokio::test]
async fn a_machine_that_says_it_cannot_register_is_not_waited_for() {
    let harness = Harness::new().await;
    harness.make_defective("i-bad", MachineDefect::CannotRegister);
    harness.idle("i-bad", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert!(outcome.timings.selection < Duration::from_secs(2), "{:?}", outcome.timings);
    let reap = harness.memory.store.events().into_iter().find(|e| e.transition == "reap").unwrap();
    assert_eq!(reap.why, "it signalled UD_REG_FAILED: the token has expired");
}

#[tokio::test]
async fn an_interrupted_machine_is_never_handed_out() {
    let harness = Harness::new().await;
    harness.make_defective("i-spot", MachineDefect::Interrupted);
    harness.idle("i-spot", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    assert_eq!(harness.state("i-spot"), State::Terminated);
}

#[tokio::test]
async fn a_machine_that_is_interrupted_while_it_registers_is_not_handed_out() {
    let harness = Harness::new().await;
    harness.make_defective("i-spot", MachineDefect::InterruptedRegistering);
    harness.idle("i-spot", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1, "{outcome:?}");
    assert_eq!(harness.state("i-spot"), State::Terminated);
    let reap = harness.memory.store.events().into_iter().find(|e| e.transition == "reap").unwrap();
    assert_eq!(reap.why, "it signalled UD_REG_FAILED: spot interruption");
}

#[tokio::test]
async fn tickets_held_by_one_that_died_come_back() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let held = harness.memory.pool.receive(&large(), 10, Duration::from_secs(30)).await.unwrap();
    assert_eq!(held.len(), 1);
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Cold), 1);
    assert!(outcome.timings.selection <= Duration::from_secs(1), "patience has an end");
    harness.sleep(Duration::from_secs(31)).await;
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
}

#[tokio::test]
async fn nothing_is_claimed_for_an_unknown_class() {
    let harness = Harness::new().await;
    let mut unknown = request("1", 1);
    unknown.options.class = ondeck_core::model::ids::ResourceClass::new("huge").unwrap();
    let failure = harness.provision(&unknown).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::InvalidInput);
    assert_eq!(failure.message, "resource class not configured: huge");
    assert!(failure.hint.starts_with("configured classes are large, xlarge"));
}

#[tokio::test]
async fn machines_that_the_run_does_not_want_do_not_end_its_search() {
    let harness = Harness::new().await;
    // The newest is tried first, and the others are met again each time.
    harness.idle("i-unsuitable", "t3.large").await;
    harness.idle("i-healthy", "c6i.large").await;
    for n in 0..7 {
        let broken = format!("i-broken-{n}");
        harness.make_defective(&broken, MachineDefect::CannotRegister);
        harness.idle(&broken, "c6i.large").await;
    }
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-healthy".to_owned()].into(), "{:?}", outcome.failure);
    assert_eq!(harness.state("i-unsuitable"), State::Idle);
}
