//! A runner that takes as long as it is told to, and a GitHub that is far away.

use std::time::{Duration, Instant};

use ondeck_standin::{GitHub, GitHubOptions, GitHubRunner, RunnerPackage, RunnerTimes};
use rustix::process::Signal;

use super::{RunnerHarness, quick_package};
use crate::github::REPOSITORY;
use crate::harness::SOON;

/// Longer than starting a program takes, so that one request less would be noticed.
const LATENCY: Duration = Duration::from_millis(250);
const TIMES: RunnerTimes = RunnerTimes {
    configure: Duration::from_millis(170),
    listen: Duration::from_millis(130),
    remove: Duration::from_millis(110),
    end: Duration::from_millis(90),
};

/// How long something takes.
fn timed(what: impl FnOnce()) -> Duration {
    let began = Instant::now();
    what();
    began.elapsed()
}

#[test]
fn each_command_takes_its_own_time_and_its_round_trips() {
    let package = RunnerPackage { times: Some(TIMES), ..quick_package() };
    let harness = RunnerHarness::with(GitHub::start(GitHubOptions::default()), &package);
    harness.github.set_latency(LATENCY);
    let registered = timed(|| harness.register());
    let least = TIMES.configure + LATENCY * RunnerTimes::ROUND_TRIPS_TO_REGISTER;
    assert!(registered >= least, "{registered:?}");

    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let began = Instant::now();
    let listening = harness.start(listener);
    harness.wait_online();
    // The answer to the last request is not there yet.
    let least = TIMES.listen + LATENCY * RunnerTimes::ROUND_TRIPS_TO_LISTEN;
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());

    // It has the answer when it takes a job.
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    harness.github.wait_for_job(job, SOON);
    let began = Instant::now();
    listening.signal(Signal::INT);
    assert_eq!(listening.end().0, Some(0));
    assert!(began.elapsed() >= TIMES.end + LATENCY, "{:?}", began.elapsed());
    let is_offline = |runners: &[GitHubRunner]| runners.iter().all(|it| !it.online);
    assert!(harness.github.wait_for_runners(SOON, is_offline).is_some());

    let token = harness.github.remove_token(REPOSITORY);
    let removed = timed(|| {
        let removed = harness.command("config.sh").args(["remove", "--token", &token]).output();
        assert!(removed.unwrap().status.success());
    });
    assert!(removed >= TIMES.remove + LATENCY, "{removed:?}");
    assert!(harness.github.runners().is_empty());
}
