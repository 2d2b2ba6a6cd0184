//! Which instance types, subnets and images machines are launched with.

use std::collections::BTreeSet;
use std::path::Path;

use ondeck_standin::{Architecture, Capacity, Service};
use serde_json::Value;

use super::harness::{AwsHarness, LAUNCH, TIMES};
use super::permissions::policies;
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

/// EC2 has no capacity for the cheapest type. The other costs 65 % more.
#[test]
fn the_price_protection_decides_about_dearer_types() {
    let harness = AwsHarness::with(&[]);
    harness.gateway.ec2().exhaust_type("c6a.large");
    assert_eq!(types_of(&provision(&harness, "1", "c6a.* r6i.*").succeeded()), ["r6i.large"]);
    harness.refresh(&["--on-demand-price-protection-percent=20"]);
    let refused = provision(&harness, "2", "c6a.* r6i.*").exited(4);
    assert!(refused.stdout.contains("InsufficientInstanceCapacity"), "{refused:?}");
    harness.refresh(&["--on-demand-price-protection-percent=65"]);
    assert_eq!(types_of(&provision(&harness, "3", "c6a.* r6i.*").succeeded()), ["r6i.large"]);
    // More than twice the price is refused by default.
    harness.refresh(&["--on-demand-price-protection-percent="]);
    provision(&harness, "4", "c6a.* r7iz.*").exited(4);
    // Spot machines have a limit of EC2's own.
    let types = "--allowed-instance-types=c6a.* r7iz.*";
    let spot = ["provision", "--json", "--run-id=5", "--machine-source=new", types];
    let done = harness.ondeck(&[&spot[..], &["--usage-class=spot"]].concat()).succeeded();
    assert_eq!(types_of(&done), ["r7iz.large"]);
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

/// A pool whose roles may read the parameter with its image.
fn with_image_parameter(folder: &Path, parameter: &str) -> AwsHarness {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/optional/image-parameter.json");
    let optional = std::fs::read_to_string(file).unwrap().replace("IMAGE-PARAMETER", parameter);
    let optional: Value = serde_json::from_str(&optional).unwrap();
    policies(folder, |role, mut policy| {
        if ["refresh", "provision"].contains(&role) {
            let statements = policy["Statement"].as_array_mut().unwrap();
            statements.extend(optional["Statement"].as_array().unwrap().iter().cloned());
        }
        policy
    });
    AwsHarness::with_policies(folder.to_owned())
}

/// Sets a pool up whose image is behind a parameter.
fn set_up_with(harness: &AwsHarness, parameter: &str) {
    let ami = format!("--ami=resolve:ssm:{parameter}");
    let launch = LAUNCH.into_iter().skip(1).chain([ami.as_str()]);
    let inputs: Vec<&str> = ["refresh"].into_iter().chain(TIMES).chain(launch).collect();
    harness.ondeck(&inputs).succeeded();
}

/// How often the control plane has read the parameter and described its image.
fn looks(harness: &AwsHarness) -> [usize; 2] {
    let control = &harness.control;
    [
        control.count(Service::Secrets, "GetParameters"),
        control.count(Service::Ec2, "DescribeImages"),
    ]
}

#[test]
fn an_image_behind_a_parameter_has_its_root_volume_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    // What `ondeck init` writes names such a parameter.
    let parameter =
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id";
    let harness = with_image_parameter(folder.path(), parameter);
    let ec2 = harness.gateway.ec2();
    ec2.put_image_parameter(parameter, IMAGE);
    ec2.register_image_with_root_device(IMAGE, "/dev/sda1");
    set_up_with(&harness, parameter);
    harness.provision("1", 1).succeeded();
    let [machine] = &ec2.machines()[..] else { panic!("one machine") };
    assert!(machine.root_is_encrypted && machine.volumes.is_empty(), "{machine:?}");
    assert_eq!(harness.denials().len(), 0, "{:?}", harness.denials());

    // A refresh with nothing to do reads neither.
    let before = looks(&harness);
    harness.refresh(&[]);
    assert_eq!(looks(&harness), before);
    // A newer image with another root device is found by the next refresh that checks everything.
    let newer = "ami-0fedcba9876543210";
    ec2.register_image_with_root_device(newer, "/dev/xvda");
    ec2.put_image_parameter(parameter, newer);
    let refused = provision(&harness, "2", "c*").exited(6);
    assert!(refused.stdout.contains("another root device than before"), "{refused:?}");
    harness.refresh(&["--idle-time-sec=61"]);
    assert_ne!(looks(&harness), before);
    let [id] = &provision(&harness, "3", "c*").succeeded().ids()[..] else { panic!("one machine") };
    assert!(ec2.machine(id).unwrap().root_is_encrypted);
}

#[test]
fn an_image_behind_a_parameter_has_its_architecture_checked() {
    let folder = tempfile::tempdir().unwrap();
    let harness = with_image_parameter(folder.path(), "/images/ci");
    let ec2 = harness.gateway.ec2();
    ec2.put_image_parameter("/images/ci", IMAGE);
    set_up_with(&harness, "/images/ci");
    let sha256 = format!("--agent-sha256={}", "ab".repeat(32));
    ec2.register_image(IMAGE, Architecture::Arm64);
    let url = "--agent-url=https://example.com/ondeck-x86-64";
    let done = harness.ondeck(&["refresh", url, &sha256]).exited(2);
    assert!(done.stderr.contains("set agent-url-arm64 and agent-sha256-arm64"), "{done:?}");
    assert!(done.stderr.contains("resolve:ssm:/images/ci"), "{done:?}");
    let done = harness.ondeck(&["refresh", "--ami=resolve:ssm:/images/other"]).exited(6);
    assert!(done.stderr.contains("ssm:GetParameters"), "{done:?}");
}
