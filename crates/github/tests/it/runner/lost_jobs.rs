//! Jobs whose listener died, which GitHub keeps open for ten minutes.

use std::path::Path;
use std::time::Duration;

use ondeck_core::ports::Runner;
use ondeck_github::Timeouts;
use ondeck_processes::{Process, kill_group};
use ondeck_standin::{Conclusion, GitHubOptions, JobId};

use crate::runner::harness::{appears, exit_after, holds, label};
use crate::runner::standin::{REPOSITORY, StandinHarness, leave};

/// Queues a job that never ends, and returns its listener once it runs.
async fn job_of_a_listener(harness: &StandinHarness, run: &str) -> (JobId, Process) {
    let pid = harness.dir.path().join(format!("listener-of-{run}"));
    let script = format!(
        "p=$PPID; until [ \"$(cat /proc/$p/comm)\" = Runner.Listener ]; do \
         p=$(cut -d' ' -f4 /proc/$p/stat); done; echo $p >{0}.new; mv {0}.new {0}; sleep 300",
        pid.display()
    );
    let job = harness.github.queue_job(REPOSITORY, run, &[run], &script);
    appears(&pid).await;
    (job, process(&pid))
}

fn process(file: &Path) -> Process {
    let pid = std::fs::read_to_string(file).unwrap();
    Process::of(pid.trim().parse().unwrap()).unwrap()
}

/// Names of the runners that GitHub lists, with what it calls them.
fn listed(harness: &StandinHarness) -> Vec<(String, bool, bool)> {
    let runners = harness.github.runners().into_iter();
    runners.map(|it| (it.name, it.online, it.busy)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_github_keeps_open_does_not_keep_the_machine() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let (lost, listener) = job_of_a_listener(&harness, "1").await;
    let why = exit_after(&runner, &run, || kill_group(listener)).await;
    assert!(why.starts_with("the listener was killed by signal 9"), "{why}");
    assert!(!runner.is_busy(), "the job is lost");
    let offline = |runners: &[ondeck_standin::GitHubRunner]| runners.iter().all(|it| !it.online);
    assert!(harness.github.wait_for_runners(Duration::from_secs(60), offline).is_some());

    // GitHub gives no job to the runner whose job it waits for, so the machine takes another name.
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    assert_ne!(done.runner_name, Some(harness.name(1)));
    let account = leave(&runner).await;
    assert!(account.ends_with("registered anew: its listener died with a job"), "{account}");
    assert_eq!(listed(&harness), [(harness.name(1), false, true)]);

    // Once GitHub has given the job up, the next release removes the runner.
    runner.register(&label("2")).await.unwrap();
    harness.github.conclude(lost, Conclusion::Failure, None);
    leave(&runner).await;
    assert_eq!(listed(&harness), []);
}

/// The agent drops the future of `work` at any moment, so that nothing may wait when the listener dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_died_with_a_job_between_two_calls_of_work_is_registered_anew() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let (_, listener) = job_of_a_listener(&harness, "1").await;
    holds("the agent knows of the job", || runner.is_busy()).await;
    kill_group(listener);
    holds("the agent has seen the listener die", || !runner.is_busy()).await;

    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    assert_ne!(done.runner_name, Some(harness.name(1)));
    let account = leave(&runner).await;
    assert!(account.ends_with("registered anew: its listener died with a job"), "{account}");
}

/// The run ends before the listener is started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_listener_died_with_a_job_can_be_left() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let (lost, listener) = job_of_a_listener(&harness, "1").await;
    exit_after(&runner, &label("1"), || kill_group(listener)).await;
    leave(&runner).await;
    assert_eq!(listed(&harness)[0].0, harness.name(1));

    // An agent that was started meanwhile knows of it, too.
    harness.github.conclude(lost, Conclusion::Failure, None);
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("2")).await.unwrap();
    leave(&runner).await;
    assert_eq!(listed(&harness), []);
}

/// The job ends neither by SIGINT nor by SIGTERM, so that its listener is killed with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_has_to_be_killed_does_not_cost_the_machine() {
    let options =
        GitHubOptions { cancel_grace: Duration::from_secs(600), ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let timeouts = Timeouts { stop_busy: Duration::from_secs(1), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let begun = harness.dir.path().join("begun");
    let script = format!("trap '' INT TERM; touch {}; sleep 300", begun.display());
    harness.github.queue_job(REPOSITORY, "1", &["1"], &script);
    appears(&begun).await;
    leave(&runner).await;
    let names: Vec<_> = listed(&harness).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, [harness.name(1)]);
}

/// An agent that died with its listener, and comes back after the end of the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_of_an_earlier_agent_is_left_behind_if_github_keeps_it() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let (_, listener) = job_of_a_listener(&harness, "1").await;
    exit_after(&runner, &label("1"), || kill_group(listener)).await;
    drop(runner);
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    leave(&runner).await;
    assert_eq!(listed(&harness)[0].0, harness.name(1));
}
