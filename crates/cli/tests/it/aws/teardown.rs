//! `ondeck teardown` on emulated AWS, behind the gateway that enforces the policies.

use std::path::Path;

use ondeck_aws::PoolName;
use ondeck_standin::Role;
use serde_json::Value;

use super::direct_requests;
use super::harness::{AwsHarness, LAUNCH};
use super::permissions::policies;
use crate::harness::{Background, Done, Driven};
use crate::json::assert_valid;

/// A pool whose refresh role has the policy for teardown as well.
pub(super) fn with_teardown_policy(folder: &Path) -> AwsHarness {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/optional/teardown.json");
    let optional: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    policies(folder, |role, mut policy| {
        if role == "refresh" {
            let statements = policy["Statement"].as_array_mut().unwrap();
            statements.extend(optional["Statement"].as_array().unwrap().iter().cloned());
        }
        policy
    });
    let harness = AwsHarness::with_policies(folder.to_owned());
    harness.set_up(&[]);
    harness
}

pub(super) fn teardown(harness: &AwsHarness, inputs: &[&str]) -> Done {
    let mut command = harness.command(&[&["teardown", "--yes", "--json"], inputs].concat());
    command.env("AWS_ACCESS_KEY_ID", Role::Refresh.name());
    let done = Background::start(&mut command).finish();
    assert_valid("teardown", &done);
    done
}

/// How many tables, queues, launch templates and machines a pool of this name has.
fn left(harness: &AwsHarness, name: &str) -> [usize; 4] {
    let tables = direct_requests::tables(&harness.table());
    let templates = harness.gateway.ec2().launch_templates();
    [
        tables.iter().filter(|table| *table == name).count(),
        direct_requests::queues(name).len(),
        templates.iter().filter(|template| *template == name).count(),
        harness.machines().len(),
    ]
}

fn resource_name(pool: &str) -> String {
    pool.parse::<PoolName>().unwrap().resource_name()
}

#[test]
fn nothing_is_left_on_aws_and_other_pools_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let harness = with_teardown_policy(folder.path());
    let other = format!("{}-other", harness.pool());
    harness.grant("other", &other, &[Role::Refresh]);
    let mut refresh = harness.command(&[&["refresh"], &LAUNCH[..]].concat());
    refresh.env("ONDECK_POOL", &other).env("AWS_ACCESS_KEY_ID", "other");
    Background::start(&mut refresh).finish().succeeded();
    let (own, other) = (resource_name(harness.pool()), resource_name(&other));
    let [tables, queues, templates, _] = left(&harness, &other);
    assert!(tables == 1 && queues > 1 && templates == 1);

    harness.warm_up(2);
    // A machine without a record, which only its tags show.
    harness.kill_before("register", &["provision", "--run-id=9", "--machine-source=new"]);
    let answer = teardown(&harness, &["--force"]).succeeded().json();
    assert_eq!(answer["machines"].as_array().unwrap().len(), 3, "{answer}");
    let commands = answer["leftovers"].as_array().unwrap();
    let named = |words: &str| commands.iter().any(|it| it["command"].as_str() == Some(words));
    let teardown_again = "ONDECK_GITHUB_TOKEN=TOKEN ondeck teardown ... --yes";
    assert!(!named(teardown_again), "the local forge has no runners on GitHub: {answer}");
    assert!(named("aws ec2 deregister-image --image-id ami-0123456789abcdef0 --region us-east-1"));
    let logs = commands.iter().find(|it| it["command"].to_string().contains("delete-log-group"));
    assert_eq!(logs, None, "machines copy no logs");
    let stack = "aws cloudformation delete-stack --stack-name FUNCTION-STACK --region us-east-1";
    assert!(named(stack), "{answer}");
    assert!(named("aws ssm delete-parameter --name PARAMETER --region us-east-1"), "{answer}");
    let function = commands.iter().find(|it| it["command"] == stack).unwrap();
    assert!(function["what"].as_str().unwrap().contains("with its schedule"), "{answer}");
    assert_eq!(left(&harness, &own), [0; 4]);
    assert_eq!(left(&harness, &other), [tables, queues, templates, 0]);
    assert!(harness.denials().is_empty(), "{:?}", harness.denials());

    let again = teardown(&harness, &[]).succeeded().json();
    assert_eq!(again["resources"], serde_json::json!([]));
    harness.ondeck(&["provision", "--run-id=1"]).exited(3);
}

