//! What refresh does for runs: machines that died, runs that never call release, rate limits.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ondeck_standin::{
    AwsFault, AwsFaultRule, Conclusion, GitHubFault, GitHubFaultRule, JobState, Permission,
    RunState, Service,
};
use serde_json::{Value, json};

use super::harness::{
    GitHubHarness, JOBS_TOKEN, LIMIT, REPOSITORY, github_that_gives_up, github_that_pauses,
};
use crate::aws::harness::AwsHarness;
use crate::harness::{Background, Driven, Home, until};

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
    let harness = GitHubHarness::aws_with(github_that_gives_up(), &["--on-interruption=rerun"]);
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

/// The script of a job that runs until there is such a file.
fn until_there_is(file: &Path) -> String {
    format!("until test -e '{}'; do sleep 0.1; done", file.display())
}

/// A spot machine with a job is given notice. It completes the job and takes no other one, and the run
/// gets a machine in its place.
#[test]
fn a_busy_machine_that_is_interrupted_takes_no_further_job_on_aws() {
    // A real listener needs several round trips to get another job.
    let github = github_that_pauses(Duration::from_secs(5));
    let harness = GitHubHarness::aws_with(github, &[]);
    // Its release is a job of the run, too.
    harness.github.add_run(REPOSITORY, "76", RunState::InProgress);
    let machine = harness.provision("76", 1).succeeded().ids().concat();
    let is_of_machine = |runner: &str| runner.starts_with(&format!("{machine}-"));
    let folder = tempfile::tempdir().unwrap();
    let [first_may_end, second_may_end] = ["first", "second"].map(|it| folder.path().join(it));
    let first = harness.queue("76", &until_there_is(&first_may_end));
    harness.github.wait_until(first, LIMIT, |job| job.state == JobState::InProgress);
    let second = harness.queue("76", &until_there_is(&second_may_end));
    // Longer than the test takes.
    harness.pool.gateway.ec2().interrupt(&machine, Duration::from_secs(600));
    let mut rescued = Value::Null;
    until("a refresh rescues the run", || {
        rescued = harness.refresh(&[])["rescued"].clone();
        rescued != json!([])
    });
    assert_eq!(rescued, json!(["76"]));
    let taken = harness.github.wait_until(second, LIMIT, |job| job.state == JobState::InProgress);
    assert!(!taken.runner_name.as_deref().is_some_and(is_of_machine), "{taken:?}");

    // The other machine is busy now, so that only this one could take the third job.
    let third = harness.queue("76", "echo served");
    fs::write(&first_may_end, "").unwrap();
    let log = harness.done(first).log;
    let warning = "::warning title=this machine takes no further job::EC2 will terminate this spot";
    assert!(log.contains(warning), "{log}");
    harness.until_runners("offline", |runners| {
        !runners.iter().any(|runner| is_of_machine(&runner.name) && runner.online)
    });
    assert_eq!(harness.github.job(third).unwrap().state, JobState::Queued);
    fs::write(&second_may_end, "").unwrap();
    for job in [second, third] {
        let runner = harness.done(job).runner_name.unwrap();
        assert!(!is_of_machine(&runner), "{runner}");
    }
    assert_eq!(harness.refresh(&[])["rescued"], json!([]), "once");
    release_names_the_interrupted(&harness, "76", &machine);
    harness.github.assert_requests_valid();
}

