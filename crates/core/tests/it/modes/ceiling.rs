//! The ceiling: no launch exceeds it, also when calls fail or processes are killed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::IntentId;
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::modes::provision::{MachineSource, Request, SourcePolicy, provision};
use ondeck_core::modes::refresh::{CeilingUse, refresh};
use ondeck_core::modes::release::release;
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::PartialLaunch;

use super::harness::{Harness, label, large, request, run};

const SECOND: Duration = Duration::from_secs(1);

async fn with(max: &str) -> Harness {
    Harness::with(&[("max-machines", max)]).await
}

/// The failure of a provision that finds no room.
async fn refused(harness: &Harness, request: &Request) -> Failure {
    let failure = harness.provision(request).await.failure.expect("there is no room");
    assert_eq!((failure.kind, failure.kind.exit_code()), (FailureKind::AtCeiling, 4), "{failure}");
    failure
}

async fn served(harness: &Harness, run_id: &str, count: u32) {
    let outcome = harness.provision(&request(run_id, count)).await;
    assert_eq!(outcome.failure, None, "run {run_id}");
}

async fn counted(harness: &Harness) -> u32 {
    let count = harness.plane.store.machine_count().await.unwrap();
    count.expect("refresh has counted").total
}

fn patient(run_id: &str, count: u32, patience: Duration) -> Request {
    let times = TimeOverrides(vec![("ceiling-patience-sec", patience)]);
    Request { times, ..request(run_id, count) }
}

#[tokio::test]
async fn a_launch_above_the_ceiling_of_the_pool_is_refused_with_the_numbers() {
    let harness = with("3").await;
    served(&harness, "1", 2).await;
    let failure = refused(&harness, &request("2", 2)).await;
    assert_eq!(failure.message, "the pool has 2 of 3 machines, 2 more are needed");
    assert!(
        failure.hint.contains("--ceiling-patience-sec") && failure.hint.contains("--max-machines")
    );
    assert_eq!(harness.alive().len(), 2);
    served(&harness, "3", 1).await;
    let failure = refused(&harness, &request("2", 1)).await;
    assert_eq!(failure.message, "the pool has 3 of 3 machines, 1 more is needed");
    assert_eq!(harness.memory.compute.ordered().len(), 2, "a refused launch is not ordered");
}

#[tokio::test]
async fn a_class_has_a_ceiling_of_its_own() {
    let harness = with("4 large=1").await;
    served(&harness, "1", 1).await;
    let failure = refused(&harness, &request("2", 1)).await;
    assert_eq!(failure.message, "class large has 1 of 1 machines, 1 more is needed");
    let mut other = request("3", 3);
    other.options.class = "xlarge".parse().unwrap();
    assert_eq!(harness.provision(&other).await.failure, None);
    let failure = refused(&harness, &request("2", 1)).await;
    let both = "the pool has 4 of 4 machines and class large has 1 of 1, 1 more is needed";
    assert_eq!(failure.message, both);
    let ceilings = harness.refresh().await.ceilings;
    let of_pool = CeilingUse { class: None, machines: 4, max: 4 };
    let of_class = CeilingUse { class: Some(large()), machines: 1, max: 1 };
    assert_eq!(ceilings, [of_pool, of_class]);
}

#[tokio::test]
async fn of_many_concurrent_provisions_no_more_are_served_than_there_is_room_for() {
    let harness = with("5").await;
    let requests: Vec<Request> = (0..8).map(|n| request(&format!("{n}"), 1)).collect();
    let outcomes =
        futures_util::future::join_all(requests.iter().map(|one| harness.provision(one))).await;
    let failed: Vec<_> = outcomes.iter().filter_map(|it| it.failure.as_ref()).collect();
    assert_eq!((outcomes.len() - failed.len(), harness.alive().len()), (5, 5));
    assert!(failed.iter().all(|failure| failure.kind == FailureKind::AtCeiling), "{failed:?}");
}

