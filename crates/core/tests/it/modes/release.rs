//! Release: the handshake, and what happens when an agent does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::release::{Disposition, release};
use ondeck_core::testkit::{Calls, MachineDefect};

use super::harness::{Harness, believe_running, id, large, request, run};
use ondeck_core::ports::Pool;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn released_machines_are_announced_after_deregistration() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 3)).await;
    let outcome = harness.release("1").await;
    assert_eq!(outcome.failure(), None);
    assert!(outcome.instances.iter().all(|one| one.disposition == Disposition::Pooled));
    assert!(harness.labels.is_empty());
    assert_eq!(harness.visible().await, 3);
    let held = harness.memory.pool.receive(&large(), 1, Duration::ZERO).await.unwrap();
    let ticket = Ticket::from_json(&held[0].body).unwrap();
    let record = harness.record(ticket.instance_id.as_str()).unwrap();
    assert_eq!(Some(ticket.threshold), record.threshold, "the idle threshold, no other");
    assert!(record.ticketed_at.is_some());
    assert_eq!(harness.provision(&request("2", 3)).await.count(MachineSource::Warm), 3);
}

#[tokio::test]
async fn a_machine_that_does_not_answer_is_expired_and_never_announced() {
    let harness = Harness::new().await;
    let outcome = harness.provision(&request("1", 2)).await;
    let dead: &InstanceId = &outcome.instances[0].id;
    harness.memory.compute.kill(dead);
    let released = harness.release("1").await;
    let failure = released.failure().unwrap();
    assert_eq!(failure.kind.exit_code(), 8);
    assert!(failure.message.ends_with(dead.as_str()), "{failure}");
    assert!(released.took < Duration::from_secs(20), "a stopped heartbeat ends the wait");
    let record = harness.record(dead.as_str()).unwrap();
    assert_eq!(record.state, State::Idle);
    assert!(record.is_expired(harness.plane.now()));
    assert_eq!(harness.depth().await, 1);
}

#[tokio::test]
async fn one_that_cannot_be_reached_is_reported_and_the_others_are_released() {
    let harness = Harness::new().await;
    let provisioned = harness.provision(&request("1", 3)).await;
    let lost = provisioned.instances[1].id.clone();
    harness.memory.store.fail_writes_of(&lost);
    let released = harness.release("1").await;
    assert_eq!(released.instances.len(), 3);
    for one in &released.instances {
        match &one.disposition {
            Disposition::NotReached(error) => {
                assert_eq!((&one.id, error.as_str()), (&lost, "store is out of reach: it is down"));
            }
            other => assert_eq!((other, one.id == lost), (&Disposition::Pooled, false)),
        }
    }
    let failure = released.failure().unwrap();
    assert_eq!(failure.kind.exit_code(), 6);
    assert_eq!(
        failure.message,
        format!("machines could not be reached: {lost}: store is out of reach: it is down")
    );
    assert_eq!((harness.state(lost.as_str()), harness.visible().await), (State::Running, 2));
    harness.memory.store.repair();
    let again = harness.release("1").await;
    assert_eq!((again.failure(), again.instances.len()), (None, 1));
    assert_eq!(harness.visible().await, 3);
}

#[tokio::test]
async fn a_pool_that_cannot_be_reached_hides_no_machine_from_the_report() {
    for (call, state) in [("send", State::Idle), ("agent_status", State::Idle)] {
        let harness = Harness::new().await;
        harness.provision(&request("1", 2)).await;
        match call {
            "send" => harness.memory.pool.fail(call),
            _ => harness.memory.store.fail(call),
        }
        let released = harness.release("1").await;
        assert_eq!(released.instances.len(), 2, "{call}");
        for one in &released.instances {
            assert!(matches!(one.disposition, Disposition::NotReached(_)), "{call}: {one:?}");
            assert_eq!(harness.state(one.id.as_str()), state, "{call}");
        }
        assert_eq!(released.failure().unwrap().kind.exit_code(), 6, "{call}");
        harness.memory.store.repair();
        harness.memory.pool.repair();
        let refreshed = harness.refresh().await;
        assert_eq!(refreshed.requeued.len(), 2, "{call}: refresh announces them");
    }
}

