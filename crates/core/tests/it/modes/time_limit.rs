//! A refresh with a time limit: it waits for no machine, and the next one continues.

use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::record::State;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::refresh::{self, refresh_within};
use ondeck_core::modes::release::release;
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, label, request, run};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(45);

async fn tick(harness: &Harness) -> refresh::Outcome {
    let given = std::collections::BTreeMap::new();
    let begun = harness.plane.clock.steady();
    let never = StopSignal::never();
    let outcome = refresh_within(&harness.plane, None, Ok(&given), LIMIT, &never).await.unwrap();
    assert!(harness.plane.clock.steady() - begun <= LIMIT, "it ends in time");
    assert_eq!(outcome.failure, None);
    outcome
}

/// Refreshes and waits for the next minute.
async fn minute(harness: &Harness) -> refresh::Outcome {
    let begun = harness.plane.clock.steady();
    let outcome = tick(harness).await;
    harness.sleep((begun + MINUTE).saturating_sub(harness.plane.clock.steady())).await;
    outcome
}

fn launched(harness: &Harness) -> u32 {
    harness.memory.compute.ordered().iter().map(|(_, count)| count).sum()
}

/// A pool whose machines take this long until their runners are registered.
async fn slow(machines: usize, boot: Duration) -> Harness {
    let harness = Harness::new().await;
    for n in 1..=machines {
        let name = format!("i-{n:04}");
        harness.make_defective(&name, MachineDefect::RegistersAfter(boot));
    }
    harness
}

async fn keep(harness: &Harness, minimum: &str) {
    let given = [("min-idle".to_owned(), minimum.to_owned())].into();
    let stored = harness.plane.store.put_settings(&given).await;
    stored.unwrap();
}

#[tokio::test]
async fn a_minimum_is_launched_once_and_idle_when_it_has_booted() {
    let harness = slow(2, 90 * SECOND).await;
    keep(&harness, "large=2").await;
    let begun = harness.plane.clock.steady();
    let first = tick(&harness).await;
    assert_eq!((first.starting, first.warmed, launched(&harness)), (2, 0, 2));
    assert!(harness.plane.clock.steady() - begun < SECOND, "it waits for no machine");
    assert_eq!(harness.state("i-0001"), State::Created);
    harness.sleep(MINUTE).await;
    let second = minute(&harness).await;
    assert_eq!((second.starting, second.warmed, launched(&harness)), (2, 0, 2));
    let third = tick(&harness).await;
    assert_eq!((third.starting, third.warmed, launched(&harness)), (0, 2, 2));
    assert_eq!((harness.idle_machines().len(), harness.visible().await), (2, 2));
    for _ in 0..3 {
        minute(&harness).await;
    }
    assert_eq!((harness.idle_machines().len(), launched(&harness)), (2, 2));
    harness.assert_never_shared();
}

#[tokio::test]
async fn overlapping_refreshes_launch_once() {
    for delay in [0, 1, 5, 50, 500, 2_000] {
        let harness = slow(4, 90 * SECOND).await;
        keep(&harness, "large=2").await;
        let later = async {
            harness.sleep(Duration::from_millis(delay)).await;
            tick(&harness).await
        };
        let (one, other) = tokio::join!(tick(&harness), later);
        // Of two that begin at the same moment, either may be the one that launches.
        let starting = if delay == 0 { one.starting + other.starting } else { one.starting };
        assert_eq!((starting, launched(&harness)), (2, 2), "{delay} ms");
        tick(&harness).await;
        assert_eq!(launched(&harness), 2, "{delay} ms");
    }
}

#[tokio::test]
async fn a_lease_of_a_killed_refresh_ends() {
    let harness = slow(2, SECOND).await;
    keep(&harness, "large=1").await;
    let (given, never) = (std::collections::BTreeMap::new(), StopSignal::never());
    // Dropped at some point between its first call and its last.
    for turns in 0..400 {
        let mut refreshing =
            Box::pin(refresh_within(&harness.plane, None, Ok(&given), LIMIT, &never));
        for _ in 0..turns {
            if futures_util::poll!(&mut refreshing).is_ready() {
                break;
            }
        }
    }
    harness.sleep(2 * MINUTE).await;
    for _ in 0..4 {
        minute(&harness).await;
    }
    assert_eq!(harness.idle_machines().len(), 1);
    let lost = harness.memory.compute.terminated().len();
    assert!(launched(&harness) as usize <= 1 + lost, "{} and {lost}", launched(&harness));
}

