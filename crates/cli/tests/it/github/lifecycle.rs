//! Whole workflows: provision, jobs by label, release, and again with the same machines.

use std::collections::BTreeSet;

use ondeck_standin::{JobState, Role};

use super::harness::{GitHubHarness, LIMIT, REPOSITORY, TOKEN};
use crate::aws::harness::AwsHarness;
use crate::harness::{Background, Driven, Home, until};

/// Says where it ran, and leaves something behind.
const JOB: &str = r#"
    echo "run $GITHUB_RUN_ID on $RUNNER_NAME in $(pwd)"
    test ! -e "$HOME/left-behind" && test ! -e left-behind
    touch "$HOME/left-behind" left-behind "${TMPDIR:-/tmp}/left-behind"
"#;

/// One run from its first job to its last. Gives its machines, and where they came from.
fn workflow<P: Driven>(
    harness: &GitHubHarness<P>,
    run: &str,
    count: u32,
) -> (Vec<String>, Vec<String>) {
    let provisioned = harness.provision(run, count).succeeded();
    let machines: Vec<String> = provisioned.ids();
    let jobs: Vec<_> = (0..count).map(|_| harness.queue(run, JOB)).collect();
    let mut used = BTreeSet::new();
    for job in jobs {
        let job = harness.done(job);
        let runner = job.runner_name.unwrap();
        let on = machines.iter().find(|id| runner.starts_with(&format!("{id}-")));
        assert!(on.is_some(), "a machine of another run: {runner}, not of {machines:?}");
        assert!(job.log.contains(&format!("run {run} on {runner}")), "{}", job.log);
        used.insert(on.unwrap().clone());
    }
    let released = harness.release(run).succeeded().json();
    for instance in released["instances"].as_array().unwrap() {
        assert_eq!(instance["outcome"], "pooled", "{released}");
    }
    (machines, provisioned.sources())
}

fn cold_then_warm<P: Driven>(harness: &GitHubHarness<P>) {
    let (cold, sources) = workflow(harness, "41", 2);
    assert_eq!(sources, ["cold", "cold"]);
    assert!(harness.github.runners().is_empty(), "deregistered: {:?}", harness.github.runners());
    let (warm, sources) = workflow(harness, "42", 2);
    assert_eq!((warm, sources), (cold, vec!["warm".to_owned(); 2]));
    assert!(harness.github.runners().is_empty());
    harness.github.assert_requests_valid();
}

fn two_at_a_time<P: Driven + Sync>(harness: &GitHubHarness<P>) {
    for round in 0..2 {
        let runs = ["a", "b"].map(|name| format!("{round}{name}"));
        let both = std::thread::scope(|scope| {
            let threads = runs.each_ref().map(|run| scope.spawn(|| workflow(harness, run, 2)));
            threads.map(|thread| thread.join().unwrap())
        });
        let all: BTreeSet<String> = both.iter().flat_map(|(ids, _)| ids.clone()).collect();
        assert_eq!(all.len(), 4, "no machine serves two runs: {both:?}");
    }
    assert!(harness.github.runners().is_empty(), "{:?}", harness.github.runners());
    harness.github.assert_requests_valid();
}

fn rerun_of_failed_jobs<P: Driven>(harness: &GitHubHarness<P>) {
    harness.provision("7", 1).succeeded();
    let job = harness.queue("7", "test -e /nowhere");
    assert!(harness.github.wait_for_job(job, LIMIT).state == JobState::Completed);
    harness.release("7").succeeded();
    // Another run has taken the machine by the time that the job is run again.
    harness.provision("8", 1).succeeded();
    let again = harness.github.rerun_failed(REPOSITORY, "7");
    assert_eq!(again.len(), 1);
    let refreshed = harness.refresh(&[]);
    assert_eq!(refreshed["rescued"], serde_json::json!(["7"]), "{refreshed}");
    let job = harness.github.wait_for_job(again[0], LIMIT);
    assert_eq!(job.run_attempt, 2, "{job:?}");
    assert_eq!(harness.refresh(&[])["rescued"], serde_json::json!([]));
    harness.release("7").succeeded();
    harness.release("8").succeeded();
}