#[tokio::test]
async fn one_that_was_not_reached_counts_for_more_than_one_that_did_not_answer() {
    let harness = Harness::new().await;
    let provisioned = harness.provision(&request("1", 2)).await;
    harness.memory.compute.kill(&provisioned.instances[0].id);
    harness.memory.store.fail_writes_of(&provisioned.instances[1].id);
    let released = harness.release("1").await;
    assert_eq!(released.failure().unwrap().kind.exit_code(), 6);
    let found = released.instances.iter().find(|one| one.id == provisioned.instances[0].id);
    assert!(matches!(found.unwrap().disposition, Disposition::Expired(_)), "{released:?}");
}

#[tokio::test]
async fn a_machine_that_beats_and_does_not_answer_is_waited_for_and_then_expired() {
    let harness = Harness::new().await;
    // Refresh would refuse it, because no machine would notice its release in time.
    let slow = [("agent-poll-running-sec".to_owned(), "600".to_owned())].into();
    harness.plane.store.put_settings(&slow).await.unwrap();
    let outcome = harness.provision(&request("1", 1)).await;
    let released = harness.release("1").await;
    assert_eq!(released.failure().unwrap().kind.exit_code(), 8);
    assert_eq!(released.took.as_secs(), 120);
    assert_eq!(harness.depth().await, 0);
    assert!(
        harness.record(outcome.instances[0].id.as_str()).unwrap().is_expired(harness.plane.now())
    );
}

#[tokio::test]
async fn a_machine_that_cannot_be_cleaned_is_not_reused() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::CannotBeCleaned);
    harness.provision(&request("1", 1)).await;
    let released = harness.release("1").await;
    let Disposition::Expired(why) = &released.instances[0].disposition else {
        panic!("{released:?}")
    };
    assert_eq!(
        why,
        "it signalled UD_REMOVE_REG_FAILED: the machine is not clean: a file cannot be removed"
    );
    assert!(released.took < Duration::from_secs(5), "a reported failure ends the wait");
}

#[tokio::test]
async fn what_a_killed_provision_claimed_is_given_back_and_what_it_created_is_expired() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    killed_while_it_validates(&harness, "1").await;
    let released = harness.release("1").await;
    assert_eq!(released.failure(), None);
    let dispositions: BTreeMap<&str, &Disposition> =
        released.instances.iter().map(|one| (one.id.as_str(), &one.disposition)).collect();
    assert_eq!(dispositions["i-a"], &Disposition::GivenBack);
    assert_eq!(dispositions["i-0001"], &Disposition::Unfinished(State::Created));
    assert!(released.instances.iter().all(|one| one.used_for.is_none()));
    assert!(harness.record("i-0001").unwrap().is_expired(harness.plane.now()));
    let refreshed = harness.refresh().await;
    assert_eq!(refreshed.reaped.len(), 1);
    assert_eq!(harness.alive(), ["i-a"]);
    let next = harness.provision(&request("2", 1)).await;
    assert_eq!(next.count(MachineSource::Warm), 1);
}

/// Drops a provision of two machines while it validates: `i-a` is claimed, `i-0001` is created.
async fn killed_while_it_validates(harness: &Harness, run: &str) {
    let request = request(run, 2);
    tokio::select! {
        _ = harness.provision(&request) => panic!("it cannot succeed"),
        () = harness.sleep(Duration::from_secs(30)) => {}
    }
    assert_eq!((harness.state("i-a"), harness.state("i-0001")), (State::Claimed, State::Created));
}

#[tokio::test]
async fn a_claimed_machine_that_does_not_answer_is_expired() {
    for (defect, polls, words) in [
        (MachineDefect::None, "1", "its last heartbeat is"),
        (MachineDefect::None, "600", "no answer within 120 s"),
        (MachineDefect::CannotBeCleaned, "1", "the machine is not clean"),
    ] {
        let harness = Harness::new().await;
        // Refresh would refuse the slow one, because no machine would notice its release in time.
        let poll = [("agent-poll-running-sec".to_owned(), polls.to_owned())].into();
        harness.plane.store.put_settings(&poll).await.unwrap();
        harness.make_defective("i-a", defect);
        harness.idle("i-a", "c6i.large").await;
        harness.make_defective("i-0001", MachineDefect::NeverRegisters);
        killed_while_it_validates(&harness, "1").await;
        if words.contains("heartbeat") {
            harness.memory.compute.kill(&id("i-a"));
        }
        let released = harness.release("1").await;
        assert_eq!(released.failure().unwrap().kind.exit_code(), 8, "{words}");
        let found = released.instances.iter().find(|one| one.id == id("i-a")).unwrap();
        let Disposition::Expired(why) = &found.disposition else { panic!("{found:?}") };
        assert!(why.contains(words), "{why}");
        assert!(harness.record("i-a").unwrap().is_expired(harness.plane.now()));
        assert_eq!(harness.depth().await, 0);
    }
}

