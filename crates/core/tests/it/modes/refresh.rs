//! Refresh: everything that can be left behind, and what becomes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::model::credentials::{Credentials, TokenPurpose};
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::IntentId;
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::Signal;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::refresh::refresh;
use ondeck_core::ports::{AgentStore, Machine, Store};
use ondeck_core::runtime::stop::{Stop, StopSignal};

use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, believe_running, id, label, listed, request, run, spec};

#[tokio::test]
async fn a_notice_of_the_forge_is_a_warning() {
    let harness = Harness::new().await;
    harness.memory.forge.give_notice("the version is served until noon");
    assert_eq!(harness.refresh().await.warnings, ["the version is served until noon"]);
}

#[tokio::test]
async fn every_live_state_past_its_threshold_is_reaped() {
    let harness = Harness::new().await;
    let now = harness.plane.now();
    for (state, owner) in [
        (State::Created, Some(run("1"))),
        (State::Idle, None),
        (State::Claimed, Some(run("1"))),
        (State::Running, Some(run("1"))),
    ] {
        for (suffix, left) in [("late", 0), ("early", 60_000)] {
            let name = format!("i-{state}-{suffix}");
            harness.make_defective(&name, MachineDefect::NeverBoots);
            let mut record = harness.put_idle(&name, spec("c6i.large"), Duration::ZERO).await;
            record.state = state;
            record.run = owner.clone();
            record.threshold = Some(now + Duration::from_millis(left));
            harness.memory.store.insert(record);
        }
    }
    let mut reaped: Vec<String> =
        harness.refresh().await.reaped.iter().map(ToString::to_string).collect();
    reaped.sort();
    assert_eq!(reaped, ["i-claimed-late", "i-created-late", "i-idle-late", "i-running-late"]);
    assert_eq!(harness.alive().len(), 4, "those within their threshold are not touched");
    assert!(harness.refresh().await.reaped.is_empty());
}

#[tokio::test]
async fn void_tickets_of_the_reaped_are_dropped_and_others_stay() {
    let harness = Harness::new().await;
    for n in 0..15 {
        let name = format!("i-{n}");
        harness.make_defective(&name, MachineDefect::NeverBoots);
        let left = if n % 2 == 0 { 1 } else { 300 };
        harness.put_idle(&name, spec("c6i.large"), Duration::from_secs(left)).await;
    }
    harness.sleep(Duration::from_secs(1)).await;
    let outcome = harness.refresh().await;
    assert_eq!((outcome.reaped.len(), outcome.pruned_tickets), (8, 8));
    assert_eq!(harness.visible().await, 7);
}

#[tokio::test]
async fn machines_without_a_record_are_swept_after_the_grace() {
    let harness = Harness::new().await;
    harness.make_defective("i-lost", MachineDefect::NeverBoots);
    let machine = Machine {
        id: id("i-lost"),
        spec: spec("c6i.large"),
        intent: IntentId::new("x").unwrap(),
        launched_at: harness.plane.now(),
        image: None,
    };
    harness.memory.compute.insert(machine);
    assert!(harness.refresh().await.orphans.is_empty(), "it may be on its way to a record");
    harness.sleep(Duration::from_secs(60)).await;
    assert_eq!(harness.refresh().await.orphans, [id("i-lost")]);
    assert!(harness.alive().is_empty());
}

/// Each record says which settings its writer went by.
#[tokio::test]
async fn an_agent_reads_the_settings_again_only_if_they_have_changed() {
    let harness = Harness::new().await;
    let reads = || harness.memory.store.calls().get("settings of an agent").copied();
    let serve = async |run_id: &str| {
        assert!(harness.provision(&request(run_id, 1)).await.failure.is_none());
        assert!(harness.release(run_id).await.failure().is_none());
    };
    serve("1").await;
    let at_first = reads();
    assert!(at_first.is_some());
    harness.refresh().await;
    serve("2").await;
    assert_eq!(reads(), at_first, "the same machine, and the same settings");
    harness.refresh_with(&[("agent-poll-running-sec", "2")]).await;
    serve("3").await;
    assert_eq!(reads(), at_first.map(|reads| reads + 1));
    assert_eq!(harness.alive().len(), 1, "the machine was handed from run to run");
}