/// A plan needs no more permissions than refresh has, and lists the same as the end.
#[test]
fn what_ondeck_did_not_create_is_listed_with_the_command_that_removes_it() {
    let harness = AwsHarness::with(&["--machine-logs=cloudwatch:/ondeck/web"]);
    let answer = teardown(&harness, &["--dry-run"]).succeeded().json();
    let expected = [
        (
            "the schedule that calls ondeck refresh, which would create the pool again",
            "gh workflow disable WORKFLOW",
        ),
        (
            "the same, if they were created from infra/terraform/function",
            "terraform destroy -target=module.ondeck_function",
        ),
        (
            "roles and network, if they were created from infra/cloudformation.yaml",
            "aws cloudformation delete-stack --stack-name STACK --region us-east-1",
        ),
        ("roles and network, if they were created from infra/terraform", "terraform destroy"),
        (
            "the log group of the machines",
            "aws logs delete-log-group --log-group-name /ondeck/web --region us-east-1",
        ),
        (
            "the image of the machines, if it was made for this pool",
            "aws ec2 deregister-image --image-id ami-0123456789abcdef0 --region us-east-1",
        ),
    ]
    .map(|(what, command)| serde_json::json!({"what": what, "command": command}));
    let mut listed = answer["leftovers"].as_array().unwrap().clone();
    listed.retain(|line| expected.contains(line));
    assert_eq!(listed, expected, "{answer}");
    let mut command = harness.command(&["teardown", "--yes", "--dry-run"]);
    command.env("AWS_ACCESS_KEY_ID", Role::Refresh.name());
    let printed = Background::start(&mut command).finish().succeeded().stdout;
    for line in expected {
        let line = ["what", "command"].map(|key| line[key].as_str().unwrap());
        let line = format!("\n  {}:\n    {}\n", line[0], line[1]);
        assert!(printed.contains(&line), "{line}{printed}");
    }
}

#[test]
fn killed_in_between_it_is_finished_by_the_next_call_and_nothing_is_created_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let harness = with_teardown_policy(folder.path());
    harness.warm_up(1);
    let own = resource_name(harness.pool());
    for step in ["terminate", "delete-launch-template", "delete-queue", "delete-table"] {
        let mut command = harness.command(&["teardown", "--yes"]);
        command.env("AWS_ACCESS_KEY_ID", Role::Refresh.name()).env("ONDECK_HOLD_BEFORE", step);
        let held = Background::start(&mut command);
        held.until_it_says(&format!("held before {step}"));
        held.kill();
        let before = left(&harness, &own);
        harness.ondeck(&["provision", "--run-id=8"]).exited(3);
        let refused = harness.ondeck(&["refresh", "--json", "--min-idle=large=1"]).exited(3);
        assert_eq!(refused.json()["error"]["kind"], "closed", "{step}");
        let after = left(&harness, &own);
        let is_less = before.iter().zip(&after).all(|(before, after)| after <= before);
        assert!(is_less, "{step}: {before:?}, then {after:?}");
    }
    teardown(&harness, &[]).succeeded();
    assert_eq!(left(&harness, &own), [0; 4]);
}

#[test]
fn a_role_without_the_policy_is_told_what_it_lacks_and_can_go_on_later() {
    let mut harness = AwsHarness::with(&[]);
    harness.expect_denials();
    let done = teardown(&harness, &[]).exited(6);
    let answer = done.json();
    assert_eq!(answer["closed"], true);
    let hint = answer["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("ec2:DeleteLaunchTemplate"), "{answer}");
    assert_eq!(harness.denials().len(), 1, "{:?}", harness.denials());
    let mut cancel = harness.command(&["teardown", "--cancel"]);
    cancel.env("AWS_ACCESS_KEY_ID", Role::Refresh.name());
    Background::start(&mut cancel).finish().succeeded();
    harness.refresh(&[]);
    harness.provision("1", 1).succeeded();
}
