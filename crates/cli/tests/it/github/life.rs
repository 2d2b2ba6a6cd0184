//! Whole workflows: provision, jobs by label, release, and again with the same machines.

use std::collections::BTreeSet;

use ondeck_standin::JobState;

use super::harness::{GitHubHarness, LIMIT, REPOSITORY};
use crate::aws::harness::AwsHarness;
use crate::harness::{Driven, Home, until};

/// Says where it ran, and leaves something behind.
const JOB: &str = r#"
    echo "run $GITHUB_RUN_ID on $RUNNER_NAME in $(pwd)"
    test ! -e "$HOME/left-behind" && test ! -e left-behind
    touch "$HOME/left-behind" left-behind "${TMPDIR:-/tmp}/left-behind"
"#;

/// One run from its first job to its last. Gives its machines, and where they came from.
fn workflow<P: Driven>(
    town: &GitHubHarness<P>,
    run: &str,
    count: u32,
) -> (Vec<String>, Vec<String>) {
    let provisioned = town.provision(run, count).succeeded();
    let machines: Vec<String> = provisioned.ids();
    let jobs: Vec<_> = (0..count).map(|_| town.queue(run, JOB)).collect();
    let mut used = BTreeSet::new();
    for job in jobs {
        let job = town.done(job);
        let runner = job.runner_name.unwrap();
        let on = machines.iter().find(|id| runner.starts_with(&format!("{id}-")));
        assert!(on.is_some(), "a machine of another run: {runner}, not of {machines:?}");
        assert!(job.log.contains(&format!("run {run} on {runner}")), "{}", job.log);
        used.insert(on.unwrap().clone());
    }
    let released = town.release(run).succeeded().json();
    for instance in released["instances"].as_array().unwrap() {
        assert_eq!(instance["outcome"], "pooled", "{released}");
    }
    (machines, provisioned.sources())
}

fn cold_then_warm<P: Driven>(town: &GitHubHarness<P>) {
    let (cold, sources) = workflow(town, "41", 2);
    assert_eq!(sources, ["cold", "cold"]);
    assert!(town.github.runners().is_empty(), "deregistered: {:?}", town.github.runners());
    let (warm, sources) = workflow(town, "42", 2);
    assert_eq!((warm, sources), (cold, vec!["warm".to_owned(); 2]));
    assert!(town.github.runners().is_empty());
    town.github.assert_requests_valid();
}

fn two_at_a_time<P: Driven + Sync>(town: &GitHubHarness<P>) {
    for round in 0..2 {
        let runs = ["a", "b"].map(|name| format!("{round}{name}"));
        let both = std::thread::scope(|scope| {
            let threads = runs.each_ref().map(|run| scope.spawn(|| workflow(town, run, 2)));
            threads.map(|thread| thread.join().unwrap())
        });
        let all: BTreeSet<String> = both.iter().flat_map(|(ids, _)| ids.clone()).collect();
        assert_eq!(all.len(), 4, "no machine serves two runs: {both:?}");
    }
    assert!(town.github.runners().is_empty(), "{:?}", town.github.runners());
    town.github.assert_requests_valid();
}

fn rerun_of_failed_jobs<P: Driven>(town: &GitHubHarness<P>) {
    town.provision("7", 1).succeeded();
    let job = town.queue("7", "test -e /nowhere");
    assert!(town.github.wait_for_job(job, LIMIT).state == JobState::Completed);
    town.release("7").succeeded();
    // Another run has taken the machine by the time that the job is run again.
    town.provision("8", 1).succeeded();
    let again = town.github.rerun_failed(REPOSITORY, "7");
    assert_eq!(again.len(), 1);
    let refreshed = town.refresh(&[]);
    assert_eq!(refreshed["rescued"], serde_json::json!(["7"]), "{refreshed}");
    let job = town.github.wait_for_job(again[0], LIMIT);
    assert_eq!(job.run_attempt, 2, "{job:?}");
    assert_eq!(town.refresh(&[])["rescued"], serde_json::json!([]));
    town.release("7").succeeded();
    town.release("8").succeeded();
}

fn ghosts<P: Driven>(town: &GitHubHarness<P>, kill: impl Fn(&str)) {
    let machine = town.provision("9", 1).succeeded().ids().concat();
    town.until_runners("online", |runners| runners.iter().any(|runner| runner.online));
    kill(&machine);
    town.until_runners("offline", |runners| runners.iter().all(|runner| !runner.online));
    let name = town.github.runners()[0].name.clone();
    // Its record is live until its run is over; then the list must not keep it.
    town.release("9");
    until("the ghost is struck off", || {
        town.refresh(&[]);
        town.github.runners().is_empty()
    });
    assert!(name.starts_with(&machine), "{name}");
    town.github.assert_requests_valid();
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
fn ghosts_on_the_local_backend() {
    let town: GitHubHarness<Home> = GitHubHarness::local(&[]);
    ghosts(&town, |machine| {
        for pid in town.pool.processes_of(machine) {
            crate::harness::signal(pid, rustix::process::Signal::KILL);
        }
    });
}

#[test]
fn ghosts_on_aws() {
    let town: GitHubHarness<AwsHarness> = GitHubHarness::aws(&[]);
    ghosts(&town, |machine| town.pool.gateway.ec2().terminate(machine));
}