#[tokio::test]
async fn idle_machines_are_claimed_at_the_ceiling_without_a_reservation() {
    let harness = with("2").await;
    served(&harness, "1", 2).await;
    harness.release("1").await;
    let before = harness.memory.store.calls().get("reserve").copied();
    let outcome = harness.provision(&request("2", 2)).await;
    assert_eq!((outcome.failure.clone(), outcome.count(MachineSource::Warm)), (None, 2));
    assert_eq!(harness.memory.store.calls().get("reserve").copied(), before);
}

#[tokio::test]
async fn what_was_claimed_returns_if_there_is_no_room_for_the_rest() {
    let harness = with("2").await;
    harness.idle("i-idle", "c6i.large").await;
    harness.refresh().await;
    let failure = refused(&harness, &request("1", 3)).await;
    assert_eq!(failure.message, "the pool has 1 of 2 machines, 2 more are needed");
    assert_eq!(harness.state("i-idle"), State::Idle);
    assert_eq!((harness.alive(), harness.visible().await), (vec!["i-idle".to_owned()], 1));
    let outcome = harness.provision(&request("2", 2)).await;
    assert_eq!(outcome.failure, None, "a claimed machine and a new one");
}

#[tokio::test]
async fn without_a_ceiling_provision_and_refresh_make_no_call_for_it() {
    let harness = Harness::new().await;
    served(&harness, "1", 2).await;
    harness.refresh().await;
    let calls = harness.memory.store.calls();
    for call in ["reserve", "settle_reservation", "machine_count", "replace_machine_count"] {
        assert_eq!(calls.get(call), None, "{call}");
    }
    let harness = with("xlarge=1").await;
    served(&harness, "1", 2).await;
    assert_eq!(harness.memory.store.calls().get("reserve"), None, "large has no ceiling");
    let harness = with("9").await;
    served(&harness, "1", 2).await;
    let calls = harness.memory.store.calls();
    assert_eq!((calls["reserve"], calls["settle_reservation"]), (1, 1));
}

#[tokio::test]
async fn what_was_not_launched_is_given_back_at_once() {
    let harness = with("5").await;
    harness.memory.compute.serve_next([PartialLaunch::NoCapacity(3)]);
    let request_of_five = request("1", 5);
    let provisioning = harness.provision(&request_of_five);
    let outcome = provisioning.await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    assert!(counted(&harness).await <= 3, "the other two were never launched");
    served(&harness, "2", 2).await;
    harness.refresh().await;
    assert_eq!(counted(&harness).await, 2, "what exists");
    served(&harness, "3", 3).await;
}

#[tokio::test]
async fn each_order_of_a_fallback_has_places_of_its_own() {
    let harness = with("2").await;
    let mut cheap = request("1", 2);
    (cheap.options.usage, cheap.options.capacity_fallback) = (UsageClass::Spot, true);
    harness.memory.compute.serve_next([PartialLaunch::NoCapacity(1), PartialLaunch::NoCapacity(0)]);
    let outcome = harness.provision(&cheap).await;
    assert_eq!(outcome.failure, None);
    let orders = [(UsageClass::Spot, 2), (UsageClass::Spot, 1), (UsageClass::OnDemand, 1)];
    assert_eq!(harness.memory.compute.ordered(), orders);
    assert_eq!((counted(&harness).await, harness.alive().len()), (2, 2));
    let mut throttled = request("2", 3);
    throttled.options.machine_source = SourcePolicy::New;
    harness.refresh_with(&[("max-machines", "5")]).await;
    harness.memory.compute.serve_next([PartialLaunch::Throttled(1), PartialLaunch::Throttled(0)]);
    assert_eq!(harness.provision(&throttled).await.failure, None);
    assert_eq!((counted(&harness).await, harness.alive().len()), (5, 5));
}

