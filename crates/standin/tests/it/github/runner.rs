//! The runner double: sessions, jobs, hooks, signals and exit codes.

mod harness;
mod times;

use std::time::{Duration, Instant};

use ondeck_standin::{
    Conclusion, GitHubFault, GitHubFaultRule, GitHubRunner, Job, JobState, Occurrence, RunnerFault,
    RunnerPackage,
};
use rustix::process::{Pid, Signal};

pub(crate) use self::harness::RunnerHarness;
use self::harness::quick_package;
use super::REPOSITORY;
use crate::harness::SOON;

#[test]
fn a_runner_takes_jobs_by_label_and_ends_when_it_is_told_to() {
    let harness = RunnerHarness::registered();
    let other = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let script = "echo run $GITHUB_RUN_ID of $GITHUB_REPOSITORY on $RUNNER_NAME in $PWD\n\
                  test -d \"$RUNNER_TEMP\" && env | grep -c ACTIONS_RUNNER_INPUT || true";
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], script);
    let bad = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "false; echo not here");
    let running = harness.run();
    let job = harness.github.wait_for_job(job, SOON);
    assert_eq!(job.conclusion, Some(Conclusion::Success), "{}", job.log);
    assert_eq!(job.runner_name.as_deref(), Some("i-1-1"));
    let place = harness.path("_work/web/web").canonicalize().unwrap();
    let expected = format!("run 4711 of acme/web on i-1-1 in {}\n0\n", place.display());
    assert_eq!(job.log, expected);
    let bad = harness.github.wait_for_job(bad, SOON);
    assert_eq!(bad.conclusion, Some(Conclusion::Failure));
    assert!(bad.log.contains("exit code 1") && !bad.log.contains("not here"), "{}", bad.log);
    assert_eq!(harness.github.job(other).unwrap().state, JobState::Queued);
    // It gets another job only after it has reported the end of the one before.
    let last = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    harness.github.wait_for_job(last, SOON);
    running.signal(Signal::INT);
    let (code, said) = running.end();
    assert_eq!(code, Some(0));
    for line in [
        "√ Connected to GitHub",
        "Current runner version: '2.336.0'",
        ": Listening for Jobs",
        &format!(": Running job: {}", job.name),
        &format!(": Job {} completed with result: Succeeded", job.name),
        &format!(": Job {} completed with result: Failed", bad.name),
        "Runner listener exit with 0 return code",
        "Exiting runner...",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert!(!harness.github.runners()[0].online, "its session is over");
}

#[test]
fn a_job_fails_when_its_runner_is_told_to_end() {
    let harness = RunnerHarness::registered();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "echo on; sleep 600");
    let running = harness.run();
    harness.github.wait_until(job, SOON, |job| job.log.contains("on"));
    running.signal(Signal::TERM);
    let job = harness.github.wait_for_job(job, SOON);
    assert_eq!(job.conclusion, Some(Conclusion::Failure), "as with the real one");
}

#[test]
fn a_cancelled_run_leaves_its_runner_for_the_next() {
    let harness = RunnerHarness::registered();
    let first = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "echo on; sleep 600");
    let _running = harness.run();
    harness.github.wait_until(first, SOON, |job| job.log.contains("on"));
    harness.github.cancel_run(REPOSITORY, "4711");
    let first = harness.github.wait_for_job(first, SOON);
    assert_eq!(first.conclusion, Some(Conclusion::Cancelled));
    let next = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "echo next");
    assert_eq!(harness.github.wait_for_job(next, SOON).log, "next\n");
}

#[test]
fn a_runner_that_is_killed_is_offline_after_a_while_and_its_job_lost() {
    let harness = RunnerHarness::registered();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "echo on; sleep 600");
    let running = harness.run();
    harness.github.wait_until(job, SOON, |job| job.log.contains("on"));
    let token = harness.github.remove_token(REPOSITORY);
    let removed =
        harness.command("config.sh").args(["remove", "--token", &token]).output().unwrap();
    let said = String::from_utf8(removed.stderr).unwrap();
    assert_eq!(removed.status.code(), Some(1));
    assert!(said.contains("Failed: Removing runner from the server"), "{said}");
    assert!(said.contains("is still running a job"), "{said}");
    running.signal(Signal::KILL);
    let is_offline = |runners: &[ondeck_standin::GitHubRunner]| !runners[0].online;
    let offline = harness.github.wait_for_runners(SOON, is_offline).unwrap();
    assert!(offline[0].busy, "GitHub waits for its job");
    let job = harness.github.wait_for_job(job, SOON);
    assert_eq!(job.conclusion, Some(Conclusion::Failure));
    assert!(job.log.contains("lost communication with the server"), "{}", job.log);
    let runner = harness.github.runners().remove(0);
    assert!(!runner.online && !runner.busy);
}

