//! A runner that is registered with a label of its machine before a run is known.

use std::fs;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::Runner;
use ondeck_github::GitHubRunner;
use ondeck_standin::{Conclusion, RunnerFault};

use crate::runner::harness::{holds, label};
use crate::runner::standin::{REPOSITORY, StandinHarness, leave};

fn own(digit: &str) -> MachineLabel {
    MachineLabel::new(format!("m{}", digit.repeat(32))).unwrap()
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// A machine whose runner listens under this label, for no run yet.
async fn idle(label: &MachineLabel) -> (StandinHarness, GitHubRunner) {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    assert_eq!(runner.listen_as(label).await, Ok(1));
    assert_eq!(harness.online(), [[label.as_str()]], "it returns when the runner is online");
    (harness, runner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_until_the_owner_is_named() {
    let label_of_machine = own("1");
    let (harness, runner) = idle(&label_of_machine).await;
    let labels = [label_of_machine.as_str()];
    let job = harness.github.queue_job(REPOSITORY, "7", &labels, "echo run $ONDECK_RUN_ID");
    holds("the runner has the job", || runner.is_busy()).await;
    runner.name_owner(&run("7")).await.unwrap();
    let done = harness.done(job);
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    assert!(done.log.contains("run 7\n"), "the listener did not know the run: {}", done.log);
    // The next job does not wait.
    let next = harness.github.queue_job(REPOSITORY, "7", &labels, "echo run $ONDECK_RUN_ID");
    assert!(harness.done(next).log.contains("run 7\n"));
    let account = leave(&runner).await;
    assert!(account.starts_with("2 jobs, "), "{account}");
    assert!(harness.github.runners().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_run_is_refused() {
    let (harness, runner) = idle(&own("1")).await;
    let foreign = harness.github.queue_job(REPOSITORY, "666", &[own("1").as_str()], "echo in");
    holds("the runner has the job", || runner.is_busy()).await;
    runner.name_owner(&run("7")).await.unwrap();
    let foreign = harness.done(foreign);
    assert_eq!(foreign.conclusion, Some(Conclusion::Failure));
    let refused = "was given to run 7 and takes no job of another: 666";
    assert!(foreign.annotations.concat().contains(refused), "{foreign:?}");
    assert_eq!(leave(&runner).await, "1 refused");
}

/// The last run must not let a job in on the registration of the next.
#[tokio::test(flavor = "multi_thread")]
async fn each_registration_has_an_owner_of_its_own() {
    let (harness, runner) = idle(&own("1")).await;
    let named = harness.dir.path().join("ondeck/hooks/run");
    assert!(!named.exists());
    runner.name_owner(&run("7")).await.unwrap();
    assert_eq!(fs::read_to_string(&named).unwrap(), "7\n");
    runner.stop().await.unwrap();
    assert!(!named.exists(), "no further job is let in once it leaves");
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    assert!(runner.name_owner(&run("8")).await.is_err(), "there is no registration");
    assert_eq!(runner.listen_as(&own("2")).await, Ok(2));
    assert!(!named.exists());
    assert_eq!(harness.online(), [[own("2").as_str()]]);
    leave(&runner).await;
    // And a run's own label is as it was.
    runner.register(&label("9")).await.unwrap();
    assert_eq!(fs::read_to_string(&named).unwrap(), "9\n");
    assert_eq!(harness.online(), [["9"]]);
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_dies_is_started_under_the_same_registration() {
    let (harness, runner) = idle(&own("1")).await;
    let crash = async { harness.github.inject_runner_fault("*", RunnerFault::Crash) };
    let (why, ()) = tokio::join!(runner.lapse(), crash);
    assert!(why.starts_with("the listener was killed by signal 6"), "{why}");
    harness.github.clear_faults();
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1), "the same registration");
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1), "it listens already");
    assert_eq!(harness.online(), [[own("1").as_str()]]);
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_runner_is_listed_again_under_its_label() {
    let (harness, runner) = idle(&own("1")).await;
    let delete = async { harness.github.remove_runner(&harness.name(1)) };
    let (why, ()) = tokio::join!(runner.lapse(), delete);
    assert!(why.contains("The runner no longer exists on the server."), "{why}");
    assert_eq!(runner.listen_as(&own("1")).await, Ok(2), "another registration");
    let runners = harness.github.runners();
    assert_eq!(runners.iter().map(|it| &it.name).collect::<Vec<_>>(), [&harness.name(2)]);
    // Also while a run owns the machine.
    runner.name_owner(&run("7")).await.unwrap();
    let delete = async { harness.github.remove_runner(&harness.name(2)) };
    let seven = label("7");
    tokio::join!(runner.work(&seven), delete);
    let job = harness.github.queue_job(REPOSITORY, "7", &[own("1").as_str()], "true");
    let done = harness.work_until_done(&runner, &label("7"), job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_runner_has_lapsed() {
    let (harness, runner) = idle(&own("1")).await;
    tokio::join!(runner.lapse(), runner.drain("the machine expires"));
    assert!(harness.online().is_empty());
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}
