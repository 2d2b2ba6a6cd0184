//! Output that cannot be written: on a full disk, which `/dev/full` stands for, and into a pipe that
//! its reader has closed.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::harness::{Background, Done, Driven, Home, until};

/// Runs a command whose stdout has no room.
fn without_room(mut command: Command) -> Done {
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    ended(command)
}

/// Runs a command whose stdout is a pipe that nothing reads.
fn without_reader(mut command: Command) -> Done {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    ended(command)
}

/// Only stderr is read.
fn ended(mut command: Command) -> Done {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Done { code: output.status.code().unwrap(), stdout: String::new(), stderr }
}

const NO_ROOM: &str = "error: stdout cannot be written: No space left on device (os error 28)\n\
                       hint: redirect the output elsewhere; ondeck status shows the machines\n";

#[test]
fn a_command_whose_output_is_lost_fails() {
    let home = Home::with(&[]);
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["help"],
        &["help", "refresh"],
        &["provision", "--help"],
        &["completions", "bash"],
        &["status"],
        &["status", "--json"],
        &["status", "--all"],
        &["status", "--watch"],
        &["refresh"],
        &["refresh", "--json"],
        &["provision", "--run-id=1"],
        &["provision", "--run-id=1", "--json"],
        &["release", "--run-id=1"],
        &["release", "--run-id=1", "--json"],
    ] {
        let done = without_room(home.command(arguments)).exited(11);
        // A refresh that has nothing to say in text says nothing, so its stderr may have more.
        assert!(done.stderr.ends_with(NO_ROOM), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn what_was_done_stays_done() {
    let home = Home::with(&[]);
    without_room(home.command(&["provision", "--run-id=1", "--json"])).exited(11);
    assert_eq!(home.standings(), ["running 1"]);
    without_room(home.command(&["release", "--run-id=1"])).exited(11);
    assert_eq!(home.standings(), ["idle"]);
}

#[test]
fn a_command_that_fails_keeps_its_own_exit_code() {
    let home = Home::with(&["--local-launch-failure=none today"]);
    let done = without_room(home.command(&["provision", "--run-id=1", "--json"])).exited(4);
    assert!(done.stderr.contains("error: not enough capacity"), "{}", done.stderr);
    assert!(done.stderr.contains("stdout cannot be written: No space"), "{}", done.stderr);
    let done = without_room(home.command(&["provision", "--json", "--instance-count=x"])).exited(2);
    assert!(done.stderr.contains("error: invalid value 'x'"), "{}", done.stderr);
}

#[test]
fn a_demo_without_room_for_its_story_ends_at_once() {
    let home = Home::bare();
    fs::create_dir(home.dir()).unwrap();
    let mut demo = home.command(&["demo"]);
    demo.env_remove("ONDECK_HOME").env("TMPDIR", home.dir());
    assert_eq!(without_room(demo).exited(11).stderr, NO_ROOM);
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0);
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let home = Home::with(&[]);
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["completions", "zsh"],
        &["status"],
        &["status", "--json"],
        &["status", "--watch"],
        &["refresh", "--json"],
        &["provision", "--run-id=1"],
        &["release", "--run-id=1", "--json"],
    ] {
        let done = without_reader(home.command(arguments)).exited(0);
        assert!(!done.stderr.contains("error"), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn a_job_whose_output_is_lost_is_cancelled_and_the_reason_said() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let yes = ["run", "--run-id=1", "--", "yes"];
    let done = without_room(home.command(&yes)).exited(11);
    assert!(!done.stderr.contains("told to terminate"), "{}", done.stderr);
    let words = "error: the job was cancelled: stdout cannot be written: No space left on device \
                 (os error 28)\nhint: redirect the output elsewhere, and run the job again\n";
    assert!(done.stderr.ends_with(words), "{}", done.stderr);
    until("the job is over", || home.texts("SELECT state FROM jobs") == ["cancelled"]);

    let done = without_reader(home.command(&yes)).exited(143);
    assert!(!done.stderr.contains("error"), "{}", done.stderr);
    until("the job is over", || home.texts("SELECT state FROM jobs") == ["cancelled"; 2]);

    let mut errors = home.command(&["run", "--run-id=1", "--json", "--", "sh", "-c", "yes >&2"]);
    errors.stderr(File::options().write(true).open("/dev/full").unwrap());
    let output = errors.stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(11));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["error"]["kind"], "unreported");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the job was cancelled: stderr cannot be written"), "{message}");
}

#[test]
fn a_full_disk_of_the_log_changes_nothing() {
    let home = Home::with(&[]);
    let mut command = home.command(&["provision", "--run-id=1", "--json", "-vv"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let provision = command.stderr(full).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(provision.status.code(), Some(0));
    let done = Background::start(&mut home.command(&["release", "--run-id=1"])).finish();
    done.succeeded();
}