#[test]
fn hooks_run_around_the_job_and_can_fail_it() {
    let mut harness = RunnerHarness::registered();
    let note = harness.path("note");
    let text = |word: &str, code: u8| {
        format!("echo {word} $GITHUB_RUN_ID >> {}\nexit {code}\n", note.display())
    };
    let started = harness.script("started.sh", &text("started", 0));
    let completed = harness.script("completed.sh", &text("completed", 0));
    harness.set("ACTIONS_RUNNER_HOOK_JOB_STARTED", &started);
    harness.set("ACTIONS_RUNNER_HOOK_JOB_COMPLETED", &completed);
    let _running = harness.run();
    let script = format!("echo job >> {}", note.display());
    let take = || -> (Job, String) {
        let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], &script);
        let job = harness.github.wait_for_job(job, SOON);
        let noted = std::fs::read_to_string(&note).unwrap().replace('\n', ",");
        std::fs::remove_file(&note).unwrap();
        (job, noted)
    };
    let (job, noted) = take();
    assert_eq!(noted, "started 4711,job,completed 4711,");
    assert_eq!(job.conclusion, Some(Conclusion::Success), "{}", job.log);
    assert!(job.log.contains("A job started hook has been configured"), "{}", job.log);
    harness.script("completed.sh", &text("completed", 3));
    let (job, noted) = take();
    assert_eq!(
        (noted.as_str(), job.conclusion),
        ("started 4711,job,completed 4711,", Some(Conclusion::Failure))
    );
    harness.script("completed.sh", &text("completed", 0));
    harness.script("started.sh", &text("started", 1));
    let (job, noted) = take();
    assert_eq!(
        (noted.as_str(), job.conclusion),
        ("started 4711,completed 4711,", Some(Conclusion::Failure))
    );
    std::fs::remove_file(&started).unwrap();
    let (job, noted) = take();
    assert_eq!((noted.as_str(), job.conclusion), ("completed 4711,", Some(Conclusion::Failure)));
    assert!(job.log.contains("File doesn't exist"), "{}", job.log);
}

#[test]
fn processes_that_a_job_has_left_end_with_it_unless_they_lose_its_mark() {
    let harness = RunnerHarness::registered();
    let _running = harness.run();
    let pids = harness.path("pids");
    let script = format!(
        "sleep 600 & echo $! >> {0}\nRUNNER_TRACKING_ID= setsid sleep 600 & echo $! >> {0}",
        pids.display()
    );
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], &script);
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Success));
    let text = std::fs::read_to_string(&pids).unwrap();
    let pids: Vec<i32> = text.lines().map(|line| line.parse().unwrap()).collect();
    let is_alive = |pid: i32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.is_ok_and(|state| !state.contains(") Z "))
    };
    assert!(!is_alive(pids[0]));
    assert!(is_alive(pids[1]));
    rustix::process::kill_process(Pid::from_raw(pids[1]).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn each_end_has_its_code_and_run_sh_hides_most_of_them() {
    let deprecated = "Runner version v2.336.0 is deprecated and cannot receive messages.";
    let cases = [
        (RunnerFault::Deprecated, Some(7), Some(7), deprecated),
        (
            RunnerFault::SessionConflict,
            Some(5),
            Some(0),
            "A session for this runner already exists.",
        ),
        (RunnerFault::Crash, None, Some(0), "Listening for Jobs"),
        (
            RunnerFault::Deleted,
            Some(1),
            Some(0),
            "The runner registration has been deleted from the server",
        ),
    ];
    let harness = RunnerHarness::registered();
    let gone = |runners: &[GitHubRunner]| runners.iter().all(|it| !it.online);
    harness.github.inject_runner_fault(REPOSITORY, RunnerFault::Deprecated);
    assert_eq!(harness.run().end().0, Some(0), "run.sh hides the exit code by default");
    harness.github.wait_for_runners(SOON, gone).unwrap();
    harness.github.clear_faults();
    for (fault, code, shown, words) in cases {
        harness.github.inject_runner_fault("i-1-1", fault);
        let mut listener = harness.command("bin/Runner.Listener");
        listener.arg("run");
        let (found, said) = harness.start(listener).end();
        assert_eq!(found, code, "{fault:?}: {said}");
        assert!(said.contains(words), "{fault:?}: {said}");
        harness.github.wait_for_runners(SOON, gone).unwrap();
        let mut run = harness.command("run.sh");
        run.env("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1");
        let (found, said) = harness.start(run).end();
        assert_eq!(found, shown, "{fault:?}: {said}");
        harness.github.wait_for_runners(SOON, gone).unwrap();
        harness.github.clear_faults();
    }
}

#[test]
fn a_listener_that_may_try_again_is_started_again() {
    let harness = RunnerHarness::registered();
    harness.github.inject_runner_fault("*", RunnerFault::Retryable);
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    assert_eq!(harness.start(listener).end().0, Some(2));
    let running = harness.run();
    harness.github.clear_faults();
    harness.wait_online();
    running.signal(Signal::INT);
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn a_runner_that_is_deleted_forgets_its_registration() {
    let harness = RunnerHarness::registered();
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let listening = harness.start(listener);
    harness.wait_online();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "sleep 600");
    harness.github.wait_until(job, SOON, |job| job.state == JobState::InProgress);
    harness.github.remove_runner("i-1-1");
    let (code, said) = listening.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("The runner no longer exists on the server. Cleaning up"), "{said}");
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Cancelled));
    for name in [".runner", ".credentials"] {
        assert!(!harness.path(name).exists(), "{name}");
    }
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let (code, said) = harness.start(listener).end();
    assert_eq!(code, Some(1));
    assert!(said.contains("Not configured."), "{said}");
}

