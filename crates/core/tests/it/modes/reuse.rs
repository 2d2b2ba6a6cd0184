//! `reuse: never`: a machine serves one run, and a run that asks for it gets no used machine.

use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::demand::Demand;
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::requirements::Mismatch;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::signal::Signal;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::modes::provision::{MachineSource, Request, SourcePolicy};
use ondeck_core::modes::release::Disposition;
use ondeck_core::ports::Pool;
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, names, request, run};

const HOUR: Duration = Duration::from_secs(3_600);
const NEVER: (&str, &str) = ("reuse", "never");

/// Asks for machines of the run's own.
fn exclusive(run_id: &str, count: u32) -> Request {
    let mut request = request(run_id, count);
    request.options.reuse = Reuse::Never;
    request
}

fn from_pool(mut request: Request) -> Request {
    request.options.machine_source = SourcePolicy::Pool;
    request
}

fn names_of<const N: usize>(names: [&str; N]) -> std::collections::BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[tokio::test]
async fn release_terminates_a_machine_that_is_not_reused() {
    let harness = Harness::with(&[NEVER]).await;
    harness.provision(&request("1", 2)).await;
    let released = harness.release("1").await;
    for machine in &released.instances {
        assert_eq!(machine.disposition, Disposition::Terminated);
        assert!(machine.account.starts_with("2 jobs on"), "the account is kept: {machine:?}");
    }
    assert_eq!(released.failure(), None);
    assert_eq!((harness.alive(), harness.depth().await), (vec![], 0));
    let status = harness.status("i-0001").await.report.unwrap();
    assert_eq!(status.signal, Signal::DeregisterFailed, "the agent does not offer it again");
}

/// Refresh hands a new machine to its run if the provision dies before it can terminate it.
#[tokio::test]
async fn a_machine_of_an_unanswered_launch_is_not_reused_either() {
    let harness = Harness::new().await;
    harness.memory.compute.lose_launches();
    harness.memory.compute.list_all();
    harness.memory.store.fail("expire");
    let outcome = harness.provision(&exclusive("1", 1)).await;
    assert_eq!(outcome.clean_up_failures.len(), 1, "{outcome:?}");
    let record = harness.record("i-0001").unwrap();
    assert_eq!((record.state, record.reuse), (State::Created, Reuse::Never));
}

#[tokio::test]
async fn one_call_can_be_stricter_than_the_setting_and_none_laxer() {
    let lax = Harness::new().await;
    lax.provision(&exclusive("1", 1)).await;
    assert_eq!(lax.release("1").await.instances[0].disposition, Disposition::Terminated);
    lax.provision(&request("2", 1)).await;
    assert_eq!(lax.release("2").await.instances[0].disposition, Disposition::Pooled);

    let strict = Harness::with(&[NEVER]).await;
    let mut always = request("1", 1);
    always.options.reuse = Reuse::Always;
    strict.provision(&always).await;
    assert_eq!(strict.release("1").await.instances[0].disposition, Disposition::Terminated);
}

#[tokio::test]
async fn a_run_of_its_own_machines_takes_no_used_one_and_leaves_it_to_others() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.release("1").await;
    harness.idle("i-unused", "c6i.large").await;
    let outcome = harness.provision(&exclusive("2", 2)).await;
    assert_eq!(names(&outcome.instances), names_of(["i-0002", "i-unused"]));
    assert_eq!(outcome.search.unsuitable, [(Mismatch::Used, 1)].into());
    let next = harness.provision(&from_pool(request("3", 1))).await;
    assert_eq!(names(&next.instances), names_of(["i-0001"]), "its ticket was put back");
}

#[tokio::test]
async fn a_ticket_that_is_wrong_about_earlier_use_does_not_matter() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.release("1").await;
    let record = harness.record("i-0001").unwrap();
    let truth = Instance::<Idle>::believe(&record).unwrap().ticket();
    for runs in [None, Some(0)] {
        let ticket = Ticket { runs, ..truth.clone() };
        harness.memory.pool.send(&[ticket], Duration::ZERO).await.unwrap();
    }
    let outcome = harness.provision(&from_pool(exclusive("2", 1))).await;
    assert_eq!(names(&outcome.instances), names_of([]));
    assert_eq!(harness.state("i-0001"), State::Idle);
}

