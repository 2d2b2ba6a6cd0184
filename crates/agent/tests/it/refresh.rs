//! Refresh: everything that can be left behind, and what becomes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::failure::Kind;
use ondeck_core::model::ids::IntentId;
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::Signal;
use ondeck_core::modes::provision::Source;
use ondeck_core::modes::refresh::refresh;
use ondeck_core::ports::{AgentStore, Machine, Store};
use ondeck_core::runtime::stop::{Stop, StopSignal};

use crate::world::{Behaviour, World, believe_running, id, listed, request, run, spec};

#[tokio::test]
async fn every_live_state_past_its_threshold_is_reaped() {
    let world = World::new().await;
    let now = world.plane.now();
    for (state, owner) in [
        (State::Created, Some(run("1"))),
        (State::Idle, None),
        (State::Claimed, Some(run("1"))),
        (State::Running, Some(run("1"))),
    ] {
        for (suffix, left) in [("late", 0), ("early", 60_000)] {
            let name = format!("i-{state}-{suffix}");
            world.expect(&name, Behaviour::NeverBoots);
            let mut record = world.put_idle(&name, spec("c6i.large"), Duration::ZERO).await;
            record.state = state;
            record.run = owner.clone();
            record.threshold = Some(now + Duration::from_millis(left));
            world.memory.store.plant(record);
        }
    }
    let mut reaped: Vec<String> =
        world.refresh().await.reaped.iter().map(ToString::to_string).collect();
    reaped.sort();
    assert_eq!(reaped, ["i-claimed-late", "i-created-late", "i-idle-late", "i-running-late"]);
    assert_eq!(world.alive().len(), 4, "those within their threshold are not touched");
    assert!(world.refresh().await.reaped.is_empty());
}

#[tokio::test]
async fn void_tickets_of_the_reaped_are_dropped_and_others_stay() {
    let world = World::new().await;
    for n in 0..15 {
        let name = format!("i-{n}");
        world.expect(&name, Behaviour::NeverBoots);
        let left = if n % 2 == 0 { 1 } else { 300 };
        world.put_idle(&name, spec("c6i.large"), Duration::from_secs(left)).await;
    }
    world.pass(Duration::from_secs(1)).await;
    let outcome = world.refresh().await;
    assert_eq!((outcome.reaped.len(), outcome.pruned), (8, 8));
    assert_eq!(world.visible().await, 7);
}

#[tokio::test]
async fn machines_without_a_record_are_swept_after_the_grace() {
    let world = World::new().await;
    world.expect("i-lost", Behaviour::NeverBoots);
    let machine = Machine {
        id: id("i-lost"),
        spec: spec("c6i.large"),
        intent: IntentId::new("x").unwrap(),
        launched_at: world.plane.now(),
    };
    world.memory.compute.plant(machine);
    assert!(world.refresh().await.swept.is_empty(), "it may be on its way to a record");
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.refresh().await.swept, [id("i-lost")]);
    assert!(world.alive().is_empty());
}

#[tokio::test]
async fn a_machine_whose_terminate_was_lost_is_swept() {
    let world = World::new().await;
    world.expect("i-a", Behaviour::NeverBoots);
    let mut record = world.idle("i-a", "c6i.large").await;
    record.state = State::Terminated;
    record.threshold = None;
    world.memory.store.plant(record);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.refresh().await.swept, [id("i-a")]);
}

#[tokio::test]
async fn overdue_intents_are_settled_with_their_machines() {
    let world = World::with(&[("self-termination-grace-sec", "3600")]).await;
    world.expect("i-lost", Behaviour::NeverBoots);
    let intent = Intent {
        id: IntentId::new("abc").unwrap(),
        run: run("1"),
        count: 2,
        usage: UsageClass::Spot,
        deadline: world.plane.now() + Duration::from_secs(5),
        outcome: String::new(),
    };
    world.plane.store.put_intent(&intent).await.unwrap();
    world.memory.compute.plant(Machine {
        id: id("i-lost"),
        spec: spec("c6i.large"),
        intent: intent.id.clone(),
        launched_at: world.plane.now(),
    });
    assert_eq!(world.refresh().await.intents, 0);
    world.pass(Duration::from_secs(5)).await;
    let outcome = world.refresh().await;
    assert_eq!((outcome.intents, outcome.swept), (1, vec![id("i-lost")]));
    assert!(world.plane.store.open_intents().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_idle_machine_that_was_never_announced_is_announced() {
    let world = World::new().await;
    let outcome = world.provision(&request("1", 1)).await;
    let machine = outcome.instances[0].id.clone();
    // A release that is killed before it sends the ticket.
    let record = world.record(machine.as_str()).unwrap();
    let change = believe_running(&record).release(world.plane.now(), Duration::from_secs(300));
    world.plane.commit(change).await.unwrap();
    assert!(world.refresh().await.ticketed.is_empty(), "the agent has not said that it is free");
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.refresh().await.ticketed, [machine]);
    assert!(world.refresh().await.ticketed.is_empty(), "once is enough");
    assert_eq!(world.provision(&request("2", 1)).await.count(Source::Warm), 1);
}

#[tokio::test]
async fn an_idle_machine_that_stays_silent_is_expired() {
    let world = World::new().await;
    world.expect("i-mute", Behaviour::NeverBoots);
    let mut record = world.idle("i-mute", "c6i.large").await;
    record.ticketed_at = None;
    world.memory.store.plant(record);
    world.say("i-mute", Signal::Registered, "1").await;
    world.pass(Duration::from_secs(119)).await;
    assert!(world.refresh().await.silent.is_empty(), "its release may still be waiting");
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.refresh().await.silent, [id("i-mute")]);
    assert_eq!(world.refresh().await.reaped, [id("i-mute")]);
}