#[tokio::test]
async fn a_launch_whose_outcome_is_unknown_counts_until_refresh_has_settled_it() {
    let harness = with("2").await;
    harness.memory.compute.lose_launches();
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Unavailable);
    harness.refresh().await;
    assert_eq!(counted(&harness).await, 2, "they may exist, and are on no list");
    let failure = refused(&harness, &request("2", 1)).await;
    assert_eq!(failure.message, "the pool has 2 of 2 machines, 1 more is needed");
    harness.memory.compute.list_all();
    harness.sleep(601 * SECOND).await;
    harness.refresh().await;
    assert_eq!((counted(&harness).await, harness.alive().len()), (0, 0));
}

#[tokio::test]
async fn a_killed_provision_frees_its_places_after_its_deadline() {
    for (call, times) in [("reserve", 1), ("settle_reservation", 1)] {
        let harness = with("2").await;
        let killed = request("1", 2);
        tokio::select! {
            biased;
            () = async {
                while harness.memory.store.calls().get(call).copied() != Some(times) {
                    tokio::task::yield_now().await;
                }
            } => {}
            _ = harness.provision(&killed) => panic!("killed before its end"),
        }
        harness.refresh().await;
        let alive = u32::try_from(harness.alive().len()).unwrap();
        assert!(counted(&harness).await >= alive.max(2), "killed after {call}");
        refused(&harness, &request("2", 1)).await;
        harness.sleep(660 * SECOND).await;
        harness.refresh().await;
        assert_eq!(harness.alive().len(), 0, "killed after {call}");
        harness.refresh().await;
        assert_eq!(counted(&harness).await, 0, "killed after {call}");
        served(&harness, "2", 2).await;
    }
}

#[tokio::test]
async fn a_ceiling_below_what_exists_ends_no_machine_and_refuses_launches() {
    let harness = with("3").await;
    served(&harness, "1", 3).await;
    harness.refresh_with(&[("max-machines", "1")]).await;
    assert_eq!(harness.alive().len(), 3);
    let failure = refused(&harness, &request("2", 1)).await;
    assert_eq!(failure.message, "the pool has 3 of 1 machines, 1 more is needed");
    harness.refresh_with(&[("max-machines", "4")]).await;
    served(&harness, "2", 1).await;
    harness.refresh_with(&[("max-machines", "")]).await;
    served(&harness, "3", 5).await;
    harness.refresh_with(&[("max-machines", "9")]).await;
    assert_eq!(counted(&harness).await, 9, "also what was launched while there was no ceiling");
    refused(&harness, &request("4", 1)).await;
}

#[tokio::test]
async fn a_new_ceiling_counts_machines_and_launches_that_knew_of_none() {
    let harness = Harness::new().await;
    served(&harness, "1", 2).await;
    let under_way = Intent {
        id: IntentId::new("unaware").unwrap(),
        run: run("2"),
        class: Some(large()),
        count: 3,
        usage: UsageClass::Spot,
        deadline: harness.plane.now() + 600 * SECOND,
        outcome: String::new(),
    };
    harness.plane.store.put_intent(&under_way).await.unwrap();
    harness.refresh_with(&[("max-machines", "6 large=5")]).await;
    let failure = refused(&harness, &request("3", 1)).await;
    assert_eq!(failure.message, "class large has 5 of 5 machines, 1 more is needed");
    let closed = Intent { outcome: "launched 0 of 3".to_owned(), ..under_way };
    harness.plane.store.put_intent(&closed).await.unwrap();
    harness.refresh().await;
    served(&harness, "3", 3).await;
}

#[tokio::test]
async fn nothing_is_launched_before_the_machines_are_counted() {
    let harness = Harness::new().await;
    served(&harness, "1", 2).await;
    let since = harness.plane.now().to_string();
    let set = [("max-machines", "2"), ("ceiling-since", since.as_str())];
    let set: BTreeMap<String, String> =
        set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    harness.plane.store.put_settings(&set).await.unwrap();
    let outcome = harness.provision(&request("2", 1)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::AtCeiling);
    assert_eq!(failure.message, "the machines below max-machines are not counted yet");
    assert!(outcome.timings.total >= 30 * SECOND, "a refresh may be counting");
    let (second, ()) = (request("3", 1), ());
    let (outcome, _) = tokio::join!(harness.provision(&second), async {
        harness.sleep(5 * SECOND).await;
        harness.refresh().await
    });
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.message, "the pool has 2 of 2 machines, 1 more is needed");
}