#[tokio::test]
async fn a_claimed_machine_past_its_threshold_is_left_to_the_reaper() {
    let harness = Harness::with(&[("self-termination-grace-sec", "3600")]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    killed_while_it_validates(&harness, "1").await;
    harness.sleep(Duration::from_secs(301)).await;
    let released = harness.release("1").await;
    assert_eq!(released.failure(), None);
    let found = released.instances.iter().find(|one| one.id == id("i-a")).unwrap();
    assert_eq!(found.disposition, Disposition::Unfinished(State::Claimed));
    assert_eq!(harness.depth().await, 0);
}

#[tokio::test]
async fn two_releases_of_one_run_do_not_blame_each_other() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 3)).await;
    let (one, other) = tokio::join!(harness.release("1"), harness.release("1"));
    assert_eq!((one.failure(), other.failure()), (None, None), "{one:?} {other:?}");
    assert_eq!(harness.provision(&request("2", 3)).await.count(MachineSource::Warm), 3);
}

#[tokio::test]
async fn a_leftover_whose_provision_finishes_after_all_is_released() {
    let harness = Harness::new().await;
    let outcome = harness.provision(&request("1", 1)).await;
    let running = harness.record(outcome.instances[0].id.as_str()).unwrap();
    // What release has read is already out of date when it comes to act on it.
    let mut created = running.clone();
    created.state = State::Created;
    harness.memory.store.insert(created);
    let one = run("1");
    let times = TimeOverrides::default();
    let (released, ()) = tokio::join!(release(&harness.plane, &one, &times), async {
        while !harness.memory.store.calls().contains_key("of_run") {
            tokio::task::yield_now().await;
        }
        harness.memory.store.insert(running);
    });
    assert_eq!(released.unwrap().instances[0].disposition, Disposition::Pooled);
}

#[tokio::test]
async fn an_idle_time_of_zero_ends_the_machines() {
    let harness = Harness::with(&[("idle-time-sec", "0")]).await;
    harness.provision(&request("1", 2)).await;
    let released = harness.release("1").await;
    assert_eq!(released.failure(), None);
    assert!(
        released.instances.iter().all(|one| one.disposition == Disposition::Terminated),
        "{released:?}"
    );
    assert!(harness.alive().is_empty());
    assert_eq!(harness.depth().await, 0);
}

/// Refresh renews the machine after it became idle, and before its agent has answered.
#[tokio::test]
async fn a_machine_that_refresh_keeps_warm_is_not_ended_although_its_idle_time_was_up() {
    let times = [("idle-time-sec", "2"), ("agent-poll-running-sec", "10")];
    let harness = Harness::with(&times).await;
    let outcome = harness.provision(&request("1", 1)).await;
    let machine = outcome.instances[0].id.clone();
    let (released, ()) = tokio::join!(harness.release("1"), async {
        while harness.state(machine.as_str()) != State::Idle {
            tokio::task::yield_now().await;
        }
        let record = harness.record(machine.as_str()).unwrap();
        let now = harness.plane.now();
        let renewal = Instance::<Idle>::believe(&record).unwrap().renew(now, now + HOUR);
        harness.plane.apply(renewal).await.unwrap();
    });
    let Disposition::Superseded(why) = &released.instances[0].disposition else {
        panic!("{released:?}")
    };
    assert_eq!(why, "it is idle again");
    assert_eq!(released.failure(), None);
    assert_eq!(harness.alive(), [machine.as_str()]);
    assert_eq!(harness.refresh().await.requeued, [machine]);
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
}