#[tokio::test]
async fn a_machine_that_does_not_become_ready_is_not_launched_again_before_its_threshold() {
    let harness = Harness::new().await;
    for n in 1..=3 {
        harness.make_defective(&format!("i-{n:04}"), MachineDefect::CannotRegister);
    }
    keep(&harness, "large=1").await;
    for _ in 0..9 {
        minute(&harness).await;
    }
    let warned = tick(&harness).await.warnings.join(" ");
    assert!(warned.contains("class large is below its minimum: machine i-0001"), "{warned}");
    assert_eq!(launched(&harness), 1);
    harness.sleep(2 * MINUTE).await;
    minute(&harness).await;
    assert_eq!(launched(&harness), 2, "its threshold has passed");
}

#[tokio::test]
async fn a_machine_that_is_too_old_stays_until_its_replacement_is_idle() {
    let harness = Harness::with(&[("min-idle", "large=1")]).await;
    assert_eq!(harness.idle_machines().len(), 1);
    harness.make_defective("i-0002", MachineDefect::RegistersAfter(90 * SECOND));
    harness.sleep(11 * MINUTE).await;
    let given = [("max-machine-age-min".to_owned(), "10".to_owned())].into();
    harness.plane.store.put_settings(&given).await.unwrap();
    for _ in 0..2 {
        assert_eq!(minute(&harness).await.rotated, []);
        assert!(harness.idle_machines().contains("i-0001"));
    }
    minute(&harness).await;
    minute(&harness).await;
    assert_eq!(harness.idle_machines(), ["i-0002".to_owned()].into());
    assert_eq!(launched(&harness), 2);
}

/// All machines are too old, and there are more than the minimum needs.
#[tokio::test]
async fn a_machine_that_is_too_old_goes_if_others_are_idle_in_its_place() {
    let harness = Harness::with(&[("min-idle", "large=2")]).await;
    harness.sleep(11 * MINUTE).await;
    let given = [("max-machine-age-min", "10"), ("min-idle", "large=1")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    harness.plane.store.put_settings(&given).await.unwrap();
    assert_eq!(tick(&harness).await.rotated.len(), 1);
    assert_eq!((harness.idle_machines().len(), launched(&harness)), (1, 2));
}

#[tokio::test]
async fn a_rescue_goes_on_over_several_refreshes() {
    let harness = Harness::new().await;
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    harness.make_defective("i-0002", MachineDefect::RegistersAfter(90 * SECOND));
    harness.memory.compute.kill(&id("i-0001"));
    harness.memory.forge.queue_job(&run("1"));
    harness.sleep(MINUTE).await;
    let begun = harness.plane.clock.steady();
    assert_eq!(tick(&harness).await.rescued, [label("1")]);
    assert!(harness.plane.clock.steady() - begun < 5 * SECOND, "it waits for no machine");
    assert_eq!(harness.state("i-0002"), State::Created);
    harness.sleep(MINUTE).await;
    assert_eq!(minute(&harness).await.rescued, [], "it is under way");
    tick(&harness).await;
    assert_eq!((harness.state("i-0002"), launched(&harness)), (State::Running, 2));
    let demands = harness.plane.store.demands(&[run("1")]).await.unwrap();
    assert_eq!((demands[0].failed_rescues, demands[0].lease), (None, None));
}

/// The release expires the new machine by its own clock, so the record says that it has seconds left.
#[tokio::test]
async fn a_machine_that_a_release_whose_clock_is_ahead_has_expired_is_not_handed_over() {
    let harness = Harness::new().await;
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    harness.make_defective("i-0002", MachineDefect::RegistersAfter(30 * SECOND));
    harness.memory.compute.kill(&id("i-0001"));
    harness.memory.forge.queue_job(&run("1"));
    harness.sleep(MINUTE).await;
    assert_eq!(tick(&harness).await.rescued, [label("1")]);
    harness.sleep(MINUTE).await;
    let (ahead, of, as_set) = (harness.plane_ahead(), run("1"), TimeOverrides::default());
    let releasing = release(&ahead, &of, &as_set);
    let ticks = async {
        harness.sleep(SECOND).await;
        let record = harness.record("i-0002").expect("it is registered");
        assert!(!record.is_expired(harness.plane.now()), "its clock is behind");
        tick(&harness).await;
        assert_eq!(harness.state("i-0002"), State::Created);
        harness.sleep(10 * SECOND).await;
        tick(&harness).await;
        assert_eq!(harness.state("i-0002"), State::Terminated);
    };
    let (released, ()) = tokio::join!(releasing, ticks);
    assert_eq!(released.unwrap().instances.len(), 2);
}

#[tokio::test]
async fn a_rescue_whose_machine_never_comes_up_waits_longer_each_time() {
    let harness = Harness::with(&[("created-timeout-sec", "200"), ("idle-time-sec", "0")]).await;
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    for n in 2..9 {
        harness.make_defective(&format!("i-{n:04}"), MachineDefect::NeverBoots);
    }
    harness.memory.compute.kill(&id("i-0001"));
    harness.memory.forge.queue_job(&run("1"));
    let mut rescues = Vec::new();
    for minute_of in 0..22 {
        if !minute(&harness).await.rescued.is_empty() {
            rescues.push(minute_of);
        }
    }
    // After 4 minutes, then after 8 more.
    let pauses: Vec<u32> = rescues.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [4, 8], "{rescues:?}");
}

