//! Machines that are slow to register: a second one is claimed in time, and none is lost.

use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::heartbeat::{Heartbeat, PROTOCOL};
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::modes::provision::{MachineSource, Request, SourcePolicy};
use ondeck_core::ports::AgentStore;
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, label, names, request, run, spec};

const HOUR: Duration = Duration::from_secs(3_600);
const SLOW: MachineDefect = MachineDefect::RegistersAfter(Duration::from_secs(30));

fn from_pool(run_id: &str, count: u32) -> Request {
    let mut request = request(run_id, count);
    request.options.machine_source = SourcePolicy::Pool;
    request
}

/// Asserts that the machine is in the pool and another run gets it.
async fn assert_claimable(harness: &Harness, machine: &str) {
    assert_eq!(harness.state(machine), State::Idle);
    let next = harness.provision(&from_pool("next", 1)).await;
    assert_eq!(names(&next.instances), [machine.to_owned()].into(), "{:?}", next.failure);
}

#[tokio::test]
async fn one_slow_machine_costs_the_hedge_delay_and_is_not_lost() {
    let harness = Harness::new().await;
    harness.make_defective("i-slow", SLOW);
    harness.idle("i-slow", "c6i.large").await;
    harness.idle("i-quick", "c6i.large").await;
    let begun = harness.plane.clock.steady();
    let outcome = harness.provision(&from_pool("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-quick".to_owned()].into());
    let took = harness.plane.clock.steady() - begun;
    assert!(took < Duration::from_secs(7), "the delay is 4 s, and the loser has 2: {took:?}");
    assert_eq!((outcome.search.hedges, outcome.search.given_back), (1, 1));
    assert_claimable(&harness, "i-slow").await;
    assert_eq!(harness.record("i-slow").unwrap().counts.missed_registrations, 0);
    harness.assert_never_shared();
}

#[tokio::test]
async fn the_first_machine_wins_if_it_is_ready_before_the_second() {
    let harness = Harness::new().await;
    let after = |seconds| MachineDefect::RegistersAfter(Duration::from_secs(seconds));
    harness.make_defective("i-first", after(6));
    harness.idle("i-first", "c6i.large").await;
    harness.make_defective("i-second", after(30));
    harness.idle("i-second", "c6i.large").await;
    let outcome = harness.provision(&from_pool("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-first".to_owned()].into());
    assert_eq!(harness.state("i-second"), State::Idle);
    assert_eq!((outcome.search.hedges, harness.visible().await), (1, 1));
}

#[tokio::test]
async fn a_slow_forge_is_waited_for_and_loses_no_machine() {
    let harness = Harness::new().await;
    let machines: Vec<String> = (0..12).map(|n| format!("i-{n:02}")).collect();
    for name in &machines {
        harness.make_defective(name, SLOW);
        harness.idle(name, "c6i.large").await;
    }
    let outcome = harness.provision(&from_pool("1", 8)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 8);
    assert_eq!((outcome.search.hedges, outcome.search.unhealthy), (0, 0));
    assert_eq!(harness.alive().len(), 12);
    assert_eq!(harness.visible().await, 4, "the others were left to other runs");
}

#[tokio::test]
async fn at_most_a_quarter_of_the_machines_is_hedged() {
    let harness = Harness::new().await;
    for n in 0..3 {
        harness.make_defective(&format!("i-slow{n}"), SLOW);
        harness.idle(&format!("i-slow{n}"), "c6i.large").await;
    }
    for n in 0..20 {
        harness.idle(&format!("i-quick{n:02}"), "c6i.large").await;
    }
    let outcome = harness.provision(&from_pool("1", 8)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 8);
    assert_eq!(outcome.search.hedges, 2, "of three that were late");
    assert_eq!(harness.alive().len(), 23);
}

#[tokio::test]
async fn a_machine_that_misses_one_registration_goes_back_and_one_that_misses_two_is_retired() {
    let harness = Harness::new().await;
    harness.make_defective("i-mute", MachineDefect::NeverRegisters);
    harness.idle("i-mute", "c6i.large").await;
    let first = harness.provision(&from_pool("1", 1)).await;
    assert_eq!(first.failure.unwrap().kind, FailureKind::NoCapacity);
    assert_eq!((first.search.given_back, first.search.unhealthy), (1, 0));
    let given_back = harness.record("i-mute").unwrap();
    assert_eq!((given_back.state, given_back.counts.missed_registrations), (State::Idle, 1));
    let second = harness.provision(&from_pool("2", 1)).await;
    assert_eq!((second.search.given_back, second.search.unhealthy), (0, 1));
    assert_eq!(harness.state("i-mute"), State::Terminated);
    assert!(harness.alive().is_empty());
}

#[tokio::test]
async fn a_registration_in_between_makes_good_for_a_missed_one() {
    let harness = Harness::new().await;
    harness.make_defective("i-a", MachineDefect::RegistersAfter(Duration::from_secs(20)));
    harness.idle("i-a", "c6i.large").await;
    let mut hasty = from_pool("hasty", 1);
    let times = vec![("claim-registration-timeout-sec", Duration::from_secs(10))];
    hasty.times = TimeOverrides(times);
    harness.provision(&hasty).await;
    assert_eq!(harness.record("i-a").unwrap().counts.missed_registrations, 1);
    let patient = harness.provision(&from_pool("patient", 1)).await;
    assert_eq!(patient.count(MachineSource::Warm), 1);
    assert_eq!(harness.record("i-a").unwrap().counts.missed_registrations, 0);
}