/// A second provision of the run may have claimed it when one of the run's jobs was waiting.
#[tokio::test]
async fn a_claimed_machine_with_a_job_is_released_like_a_running_one() {
    let harness = Harness::new().await;
    harness.make_defective("i-busy", MachineDefect::TakesJobAfter(Duration::from_secs(1)));
    harness.idle("i-busy", "c6i.large").await;
    let record = harness.record("i-busy").unwrap();
    let idle = Instance::<Idle>::believe(&record).unwrap();
    let claim = idle.claim(&run("1"), harness.plane.now(), HOUR);
    harness.plane.apply(claim).await.unwrap();
    while !harness.status("i-busy").await.heartbeat.unwrap().busy {
        harness.sleep(Duration::from_secs(1)).await;
    }
    let released = harness.release("1").await;
    assert_eq!(released.failure(), None);
    assert_eq!(released.instances[0].disposition, Disposition::Pooled);
    assert!(released.took < Duration::from_secs(20), "{:?}", released.took);
    assert!(harness.labels.is_empty(), "its job is over");
    let after = harness.record("i-busy").unwrap();
    assert_eq!((after.state, after.counts.runs), (State::Idle, record.counts.runs + 1));
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
}

#[tokio::test]
async fn a_run_without_machines_releases_nothing() {
    let harness = Harness::new().await;
    assert!(harness.release("unknown").await.instances.is_empty());
}

#[tokio::test]
async fn a_transition_past_the_threshold_is_refused() {
    let harness = Harness::with(&[("self-termination-grace-sec", "3600")]).await;
    let outcome = harness.provision(&request("1", 1)).await;
    harness.sleep(Duration::from_secs(31 * 60)).await;
    let record = harness.record(outcome.instances[0].id.as_str()).unwrap();
    let change = believe_running(&record).release(harness.plane.now(), Duration::from_secs(300));
    let refused = harness.plane.apply(change).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "release of {} refused: it is running, owned by run 1, past its threshold",
            record.id
        )
    );
    let released = harness.release("1").await;
    assert_eq!(released.failure().unwrap().kind.exit_code(), 8);
    assert_eq!(harness.state(record.id.as_str()), State::Running, "left to the reaper");
}

#[tokio::test]
async fn the_cost_of_a_release_is_batched() {
    let harness = Harness::new().await;
    for n in 0..10 {
        harness.idle(&format!("i-{n}"), "c6i.large").await;
    }
    assert_eq!(harness.provision(&request("1", 10)).await.count(MachineSource::Warm), 10);
    let times = TimeOverrides(vec![("idle-time-sec", Duration::from_secs(77))]);
    let (store, pool) = (harness.memory.store.calls(), harness.memory.pool.calls());
    let released = release(&harness.plane, &run("1"), &times).await.unwrap();
    assert_eq!(released.instances.len(), 10);
    let made = |before: &Calls, after: Calls, call| after[call] - before.get(call).unwrap_or(&0);
    assert_eq!(made(&store, harness.memory.store.calls(), "of_run"), 1);
    assert_eq!(made(&store, harness.memory.store.calls(), "write"), 10);
    let sends = made(&pool, harness.memory.pool.calls(), "send");
    let marks = made(&store, harness.memory.store.calls(), "mark_ticketed");
    assert!(sends <= 3 && marks == sends, "{sends} sends, {marks} notes");
    let record = harness.record("i-3").unwrap();
    assert_eq!(record.threshold, Some(record.updated_at + Duration::from_secs(77)));
}

#[tokio::test]
async fn a_run_that_is_over_before_its_machine_has_registered_waits_for_nothing() {
    let harness = Harness::new().await;
    harness.make_defective("i-slow", MachineDefect::NeverRegisters);
    let idle = harness.idle("i-slow", "c6i.large").await;
    // As after a restart of its agent: the run has it, and it registers once more.
    let owned = Record { state: State::Running, run: Some(run("1")), ..idle };
    harness.memory.store.insert(owned);
    harness.sleep(Duration::from_secs(5)).await;
    let released = harness.release("1").await;
    assert_eq!(released.instances[0].disposition, Disposition::Pooled);
    assert!(released.took < Duration::from_secs(5), "{released:?}");
}