#[tokio::test]
async fn ghosts_are_struck_and_others_are_not() {
    let world = World::new().await;
    world.idle("i-here", "c6i.large").await;
    let forge = &world.memory.forge;
    forge.plant(listed("i-gone-1", "i-gone", false));
    forge.plant(listed("i-gone-2", "i-gone", true));
    forge.plant(listed("i-here-1", "i-here", false));
    assert_eq!(world.refresh().await.ghosts, ["i-gone-1"]);
}

#[tokio::test]
async fn a_ghost_that_cannot_be_struck_yet_keeps_no_other() {
    let world = World::new().await;
    let forge = &world.memory.forge;
    forge.plant(listed("i-gone-1", "i-gone", false));
    forge.plant(listed("i-gone-2", "i-gone", false));
    // A machine that is taken away in the middle of a job leaves one like this.
    forge.keep_busy("i-gone-1");
    let outcome = world.refresh().await;
    assert_eq!(outcome.ghosts, ["i-gone-2"]);
    assert_eq!(outcome.warnings, ["the runner is busy and stays on the list: i-gone-1"]);
}

#[tokio::test]
async fn terminated_records_are_forgotten_after_the_retention() {
    let world = World::new().await;
    world.provision(&request("1", 2)).await;
    world.pass(Duration::from_secs(31 * 60)).await;
    assert_eq!(world.refresh().await.reaped.len(), 2);
    world.pass(Duration::from_secs(24 * 3600)).await;
    assert_eq!(world.refresh().await.forgotten, 0, "not a moment too early");
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.refresh().await.forgotten, 2);
    assert!(world.memory.store.select(|_| true).is_empty());
}

#[tokio::test]
async fn a_minimum_of_idle_machines_is_kept() {
    let world = World::with(&[("min-idle", "large=3")]).await;
    assert_eq!(world.visible().await, 3);
    assert_eq!(world.refresh().await.warmed, 0);
    assert_eq!(world.provision(&request("1", 2)).await.count(Source::Warm), 2);
    assert_eq!(world.refresh().await.warmed, 2);
    assert_eq!(world.visible().await, 3);
    let given = [("min-idle".to_owned(), "huge=1".to_owned())].into();
    let failure = refresh(&world.plane, &given, &StopSignal::never()).await;
    assert_eq!(failure.unwrap_err().kind.exit_code(), 2);
}