#[test]
fn a_session_that_fails_is_asked_for_again_without_a_word() {
    let harness = RunnerHarness::registered();
    harness.github.inject_runner_fault("i-1-1", RunnerFault::SessionUnavailable);
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let listening = harness.start(listener);
    assert!(harness.github.wait_for_attempts("i-1-1", 2, SOON));
    harness.github.clear_faults();
    harness.wait_online();
    listening.signal(Signal::INT);
    let (code, said) = listening.end();
    assert_eq!(code, Some(0));
    assert!(!said.contains("error"), "{said}");
}

#[test]
fn a_version_is_refused_once_it_is_deprecated() {
    let harness = RunnerHarness::registered();
    harness.github.deprecate("2.336.0");
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let (code, said) = harness.start(listener).end();
    assert_eq!(code, Some(7));
    assert!(said.contains("Listening for Jobs"), "{said}");
}

/// Its poll is answered at once, and not when it would have ended without a message.
#[test]
fn a_version_is_refused_while_its_listener_waits_for_a_message() {
    let harness = RunnerHarness::registered();
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let seen = GitHubFaultRule::new(GitHubFault::Delay(Duration::ZERO));
    let polls = harness.github.inject(seen.on("GET", "/_standin/sessions/*/message"));
    let running = harness.start(listener);
    let since = Instant::now();
    while polls.fired() == 0 {
        assert!(since.elapsed() < SOON, "it does not poll");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    harness.github.deprecate("2.336.0");
    let since = Instant::now();
    assert_eq!(running.end().0, Some(7));
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

/// The real runner does not quote the path either.
#[test]
fn a_hook_in_a_path_with_a_blank_fails_every_job() {
    let mut harness = RunnerHarness::registered();
    std::fs::create_dir(harness.path("a blank")).unwrap();
    let hook = harness.script("a blank/hook.sh", "true");
    harness.set("ACTIONS_RUNNER_HOOK_JOB_STARTED", &hook);
    let _listening = harness.run();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Failure));
}

/// A job that kills its worker has no log, and an annotation with the worker's own output.
#[test]
fn a_worker_that_is_killed_leaves_an_annotation() {
    let harness = RunnerHarness::registered();
    let _listening = harness.run();
    let script = "echo a log; echo 'the reason' >/proc/$PPID/fd/2; kill -9 $PPID; sleep 600";
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], script);
    let job = harness.github.wait_for_job(job, SOON);
    assert_eq!(job.conclusion, Some(Conclusion::Failure));
    assert_eq!(job.annotations, ["the reason\n"]);
    assert_eq!(job.log, "");
    let next = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "echo next");
    assert_eq!(harness.github.wait_for_job(next, SOON).conclusion, Some(Conclusion::Success));
}

#[test]
fn a_job_that_never_begins_is_announced_only() {
    let harness = RunnerHarness::registered();
    harness.github.inject_runner_fault("i-1-1", RunnerFault::JobNeverBegins);
    let listening = harness.run();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Failure));
    harness.github.clear_faults();
    let next = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    assert_eq!(harness.github.wait_for_job(next, SOON).conclusion, Some(Conclusion::Success));
    listening.signal(Signal::INT);
    let (_, said) = listening.end();
    assert_eq!(said.matches("Running job: ").count(), 2, "{said}");
    assert_eq!(said.matches(" completed with result: ").count(), 1, "{said}");
}

#[test]
fn a_second_listener_is_refused_while_there_is_a_first() {
    let harness = RunnerHarness::registered();
    let _first = harness.run();
    harness.wait_online();
    let mut second = harness.command("bin/Runner.Listener");
    second.arg("run");
    assert_eq!(harness.start(second).end().0, Some(5));
}

