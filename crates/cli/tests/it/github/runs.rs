//! What refresh does for runs: machines that died, runs that never call release, rate limits.

use std::time::Duration;

use ondeck_standin::{Conclusion, GitHubFault, GitHubFaultRule, JobState, Permission, RunState};
use serde_json::json;

use super::harness::{GitHubHarness, JOBS_TOKEN, LIMIT, REPOSITORY};
use crate::aws::harness::AwsHarness;
use crate::harness::{Driven, Home, until};

/// Kills the agent and its processes as `kill -9` does.
fn kill_local(harness: &GitHubHarness<Home>, machine: &str) {
    for pid in harness.pool.processes_of(machine) {
        crate::harness::signal(pid, rustix::process::Signal::KILL);
    }
}

/// Of two machines one dies with its job, and a job waits while the other machine is busy.
fn a_run_whose_machine_died<P: Driven>(harness: &GitHubHarness<P>, kill: impl Fn(&str)) {
    let machines = harness.provision("71", 2).succeeded().ids();
    let long = "until test -e /nowhere; do sleep 0.1; done";
    let jobs = [harness.queue("71", long), harness.queue("71", long)];
    let runners = jobs.map(|job| {
        let job = harness.github.wait_until(job, LIMIT, |job| job.state == JobState::InProgress);
        job.runner_name.unwrap()
    });
    let dead = machines.iter().find(|id| runners[0].starts_with(&format!("{id}-"))).unwrap();
    kill(dead);
    let waiting = harness.queue("71", "echo served");
    let mut rescued = None;
    until("the run gets another machine", || {
        let refreshed = harness.refresh(&[]);
        if refreshed["rescued"] == json!(["71"]) {
            rescued = Some(refreshed);
        }
        rescued.is_some()
    });
    let refreshed = rescued.unwrap();
    assert_eq!(refreshed["silent"], json!([dead]), "{refreshed}");
    assert!(refreshed["warnings"].to_string().contains("has sent no heartbeat"), "{refreshed}");
    let served = harness.done(waiting);
    let runner = served.runner_name.unwrap();
    assert!(!machines.iter().any(|id| runner.starts_with(&format!("{id}-"))), "{runner}");
    let other = harness.github.job(jobs[1]).unwrap();
    assert_eq!(other.state, JobState::InProgress, "the other job goes on: {other:?}");
    assert_eq!(harness.refresh(&[])["rescued"], json!([]), "it has what it asked for");
    harness.github.assert_requests_valid();
}

/// A run that has completed, and whose release job was deleted.
fn a_completed_run<P: Driven>(harness: &GitHubHarness<P>) {
    // On a busy computer a heartbeat may be seconds late.
    harness.refresh(&["--heartbeat-period-sec=5"]);
    let machines = harness.provision("72", 2).succeeded().ids();
    let kept = harness.provision("73", 1).succeeded().ids();
    harness.github.add_run(REPOSITORY, "73", RunState::Waiting);
    harness.github.add_run(REPOSITORY, "72", RunState::InProgress);
    assert_eq!(harness.refresh(&[])["completed"], json!([]), "other jobs may follow");
    harness.github.add_run(REPOSITORY, "72", RunState::Completed(Conclusion::Cancelled));
    assert_eq!(harness.refresh(&[])["completed"], json!(["72"]));
    assert_eq!(harness.refresh(&[])["completed"], json!([]));
    let warm = harness.provision("74", 2).succeeded();
    assert_eq!(warm.sources(), ["warm", "warm"], "they were pooled by the handshake");
    let (mut before, mut after) = (machines, warm.ids());
    before.sort();
    after.sort();
    assert_eq!(after, before);
    let release = harness.release("73").succeeded().json();
    assert_eq!(
        release["instances"][0]["instanceId"],
        json!(kept[0]),
        "a run that waits keeps its machine"
    );
    harness.github.assert_requests_valid();
}

#[test]
fn a_run_whose_machine_died_on_the_local_backend() {
    let harness = GitHubHarness::local(&[]);
    a_run_whose_machine_died(&harness, |machine| kill_local(&harness, machine));
}