#[tokio::test]
async fn a_machine_counts_until_refresh_sees_that_it_is_gone() {
    let harness = with("2").await;
    served(&harness, "1", 2).await;
    harness.memory.compute.kill(&"i-0001".parse().unwrap());
    refused(&harness, &request("2", 1)).await;
    harness.refresh().await;
    assert_eq!(counted(&harness).await, 2, "its heartbeat is recent");
    harness.sleep(20 * SECOND).await;
    harness.refresh().await;
    assert_eq!(counted(&harness).await, 1);
    served(&harness, "2", 1).await;
}

#[tokio::test]
async fn a_list_that_lags_frees_no_place_unless_the_records_tell_what_is_gone() {
    let harness = with("3").await;
    harness.memory.compute.list_late(300 * SECOND);
    served(&harness, "1", 2).await;
    served(&harness, "2", 1).await;
    harness.refresh().await;
    assert_eq!(counted(&harness).await, 3, "they exist and are not listed yet");
    let at_once = TimeOverrides(vec![("idle-time-sec", Duration::ZERO)]);
    release(&harness.plane, &run("1"), &at_once).await.unwrap();
    harness.sleep(SECOND).await;
    harness.refresh().await;
    harness.refresh().await;
    assert_eq!((harness.alive().len(), counted(&harness).await), (1, 1));
    served(&harness, "3", 2).await;
    // The clocks of launchers may be 10 s apart from that of refresh.
    harness.sleep(311 * SECOND).await;
    harness.refresh().await;
    assert_eq!(counted(&harness).await, 3);
    let count = harness.plane.store.machine_count().await.unwrap().unwrap();
    assert_eq!(count.reservations.len(), 0, "the list shows all of them");
}

/// The launcher's clock says when a machine was launched, that of refresh when the list was made.
#[tokio::test]
async fn a_refresh_whose_clock_is_ahead_frees_no_place() {
    let harness = with("1").await;
    harness.memory.compute.list_late(20 * SECOND);
    served(&harness, "1", 1).await;
    let ahead = harness.plane_ahead();
    harness.sleep(15 * SECOND).await;
    // The heartbeat of its agent would show that it runs.
    harness.memory.store.unlist(&"i-0001".parse().unwrap());
    refresh(&ahead, &BTreeMap::new(), &StopSignal::never()).await.unwrap();
    assert_eq!(counted(&harness).await, 1, "it is listed later");
}

#[tokio::test]
async fn a_refresh_whose_provider_is_out_of_reach_leaves_the_count_alone() {
    let harness = with("2").await;
    served(&harness, "1", 2).await;
    harness.sleep(700 * SECOND).await;
    harness.memory.compute.go_down();
    let outcome = refresh(&harness.plane, &BTreeMap::new(), &StopSignal::never()).await;
    assert_eq!(outcome.unwrap().ceilings, []);
    assert_eq!(counted(&harness).await, 2);
}

#[tokio::test]
async fn refresh_keeps_no_more_warm_than_there_is_room_for() {
    let harness = Harness::with(&[("max-machines", "3"), ("min-idle", "large=4")]).await;
    assert_eq!(harness.alive().len(), 3, "as many as there is room for");
    served(&harness, "1", 3).await;
    let outcome = harness.refresh().await;
    assert_eq!(harness.alive().len(), 3);
    let warnings = outcome.warnings.join("\n");
    assert!(warnings.contains("the pool has 3 of 3 machines, 4 more are needed"), "{warnings}");
}