#[test]
fn a_listener_can_crash_with_its_job_or_never_connect() {
    let harness = RunnerHarness::registered();
    harness.github.inject_runner_fault("i-1-1", RunnerFault::CrashOnJob);
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    assert_eq!(harness.run().end().0, Some(0));
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Failure));
    harness.github.clear_faults();
    harness.github.inject_runner_fault("i-1-1", RunnerFault::NeverConnects);
    let running = harness.run();
    assert!(harness.github.wait_for_attempts("i-1-1", 2, SOON));
    assert!(!harness.github.runners()[0].online);
    running.signal(Signal::INT);
    let (code, said) = running.end();
    assert_eq!(code, Some(0));
    assert!(!said.contains("Listening for Jobs"), "{said}");
}

#[test]
fn a_runner_for_one_job_is_gone_after_it() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token(REPOSITORY);
    let more = ["--token", &token, "--labels", "4711", "--ephemeral"];
    assert!(harness.config(&more).status.success());
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "echo once");
    let (code, _) = harness.run().end();
    assert_eq!(code, Some(0));
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Success));
    assert!(harness.github.runners().is_empty());
    assert!(!harness.path(".runner").exists() && !harness.path(".credentials").exists());
}

/// The listener waits between the end of a job and the line about it.
#[test]
fn a_listener_that_ends_just_after_a_job_calls_it_cancelled() {
    let harness = RunnerHarness::registered();
    let package = RunnerPackage { closing_pause: SOON, ..quick_package() };
    package.lay_out(&harness.path("slow"));
    for name in [".runner", ".credentials"] {
        std::fs::copy(harness.path(name), harness.path("slow").join(name)).unwrap();
    }
    let mut listener = harness.command("slow/bin/Runner.Listener");
    listener.arg("run");
    let listening = harness.start(listener);
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    let done = harness.github.wait_for_job(job, SOON);
    assert_eq!(done.conclusion, Some(Conclusion::Success));
    listening.signal(Signal::INT);
    let (code, said) = listening.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("completed with result: Canceled"), "{said}");
}

#[test]
fn a_listener_that_has_not_reported_the_end_of_a_job_gets_no_other() {
    let harness = RunnerHarness::registered();
    let jobs: Vec<_> =
        (0..5).map(|_| harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true")).collect();
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let listening = harness.start(listener);
    for job in jobs {
        assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Success));
    }
    // The last one is reported after it is completed.
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    harness.github.wait_for_job(job, SOON);
    listening.signal(Signal::INT);
    let (_, said) = listening.end();
    let lines: Vec<bool> = said
        .lines()
        .filter(|line| line.contains("Running job: ") || line.contains(" completed with result: "))
        .map(|line| line.contains("Running job: "))
        .collect();
    let expected: Vec<bool> = (0..lines.len()).map(|index| index % 2 == 0).collect();
    assert_eq!((lines.len(), lines), (12, expected), "{said}");
}

#[test]
fn failed_polls_end_the_listener_after_ten_errors() {
    let harness = RunnerHarness::registered();
    let path = "/_standin/sessions/*/message";
    let polls = GitHubFaultRule::new(GitHubFault::Status(502)).on("GET", path);
    let failing = harness.github.inject(polls.clone());
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let (code, said) = harness.start(listener).end();
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(said.matches("Retrying until reconnected.").count(), 1, "{said}");
    assert_eq!(failing.fired(), 55, "eleven errors of five polls");
    failing.stop();

    harness.github.inject(polls.occurrence(Occurrence::First(10)));
    let mut listener = harness.command("bin/Runner.Listener");
    listener.arg("run");
    let listening = harness.start(listener);
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Success));
    listening.signal(Signal::INT);
    let (code, said) = listening.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("Runner reconnected."), "{said}");
}

#[test]
fn a_listener_updates_itself_although_it_was_told_not_to() {
    let harness = RunnerHarness::registered();
    let listen = || {
        let mut listener = harness.command("bin/Runner.Listener");
        listener.arg("run");
        let listening = harness.start(listener);
        harness.wait_online();
        harness.github.tell_to_update("i-1-1", "2.337.0");
        listening
    };
    let (code, said) = listen().end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("Runner will exit shortly for update"), "{said}");
    let offline = |runners: &[GitHubRunner]| !runners[0].online;
    harness.github.wait_for_runners(SOON, offline).unwrap();

    // A script cannot be replaced, as if it belonged to another user.
    std::fs::remove_file(harness.path("run.sh")).unwrap();
    std::fs::create_dir(harness.path("run.sh")).unwrap();
    let listening = listen();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    assert_eq!(harness.github.wait_for_job(job, SOON).conclusion, Some(Conclusion::Success));
    listening.signal(Signal::INT);
    let (code, said) = listening.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("Runner update process finished."), "{said}");
    assert!(!said.contains("will exit shortly"), "{said}");
}
