//! `ondeck connect`, with a stand-in for the `aws` program on PATH and real records.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::harness::AwsHarness;
use crate::harness::{Background, Done, Driven, Home};

/// Writes what it was called with, and exits with a code that no command of ondeck has.
const AWS: &str = "#!/bin/sh\necho \"$@\"\necho \"key $AWS_ACCESS_KEY_ID\"\nexit 42\n";

fn put(folder: &Path, program: &str, text: &str) {
    let file = folder.join(program);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Connects with only these programs on PATH.
fn connect(mut command: Command, path: &Path) -> Done {
    Background::start(command.env("PATH", path)).finish()
}

#[test]
fn a_session_takes_the_place_of_the_command() {
    let harness = AwsHarness::with(&["--connect=ssm"]);
    let machine = harness.provision("1", 1).succeeded().ids().remove(0);
    let programs = tempfile::tempdir().unwrap();
    let connected =
        |machine: &str| connect(harness.command(&["connect", machine]), programs.path());

    let without = connected(&machine).exited(2);
    assert!(without.stderr.contains("a program that is not on PATH: aws\n"), "{}", without.stderr);
    put(programs.path(), "aws", AWS);
    let without = connected(&machine).exited(2);
    assert!(without.stderr.contains("not on PATH: session-manager-plugin\nhint: install the"));
    put(programs.path(), "session-manager-plugin", AWS);
    let session = connected(&machine).exited(42);
    let expected =
        format!("ssm start-session --target {machine} --region us-east-1\nkey operator\n");
    assert_eq!((session.stdout, session.stderr), (expected, String::new()));

    let unknown = connected("i-0000000000000000f").exited(2);
    assert!(unknown.stderr.contains("the pool has no such machine: i-0000000000000000f\nhint: "));
    let invalid = connected("no machine").exited(2);
    assert!(invalid.stderr.starts_with("error: "), "{}", invalid.stderr);
    harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=0"]);
    harness.until_empty();
    let gone = connected(&machine).exited(2);
    assert!(gone.stderr.contains("the machine is terminated: "), "{}", gone.stderr);
}

#[test]
fn a_pool_admits_no_sessions_unless_the_operator_says_so() {
    let harness = AwsHarness::with(&[]);
    let machine = harness.provision("1", 1).succeeded().ids().remove(0);
    let programs = tempfile::tempdir().unwrap();
    for program in ["aws", "session-manager-plugin"] {
        put(programs.path(), program, AWS);
    }
    let refused = connect(harness.command(&["connect", &machine]), programs.path()).exited(2);
    assert!(refused.stderr.contains("this pool admits no connections"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: run ondeck refresh --connect ssm"));
    harness.release("1").succeeded();
}

#[test]
fn a_pool_that_was_never_set_up_is_reported_as_that() {
    let harness = AwsHarness::bare();
    let path = tempfile::tempdir().unwrap();
    connect(harness.command(&["connect", "i-1"]), path.path()).exited(3);
}

#[test]
fn machines_of_this_computer_need_no_connection() {
    let home = Home::with(&[]);
    let machine = home.provision("1", 1).succeeded().ids().remove(0);
    let refused = home.ondeck(&["connect", &machine]).exited(2);
    assert!(refused.stderr.contains("machines on this computer need no connection\nhint: their"));
    let json = home.ondeck(&["connect", &machine, "--json"]).exited(2).json();
    assert_eq!(json["error"]["kind"], "invalid-input");
}
