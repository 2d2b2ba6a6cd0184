//! Runners that GitHub does not take, listeners that fall over, jobs that belong to another run.

use std::time::Duration;

use ondeck_standin::{Conclusion, GitHubFault, GitHubFaultRule, JobState, RunnerFault};

use super::harness::{GitHubHarness, LIMIT, REPOSITORY, RUNNER};
use crate::harness::{Driven, until};

/// Provision fails with the reason that the machine gave, in this many words of it.
fn not_ready(fault: RunnerFault, words: &[&str]) {
    let harness = GitHubHarness::local(&[]);
    harness.github.inject_runner_fault(REPOSITORY, fault);
    let done = harness.provision("1", 2).exited(5);
    for word in words {
        assert!(done.stderr.contains(word), "{word}: {}", done.stderr);
    }
    harness.github.clear_faults();
    until("everything is gone", || {
        harness.refresh(&[]);
        harness.standings().is_empty() && harness.github.runners().is_empty()
    });
    harness.provision("2", 1).succeeded();
}

#[test]
fn a_deprecated_version_is_called_that() {
    not_ready(RunnerFault::Deprecated, &["deprecated", "2.336.0", "actions-runner-version"]);
}

#[test]
fn a_registration_that_is_refused_is_told() {
    not_ready(RunnerFault::RegistrationRefused, &["did not become ready"]);
}

#[test]
fn a_listener_that_falls_over_is_started_again() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    harness.github.inject_runner_fault(REPOSITORY, RunnerFault::CrashOnJob);
    let first = harness.queue("1", "true");
    harness.github.wait_until(first, LIMIT, |job| job.state == JobState::InProgress);
    harness.github.clear_faults();
    harness.done(harness.queue("1", "echo again"));
    harness.release("1").succeeded();
}

/// GitHub waits ten minutes for the job of a listener that was killed.
#[test]
fn a_job_that_github_keeps_open_does_not_cost_a_machine() {
    let harness = GitHubHarness::local(&[]);
    let machines = harness.provision("1", 1).succeeded().ids();
    let killed = harness.queue(
        "1",
        "p=$PPID; until [ \"$(cat /proc/$p/comm)\" = Runner.Listener ]; do \
         p=$(cut -d' ' -f4 /proc/$p/stat); done; kill -9 $p; sleep 300",
    );
    harness.github.wait_until(killed, LIMIT, |job| job.state == JobState::InProgress);
    harness.done(harness.queue("1", "echo again"));
    let released = harness.release("1").succeeded().json();
    let machine = &released["instances"][0];
    assert_eq!(machine["outcome"], "pooled", "{released}");
    let report = machine["agentReport"].as_str().unwrap();
    assert!(report.contains("registered anew: its listener died with a job"), "{released}");
    assert_eq!(harness.github.runners().len(), 1, "GitHub keeps the one that has the job");
    assert_eq!(harness.provision("2", 1).succeeded().ids(), machines);
    harness.github.conclude(killed, Conclusion::Failure, None);
    harness.release("2").succeeded();
    assert!(harness.github.runners().is_empty(), "{:?}", harness.github.runners());
}

#[test]
fn a_runner_that_is_deleted_comes_back_and_release_says_so() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    let deleted = harness.github.runners().remove(0).name;
    harness.github.remove_runner(&deleted);
    let done = harness.done(harness.queue("1", "echo again"));
    assert_ne!(done.runner_name, Some(deleted));
    let released = harness.release("1").succeeded().json();
    let machine = &released["instances"][0];
    assert_eq!(machine["outcome"], "pooled", "{released}");
    let report = machine["agentReport"].as_str().unwrap();
    assert!(report.contains("registered anew: the runner was deleted"), "{released}");
}

#[test]
fn a_machine_whose_version_is_refused_does_not_return_to_the_pool() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    harness.release("1").succeeded();
    let given = harness.provision("2", 1).succeeded().json();
    assert_eq!(given["instances"][0]["source"], "warm", "{given}");
    harness.github.deprecate(RUNNER);
    harness.until_runners("the listener is turned away", |all| all.iter().all(|it| !it.online));
    let released = harness.release("2").exited(8).json();
    let machine = &released["instances"][0];
    assert_eq!(machine["outcome"], "expired", "{released}");
    let reason = machine["reason"].as_str().unwrap();
    assert!(reason.contains("GitHub refuses its version of actions/runner: 2.336.0"), "{released}");
}