/// A list that lags behind the records proves nothing about what it lacks.
#[tokio::test]
async fn a_record_that_the_list_lacks_keeps_its_machine_its_runner_and_its_run() {
    let harness = Harness::new().await;
    let served = harness.provision(&request("1", 1)).await.instances[0].id.clone();
    harness.idle("i-idle", "c6i.large").await;
    harness.memory.forge.list(listed("i-idle-1", "i-idle", false));
    harness.memory.forge.queue_job(&run("1"));
    for unlisted in [&id("i-idle"), &served] {
        harness.memory.store.unlist(unlisted);
    }
    harness.sleep(Duration::from_secs(61)).await;
    let outcome = harness.refresh().await;
    assert_eq!(outcome.orphans, [], "both have records");
    assert_eq!(outcome.offline_runners, [""; 0], "its machine may register it again");
    assert_eq!((outcome.rescued, outcome.stranded), (vec![], vec![]), "the run has its machine");
    assert_eq!(harness.alive().len(), 2);
    assert_eq!(outcome.warnings, [""; 0]);
}

#[tokio::test]
async fn a_machine_whose_terminate_was_lost_is_swept() {
    let harness = Harness::new().await;
    harness.make_defective("i-a", MachineDefect::NeverBoots);
    let mut record = harness.idle("i-a", "c6i.large").await;
    record.state = State::Terminated;
    record.threshold = None;
    harness.memory.store.insert(record);
    harness.sleep(Duration::from_secs(60)).await;
    assert_eq!(harness.refresh().await.orphans, [id("i-a")]);
}

#[tokio::test]
async fn overdue_intents_are_settled_with_their_machines() {
    let harness = Harness::with(&[("self-termination-grace-sec", "3600")]).await;
    harness.make_defective("i-lost", MachineDefect::NeverBoots);
    let intent = Intent {
        id: IntentId::new("abc").unwrap(),
        run: run("1"),
        class: Some(spec("c6i.large").resource_class),
        count: 2,
        usage: UsageClass::Spot,
        deadline: harness.plane.now() + Duration::from_secs(5),
        outcome: String::new(),
    };
    harness.plane.store.put_intent(&intent).await.unwrap();
    harness.memory.compute.insert(Machine {
        id: id("i-lost"),
        spec: spec("c6i.large"),
        intent: intent.id.clone(),
        launched_at: harness.plane.now(),
        image: None,
    });
    assert_eq!(harness.refresh().await.settled_intents, 0);
    harness.sleep(Duration::from_secs(5)).await;
    let outcome = harness.refresh().await;
    assert_eq!((outcome.settled_intents, outcome.orphans), (1, vec![id("i-lost")]));
    assert!(harness.plane.store.open_intents().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_idle_machine_that_was_never_announced_is_announced() {
    let harness = Harness::new().await;
    let outcome = harness.provision(&request("1", 1)).await;
    let machine = outcome.instances[0].id.clone();
    // A release that is killed before it sends the ticket.
    let record = harness.record(machine.as_str()).unwrap();
    let change = believe_running(&record).release(harness.plane.now(), Duration::from_secs(300));
    harness.plane.apply(change).await.unwrap();
    assert!(harness.refresh().await.requeued.is_empty(), "the agent has not said that it is free");
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.refresh().await.requeued, [machine]);
    assert!(harness.refresh().await.requeued.is_empty(), "once is enough");
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
}

#[tokio::test]
async fn an_idle_machine_that_stays_silent_is_expired() {
    let harness = Harness::new().await;
    harness.make_defective("i-mute", MachineDefect::NeverBoots);
    let mut record = harness.idle("i-mute", "c6i.large").await;
    record.ticketed_at = None;
    harness.memory.store.insert(record);
    harness.signal_as_agent("i-mute", Signal::Registered, "1").await;
    harness.sleep(Duration::from_secs(119)).await;
    assert!(harness.refresh().await.unresponsive.is_empty(), "its release may still be waiting");
    harness.sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.refresh().await.unresponsive, [id("i-mute")]);
    assert_eq!(harness.refresh().await.reaped, [id("i-mute")]);
}

#[tokio::test]
async fn runners_without_a_machine_are_removed_and_others_are_not() {
    let harness = Harness::new().await;
    harness.idle("i-here", "c6i.large").await;
    harness.make_defective("i-gone", MachineDefect::NeverBoots);
    harness.put_idle("i-gone", spec("c6i.large"), Duration::ZERO).await;
    assert_eq!(harness.refresh().await.reaped, [id("i-gone")]);
    let forge = &harness.memory.forge;
    forge.list(listed("i-gone-1", "i-gone", false));
    forge.list(listed("i-gone-2", "i-gone", true));
    forge.list(listed("i-here-1", "i-here", false));
    let removed = harness.refresh().await.offline_runners;
    assert_eq!(removed, ["i-gone-1", "i-gone-2"], "online or not");
}

