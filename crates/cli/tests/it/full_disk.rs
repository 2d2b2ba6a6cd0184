//! Jobs that fill the disk of the local backend: a real file system of a few megabytes, mounted in a
//! namespace of its own, whose processes end with the test.

use std::path::Path;
use std::process::Command;

use ondeck_standin::not_applicable;

use crate::harness::{ondeck, say};

/// Sets up a pool on a small file system. `ondeck` is the program, and each call prints its name and
/// its exit code.
const BEGIN: &str = r#"
mount -t tmpfs -o size="$SIZE" small "$PLACE" || exit 99
export ONDECK_HOME="$PLACE/home"
ondeck() { "$ONDECK" "$@" 2>&1; echo "[$1 $?]"; }
ondeck refresh --heartbeat-period-sec=1 --self-termination-grace-sec=1 --release-timeout-sec=30
ondeck provision --run-id 1
is_full() { [ "$(df --output=avail -B1024 "$PLACE" | tail -n 1)" -lt 512 ]; }
fill='until cat /dev/zero >> big 2>/dev/null; do :; done'
"#;

/// The pool is as good as new.
const END: &str = r#"
ondeck refresh
ondeck provision --run-id 2
ondeck run --run-id 2 -- echo works
ondeck release --run-id 2
"#;

/// Plays a script between both parts. `None` where no file system can be mounted.
fn play(size: &str, script: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let program = ondeck(&[]).get_program().to_owned();
    let (place, script) = (dir.path(), format!("{BEGIN}{script}{END}"));
    let namespaces = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(more).args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c"]);
        command
    };
    for more in [&[][..], &["--user", "--map-root-user"]] {
        let can = namespaces(more).arg("mount -t tmpfs small \"$0\"").arg(place).output();
        if !can.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let mut command = namespaces(more);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ONDECK_") {
                command.env_remove(name);
            }
        }
        let command = command.arg(&script).env("SIZE", size).env("PLACE", place);
        let output = command.env("ONDECK", Path::new(&program)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{stderr}");
        say(&format!("{said}{stderr}"));
        return Some(said);
    }
    not_applicable("the right to mount a file system");
    None
}

/// Asserts that the calls ended with these codes, in this order.
#[track_caller]
fn assert_calls(said: &str, expected: &[&str]) {
    let calls: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).collect();
    let begin = ["refresh 0", "provision 0"];
    let end = ["refresh 0", "provision 0", "run 0", "release 0"];
    assert_eq!(calls, [&begin[..], expected, &end].concat(), "{said}");
    assert!(said.contains("works"), "{said}");
}

#[test]
fn a_job_that_fills_the_disk_ends_with_its_own_code_and_the_machine_is_used_again() {
    let script = r#"
        ondeck run --run-id 1 -- sh -c 'cat /dev/zero > big; echo after; exit 5'
        is_full && echo "it is full"
        ondeck release --run-id 1
    "#;
    for size in ["4m", "32m"] {
        let Some(said) = play(size, script) else { return };
        assert_calls(&said, &["run 5", "release 0"]);
        for line in ["it is full", "the disk is full, and some of the output is not stored"] {
            assert!(said.contains(line), "{size}: {said}");
        }
        assert!(said.contains("1 warm, 0 cold"), "{size}: {said}");
    }
}

#[test]
fn a_job_that_keeps_the_disk_full_is_ended_by_release() {
    let script = r#"
        "$ONDECK" run --run-id 1 -- sh -c "$fill" >/dev/null 2>&1 & job=$!
        until is_full; do sleep 0.05; done
        ondeck release --run-id 1
        wait $job; echo "[run $?]"
    "#;
    let Some(said) = play("16m", script) else { return };
    assert_calls(&said, &["release 0", "run 143"]);
    assert!(said.contains("1 warm, 0 cold"), "{said}");
}

#[test]
fn refresh_recovers_from_a_machine_that_died_on_a_full_disk() {
    let script = r#"
        "$ONDECK" run --run-id 1 -- sh -c "$fill" >/dev/null 2>&1 & job=$!
        until is_full; do sleep 0.05; done
        kill -9 "$(pgrep -f 'agent --hom[e]')"
        ondeck refresh
        wait $job; echo "[run $?]"
    "#;
    let Some(said) = play("16m", script) else { return };
    assert_calls(&said, &["refresh 0", "run 143"]);
}

#[test]
fn a_machine_that_terminates_on_a_full_disk_removes_its_folder() {
    let script = r#"
        "$ONDECK" run --run-id 1 -- sh -c "$fill" >/dev/null 2>&1 & job=$!
        until is_full; do sleep 0.05; done
        ondeck release --run-id 1 --idle-time-sec=0
        wait $job; echo "[run $?]"
        until [ -z "$(ls "$ONDECK_HOME/machines")" ]; do sleep 0.05; done
    "#;
    let Some(said) = play("16m", script) else { return };
    assert_calls(&said, &["release 0", "run 143"]);
    assert!(said.contains("0 warm, 1 cold"), "{said}");
}
