//! Machines that register while they are idle, each under a label of its own.

use std::collections::BTreeSet;

use ondeck_standin::{Conclusion, GitHubRunner, JobId, JobState};
use serde_json::{Value, json};

use super::harness::{GitHubHarness, LIMIT, REPOSITORY};
use crate::aws::harness::AwsHarness;
use crate::harness::{Done, Driven, Home, until};

const MACHINE: &str = "--runner-label=machine";

/// The labels that a provision gave its run.
fn labels(provisioned: &Done) -> Vec<String> {
    let json = provisioned.json();
    let labels = json["labels"].as_array().unwrap().iter();
    labels.map(|label| label.as_str().unwrap().to_owned()).collect()
}

fn set(labels: &[String]) -> BTreeSet<String> {
    labels.iter().cloned().collect()
}

impl<P: Driven> GitHubHarness<P> {
    /// A job of a run, for the machine with this label.
    fn queue_for(&self, run: &str, label: &str, script: &str) -> JobId {
        self.github.queue_job(REPOSITORY, run, &[label], script)
    }

    /// The labels of the runners that are online.
    fn online(&self) -> BTreeSet<String> {
        let online = self.github.runners().into_iter().filter(|runner| runner.online);
        online.flat_map(|runner| runner.labels).collect()
    }

    fn names(&self) -> BTreeSet<String> {
        self.github.runners().into_iter().map(|runner| runner.name).collect()
    }

    /// Waits until this many machines are online under labels that are none of `old`.
    #[track_caller]
    fn until_ready(&self, machines: usize, old: &[String]) {
        let is_new = |runner: &GitHubRunner| {
            runner.online && !runner.labels.iter().any(|label| old.contains(label))
        };
        self.until_runners("ready", |listed| listed.len() == machines && listed.iter().all(is_new));
    }

    /// Refreshes until jobs of the run have a machine.
    #[track_caller]
    fn until_rescued(&self, run: &str) {
        until("the run gets a machine", || self.refresh(&[])["rescued"] == json!([run]));
    }
}

fn registered_before_it_is_claimed<P: Driven>(harness: &GitHubHarness<P>) {
    let first = harness.provision("41", 2).succeeded();
    assert_eq!(first.sources(), ["cold", "cold"]);
    let of_first = labels(&first);
    assert_eq!(harness.online(), set(&of_first));
    assert_eq!(first.json()["label"], Value::from(""), "no label is that of both");
    let script = r#"test "$ONDECK_RUN_ID" = "$GITHUB_RUN_ID" && test ! -e ~/left && touch ~/left"#;
    for label in &of_first {
        harness.done(harness.queue_for("41", label, script));
    }
    harness.release("41").succeeded();
    harness.until_ready(2, &of_first);

    let (idle, names) = (harness.online(), harness.names());
    let second = harness.provision("42", 2).succeeded();
    assert_eq!(second.sources(), ["warm", "warm"]);
    assert_eq!(set(&labels(&second)), idle);
    assert_eq!(harness.names(), names, "nothing has registered meanwhile");
    for label in labels(&second) {
        harness.done(harness.queue_for("42", &label, script));
    }
    // A label is known to each reader of the run's outputs.
    let foreign = harness.queue_for("666", &labels(&second)[0], "true");
    let foreign = harness.github.wait_for_job(foreign, LIMIT);
    assert_eq!(foreign.conclusion, Some(Conclusion::Failure), "{foreign:?}");
    let refused = "this machine was given to run 42 and takes no job of another: 666";
    assert!(foreign.annotations.concat().contains(refused), "{foreign:?}");
    harness.release("42").succeeded();
    harness.github.assert_requests_valid();
}