#[tokio::test]
async fn a_rescue_from_the_pool_ends_in_one_refresh() {
    let harness = Harness::new().await;
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    harness.idle("i-idle", "c6i.large").await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.memory.forge.queue_job(&run("1"));
    harness.sleep(MINUTE).await;
    assert_eq!(tick(&harness).await.rescued, [label("1")]);
    assert_eq!((harness.state("i-idle"), launched(&harness)), (State::Running, 1));
}

/// The provision of a run waits for two machines, and a refresh sees the first of them ready.
#[tokio::test]
async fn a_provision_at_work_keeps_what_a_refresh_hands_over() {
    let harness = Harness::new().await;
    harness.make_defective("i-0002", MachineDefect::RegistersAfter(60 * SECOND));
    let asked = request("1", 2);
    let ticks = async {
        harness.sleep(30 * SECOND).await;
        tick(&harness).await;
        assert_eq!(harness.state("i-0001"), State::Running);
        assert_eq!(harness.state("i-0002"), State::Created);
    };
    let (outcome, ()) = tokio::join!(harness.provision(&asked), ticks);
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.count(MachineSource::Cold), 2);
    assert_eq!(harness.state("i-0002"), State::Running);
}

#[tokio::test]
async fn a_signal_still_stops_a_refresh_with_a_limit() {
    let harness = slow(1, SECOND).await;
    keep(&harness, "large=1").await;
    let (switch, stop) = StopSignal::new();
    switch.raise(Stop::Terminated);
    let given = std::collections::BTreeMap::new();
    let stopped = refresh_within(&harness.plane, None, Ok(&given), LIMIT, &stop).await;
    assert_eq!(stopped.unwrap_err().kind, FailureKind::Stopped);
    assert_eq!(launched(&harness), 0);
}

/// A completed run whose agent takes longer to leave than a refresh waits.
#[tokio::test]
async fn a_handshake_that_takes_too_long_is_left_to_the_next_refresh() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::TakesJobAfter(SECOND));
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    harness.memory.forge.complete(run("1"));
    let begun = harness.plane.clock.steady();
    tick(&harness).await;
    assert!(harness.plane.clock.steady() - begun < 15 * SECOND);
    assert_eq!(harness.state("i-0001"), State::Idle);
}