#[tokio::test]
async fn told_to_stop_while_it_warms_up_it_clears_up() {
    let world = World::new().await;
    world.expect("i-0001", Behaviour::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let given = [("min-idle".to_owned(), "large=2".to_owned())].into();
    let (outcome, ()) = tokio::join!(refresh(&world.plane, &given, &stop), async {
        while world.alive().len() < 2 {
            tokio::task::yield_now().await;
        }
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.unwrap().failure.unwrap().kind, Kind::Interrupted);
    assert!(world.alive().is_empty());
    assert!(world.memory.store.select(|record| record.state.is_live()).is_empty());
}

#[tokio::test]
async fn a_provider_that_is_down_does_not_keep_the_rest_from_being_done() {
    let world = World::new().await;
    world.provision(&request("1", 1)).await;
    world.pass(Duration::from_secs(31 * 60)).await;
    world.refresh().await;
    world.pass(Duration::from_secs(24 * 3600 + 1)).await;
    world.memory.compute.go_down();
    let outcome = refresh(&world.plane, &BTreeMap::new(), &StopSignal::never()).await.unwrap();
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, Kind::Unavailable);
    assert!(world.memory.store.select(|_| true).is_empty(), "old records are gone all the same");
}

#[tokio::test]
async fn refreshes_side_by_side_keep_each_others_settings() {
    let world = World::new().await;
    tokio::join!(
        world.refresh_with(&[("idle-time-sec", "77")]),
        world.refresh_with(&[("claim-timeout-sec", "299")]),
        world.refresh(),
    );
    let times = world.plane.settings().await.unwrap().times;
    assert_eq!(times.idle_time, Duration::from_secs(77));
    assert_eq!(times.claim_timeout, Duration::from_secs(299));
}

#[tokio::test]
async fn runs_whose_jobs_wait_for_nobody_are_reported() {
    let world = World::new().await;
    world.provision(&request("1", 1)).await;
    world.memory.forge.queue(run("1"));
    world.memory.forge.queue(run("2"));
    let outcome = world.refresh().await;
    assert_eq!(outcome.stranded, [run("2")], "it never asked, so nobody knows what it wants");
    assert_eq!(outcome.warnings, ["jobs wait for a run that has not asked for machines: 2"]);
    assert_eq!(world.alive().len(), 1);
}

/// A run that is over, and three of whose jobs are run again.
async fn stranded(world: &World, count: u32) {
    assert!(world.provision(&request("1", count)).await.failure.is_none());
    world.release("1").await;
    world.pass(Duration::from_secs(400)).await;
    world.refresh().await;
    assert_eq!(world.alive().len(), 0, "what it had is gone");
    for _ in 0..3 {
        world.memory.forge.queue(run("1"));
    }
}

#[tokio::test]
async fn jobs_that_are_run_again_are_given_machines_again() {
    for (asked, given) in [(2, 2), (5, 3)] {
        let world = World::new().await;
        stranded(&world, asked).await;
        let outcome = world.refresh().await;
        assert_eq!((outcome.rescued, outcome.stranded), (vec![run("1")], vec![]));
        assert_eq!(world.alive().len(), given, "no more than asked for, nor than jobs");
        assert!(world.refresh().await.rescued.is_empty(), "it has machines now");
    }
}

#[tokio::test]
async fn rescue_can_be_left_to_people_or_be_off() {
    for (how, stranded_runs, warnings) in [
        ("report", vec![run("1")], vec!["jobs wait for a run that has no machine: 1".to_owned()]),
        ("off", vec![], vec![]),
    ] {
        let world = World::with(&[("rescue", how)]).await;
        stranded(&world, 2).await;
        let outcome = world.refresh().await;
        assert_eq!((outcome.stranded, outcome.warnings), (stranded_runs, warnings), "{how}");
        assert!(outcome.rescued.is_empty() && world.alive().is_empty(), "{how}");
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_rescued_is_reported_and_keeps_nobody_waiting() {
    let world = World::new().await;
    stranded(&world, 2).await;
    world.memory.compute.limit(0);
    let outcome = world.refresh().await;
    assert_eq!(outcome.stranded, [run("1")]);
    assert!(outcome.warnings[0].starts_with("run 1 cannot be rescued: "), "{outcome:?}");
    assert!(outcome.rescued.is_empty());
}

#[tokio::test]
async fn a_rescue_forgets_nothing_of_what_the_run_asked_for() {
    let world = World::new().await;
    stranded(&world, 5).await;
    assert_eq!(world.refresh().await.rescued, [run("1")]);
    let demand = world.memory.store.demand(&run("1")).await.unwrap().unwrap();
    assert_eq!(demand.count, 5, "though three jobs waited this time");
}

#[tokio::test]
async fn a_run_that_cannot_be_rescued_costs_less_and_less() {
    let world = World::new().await;
    stranded(&world, 1).await;
    let before = world.memory.compute.ended().len();
    for n in 0..1000 {
        world.expect(&format!("i-{n:04}"), Behaviour::CannotRegister);
    }
    world.memory.compute.limit(1);
    let mut reported = 0;
    for _ in 0..288 {
        world.pass(Duration::from_secs(300)).await;
        let outcome = world.refresh().await;
        reported += usize::from(outcome.stranded == [run("1")] && outcome.warnings.len() == 1);
    }
    assert_eq!(reported, 288, "it is never passed over in silence");
    let launched = world.memory.compute.ended().len() - before;
    assert!((5..30).contains(&launched), "in a day: {launched}");
}

fn credentials(world: &World, name: &str, life: Duration) -> Credentials {
    Credentials {
        registration: Secret::new(format!("{name}-in")),
        removal: Secret::new(format!("{name}-out")),
        expires_at: world.plane.now() + life,
    }
}

#[tokio::test]
async fn credentials_are_renewed_long_before_they_expire() {
    let world = World::new().await;
    let hour = Duration::from_secs(3600);
    let minted = |name| credentials(&world, name, hour * 10);
    world.memory.forge.ask_for(vec![minted("third"), minted("second"), minted("first")]);
    for (minutes, expected) in [(0, "first"), (29, "first"), (2, "second"), (31, "third")] {
        world.pass(Duration::from_secs(minutes * 60)).await;
        world.refresh().await;
        let held = world.memory.store.credentials().await.unwrap().unwrap();
        let expected = Secret::new(format!("{expected}-in"));
        assert_eq!(held.registration, expected, "after {minutes} more minutes");
    }
    let settings = format!("{:?}", Store::settings(&*world.memory.store).await);
    assert!(!settings.contains("-in") && !settings.contains("-out"), "{settings}");
}

#[tokio::test]
async fn with_expired_credentials_nothing_is_even_launched() {
    let world = World::new().await;
    let short = credentials(&world, "short", Duration::from_secs(600));
    world.memory.forge.ask_for(vec![short]);
    world.refresh().await;
    assert!(world.provision(&request("1", 1)).await.failure.is_none());
    world.pass(Duration::from_secs(600)).await;
    let before = world.plane.now();
    let failure = world.provision(&request("2", 1)).await.failure.unwrap();
    assert_eq!(world.plane.now().since(before), Duration::from_secs(60), "it waits for refresh");
    assert_eq!(failure.kind, Kind::Forge);
    assert!(failure.message.starts_with("the registration token expired at "), "{failure}");
    assert!(failure.hint.contains("ondeck refresh"), "{failure:?}");
    assert_eq!(world.alive().len(), 1, "those of the first run");
}

#[tokio::test]
async fn a_refresh_that_cannot_renew_them_does_not_wait_for_itself() {
    let world = World::new().await;
    stranded(&world, 1).await;
    world.pass(Duration::from_secs(400)).await;
    let expired = credentials(&world, "expired", Duration::ZERO);
    world.memory.forge.ask_for(vec![expired]);
    let before = world.plane.now();
    let outcome = world.refresh_with(&[("min-idle", "large=1")]).await;
    assert_eq!((outcome.stranded, outcome.warmed), (vec![run("1")], 0));
    let warned = |words: &str| outcome.warnings.iter().any(|warning| warning.contains(words));
    assert!(
        warned("run 1 cannot be rescued: the registration token expired"),
        "{:?}",
        outcome.warnings
    );
    assert!(warned("class large is below its minimum: the registration"), "{:?}", outcome.warnings);
    assert!(world.plane.now().since(before) < Duration::from_secs(30), "it waited for itself");
}

#[tokio::test]
async fn a_refresh_that_comes_late_is_waited_for() {
    let world = World::new().await;
    let hour = Duration::from_secs(3600);
    world.memory.forge.ask_for(vec![credentials(&world, "first", hour)]);
    world.refresh().await;
    world.pass(hour).await;
    world.memory.forge.ask_for(vec![credentials(&world, "second", hour)]);
    let asked = request("1", 1);
    let (provisioned, ()) = tokio::join!(world.provision(&asked), async {
        world.pass(Duration::from_secs(30)).await;
        world.refresh().await;
    });
    assert_eq!(provisioned.failure, None);
}

#[tokio::test]
async fn refreshes_side_by_side_reap_once() {
    let world = World::new().await;
    world.provision(&request("1", 5)).await;
    world.pass(Duration::from_secs(30 * 60)).await;
    let (one, other, third) = tokio::join!(world.refresh(), world.refresh(), world.refresh());
    assert_eq!(one.reaped.len() + other.reaped.len() + third.reaped.len(), 5);
    assert_eq!(world.memory.compute.ended().len(), 5, "no machine is ended twice");
}

#[tokio::test]
async fn settings_stay_until_they_are_given_again() {
    let world = World::with(&[("idle-time-sec", "7"), ("local-capacity", "2")]).await;
    world.refresh().await;
    let settings = world.plane.settings().await.unwrap();
    assert_eq!(settings.times.idle_time, Duration::from_secs(7));
    assert_eq!(settings.backend["local-capacity"], "2");
    world.refresh_with(&[("idle-time-sec", ""), ("local-capacity", "")]).await;
    let settings = world.plane.settings().await.unwrap();
    assert_eq!(settings.times.idle_time, Duration::from_secs(300), "empty is the default");
    assert!(settings.backend.is_empty());
}
