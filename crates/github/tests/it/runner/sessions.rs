//! What the agent does if GitHub gives the runner no session, or gives it late.

use std::time::{Duration, Instant};

use ondeck_core::ports::Runner;
use ondeck_github::Timeouts;
use ondeck_standin::{Conclusion, GitHubOptions, RunnerFault};

use crate::runner::harness::{exit_after, label};
use crate::runner::standin::{REPOSITORY, SOON, StandinHarness, leave};

/// The runner itself would wait for 11 s after a 503.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_without_a_session_is_started_again() {
    let harness = StandinHarness::new().await;
    let timeouts = Timeouts { listen: Duration::from_secs(1), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    harness.github.inject_runner_fault("*", RunnerFault::SessionUnavailable);
    let (github, name) = (harness.github.clone(), harness.name(1));
    let hiccup = tokio::task::spawn_blocking(move || {
        assert!(github.wait_for_attempts(&name, 2, SOON), "it was started twice");
        github.clear_faults();
        Instant::now()
    });
    let run = label("1");
    let (registered, over) = tokio::join!(runner.register(&run), hiccup);
    registered.unwrap();
    assert!(over.unwrap().elapsed() < Duration::from_secs(11), "it did not wait for the runner");
    assert_eq!(harness.online(), [["1"]]);
    leave(&runner).await;
}

/// The runner complains, and would wait for 30 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_error_at_the_session_costs_seconds() {
    let harness = StandinHarness::new().await;
    let timeouts = Timeouts { listen: Duration::from_secs(1), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    harness.github.inject_runner_fault("*", RunnerFault::SessionError);
    let (github, name) = (harness.github.clone(), harness.name(1));
    let hiccup = tokio::task::spawn_blocking(move || {
        assert!(github.wait_for_attempts(&name, 2, SOON), "it was started twice");
        github.clear_faults();
        Instant::now()
    });
    let run = label("1");
    let (registered, over) = tokio::join!(runner.register(&run), hiccup);
    registered.unwrap();
    assert!(over.unwrap().elapsed() < Duration::from_secs(30), "it did not wait for the runner");
    leave(&runner).await;
}

/// GitHub opens the sessions that the agent has given up too, and then refuses another one.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_always_take_12_s_end_in_a_listening_runner() {
    let options = GitHubOptions {
        session_delay: Duration::from_secs(12),
        session_timeout: Duration::from_secs(600),
        ..GitHubOptions::default()
    };
    let harness = StandinHarness::with(options).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    assert_eq!(harness.online().last().unwrap(), &["1"]);
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &label("1"), job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    let account = leave(&runner).await;
    assert!(account.ends_with("GitHub kept an earlier session of the runner open"), "{account}");
    assert!(harness.github.runners().is_empty());
}

/// Each name meets a conflict until the last repair.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_of_the_last_attempt_is_left_too() {
    let harness = StandinHarness::new().await;
    let timeouts = Timeouts { listen: Duration::from_secs(1), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    harness.github.inject_runner_fault(&harness.name(1), RunnerFault::SessionUnavailable);
    let (github, name) = (harness.github.clone(), harness.name(1));
    let conflict = tokio::task::spawn_blocking(move || {
        assert!(github.wait_for_attempts(&name, 3, SOON), "three were late");
        github.inject_runner_fault(&name, RunnerFault::SessionConflict);
    });
    let run = label("1");
    let (registered, conflicted) = tokio::join!(runner.register(&run), conflict);
    conflicted.unwrap();
    registered.unwrap();
    assert_eq!(harness.online(), [["1"]]);
    leave(&runner).await;
}

/// Sessions always take longer than the agent waits at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_session_gets_the_time_that_it_needs() {
    let session_delay = Duration::from_millis(1200);
    let options = GitHubOptions { session_delay, ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let timeouts = Timeouts { listen: Duration::from_millis(500), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    assert_eq!(harness.online(), [["1"]]);
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}

/// GitHub keeps the session of a listener that has died, and refuses another to the same runner.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_conflict_is_left_by_another_name() {
    let session_timeout = Duration::from_secs(600);
    let options = GitHubOptions { session_timeout, ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let crash = || harness.github.inject_runner_fault("*", RunnerFault::Crash);
    exit_after(&runner, &run, crash).await;
    harness.github.clear_faults();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let since = Instant::now();
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    assert_eq!(done.runner_name, Some(harness.name(2)));
    assert!(since.elapsed() < Duration::from_secs(30), "the runner would have waited so long");
    assert_eq!(harness.github.runners().len(), 1, "the first registration is removed");
    let account = leave(&runner).await;
    assert!(account.ends_with("GitHub kept an earlier session of the runner open"), "{account}");
}

/// GitHub does not remove a runner that it calls busy.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_cannot_be_removed_at_a_conflict_is_removed_at_the_end() {
    let session_timeout = Duration::from_secs(600);
    let options = GitHubOptions { session_timeout, ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    harness.github.inject_runner_fault("*", RunnerFault::CrashOnJob);
    let queue = || harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let mut lost = None;
    exit_after(&runner, &run, || lost = Some(queue())).await;
    let lost = lost.unwrap();
    harness.github.clear_faults();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    let names: Vec<_> = harness.github.runners().into_iter().map(|it| it.name).collect();
    assert_eq!(names.first(), Some(&harness.name(1)), "it is busy");
    harness.github.conclude(lost, Conclusion::Failure, None);
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}