#[tokio::test]
async fn a_rescue_waits_for_room_without_backing_off() {
    let harness = with("1").await;
    served(&harness, "1", 1).await;
    harness.release("1").await;
    served(&harness, "2", 1).await;
    harness.memory.forge.queue_job(&run("1"));
    let started = harness.plane.clock.steady();
    let outcome = harness.refresh().await;
    assert_eq!((outcome.stranded, outcome.rescued), (vec![label("1")], vec![]));
    let warnings = outcome.warnings.join("\n");
    assert!(warnings.contains("the pool has 1 of 1 machines, 1 more is needed"), "{warnings}");
    assert!(harness.plane.clock.steady() - started < 20 * SECOND, "refresh does not wait for room");
    harness.refresh_with(&[("max-machines", "2")]).await;
    assert_eq!(harness.alive().len(), 2, "it is rescued as soon as there is room");
}

#[tokio::test]
async fn a_patient_provision_takes_what_is_released() {
    let harness = with("1").await;
    served(&harness, "1", 1).await;
    let waiting = patient("2", 1, 600 * SECOND);
    let (outcome, ()) = tokio::join!(harness.provision(&waiting), async {
        harness.sleep(100 * SECOND).await;
        harness.release("1").await;
    });
    assert_eq!((outcome.failure.clone(), outcome.count(MachineSource::Warm)), (None, 1));
    assert!(outcome.timings.total < 130 * SECOND, "{:?}", outcome.timings);
    assert_eq!(harness.alive().len(), 1);
}

#[tokio::test]
async fn a_patient_provision_launches_when_there_is_room() {
    let harness = with("3").await;
    served(&harness, "1", 2).await;
    harness.idle("i-idle", "c6i.large").await;
    harness.refresh().await;
    let mut waiting = patient("2", 3, 900 * SECOND);
    waiting.times.0.push(("max-runtime-min", 3600 * SECOND));
    let at_once = TimeOverrides(vec![("idle-time-sec", Duration::ZERO)]);
    let (outcome, ()) = tokio::join!(harness.provision(&waiting), async {
        harness.sleep(800 * SECOND).await;
        release(&harness.plane, &run("1"), &at_once).await.unwrap();
        harness.sleep(SECOND).await;
        harness.refresh().await;
    });
    assert_eq!(outcome.failure, None);
    let sources = (outcome.count(MachineSource::Warm), outcome.count(MachineSource::Cold));
    assert_eq!(sources, (1, 2), "the claimed machine has outlasted the wait");
    assert_eq!(harness.alive().len(), 3);
}

#[tokio::test]
async fn patience_ends_and_is_not_spent_on_what_can_never_fit() {
    let harness = with("2").await;
    served(&harness, "1", 2).await;
    let outcome = harness.provision(&patient("2", 1, 40 * SECOND)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::AtCeiling);
    let total = outcome.timings.total;
    assert!(total >= 40 * SECOND && total < 50 * SECOND, "{total:?}");
    let hopeless = harness.provision(&patient("3", 3, 40 * SECOND)).await;
    let failure = hopeless.failure.unwrap();
    assert_eq!(failure.message, "the pool has 2 of 2 machines, 3 more are needed");
    assert!(hopeless.timings.total < 10 * SECOND, "{:?}", hopeless.timings);
    let stored = harness.refresh_with(&[("ceiling-patience-sec", "60")]).await;
    assert_eq!(stored.failure, None);
    let outcome = provision(&harness.plane, &request("4", 1), &StopSignal::never()).await;
    assert!(outcome.timings.total >= 60 * SECOND, "the stored patience holds without another");
}