/// A pool in another account or region may have the same name, and then its runners have the same tag.
#[tokio::test]
async fn an_online_runner_of_a_machine_that_the_pool_never_had_stays() {
    let harness = Harness::new().await;
    let forge = &harness.memory.forge;
    forge.list(listed("i-theirs-1", "i-theirs", true));
    assert_eq!(harness.refresh().await.offline_runners, [""; 0]);
    let listed = harness.plane.forge.runners().await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
}

#[tokio::test]
async fn an_offline_runner_that_cannot_be_removed_yet_does_not_keep_the_others() {
    let harness = Harness::new().await;
    let forge = &harness.memory.forge;
    forge.list(listed("i-gone-1", "i-gone", false));
    forge.list(listed("i-gone-2", "i-gone", false));
    // A machine that is taken away in the middle of a job leaves one like this.
    forge.keep_busy("i-gone-1");
    let outcome = harness.refresh().await;
    assert_eq!(outcome.offline_runners, ["i-gone-2"]);
    assert_eq!(outcome.warnings, ["the runner is busy and stays on the list: i-gone-1"]);
}

#[tokio::test]
async fn terminated_records_are_forgotten_after_the_retention() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 2)).await;
    harness.sleep(Duration::from_secs(31 * 60)).await;
    assert_eq!(harness.refresh().await.reaped.len(), 2);
    harness.sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(harness.refresh().await.pruned_records, 0, "not a moment too early");
    harness.sleep(Duration::from_secs(60)).await;
    assert_eq!(harness.refresh().await.pruned_records, 0, "they are looked for once an hour");
    harness.sleep(Duration::from_secs(3600)).await;
    assert_eq!(harness.refresh().await.pruned_records, 2);
    assert!(harness.memory.store.select(|_| true).is_empty());
}

#[tokio::test]
async fn records_that_are_kept_for_minutes_are_forgotten_by_each_refresh() {
    let harness = Harness::with(&[("retention-min", "2")]).await;
    harness.provision(&request("1", 2)).await;
    harness.sleep(Duration::from_secs(31 * 60)).await;
    assert_eq!(harness.refresh().await.reaped.len(), 2);
    harness.sleep(Duration::from_secs(121)).await;
    assert_eq!(harness.refresh().await.pruned_records, 2);
    assert!(harness.memory.store.select(|_| true).is_empty());
}

#[tokio::test]
async fn a_minimum_of_idle_machines_is_kept() {
    let harness = Harness::with(&[("min-idle", "large=3")]).await;
    assert_eq!(harness.visible().await, 3);
    assert_eq!(harness.refresh().await.warmed, 0);
    assert_eq!(harness.provision(&request("1", 2)).await.count(MachineSource::Warm), 2);
    assert_eq!(harness.refresh().await.warmed, 2);
    assert_eq!(harness.visible().await, 3);
    let given = [("min-idle".to_owned(), "huge=1".to_owned())].into();
    let outcome = refresh(&harness.plane, &given, &StopSignal::never()).await.unwrap();
    assert_eq!(outcome.failure.unwrap().kind.exit_code(), 2);
    assert_eq!(harness.visible().await, 3, "the minimum of before is in force");
}

#[tokio::test]
async fn told_to_stop_while_it_warms_up_it_clears_up() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let given = [("min-idle".to_owned(), "large=2".to_owned())].into();
    let (outcome, ()) = tokio::join!(refresh(&harness.plane, &given, &stop), async {
        while harness.alive().len() < 2 {
            tokio::task::yield_now().await;
        }
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.unwrap().failure.unwrap().kind, FailureKind::Interrupted);
    assert!(harness.alive().is_empty());
    assert!(harness.memory.store.select(|record| record.state.is_live()).is_empty());
}

#[tokio::test]
async fn a_provider_that_is_down_does_not_keep_the_rest_from_being_done() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.sleep(Duration::from_secs(31 * 60)).await;
    harness.refresh().await;
    harness.sleep(Duration::from_secs(24 * 3600 + 1)).await;
    harness.memory.compute.go_down();
    let outcome = refresh(&harness.plane, &BTreeMap::new(), &StopSignal::never()).await.unwrap();
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(harness.memory.store.select(|_| true).is_empty(), "old records are gone all the same");
}