#[test]
fn a_run_whose_machine_died_on_aws() {
    let harness: GitHubHarness<AwsHarness> = GitHubHarness::aws(&[]);
    a_run_whose_machine_died(&harness, |machine| harness.pool.gateway.ec2().terminate(machine));
}

/// EC2 goes on to list the machine as running.
#[test]
fn a_run_whose_agent_died_on_aws() {
    let harness: GitHubHarness<AwsHarness> = GitHubHarness::aws(&[]);
    let kill = |machine: &str| assert!(harness.pool.gateway.ec2().kill_agent(machine));
    a_run_whose_machine_died(&harness, kill);
}

#[test]
fn a_completed_run_on_the_local_backend() {
    a_completed_run(&GitHubHarness::local(&[]));
}

#[test]
fn a_completed_run_on_aws() {
    a_completed_run(&GitHubHarness::aws(&[]));
}

/// Many open runs of other workflows cost no request each, and a limit does not fail the refresh.
#[test]
fn few_requests_are_sent_and_a_limit_is_a_warning() {
    let harness = GitHubHarness::local(&[]);
    for run in 1_000..1_150 {
        harness.github.add_run(REPOSITORY, &run.to_string(), RunState::InProgress);
    }
    for run in 200..215 {
        harness.provision(&run.to_string(), 1).succeeded();
        harness.github.add_run(REPOSITORY, &run.to_string(), RunState::Pending);
    }
    harness.github.forget_requests();
    let refreshed = harness.refresh(&[]);
    assert_eq!((&refreshed["rescued"], &refreshed["completed"]), (&json!([]), &json!([])));
    let about_runs = |path: &str| path.contains("/actions/runs");
    let requests = harness.github.requests();
    let sent = requests.iter().filter(|request| about_runs(&request.path)).count();
    assert_eq!(sent, 10, "{requests:?}");
    let limit = GitHubFault::PrimaryLimit { reset_in: Duration::from_secs(1_800) };
    harness.github.inject(GitHubFaultRule::new(limit).on("GET", "/repos/acme/web/actions/runs"));
    let done = harness.ondeck(&["refresh", "--json"]).succeeded();
    let warnings = done.json()["warnings"].to_string();
    assert!(warnings.contains("not all runs were examined: GitHub limits requests"), "{warnings}");
}

/// A spot machine is taken away with its job on it. Once the run has completed, the job is re-run, and
/// the run gets a machine for it.
#[test]
fn a_job_whose_machine_was_taken_away_is_re_run_on_aws() {
    let harness = GitHubHarness::aws(&["--on-interruption=rerun"]);
    harness.github.allow(JOBS_TOKEN, REPOSITORY, &[Permission::ActionsWrite]);
    let machine = harness.provision("75", 1).succeeded().ids().concat();
    let once = harness.pool.home().join("cut-off");
    let script = format!(
        "test -e {0} && exit 0; touch {0}; until test -e /nowhere; do sleep 0.1; done",
        once.display()
    );
    let job = harness.queue("75", &script);
    harness.github.wait_until(job, LIMIT, |job| job.state == JobState::InProgress);
    until("the job runs", || once.exists());
    harness.pool.gateway.ec2().interrupt(&machine, Duration::from_secs(3));
    let lost = harness.github.wait_for_job(job, LIMIT);
    assert_eq!(lost.conclusion, Some(Conclusion::Failure), "{lost:?}");
    // Before a refresh sees that the run has completed, and releases it.
    let released = harness.release("75").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "interrupted", "{released}");
    until("the job is re-run", || {
        harness.refresh(&[]);
        harness.github.jobs(REPOSITORY, "75").len() == 2
    });
    let again = harness.github.jobs(REPOSITORY, "75").into_iter().find(|it| it.run_attempt == 2);
    until("the run gets a machine", || {
        harness.refresh(&[]);
        harness.github.job(again.clone().unwrap().id).unwrap().state != JobState::Queued
    });
    harness.done(again.unwrap().id);
    harness.refresh(&[]);
    assert_eq!(harness.github.jobs(REPOSITORY, "75").len(), 2, "once: {released}");
    harness.github.assert_requests_valid();
}