/// The machine is given back because its run gets no other machine.
#[tokio::test]
async fn a_registration_makes_good_for_a_missed_one_also_if_its_run_fails() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c6i.large").await;
    let record = harness.record("i-a").unwrap();
    let counts = Counts { missed_registrations: 1, ..record.counts };
    harness.memory.store.insert(Record { counts, ..record });
    let failed = harness.provision(&from_pool("1", 2)).await;
    assert!(failed.failure.is_some());
    assert_eq!(failed.returned, [id("i-a")]);
    assert_eq!(harness.record("i-a").unwrap().counts.missed_registrations, 0);
}

#[tokio::test]
async fn a_loser_that_has_taken_a_job_is_kept_for_the_run() {
    let harness = Harness::new().await;
    // Ready at the same moment as the hedge, so that its agent registers while it is given back.
    harness.make_defective("i-busy", MachineDefect::TakesJobAfter(Duration::from_millis(5_300)));
    harness.idle("i-busy", "c6i.large").await;
    harness.make_defective("i-quick", MachineDefect::RegistersAfter(Duration::from_millis(1_000)));
    harness.idle("i-quick", "c6i.large").await;
    let outcome = harness.provision(&from_pool("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-quick".to_owned()].into());
    assert_eq!(harness.labels.of(&id("i-busy")), Some(label("1")));
    assert_eq!(harness.state("i-busy"), State::Running);
    assert_eq!(harness.record("i-busy").unwrap().run, Some(run("1")));
    harness.release("1").await;
    assert_eq!(harness.state("i-busy"), State::Idle);
    assert_eq!(harness.visible().await, 2);
}

#[tokio::test]
async fn refresh_keeps_a_machine_with_a_job_for_the_run_that_gave_it_back() {
    let harness = Harness::new().await;
    harness.make_defective("i-busy", MachineDefect::TakesJobAfter(Duration::from_secs(1)));
    harness.idle("i-busy", "c6i.large").await;
    let record = harness.record("i-busy").unwrap();
    let now = harness.plane.now();
    let idle = Instance::<Idle>::believe(&record).unwrap();
    let claimed = harness.plane.apply(idle.claim(&run("1"), now, HOUR)).await.unwrap();
    while !harness.status("i-busy").await.heartbeat.unwrap().busy {
        harness.sleep(Duration::from_secs(1)).await;
    }
    // As a provision that was killed after it had given the machine back.
    harness.plane.apply(claimed.give_back(harness.plane.now(), HOUR)).await.unwrap();
    harness.sleep(Duration::from_secs(150)).await;
    assert_eq!(harness.labels.of(&id("i-busy")), Some(label("1")), "the job goes on");
    harness.refresh().await;
    let kept = harness.record("i-busy").unwrap();
    assert_eq!((kept.state, kept.run), (State::Running, Some(run("1"))));
}

#[tokio::test]
async fn with_the_fallback_idle_on_demand_machines_are_taken_before_any_is_launched() {
    let harness = Harness::new().await;
    let mut spot = spec("c6i.large");
    spot.usage_class = UsageClass::Spot;
    for name in ["i-od1", "i-od2"] {
        harness.idle(name, "c6i.large").await;
    }
    harness.put_idle("i-spot", spot, Duration::from_secs(300)).await;
    let mut request = request("1", 1);
    request.options.usage = UsageClass::Spot;
    request.options.capacity_fallback = true;
    let first = harness.provision(&request).await;
    assert_eq!(names(&first.instances), ["i-spot".to_owned()].into(), "what was asked for first");
    request.run = run("2");
    request.options.count = 3;
    let second = harness.provision(&request).await;
    assert_eq!((second.count(MachineSource::Warm), second.count(MachineSource::Cold)), (2, 1));
    request.run = run("3");
    request.options.usage = UsageClass::OnDemand;
    harness.release("1").await;
    let third = harness.provision(&request).await;
    assert_eq!(third.count(MachineSource::Warm), 0, "spot never stands in for on-demand");
}

#[tokio::test]
async fn a_machine_of_a_newer_agent_is_left_to_newer_programs() {
    let harness = Harness::new().await;
    harness.make_defective("i-new", MachineDefect::NeverBoots);
    harness.idle("i-new", "c6i.large").await;
    let heartbeat = Heartbeat {
        protocol: PROTOCOL + 1,
        ..Heartbeat::new(harness.plane.now(), Duration::from_secs(60))
    };
    AgentStore::beat(&*harness.memory.store, &id("i-new"), &heartbeat).await.unwrap();
    let outcome = harness.provision(&from_pool("1", 1)).await;
    assert_eq!((outcome.search.given_back, outcome.search.unhealthy), (1, 0));
    assert_eq!((harness.state("i-new"), harness.alive().len()), (State::Idle, 1));
}