#[tokio::test]
async fn machines_of_the_minimum_are_unused_and_can_be_claimed() {
    let harness = Harness::with(&[NEVER, ("min-idle", "large=2")]).await;
    let outcome = harness.provision(&from_pool(request("1", 2))).await;
    assert_eq!(outcome.count(MachineSource::Warm), 2, "{:?}", outcome.failure);
    harness.release("1").await;
    assert_eq!(harness.alive().len(), 0);
    harness.refresh().await;
    assert_eq!(harness.idle_machines().len(), 2, "the minimum is filled with new ones");
}

#[tokio::test]
async fn idle_machines_that_were_used_before_the_setting_changed_are_replaced_at_once() {
    let harness = Harness::with(&[("idle-time-sec", "3600")]).await;
    harness.provision(&request("1", 3)).await;
    harness.release("1").await;
    let outcome = harness.refresh_with(&[NEVER, ("min-idle", "large=3")]).await;
    assert_eq!((outcome.rotated.len(), outcome.warmed), (3, 3));
    assert_eq!(harness.provision(&from_pool(request("2", 3))).await.failure, None);
}

#[tokio::test]
async fn a_run_keeps_its_machines_when_it_provisions_again() {
    let harness = Harness::with(&[NEVER]).await;
    harness.provision(&request("1", 1)).await;
    let again = harness.provision(&request("1", 2)).await;
    assert_eq!((again.count(MachineSource::Adopted), again.count(MachineSource::Cold)), (1, 1));
    let released = harness.release("1").await;
    assert!(released.instances.iter().all(|it| it.disposition == Disposition::Terminated));
}

#[tokio::test]
async fn a_stricter_second_call_holds_for_the_machines_of_the_first() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    let again = harness.provision(&exclusive("1", 1)).await;
    assert_eq!(again.count(MachineSource::Adopted), 1);
    harness.provision(&request("1", 1)).await;
    assert_eq!(harness.release("1").await.instances[0].disposition, Disposition::Terminated);
}

#[tokio::test]
async fn a_machine_that_served_another_run_is_not_adopted() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.release("1").await;
    assert_eq!(harness.provision(&request("2", 1)).await.count(MachineSource::Warm), 1);
    let again = harness.provision(&exclusive("2", 1)).await;
    assert_eq!((again.count(MachineSource::Adopted), again.count(MachineSource::Cold)), (0, 1));
}

#[tokio::test]
async fn a_loser_without_a_job_goes_back_to_the_pool() {
    let harness = Harness::with(&[NEVER]).await;
    harness.make_defective("i-slow", MachineDefect::RegistersAfter(Duration::from_secs(30)));
    harness.idle("i-slow", "c6i.large").await;
    harness.idle("i-quick", "c6i.large").await;
    let outcome = harness.provision(&from_pool(request("1", 1))).await;
    assert_eq!(names(&outcome.instances), names_of(["i-quick"]));
    assert_eq!(harness.state("i-slow"), State::Idle);
    let next = harness.provision(&from_pool(request("2", 1))).await;
    assert_eq!(names(&next.instances), names_of(["i-slow"]), "{:?}", next.failure);
}

#[tokio::test]
async fn a_loser_whose_job_is_over_is_terminated() {
    let harness = Harness::with(&[NEVER]).await;
    let after = |millis| Duration::from_millis(millis);
    // Ready at the same moment as the hedge, so that its agent registers while it is given back.
    harness.make_defective("i-worked", MachineDefect::FinishesJobAfter(after(5_300)));
    harness.idle("i-worked", "c6i.large").await;
    harness.make_defective("i-quick", MachineDefect::RegistersAfter(after(1_000)));
    harness.idle("i-quick", "c6i.large").await;
    let outcome = harness.provision(&from_pool(request("1", 1))).await;
    assert_eq!(names(&outcome.instances), names_of(["i-quick"]));
    assert_eq!(harness.alive(), ["i-quick"], "a job of the run was on the other");
    assert_eq!(harness.state("i-worked"), State::Terminated);
}

