//! `ondeck drill` on AWS: each mode with its own role, and with broken policies that it must find.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ondeck_standin::Role;
use serde_json::{Value, json};

use super::direct_requests;
use super::harness::AwsHarness;
use super::permissions::{policies, remove_statement, statement};
use crate::drill::{NOT_RECOVERED, steps, unmet, verdicts};
use crate::harness::{Background, Done, Driven, until};
use crate::json::assert_valid;

/// A drill by the steward, whose modes have the roles of their profiles.
fn command(harness: &AwsHarness, inputs: &[&str]) -> Command {
    let mut profiles = String::new();
    for role in [Role::Provision, Role::Release, Role::Refresh] {
        let name = role.name();
        profiles +=
            &format!("[{name}]\naws_access_key_id = {name}\naws_secret_access_key = test\n");
    }
    let file: PathBuf = harness.home().join("profiles");
    std::fs::create_dir_all(harness.home()).unwrap();
    std::fs::write(&file, profiles).unwrap();
    let drill = [
        "drill",
        "--json",
        "--confirm",
        harness.pool(),
        "--provision-profile=provision",
        "--release-profile=release",
        "--refresh-profile=refresh",
    ];
    let mut command = harness.command(&[&drill, inputs].concat());
    command.env("AWS_SHARED_CREDENTIALS_FILE", &file).env("AWS_CONFIG_FILE", "/dev/null");
    command
}

fn drill(harness: &AwsHarness, inputs: &[&str]) -> Done {
    Background::start(&mut command(harness, inputs)).finish()
}

/// An idle spot machine.
fn warm_up_spot(harness: &AwsHarness) -> String {
    let ask = ["provision", "--json", "--run-id=warm-up", "--usage-class=spot"];
    let mut machines = harness.ondeck(&ask).succeeded().ids();
    harness.release("warm-up").succeeded();
    machines.remove(0)
}

/// Runs a drill whose command for interruptions asks this test, which asks the stand-in.
fn drill_with_interruption(harness: &AwsHarness, inputs: &[&str]) -> Done {
    let request = harness.home().join("interrupt");
    std::fs::create_dir_all(harness.home()).unwrap();
    let ask = format!(
        "printf %s \"$ONDECK_DRILL_MACHINE\" > {path}.new && mv {path}.new {path}",
        path = request.display()
    );
    let inputs = [&["--interrupt-command", &ask], inputs].concat();
    let mut drill = Background::start(&mut command(harness, &inputs));
    until("a machine is to be interrupted", || request.exists() || drill.has_ended());
    if let Ok(machine) = std::fs::read_to_string(&request) {
        harness.gateway.ec2().interrupt(&machine, Duration::from_secs(120));
    }
    drill.finish()
}

/// Fails if a policy denies anything, as every test with the project's policies does.
#[test]
fn a_healthy_pool_passes_with_the_roles_of_its_policies() {
    let harness = AwsHarness::with(&["--idle-time-sec=600", "--max-runtime-min=30"]);
    let busy = harness.provision("7", 1).succeeded().ids();
    harness.provision("warm-up", 1).succeeded();
    harness.release("warm-up").succeeded();
    warm_up_spot(&harness);
    let done = drill_with_interruption(&harness, &["--launch"]).succeeded();
    assert_valid("drill", &done);
    let answer = done.json();
    assert!(verdicts(&answer).values().all(|verdict| verdict == "passed"), "{answer}");
    assert_eq!(verdicts(&answer).len(), 5);
    assert!(steps(&answer, "interrupt-spot").contains(&("noticed".to_owned(), true)));
    assert_eq!(harness.records(), [(busy[0].clone(), "running 7".to_owned())].into());
    assert_eq!(harness.machines(), busy.into_iter().collect());
    assert_eq!(harness.tickets(), 0);
}

#[test]
fn a_drill_without_a_way_to_interrupt_machines_says_so() {
    let harness = AwsHarness::with(&[]);
    warm_up_spot(&harness);
    let answer = drill(&harness, &["--scenario=interrupt-spot"]).exited(NOT_RECOVERED).json();
    let reason = answer["scenarios"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("give --interrupt-command"), "{answer}");
    assert_eq!(harness.standings(), ["idle"]);
}