#[tokio::test]
async fn refreshes_side_by_side_keep_each_others_settings() {
    let harness = Harness::new().await;
    tokio::join!(
        harness.refresh_with(&[("idle-time-sec", "77")]),
        harness.refresh_with(&[("claim-timeout-sec", "299")]),
        harness.refresh(),
    );
    let times = harness.plane.settings().await.unwrap().times;
    assert_eq!(times.idle_time, Duration::from_secs(77));
    assert_eq!(times.claim_timeout, Duration::from_secs(299));
}

#[tokio::test]
async fn runs_whose_jobs_wait_without_a_machine_are_reported() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.memory.forge.queue_job(&run("1"));
    harness.memory.forge.queue_job(&run("2"));
    let outcome = harness.refresh().await;
    assert_eq!(outcome.stranded, [label("2")], "it never asked, so its request is unknown");
    assert_eq!(outcome.warnings, ["jobs wait for a run that has not asked for machines: 2"]);
    assert_eq!(harness.alive().len(), 1);
}

/// A run that is over, and three of whose jobs are run again.
async fn stranded(harness: &Harness, count: u32) {
    assert!(harness.provision(&request("1", count)).await.failure.is_none());
    harness.release("1").await;
    harness.sleep(Duration::from_secs(400)).await;
    harness.refresh().await;
    assert_eq!(harness.alive().len(), 0, "what it had is gone");
    for _ in 0..3 {
        harness.memory.forge.queue_job(&run("1"));
    }
}

#[tokio::test]
async fn jobs_that_are_run_again_are_given_machines_again() {
    for (asked, given) in [(2, 2), (5, 3)] {
        let harness = Harness::new().await;
        stranded(&harness, asked).await;
        let outcome = harness.refresh().await;
        assert_eq!((outcome.rescued, outcome.stranded), (vec![label("1")], vec![]));
        assert_eq!(harness.alive().len(), given, "no more than asked for, nor than jobs");
        assert!(harness.refresh().await.rescued.is_empty(), "it has machines now");
    }
}