#[test]
fn a_job_of_another_run_is_refused_by_the_machine() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    // Every workflow can write another run's id behind runs-on.
    let stranger =
        harness.github.queue_job(REPOSITORY, "666", &["1"], "echo got it; cat ~/secrets");
    let refused = harness.github.wait_for_job(stranger, LIMIT);
    assert_eq!(refused.conclusion, Some(Conclusion::Failure), "{refused:?}");
    assert!(!refused.log.contains("got it"), "{}", refused.log);
    assert!(refused.annotations.concat().contains("666"), "it says whose: {refused:?}");
    harness.done(harness.queue("1", "echo mine"));
    let released = harness.release("1").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "pooled", "{released}");
}

#[test]
fn without_a_refresh_for_an_hour_provision_says_which_is_missing() {
    let harness = GitHubHarness::local(&[]);
    let hour = Duration::from_secs(3_700);
    harness.github.advance(hour);
    // The program's own clock has not moved, so what it has written down has.
    harness.pool
        .file()
        .execute("UPDATE settings SET value = json_set(value, '$.expiresAt', ?1) WHERE name = 'credentials-minted'", ["2025-01-01T00:00:00.000Z"])
        .unwrap();
    let given = ["provision", "--run-id=1", "--registration-token-patience-sec=0.1"];
    let done = harness.ondeck(&given).exited(7);
    assert!(
        done.stderr.contains("the registration token expired at 2025-01-01"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("hint: run ondeck refresh"), "{}", done.stderr);
    assert_eq!(harness.standings(), Vec::<String>::new(), "nothing was launched for it");
    harness.refresh(&[]);
    harness.provision("1", 1).succeeded();
    harness.release("1").succeeded();
}

#[test]
fn machines_that_cannot_deregister_are_not_pooled() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    let limit = GitHubFault::SecondaryLimit { retry_after: Duration::from_secs(600) };
    let rule = GitHubFaultRule::new(limit).on("DELETE", "/repos/*/*/actions/runners/*");
    let refused = harness.github.inject(rule);
    let done = harness.release("1").exited(8);
    refused.stop();
    let released = done.json();
    assert_eq!(released["instances"][0]["outcome"], "expired", "{released}");
    until("the machine and its runner are gone", || {
        harness.refresh(&[]);
        harness.standings().is_empty() && harness.github.runners().is_empty()
    });
}

/// GitHub answers an expired token as if it did not know the runner, which then stays in its list.
#[test]
fn a_runner_that_is_left_in_the_list_is_removed_by_refresh() {
    let harness = GitHubHarness::local(&[]);
    let machines = harness.provision("1", 1).succeeded().ids();
    harness.github.advance(Duration::from_secs(3_700));
    let released = harness.release("1").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "pooled", "{released}");
    harness.until_runners("offline", |runners| runners.iter().all(|runner| !runner.online));
    assert_eq!(harness.github.runners().len(), 1);
    harness.renew();
    harness.refresh(&[]);
    assert_eq!(harness.provision("2", 1).succeeded().ids(), machines, "the machine is not lost");
    harness.ondeck(&["release", "--run-id=2", "--idle-time-sec=0"]).succeeded();
    until("the runner is gone with its machine", || {
        harness.refresh(&[]);
        harness.github.runners().is_empty()
    });
}

#[test]
fn machines_of_one_forge_are_not_given_to_runs_of_another() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    harness.release("1").succeeded();
    harness.ondeck(&["refresh", "--forge=local"]).succeeded();
    let given = harness.provision("2", 1).succeeded().json();
    assert_eq!(given["instances"][0]["source"], "cold", "{given}");
    assert!(harness.github.runners().is_empty(), "{:?}", harness.github.runners());
    harness.ondeck(&["run", "--run-id=2", "--", "true"]).succeeded();
    harness.release("2").succeeded();
    harness.refresh(&[]);
    let given = harness.provision("3", 1).succeeded().json();
    assert_eq!(given["instances"][0]["source"], "cold", "{given}");
    harness.done(harness.queue("3", "true"));
    harness.release("3").succeeded();
}