/// A pool whose policies are changed by `edit`.
fn with_policies(edit: impl Fn(&str, &mut Value)) -> (AwsHarness, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, mut policy| {
        edit(role, &mut policy);
        policy
    });
    (AwsHarness::with_policies(folder.path().to_owned()), folder)
}

#[test]
fn a_refresh_that_may_not_terminate_machines_is_found() {
    let (harness, _folder) = with_policies(|role, policy| {
        if role == "refresh" {
            remove_statement(policy, "TerminateMachines");
        }
    });
    harness.set_up(&[]);
    let drill = drill(&harness, &["--launch", "--scenario=kill-launch"]).exited(NOT_RECOVERED);
    assert_valid("drill", &drill);
    let answer = drill.json();
    assert_eq!(unmet(&answer, "kill-launch"), ["refreshed"], "{answer}");
    let seen = answer["error"]["message"].as_str().unwrap();
    assert!(seen.contains("UnauthorizedOperation"), "{seen}");
    assert!(answer["error"]["hint"].as_str().unwrap().contains("ondeck permissions check"));
}

#[test]
fn a_provision_that_may_not_send_tickets_is_found() {
    let (harness, _folder) = with_policies(|role, policy| {
        if role == "provision" {
            let actions = statement(policy, "UseTickets")["Action"].as_array_mut().unwrap();
            actions.retain(|action| action != "sqs:SendMessage");
        }
    });
    harness.set_up(&[]);
    harness.warm_up(1);
    let answer = drill(&harness, &["--scenario=cancel-provision"]).exited(NOT_RECOVERED).json();
    assert_eq!(unmet(&answer, "cancel-provision"), ["cleaned-up"], "{answer}");
    let seen = answer["error"]["message"].as_str().unwrap();
    assert!(seen.contains("is not in the pool yet") && seen.contains("AccessDenied"), "{seen}");
}

#[test]
fn a_release_that_may_not_change_records_is_found() {
    let (harness, _folder) = with_policies(|role, policy| {
        if role == "release" {
            remove_statement(policy, "ChangeRecords");
        }
    });
    harness.set_up(&[]);
    // By the role of refresh, which may do it.
    harness.provision("warm-up", 1).succeeded();
    let mut release = harness.command(&["release", "--run-id=warm-up"]);
    release.env("AWS_ACCESS_KEY_ID", Role::Refresh.name());
    Background::start(&mut release).finish().succeeded();
    let answer = drill(&harness, &["--scenario=kill-idle"]).exited(NOT_RECOVERED).json();
    assert_eq!(unmet(&answer, "kill-idle")[0], "released", "{answer}");
    assert!(!answer["left"].as_array().unwrap().is_empty(), "{answer}");
}

#[test]
fn machines_that_may_not_signal_are_found() {
    let (harness, _folder) = with_policies(|_, _| {});
    harness.set_up(&["--claim-registration-timeout-sec=3"]);
    let machine = harness.warm_up(1).remove(0);
    let metadata = harness.gateway.ec2().machine(&machine).unwrap().metadata.unwrap();
    let keys = direct_requests::machine_keys(&metadata, "ondeck-machine");
    let everything_but_signals = json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Sid": "All", "Effect": "Allow", "Action": "*", "Resource": "*" },
            {
                "Sid": "NoSignals",
                "Effect": "Deny",
                "Action": "dynamodb:UpdateItem",
                "Resource": "*",
                "Condition": { "ForAnyValue:StringEquals": { "dynamodb:Attributes": ["signal"] } },
            },
        ],
    });
    let key = keys["AccessKeyId"].as_str().unwrap();
    harness.gateway.replace_policy(key, &everything_but_signals.to_string());
    let answer = drill(&harness, &["--scenario=kill-idle"]).exited(NOT_RECOVERED).json();
    assert_eq!(unmet(&answer, "kill-idle"), ["claimed"], "{answer}");
}