/// Releases a run in a step of a workflow. The text, the JSON and the summary say that one of its two
/// machines was interrupted.
fn release_names_the_interrupted(harness: &GitHubHarness<AwsHarness>, run: &str, machine: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [outputs, summary] = ["outputs", "summary"].map(|it| folder.path().join(it));
    let mut release = harness.command(&["release", "--run-id", run]);
    release.env("GITHUB_ACTIONS", "true").env("GITHUB_OUTPUT", &outputs);
    let done = Background::start(release.env("GITHUB_STEP_SUMMARY", &summary)).finish().succeeded();
    let why = "its provider takes it away";
    let row = done.stdout.lines().find(|line| line.contains(machine)).unwrap_or_default();
    assert!(row.contains("interrupted") && row.contains(why), "{}", done.stdout);

    let outputs = fs::read_to_string(outputs).unwrap();
    let result = outputs.lines().find_map(|line| line.strip_prefix("result=")).unwrap();
    let result: Value = serde_json::from_str(result).unwrap();
    let one = |outcome: &str| {
        let all = result["instances"].as_array().unwrap();
        let mut found = all.iter().filter(|one| one["outcome"] == outcome);
        (found.next().cloned().unwrap_or_default(), found.count())
    };
    let (interrupted, more) = one("interrupted");
    assert_eq!((&interrupted["instanceId"], more), (&json!(machine), 0), "{result}");
    assert_eq!(interrupted["reason"], why, "{result}");
    assert_eq!(one("pooled").0["resourceClass"], "large", "{result}");

    let summary = fs::read_to_string(summary).unwrap();
    assert!(summary.starts_with("### ondeck released 2 machines of run "), "{summary}");
    assert!(summary.lines().next().unwrap().ends_with(": 1 pooled, 1 interrupted"), "{summary}");
    let row = summary.lines().find(|line| line.contains(machine)).unwrap_or_default();
    assert!(row.contains("| **interrupted** | its provider takes it away |"), "{summary}");
}

/// Two refreshes find the same run without a machine. GitHub answers both late, so that both have
/// read what the run asked for before either begins to rescue it.
fn a_run_that_two_refreshes_find<P: Driven>(
    harness: &GitHubHarness<P>,
    runs: &[&str],
    kill: impl Fn(&str),
    launched: impl Fn() -> usize,
) {
    for run in runs {
        let machine = harness.provision(run, 1).succeeded().ids().concat();
        harness.github.add_run(REPOSITORY, run, RunState::InProgress);
        kill(&machine);
    }
    until("all of them are silent", || {
        harness.refresh(&[])["silent"].as_array().unwrap().len() == runs.len()
    });
    assert_eq!(launched(), runs.len());
    let late = GitHubFaultRule::new(GitHubFault::Delay(Duration::from_secs(2)));
    harness.github.inject(late.on("GET", "/repos/acme/web/actions/runs/*/jobs"));
    for (n, run) in runs.iter().enumerate() {
        let job = harness.queue(run, "echo served");
        let both = [0; 2].map(|_| harness.start(&["refresh", "--json"]));
        let reports = both.map(|refresh| refresh.finish().succeeded().json());
        let mut rescued = reports.each_ref().map(|report| report["rescued"].to_string());
        rescued.sort();
        assert_eq!(rescued, [format!("[\"{run}\"]"), "[]".to_owned()], "{reports:?}");
        assert_eq!(launched(), runs.len() + n + 1, "{reports:?}");
        harness.done(job);
    }
    harness.github.assert_requests_valid();
}

#[test]
fn a_run_that_two_refreshes_find_is_rescued_once_on_the_local_backend() {
    let harness = GitHubHarness::local(&[]);
    let launched = || harness.pool.number("SELECT count(*) FROM machines");
    // One that comes later by a few milliseconds finds the other's machine, so there are several tries.
    let runs = ["81", "82", "83", "84"];
    let kill = |machine: &str| kill_local(&harness, machine);
    a_run_that_two_refreshes_find(&harness, &runs, kill, launched);
}

#[test]
fn a_run_that_two_refreshes_find_is_rescued_once_on_aws() {
    let harness: GitHubHarness<AwsHarness> = GitHubHarness::aws(&[]);
    // Both also read the stored demand before either replaces it.
    let late = AwsFaultRule::new(AwsFault::Delay(Duration::from_secs(1)));
    let late = late.service(Service::DynamoDb).operation("UpdateItem").body_contains("#demand");
    let late = harness.pool.control.inject(late);
    let ec2 = harness.pool.gateway.ec2().clone();
    let kill = |machine: &str| ec2.terminate(machine);
    a_run_that_two_refreshes_find(&harness, &["81", "82"], kill, || ec2.machines().len());
    assert!(late.fired() > 0);
}