/// The job arrives before the machine's agent has seen its owner, or just after.
fn a_job_that_arrives_first_waits<P: Driven>(harness: &GitHubHarness<P>) {
    harness.provision("51", 1).succeeded();
    harness.release("51").succeeded();
    harness.until_ready(1, &[]);
    let label = harness.online().pop_first().unwrap();
    let job = harness.queue_for("52", &label, "echo run $ONDECK_RUN_ID");
    harness.github.wait_until(job, LIMIT, |job| job.state == JobState::InProgress);
    let provisioned = harness.provision("52", 1).succeeded();
    assert_eq!(labels(&provisioned), std::slice::from_ref(&label));
    assert_eq!(provisioned.json()["label"], Value::from(label));
    assert!(harness.done(job).log.contains("run 52\n"));
    harness.release("52").succeeded();
}

/// "Re-run failed jobs" uses the outputs of the job that called provision.
fn failed_jobs_that_are_run_again<P: Driven>(harness: &GitHubHarness<P>) {
    let old = labels(&harness.provision("7", 1).succeeded());
    let job = harness.queue_for("7", &old[0], "test -e /nowhere");
    assert!(harness.github.wait_for_job(job, LIMIT).state == JobState::Completed);
    harness.release("7").succeeded();
    harness.until_ready(1, &old);
    // Another run has taken the machine by the time that the job is run again.
    let other = labels(&harness.provision("8", 1).succeeded());
    let again = harness.github.rerun_failed(REPOSITORY, "7");
    assert_eq!(again.len(), 1);
    harness.until_rescued("7");
    let job = harness.github.wait_for_job(again[0], LIMIT);
    assert_eq!((job.run_attempt, job.state), (2, JobState::Completed), "{job:?}");
    assert!(harness.online().is_superset(&set(&[old.as_slice(), &other].concat())));
    assert_eq!(harness.refresh(&[])["rescued"], json!([]));
    harness.release("7").succeeded();
    harness.release("8").succeeded();
    harness.github.assert_requests_valid();
}

fn a_killed_machine<P: Driven>(harness: &GitHubHarness<P>, kill: impl Fn(&str)) {
    let provisioned = harness.provision("9", 1).succeeded();
    let (label, machine) = (labels(&provisioned).concat(), provisioned.ids().concat());
    let name = harness.names().pop_first().unwrap();
    kill(&machine);
    // Before that, GitHub would give it the job.
    harness.until_runners("offline", |listed| listed.iter().all(|runner| !runner.online));
    let job = harness.queue_for("9", &label, "true");
    harness.until_rescued("9");
    let done = harness.done(job);
    let runner = done.runner_name.unwrap();
    assert!(!runner.starts_with(&format!("{machine}-")), "{runner}: same label, new name");
    harness.release("9");
    until("the runner of the machine that is gone is removed", || {
        harness.refresh(&[]);
        !harness.names().contains(&name)
    });
    harness.github.assert_requests_valid();
}

fn a_deleted_runner<P: Driven>(harness: &GitHubHarness<P>) {
    let label = labels(&harness.provision("10", 1).succeeded()).concat();
    let delete = || {
        let name = harness.names().pop_first().unwrap();
        harness.github.remove_runner(&name);
        harness.until_runners("listed again", |listed| {
            listed.iter().any(|runner| runner.online && runner.name != name)
        });
    };
    delete();
    assert_eq!(harness.online(), set(std::slice::from_ref(&label)), "under its label");
    harness.done(harness.queue_for("10", &label, "true"));
    harness.release("10").succeeded();
    harness.until_ready(1, std::slice::from_ref(&label));
    delete();
    let warm = harness.provision("11", 1).succeeded();
    assert_eq!(warm.sources(), ["warm"]);
    harness.done(harness.queue_for("11", &labels(&warm).concat(), "true"));
    harness.release("11").succeeded();
}