#[tokio::test]
async fn a_loser_that_has_a_job_stays_with_its_run_and_is_terminated_after_it() {
    let harness = Harness::with(&[NEVER]).await;
    let after = |millis| Duration::from_millis(millis);
    harness.make_defective("i-busy", MachineDefect::TakesJobAfter(after(5_300)));
    harness.idle("i-busy", "c6i.large").await;
    harness.make_defective("i-quick", MachineDefect::RegistersAfter(after(1_000)));
    harness.idle("i-quick", "c6i.large").await;
    harness.provision(&from_pool(request("1", 1))).await;
    assert_eq!(harness.record("i-busy").unwrap().run, Some(run("1")));
    harness.release("1").await;
    assert_eq!(harness.alive(), [""; 0]);
}

/// A provision that was killed after it had given the machine back. Refresh gives it to the run again,
/// which is the machine's last if the run has asked for that, or if it is not known.
#[tokio::test]
async fn refresh_returns_a_busy_machine_to_its_run() {
    for (asked, left) in [
        (None, Disposition::Terminated),
        (Some(exclusive("1", 1)), Disposition::Terminated),
        (Some(request("1", 1)), Disposition::Pooled),
    ] {
        assert_eq!(released_after_a_give_back(asked).await, left);
    }
}

async fn released_after_a_give_back(asked: Option<Request>) -> Disposition {
    let harness = Harness::new().await;
    if let Some(request) = &asked {
        let demand = Demand::of(request, harness.plane.now());
        harness.plane.store.put_demand(&demand).await.unwrap();
    }
    harness.make_defective("i-busy", MachineDefect::TakesJobAfter(Duration::from_secs(1)));
    let record = harness.idle("i-busy", "c6i.large").await;
    let idle = Instance::<Idle>::believe(&record).unwrap();
    let reuse = asked.map_or(Reuse::Never, |request| request.options.reuse);
    let claim = idle.claim(&run("1"), harness.plane.now(), HOUR).reusing(reuse);
    let claimed = harness.plane.apply(claim).await.unwrap();
    while !harness.status("i-busy").await.heartbeat.unwrap().busy {
        harness.sleep(Duration::from_secs(1)).await;
    }
    harness.plane.apply(claimed.give_back(harness.plane.now(), HOUR)).await.unwrap();
    harness.sleep(Duration::from_secs(10)).await;
    harness.refresh().await;
    assert_eq!(harness.record("i-busy").unwrap().run, Some(run("1")));
    harness.release("1").await.instances[0].disposition.clone()
}

#[tokio::test]
async fn a_failed_provision_gives_unused_machines_back() {
    let harness = Harness::with(&[NEVER]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.memory.compute.set_capacity(0);
    let failed = harness.provision(&request("1", 2)).await;
    assert!(failed.failure.is_some());
    assert_eq!((harness.state("i-a"), harness.visible().await), (State::Idle, 1));
    let next = harness.provision(&request("2", 1)).await;
    assert_eq!(names(&next.instances), names_of(["i-a"]), "{:?}", next.failure);
}

/// As a control plane that does not know the setting would leave it.
#[tokio::test]
async fn an_idle_machine_that_has_served_its_run_is_claimed_by_no_run_and_retired() {
    let harness = Harness::with(&[("min-idle", "large=1")]).await;
    let served = |record: &Record| Record {
        reuse: Reuse::Never,
        counts: Counts { runs: 1, ..record.counts },
        ..record.clone()
    };
    let record = harness.idle("i-served", "c6i.large").await;
    harness.memory.store.insert(served(&record));
    for request in [request("1", 2), exclusive("2", 1)] {
        let outcome = harness.provision(&from_pool(request)).await;
        assert!(!names(&outcome.instances).contains("i-served"));
    }
    let outcome = harness.refresh().await;
    assert_eq!(outcome.rotated, [id("i-served")]);
}