/// Yields this often, which lets a provision beside it make about as many calls.
async fn turns(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Fails as soon as there are more machines than the ceiling allows.
async fn watch(harness: &Harness, max: usize) {
    loop {
        let alive = harness.alive();
        assert!(alive.len() <= max, "{alive:?}");
        tokio::task::yield_now().await;
    }
}

/// Other runs launch and refresh counts at the same time.
#[tokio::test]
async fn a_provision_that_is_killed_at_any_moment_neither_exceeds_nor_blocks_the_ceiling() {
    // The calls of a launch come early, those that wait for agents are many.
    for moment in std::iter::successors(Some(0), |last| Some(last + 1 + last / 6)) {
        let rare = [("agent-poll-waiting-sec", "5"), ("agent-poll-running-sec", "5")];
        let harness = Harness::with(&[&[("max-machines", "3")], &rare[..]].concat()).await;
        served(&harness, "0", 1).await;
        let killed = request("1", 2);
        let finished = tokio::select! {
            biased;
            () = turns(moment) => false,
            _ = harness.provision(&killed) => true,
        };
        let (two, one) = (request("2", 2), request("3", 1));
        let rest = async {
            let (_, _, refreshed) =
                tokio::join!(harness.provision(&two), harness.provision(&one), harness.refresh());
            assert_eq!(refreshed.failure, None);
            harness.refresh().await;
            let alive = u32::try_from(harness.alive().len()).unwrap();
            assert!(counted(&harness).await >= alive, "killed after {moment} turns");
            for run_id in ["0", "1", "2", "3"] {
                release(&harness.plane, &run(run_id), &TimeOverrides::default()).await.unwrap();
            }
            harness.sleep(700 * SECOND).await;
            harness.refresh().await;
            harness.refresh().await;
            assert_eq!((counted(&harness).await, harness.alive().len()), (0, 0));
            served(&harness, "4", 3).await;
        };
        tokio::select! {
            () = watch(&harness, 3) => {}
            () = rest => {}
        }
        if finished {
            return;
        }
    }
}

#[tokio::test]
async fn a_refresh_that_is_killed_at_any_moment_leaves_a_count_that_holds() {
    for moment in 0.. {
        let harness = with("3").await;
        served(&harness, "0", 2).await;
        harness.memory.compute.kill(&"i-0001".parse().unwrap());
        harness.sleep(20 * SECOND).await;
        let requests: Vec<Request> = (1..4).map(|n| request(&format!("{n}"), 1)).collect();
        let given = BTreeMap::new();
        let never = StopSignal::never();
        let launches = requests.iter().map(|one| harness.provision(one));
        let (finished, served) = tokio::select! {
            () = watch(&harness, 3) => unreachable!("it watches until the others are done"),
            done = futures_util::future::join(
                async {
                    tokio::select! {
                        biased;
                        () = turns(moment) => false,
                        _ = refresh(&harness.plane, &given, &never) => true,
                    }
                },
                futures_util::future::join_all(launches),
            ) => done,
        };
        let served = served.iter().filter(|outcome| outcome.failure.is_none()).count();
        assert!((1..=2).contains(&served), "{served} served, killed after {moment} turns");
        harness.refresh().await;
        let alive = harness.alive().len();
        assert_eq!(counted(&harness).await, u32::try_from(alive).unwrap());
        if finished {
            return;
        }
    }
}

/// Refresh lists the machines first and reads the count last. What is launched and settled in
/// between is in neither.
#[tokio::test]
async fn a_launch_beside_a_refresh_counts_at_every_interleaving() {
    for delay in 0..60 {
        let harness = with("1").await;
        let (launched, other) = (request("1", 1), request("2", 1));
        let (_, outcome) = tokio::join!(harness.refresh(), async {
            turns(delay).await;
            harness.provision(&launched).await
        });
        assert_eq!(outcome.failure, None);
        assert!(counted(&harness).await >= 1, "launched after {delay} turns");
        refused(&harness, &other).await;
    }
}

/// A refresh that is held up lists no machine, or the reservation of one, or neither. Meanwhile another
/// has counted the new machine and dropped its reservation.
#[tokio::test]
async fn a_refresh_that_is_held_up_does_not_replace_a_later_count() {
    for moment in 0.. {
        let harness = with("1").await;
        let mut held_up = pin!(harness.refresh());
        let finished = tokio::select! {
            biased;
            () = turns(moment) => false,
            _ = &mut held_up => true,
        };
        served(&harness, "1", 1).await;
        harness.sleep(600 * SECOND).await;
        harness.refresh().await;
        assert_eq!(counted(&harness).await, 1);
        if finished {
            return;
        }
        held_up.await;
        assert_eq!(counted(&harness).await, 1, "held up after {moment} turns");
        refused(&harness, &request("2", 1)).await;
    }
}