/// Earlier registrations of a live machine are removed, and later ones are not. An online runner of a
/// machine that the pool never had may be one of a pool with the same name.
fn runners_that_are_listed_in_vain<P: Driven>(harness: &GitHubHarness<P>) {
    harness.provision("12", 1).succeeded();
    harness.release("12").succeeded();
    harness.until_ready(1, &[]);
    let own = harness.names().pop_first().unwrap();
    let (rest, tag) = own.rsplit_once('-').unwrap();
    let (machine, number) = rest.rsplit_once('-').unwrap();
    let number: u32 = number.parse().unwrap();
    let name = |number: u32| format!("{machine}-{number}-{tag}");
    let [gone, theirs] = ["a", "b"].map(|end| format!("i-0123456789abcdef{end}-1-{tag}"));
    for listed in [name(number - 1), name(number + 1), gone, theirs.clone()] {
        harness.github.add_runner(GitHubRunner {
            online: listed == theirs,
            ..GitHubRunner::new(REPOSITORY, &listed)
        });
    }
    let kept: BTreeSet<String> = [own.clone(), name(number + 1), theirs].into();
    // The agent says which one it has a moment after GitHub lists it.
    until("the others are removed", || {
        harness.refresh(&[]);
        harness.names() == kept
    });
    harness.refresh(&[]);
    assert_eq!(harness.names(), kept);
    assert_eq!(harness.provision("13", 1).succeeded().sources(), ["warm"]);
    harness.release("13").succeeded();
}

/// A machine that ends itself leaves nothing on the list, and no refresh is needed for it.
fn a_machine_that_ends_itself<P: Driven>(harness: &GitHubHarness<P>) {
    harness.refresh(&["--idle-time-sec=10"]);
    harness.provision("14", 1).succeeded();
    harness.release("14").succeeded();
    harness.until_ready(1, &[]);
    harness.until_runners("gone", <[GitHubRunner]>::is_empty);
    harness.github.assert_requests_valid();
}

fn local() -> GitHubHarness<Home> {
    GitHubHarness::local(&[MACHINE])
}

fn aws() -> GitHubHarness<AwsHarness> {
    GitHubHarness::aws(&[MACHINE])
}

#[test]
fn machines_register_before_they_are_claimed_on_the_local_backend() {
    let harness = local();
    registered_before_it_is_claimed(&harness);
    a_job_that_arrives_first_waits(&harness);
}

#[test]
fn machines_register_before_they_are_claimed_on_aws() {
    let harness = aws();
    registered_before_it_is_claimed(&harness);
    a_job_that_arrives_first_waits(&harness);
}

#[test]
fn failed_jobs_get_a_machine_with_their_old_label_on_the_local_backend() {
    failed_jobs_that_are_run_again(&local());
}

#[test]
fn failed_jobs_get_a_machine_with_their_old_label_on_aws() {
    failed_jobs_that_are_run_again(&aws());
}

#[test]
fn a_killed_machine_is_replaced_under_its_label_on_the_local_backend() {
    let harness = local();
    a_killed_machine(&harness, |machine| {
        for pid in harness.pool.processes_of(machine) {
            crate::harness::signal(pid, rustix::process::Signal::KILL);
        }
    });
}

#[test]
fn a_killed_machine_is_replaced_under_its_label_on_aws() {
    let harness = aws();
    a_killed_machine(&harness, |machine| harness.pool.gateway.ec2().terminate(machine));
}

#[test]
fn a_deleted_runner_is_listed_again_on_the_local_backend() {
    a_deleted_runner(&local());
}

#[test]
fn a_deleted_runner_is_listed_again_on_aws() {
    a_deleted_runner(&aws());
}

#[test]
fn runners_that_are_listed_in_vain_are_removed_on_the_local_backend() {
    runners_that_are_listed_in_vain(&local());
}

#[test]
fn runners_that_are_listed_in_vain_are_removed_on_aws() {
    runners_that_are_listed_in_vain(&aws());
}

#[test]
fn a_machine_that_ends_itself_leaves_no_runner_on_the_local_backend() {
    a_machine_that_ends_itself(&local());
}

#[test]
fn a_machine_that_ends_itself_leaves_no_runner_on_aws() {
    a_machine_that_ends_itself(&aws());
}
