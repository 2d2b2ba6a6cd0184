//! Machines that their provider takes away.

use std::time::Duration;

use futures_util::future::join;
use ondeck_core::model::demand::{Demand, JobsRerun};
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::record::State;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::release::{self, Disposition};
use ondeck_core::ports::{Rerun, Store};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, names, request, run};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn refresh_terminates_an_idle_machine_that_is_taken_away() {
    let harness = Harness::new().await;
    harness.make_defective("i-spot", MachineDefect::InterruptedAfter(10 * SECOND));
    harness.idle("i-spot", "c6i.large").await;
    harness.idle("i-fine", "c6i.large").await;
    assert_eq!(harness.refresh().await.interrupted, []);
    harness.sleep(11 * SECOND).await;
    assert_eq!(harness.refresh().await.interrupted, [id("i-spot")]);
    assert_eq!(
        (harness.state("i-spot"), harness.state("i-fine")),
        (State::Terminated, State::Idle)
    );
    assert_eq!(harness.alive(), ["i-fine"]);
    assert_eq!(harness.refresh().await.interrupted, []);
}

/// Two refreshes find it at once.
#[tokio::test]
async fn a_machine_that_is_taken_away_is_reported_by_the_refresh_that_terminates_it() {
    let harness = Harness::new().await;
    harness.make_defective("i-spot", MachineDefect::InterruptedAfter(10 * SECOND));
    harness.idle("i-spot", "c6i.large").await;
    harness.sleep(11 * SECOND).await;
    let (one, other) = join(harness.refresh(), harness.refresh()).await;
    assert_eq!([one.interrupted, other.interrupted].concat(), [id("i-spot")]);
}

#[tokio::test]
async fn a_claim_of_a_machine_that_is_taken_away_is_undone_within_a_poll() {
    let harness = Harness::new().await;
    harness.make_defective("i-spot", MachineDefect::InterruptedAfter(10 * SECOND));
    harness.idle("i-spot", "c6i.large").await;
    harness.sleep(11 * SECOND).await;
    harness.idle("i-fine", "c6i.large").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 1, "{outcome:?}");
    assert!(names(&outcome.instances).contains("i-fine"));
    assert!(outcome.timings.selection < SECOND, "{:?}", outcome.timings);
}

#[tokio::test]
async fn a_run_does_not_adopt_a_machine_that_is_taken_away() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::InterruptedAfter(60 * SECOND));
    harness.provision(&request("1", 2)).await;
    harness.sleep(61 * SECOND).await;
    let again = harness.provision(&request("1", 2)).await;
    assert_eq!((again.count(MachineSource::Adopted), again.count(MachineSource::Cold)), (1, 1));
    assert!(!names(&again.instances).contains("i-0001"));
}

#[tokio::test]
async fn release_says_which_machine_was_taken_away_and_does_not_fail() {
    for gone in [false, true] {
        let harness = Harness::new().await;
        harness.make_defective("i-0001", MachineDefect::InterruptedAfter(60 * SECOND));
        harness.provision(&request("1", 2)).await;
        harness.sleep(61 * SECOND).await;
        let refreshed = harness.refresh().await;
        assert_eq!(refreshed.interrupted, [], "the run's release reports it");
        if gone {
            harness.memory.compute.kill(&id("i-0001"));
            harness.sleep(120 * SECOND).await;
        }
        let released = harness.release("1").await;
        assert_eq!(released.failure(), None);
        let disposition = |name: &str| {
            let of_it = released.instances.iter().find(|one| one.id == id(name));
            of_it.map(|one| one.disposition.clone())
        };
        assert_eq!(disposition("i-0001"), Some(Disposition::Interrupted), "gone: {gone}");
        assert_eq!(disposition("i-0002"), Some(Disposition::Pooled));
        let next = harness.provision(&request("2", 2)).await;
        assert!(!names(&next.instances).contains("i-0001"));
    }
}

/// A run of two machines, the first of which was taken away with a job on it; `gone` says whether its
/// heartbeat has stopped since.
async fn interrupted(given: &[(&str, &str)], gone: bool) -> Harness {
    let harness = Harness::with(given).await;
    harness.make_defective("i-0001", MachineDefect::InterruptedAfter(60 * SECOND));
    harness.provision(&request("1", 2)).await;
    harness.memory.forge.open(run("1"));
    harness.sleep(61 * SECOND).await;
    if gone {
        harness.memory.compute.kill(&id("i-0001"));
        harness.sleep(60 * SECOND).await;
    }
    harness.memory.forge.fail_job(run("1"), 71, id("i-0001"));
    harness
}

#[tokio::test]
async fn a_job_whose_machine_was_taken_away_is_re_run_once_after_its_run() {
    for (released, seen_before, gone) in [
        (true, true, true),
        (true, true, false),
        (true, false, true),
        (true, false, false),
        (false, true, true),
        (false, false, true),
    ] {
        let case = format!("released {released}, seen before {seen_before}, gone {gone}");
        let harness = interrupted(&[("on-interruption", "rerun")], gone).await;
        if seen_before {
            assert!(harness.refresh().await.rerun.is_empty(), "{case}: the run goes on");
        }
        if released {
            let release = harness.release("1").await;
            let of_it = release.instances.iter().find(|one| one.id == id("i-0001"));
            assert_eq!(of_it.unwrap().disposition, Disposition::Interrupted, "{case}");
            assert!(harness.refresh().await.rerun.is_empty(), "{case}: its last job is not over");
        }
        harness.memory.forge.complete(run("1"));
        let (one, other) = tokio::join!(harness.refresh(), harness.refresh());
        let reruns = [one.rerun, other.rerun].concat();
        assert_eq!(reruns, [run("1")], "{case}");
        assert_eq!(harness.memory.forge.reruns(), [(run("1"), Rerun::Job(71))], "{case}");
        // It fails once more, and is not re-run again.
        harness.refresh().await;
        harness.sleep(400 * SECOND).await;
        assert!(harness.refresh().await.rerun.is_empty(), "{case}");
        assert_eq!(harness.memory.forge.reruns().len(), 1, "{case}");
    }
}

