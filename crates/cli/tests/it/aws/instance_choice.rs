//! Which instance types, subnets and images machines are launched with.

use std::collections::BTreeSet;

use ondeck_standin::{Architecture, Capacity};

use super::harness::AwsHarness;
use crate::harness::{Done, Driven};

/// The image of the tests.
const IMAGE: &str = "ami-0123456789abcdef0";

/// Provisions new machines of these types.
fn provision(harness: &AwsHarness, run: &str, types: &str) -> Done {
    let (run, types) = (format!("--run-id={run}"), format!("--allowed-instance-types={types}"));
    harness.ondeck(&["provision", "--json", "--machine-source=new", &run, &types])
}

fn types_of(done: &Done) -> Vec<String> {
    let answer = done.json();
    let instances = answer["instances"].as_array().unwrap();
    instances.iter().map(|it| it["instanceType"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn burstable_and_previous_types_are_launched_where_they_are_asked_for() {
    let harness = AwsHarness::with(&[]);
    assert_eq!(types_of(&harness.provision("1", 1).succeeded()), ["c6a.large"]);
    assert_eq!(types_of(&provision(&harness, "2", "t3*").succeeded()), ["t3.large"]);
    let refused = provision(&harness, "3", "m4.*").exited(4);
    assert!(refused.stdout.contains("instance-generations"), "{refused:?}");
    harness.refresh(&["--instance-generations=any"]);
    assert_eq!(types_of(&provision(&harness, "3", "m4.*").succeeded()), ["m4.large"]);
}

#[test]
fn the_image_decides_about_the_architecture() {
    let harness = AwsHarness::bare();
    harness.gateway.ec2().register_image(IMAGE, Architecture::Arm64);
    harness.set_up(&[]);
    assert_eq!(types_of(&harness.provision("1", 1).succeeded()), ["c7g.large"]);
    let refused = provision(&harness, "2", "c6i.*").exited(4);
    assert!(refused.stdout.contains("no type that runs the image of ami"), "{refused:?}");
    let sha256 = format!("--agent-sha256={}", "ab".repeat(32));
    let url = "--agent-url=https://example.com/ondeck-x86-64";
    let done = harness.ondeck(&["refresh", url, &sha256]).exited(2);
    assert!(done.stderr.contains("set agent-url-arm64 and agent-sha256-arm64"), "{done:?}");
    // Nothing has changed.
    assert_eq!(types_of(&provision(&harness, "3", "c*").succeeded()), ["c7g.large"]);
}

#[test]
fn more_subnets_than_one_launch_takes_are_all_used() {
    let subnets = ["subnet-0a", "subnet-0b", "subnet-0c", "subnet-0d", "subnet-0e", "subnet-0f"];
    let harness = AwsHarness::with(&[&format!("--subnet-ids={}", subnets.join(" "))]);
    let used = || -> BTreeSet<String> {
        harness.gateway.ec2().machines().into_iter().map(|machine| machine.subnet).collect()
    };
    harness.provision("0", 4).succeeded();
    assert_eq!(used().len(), 4, "one launch");
    for run in 1..20 {
        if used().len() == subnets.len() {
            return;
        }
        let (run, new) = (format!("--run-id={run}"), "--machine-source=new");
        harness.ondeck(&["provision", "--instance-count=4", new, &run]).succeeded();
    }
    panic!("some subnets were never used: {:?}", used());
}

#[test]
fn an_image_that_was_deregistered_is_named() {
    let harness = AwsHarness::with(&[]);
    harness.gateway.ec2().deregister_image(IMAGE);
    let done = harness.provision("1", 1).exited(6);
    assert!(done.stdout.contains("InvalidAMIID.NotFound"), "{done:?}");
    let hint = done.json()["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("refresh with existing ami"), "{hint}");
    harness.until_empty();
}

#[test]
fn a_quota_of_the_account_is_named() {
    let harness = AwsHarness::with(&[]);
    harness.gateway.ec2().set_capacity(Capacity { vcpus: Some(4), ..Capacity::default() });
    let done = harness.provision("1", 3).exited(4);
    assert!(done.stdout.contains("VcpuLimitExceeded"), "{done:?}");
    assert!(done.stdout.contains("Service Quotas"), "{done:?}");
    harness.until_machines(0);
    let spot = ["provision", "--json", "--run-id=2", "--instance-count=3", "--usage-class=spot"];
    let done = harness.ondeck(&spot).exited(4);
    assert!(done.stdout.contains("All Standard Spot Instance Requests"), "{done:?}");
    harness.until_empty();
}

#[test]
fn root_volumes_are_encrypted() {
    let harness = AwsHarness::with(&[]);
    harness.provision("1", 1).succeeded();
    let [machine] = &harness.gateway.ec2().machines()[..] else { panic!("one machine") };
    assert!(machine.root_is_encrypted && machine.volumes.is_empty(), "{machine:?}");
}

#[test]
fn machines_that_ec2_does_not_list_yet_are_left_alone() {
    let harness = AwsHarness::with(&[]);
    harness.gateway.ec2().lag_listings(true);
    let [machine] = &harness.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    harness.refresh(&[]);
    harness.refresh(&[]);
    assert_eq!(harness.standings(), ["running 1"]);
    harness.gateway.ec2().lag_listings(false);
    harness.refresh(&[]);
    assert_eq!(harness.standings(), ["running 1"]);
    harness.release("1").succeeded();
    assert_eq!(harness.provision("2", 1).succeeded().ids(), std::slice::from_ref(machine));
}
