//! Finds and kills processes by a mark in their environment, as `/proc` shows it. Children inherit
//! the mark, and leaving the process group or session does not remove it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

/// How long to wait for killed processes to disappear.
const DYING: Duration = Duration::from_secs(10);
/// How many searches in a row must find nothing. During `exec` a process shows no
/// environment for a moment.
const LOOKS: u32 = 2;
/// The time between two searches.
const PAUSE: Duration = Duration::from_millis(2);

/// Kills every process that has one of these `NAME=value` marks in its environment, until none is
/// left or ten seconds have passed.
pub(crate) fn kill_marked(marks: &[String]) {
    let deadline = Instant::now() + DYING;
    let mut nothing = 0;
    while nothing < LOOKS && Instant::now() < deadline {
        nothing = if kill_found(marks) { 0 } else { nothing + 1 };
        // There is no event for the end of a process that is not a child of ours.
        std::thread::park_timeout(PAUSE);
    }
}

/// Asks a process to end. Returns whether there was one.
pub(crate) fn terminate(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
}

/// Kills a process group. Returns whether there was one.
pub(crate) fn kill_group(leader: u32) -> bool {
    let leader = i32::try_from(leader).ok().and_then(Pid::from_raw);
    leader.is_some_and(|leader| kill_process_group(leader, Signal::KILL).is_ok())
}

/// Starts a process that waits until this one ends, even by SIGKILL, and then kills every process
/// with the mark. Without it, a killed test would leave its machines running.
pub(crate) fn warden(mark: &str) -> io::Result<Child> {
    const SCRIPT: &str = r#"
        cat >/dev/null
        for round in 1 2 3; do
            for found in $(grep -lzxF -e "$1" /proc/[0-9]*/environ 2>/dev/null); do
                pid=${found#/proc/}
                kill -s KILL "${pid%/environ}"
            done
        done
    "#;
    Command::new("/bin/sh")
        .args(["-c", SCRIPT, "warden", mark])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

fn kill_found(marks: &[String]) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    let mut any = false;
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        // The descriptor is opened before the check, so it refers to the checked process even if
        // the system reuses the pid in between.
        let process = pidfd_open(pid, PidfdFlags::empty());
        if !is_marked(pid, marks) {
            continue;
        }
        any = true;
        // If the kill fails, the process is gone or the next search finds it again.
        match process {
            Ok(process) => pidfd_send_signal(process, Signal::KILL).ok(),
            Err(_) => kill_process(pid, Signal::KILL).ok(),
        };
    }
    any
}

/// Returns `false` for dead processes, which have no environment, and for those of other users.
fn is_marked(pid: Pid, marks: &[String]) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())) else {
        return false;
    };
    environment.split(|byte| *byte == 0).any(|it| marks.iter().any(|mark| mark.as_bytes() == it))
}