#[tokio::test]
async fn only_jobs_that_failed_on_an_interrupted_machine_are_re_run() {
    let harness = interrupted(&[("on-interruption", "rerun")], true).await;
    harness.memory.forge.fail_job(run("1"), 72, id("i-0002"));
    harness.refresh().await;
    harness.memory.forge.complete(run("1"));
    harness.refresh().await;
    assert_eq!(harness.memory.forge.reruns(), [(run("1"), Rerun::Job(71))]);

    let harness = interrupted(&[("on-interruption", "rerun")], true).await;
    harness.memory.forge.fail_job(run("1"), 73, id("i-0001"));
    harness.refresh().await;
    harness.memory.forge.complete(run("1"));
    harness.refresh().await;
    let several = [(run("1"), Rerun::FailedJobs)];
    assert_eq!(harness.memory.forge.reruns(), several, "the forge admits one request");

    let harness = interrupted(&[], true).await;
    harness.refresh().await;
    harness.memory.forge.complete(run("1"));
    assert!(harness.refresh().await.rerun.is_empty());
    assert!(harness.memory.forge.reruns().is_empty(), "by default nothing is re-run");
}

/// Otherwise a machine of the run that is left takes the job, and is then released from under it.
#[tokio::test]
async fn a_run_is_released_before_its_jobs_are_re_run() {
    let harness = interrupted(&[("on-interruption", "rerun")], true).await;
    harness.refresh().await;
    harness.memory.forge.complete(run("1"));
    let seen = async {
        while harness.memory.forge.reruns().is_empty() {
            tokio::task::yield_now().await;
        }
        harness.state("i-0002")
    };
    let (outcome, seen) = tokio::join!(harness.refresh(), seen);
    assert_eq!((outcome.rerun, outcome.completed), (vec![run("1")], vec![run("1")]));
    assert_eq!(seen, State::Idle);
}

/// The machines that refresh has noted as taken away.
async fn noted(harness: &Harness) -> Vec<String> {
    let settings = harness.plane.settings().await.unwrap();
    settings.interrupted.keys().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_note_stays_no_longer_than_it_can_be_of_use() {
    for end in ["deleted", "off", "old"] {
        let harness = interrupted(&[("on-interruption", "rerun")], true).await;
        harness.refresh().await;
        harness.release("1").await;
        harness.refresh().await;
        assert_eq!(noted(&harness).await, ["i-0001"], "{end}: the run goes on");
        match end {
            "deleted" => harness.memory.forge.delete(run("1")),
            "off" => drop(harness.refresh_with(&[("on-interruption", "")]).await),
            _ => harness.sleep(Duration::from_secs(31 * 24 * 3600)).await,
        }
        let outcome = harness.refresh().await;
        assert_eq!(noted(&harness).await, [""; 0], "{end}");
        assert!(outcome.rerun.is_empty() && outcome.warnings.is_empty(), "{end}: {outcome:?}");
        harness.memory.forge.take_requests();
        harness.refresh().await;
        assert!(!harness.memory.forge.take_requests().contains(&"1".to_owned()), "{end}");
    }
}

#[tokio::test]
async fn a_re_run_is_not_lost_with_the_answer_of_the_store() {
    let harness = interrupted(&[("on-interruption", "rerun")], true).await;
    harness.refresh().await;
    harness.memory.forge.complete(run("1"));
    harness.memory.store.lose_answers("replace_demand", 1);
    assert_eq!(harness.refresh().await.rerun, [run("1")]);
    assert_eq!(harness.memory.forge.reruns().len(), 1);
}

/// An earlier refresh was killed after it had taken the right to re-run the jobs.
#[tokio::test]
async fn jobs_that_stay_failed_are_reported() {
    let harness = interrupted(&[("on-interruption", "rerun")], true).await;
    harness.refresh().await;
    harness.memory.forge.complete(run("1"));
    let demand = harness.memory.store.demands(&[run("1")]).await.unwrap().remove(0);
    let rerun = Some(JobsRerun { by: 7, at: harness.plane.now() });
    let taken = Demand { rerun, ..demand.clone() };
    assert!(harness.memory.store.replace_demand(Some(&demand), &taken).await.unwrap());
    let stay = |it: &&String| it.starts_with("1 jobs of run 1 stay failed: ");
    let at_once = harness.refresh().await;
    assert_eq!(at_once.warnings.iter().filter(stay).count(), 0, "it may be about to re-run them");
    harness.sleep(300 * SECOND).await;
    let later = harness.refresh().await;
    assert_eq!(later.warnings.iter().filter(stay).count(), 1, "{:?}", later.warnings);
    assert!(harness.memory.forge.reruns().is_empty());
    assert_eq!(noted(&harness).await, [""; 0], "it is reported once");
}

#[tokio::test]
async fn a_release_that_cannot_see_interruptions_reports_every_machine() {
    let harness = interrupted(&[("on-interruption", "rerun")], false).await;
    harness.memory.store.fail("agent_status");
    let released = harness.release("1").await;
    let not_reached = |one: &release::Released| {
        matches!(one.disposition, Disposition::NotReached(_))
            && harness.state(one.id.as_str()) == State::Running
    };
    assert_eq!(released.instances.len(), 2);
    assert!(released.instances.iter().all(not_reached), "{released:?}");
    assert_eq!(released.failure().unwrap().kind, FailureKind::Unavailable);
}