#[tokio::test]
async fn rescue_can_be_left_to_people_or_be_off() {
    for (how, stranded_runs, warnings) in [
        ("report", vec![label("1")], vec!["jobs wait for a run that has no machine: 1".to_owned()]),
        ("off", vec![], vec![]),
    ] {
        let harness = Harness::with(&[("rescue", how)]).await;
        stranded(&harness, 2).await;
        let outcome = harness.refresh().await;
        assert_eq!((outcome.stranded, outcome.warnings), (stranded_runs, warnings), "{how}");
        assert!(outcome.rescued.is_empty() && harness.alive().is_empty(), "{how}");
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_rescued_is_reported_and_delays_no_other_run() {
    let harness = Harness::new().await;
    stranded(&harness, 2).await;
    harness.memory.compute.set_capacity(0);
    let outcome = harness.refresh().await;
    assert_eq!(outcome.stranded, [label("1")]);
    assert!(outcome.warnings[0].starts_with("run 1 cannot be rescued: "), "{outcome:?}");
    assert!(outcome.rescued.is_empty());
}

#[tokio::test]
async fn a_rescue_forgets_nothing_of_what_the_run_asked_for() {
    let harness = Harness::new().await;
    stranded(&harness, 5).await;
    assert_eq!(harness.refresh().await.rescued, [label("1")]);
    let demands = harness.memory.store.demands(&[run("1")]).await.unwrap();
    assert_eq!(demands[0].options.count, 5, "though three jobs waited this time");
}

#[tokio::test]
async fn a_run_that_cannot_be_rescued_costs_less_and_less() {
    let harness = Harness::new().await;
    stranded(&harness, 1).await;
    let before = harness.memory.compute.terminated().len();
    for n in 0..1000 {
        harness.make_defective(&format!("i-{n:04}"), MachineDefect::CannotRegister);
    }
    harness.memory.compute.set_capacity(1);
    let mut reported = 0;
    for _ in 0..288 {
        harness.sleep(Duration::from_secs(300)).await;
        let outcome = harness.refresh().await;
        reported += usize::from(outcome.stranded == [label("1")] && outcome.warnings.len() == 1);
    }
    assert_eq!(reported, 288, "it is never passed over in silence");
    let launched = harness.memory.compute.terminated().len() - before;
    assert!((5..30).contains(&launched), "in a day: {launched}");
}

fn credentials(harness: &Harness, name: &str, lifetime: Duration) -> Credentials {
    Credentials {
        registration: Secret::new(format!("{name}-in")),
        removal: Secret::new(format!("{name}-out")),
        expires_at: harness.plane.now() + lifetime,
    }
}

#[tokio::test]
async fn credentials_are_renewed_long_before_they_expire() {
    let harness = Harness::new().await;
    let hour = Duration::from_secs(3600);
    let minted = |name| credentials(&harness, name, hour * 10);
    harness.memory.forge.set_credentials(vec![minted("third"), minted("second"), minted("first")]);
    for (minutes, expected) in [(0, "first"), (29, "first"), (2, "second"), (31, "third")] {
        harness.sleep(Duration::from_secs(minutes * 60)).await;
        harness.refresh().await;
        let held = harness.memory.store.token(TokenPurpose::Registration).await.unwrap().unwrap();
        let expected = Secret::new(format!("{expected}-in"));
        assert_eq!(held.secret, expected, "after {minutes} more minutes");
    }
    let settings = format!("{:?}", Store::settings(&*harness.memory.store).await);
    assert!(!settings.contains("-in") && !settings.contains("-out"), "{settings}");
}

#[tokio::test]
async fn with_expired_credentials_nothing_is_even_launched() {
    let harness = Harness::new().await;
    let short = credentials(&harness, "short", Duration::from_secs(600));
    harness.memory.forge.set_credentials(vec![short]);
    harness.refresh().await;
    assert!(harness.provision(&request("1", 1)).await.failure.is_none());
    harness.sleep(Duration::from_secs(600)).await;
    let before = harness.plane.now();
    let failure = harness.provision(&request("2", 1)).await.failure.unwrap();
    assert_eq!(harness.plane.now().since(before), Duration::from_secs(60), "it waits for refresh");
    assert_eq!(failure.kind, FailureKind::Forge);
    assert!(failure.message.starts_with("the registration token expired at "), "{failure}");
    assert!(failure.hint.contains("ondeck refresh"), "{failure:?}");
    assert_eq!(harness.alive().len(), 1, "those of the first run");
}

#[tokio::test]
async fn a_refresh_that_cannot_renew_them_does_not_wait_for_itself() {
    let harness = Harness::new().await;
    stranded(&harness, 1).await;
    harness.sleep(Duration::from_secs(400)).await;
    let expired = credentials(&harness, "expired", Duration::ZERO);
    harness.memory.forge.set_credentials(vec![expired]);
    let before = harness.plane.now();
    let outcome = harness.refresh_with(&[("min-idle", "large=1")]).await;
    assert_eq!((outcome.stranded, outcome.warmed), (vec![label("1")], 0));
    let warned = |words: &str| outcome.warnings.iter().any(|warning| warning.contains(words));
    assert!(
        warned("run 1 cannot be rescued: the registration token expired"),
        "{:?}",
        outcome.warnings
    );
    assert!(warned("class large is below its minimum: the registration"), "{:?}", outcome.warnings);
    assert!(harness.plane.now().since(before) < Duration::from_secs(30), "it waited for itself");
}

#[tokio::test]
async fn a_refresh_that_comes_late_is_waited_for() {
    let harness = Harness::new().await;
    let hour = Duration::from_secs(3600);
    harness.memory.forge.set_credentials(vec![credentials(&harness, "first", hour)]);
    harness.refresh().await;
    harness.sleep(hour).await;
    harness.memory.forge.set_credentials(vec![credentials(&harness, "second", hour)]);
    let asked = request("1", 1);
    let (provisioned, ()) = tokio::join!(harness.provision(&asked), async {
        harness.sleep(Duration::from_secs(30)).await;
        harness.refresh().await;
    });
    assert_eq!(provisioned.failure, None);
}

#[tokio::test]
async fn refreshes_side_by_side_reap_once() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 5)).await;
    harness.sleep(Duration::from_secs(30 * 60)).await;
    let (one, other, third) = tokio::join!(harness.refresh(), harness.refresh(), harness.refresh());
    assert_eq!(one.reaped.len() + other.reaped.len() + third.reaped.len(), 5);
    assert_eq!(harness.memory.compute.terminated().len(), 5, "no machine is terminated twice");
}

#[tokio::test]
async fn settings_stay_until_they_are_given_again() {
    let harness = Harness::with(&[("idle-time-sec", "7"), ("local-capacity", "2")]).await;
    harness.refresh().await;
    let settings = harness.plane.settings().await.unwrap();
    assert_eq!(settings.times.idle_time, Duration::from_secs(7));
    assert_eq!(settings.backend["local-capacity"], "2");
    harness.refresh_with(&[("idle-time-sec", ""), ("local-capacity", "")]).await;
    let settings = harness.plane.settings().await.unwrap();
    assert_eq!(settings.times.idle_time, Duration::from_secs(300), "empty is the default");
    assert!(settings.backend.is_empty());
}