fn offline_runners_are_removed<P: Driven>(harness: &GitHubHarness<P>, kill: impl Fn(&str)) {
    let machine = harness.provision("9", 1).succeeded().ids().concat();
    harness.until_runners("online", |runners| runners.iter().any(|runner| runner.online));
    kill(&machine);
    harness.until_runners("offline", |runners| runners.iter().all(|runner| !runner.online));
    let name = harness.github.runners()[0].name.clone();
    // Its record is live until its run is over; then the list must not keep it.
    harness.release("9");
    until("the offline runner is removed", || {
        harness.refresh(&[]);
        harness.github.runners().is_empty()
    });
    assert!(name.starts_with(&machine), "{name}");
    harness.github.assert_requests_valid();
}

#[test]
fn cold_then_warm_on_the_local_backend() {
    cold_then_warm(&GitHubHarness::local(&[]));
}

#[test]
fn cold_then_warm_on_aws() {
    cold_then_warm(&GitHubHarness::aws(&[]));
}

#[test]
fn two_at_a_time_on_the_local_backend() {
    two_at_a_time(&GitHubHarness::local(&[]));
}

#[test]
fn two_at_a_time_on_aws() {
    two_at_a_time(&GitHubHarness::aws(&[]));
}

#[test]
fn failed_jobs_that_are_run_again_on_the_local_backend() {
    rerun_of_failed_jobs(&GitHubHarness::local(&[]));
}

#[test]
fn failed_jobs_that_are_run_again_on_aws() {
    rerun_of_failed_jobs(&GitHubHarness::aws(&[]));
}

#[test]
fn offline_runners_are_removed_on_the_local_backend() {
    let harness: GitHubHarness<Home> = GitHubHarness::local(&[]);
    offline_runners_are_removed(&harness, |machine| {
        for pid in harness.pool.processes_of(machine) {
            crate::harness::signal(pid, rustix::process::Signal::KILL);
        }
    });
}

#[test]
fn offline_runners_are_removed_on_aws() {
    let harness: GitHubHarness<AwsHarness> = GitHubHarness::aws(&[]);
    offline_runners_are_removed(&harness, |machine| harness.pool.gateway.ec2().terminate(machine));
}

/// Machines that are terminated cannot deregister, so their runners stay on GitHub's list.
#[test]
fn teardown_removes_the_runners_of_machines_that_it_terminates() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("61", 2).succeeded();
    harness.until_runners("both are registered", |runners| runners.len() == 2);
    let names: BTreeSet<String> =
        harness.github.runners().into_iter().map(|runner| runner.name).collect();
    let mut command = harness.command(&["teardown", "--yes", "--force", "--json"]);
    let done = Background::start(command.env("ONDECK_GITHUB_TOKEN", TOKEN)).finish();
    let answer = done.succeeded().json();
    let removed = answer["runners"].as_array().unwrap().iter();
    let removed: BTreeSet<String> = removed.map(|name| name.as_str().unwrap().to_owned()).collect();
    assert_eq!(removed, names, "{answer}");
    assert!(harness.github.runners().is_empty(), "{:?}", harness.github.runners());
    harness.github.assert_requests_valid();
}

/// Without a token nothing can be asked of GitHub, so the list says what stays there.
#[test]
fn teardown_without_a_token_lists_the_runners_as_left() {
    let harness: GitHubHarness<AwsHarness> = GitHubHarness::aws(&[]);
    let listed = |token: Option<&str>| {
        let mut command = harness.command(&["teardown", "--yes", "--dry-run", "--json"]);
        command.env("AWS_ACCESS_KEY_ID", Role::Refresh.name()).env_remove("ONDECK_GITHUB_TOKEN");
        command.envs(token.map(|token| ("ONDECK_GITHUB_TOKEN", token)));
        let answer = Background::start(&mut command).finish().succeeded().json();
        answer["leftovers"].as_array().unwrap().clone()
    };
    let runners = serde_json::json!({
        "what": "runners that GitHub still lists, because no token was given; GitHub removes them after \
                 14 days offline",
        "command": "ONDECK_GITHUB_TOKEN=TOKEN ondeck teardown ... --yes",
    });
    let (without, with) = (listed(None), listed(Some(TOKEN)));
    assert!(without.contains(&runners), "{without:?}");
    assert!(!with.is_empty() && !with.contains(&runners), "{with:?}");
}
