//! Processes that are known by what stands in their environment, as `/proc` shows it. Children
//! inherit it, and leaving the group or the session does not change it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

/// How long processes may take to disappear once they are killed.
const DYING: Duration = Duration::from_secs(10);
/// How often nothing must be found in a row: a process that is just becoming another program
/// shows no environment for a moment.
const LOOKS: u32 = 2;
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Kills every process that has one of these in its environment, until there is none.
pub(crate) fn kill_marked(marks: &[String]) {
    let deadline = Instant::now() + DYING;
    let mut nothing = 0;
    while nothing < LOOKS && Instant::now() < deadline {
        nothing = if kill_found(marks) { 0 } else { nothing + 1 };
        // Nobody tells when a process that is no child of ours is gone.
        std::thread::park_timeout(PAUSE);
    }
}

/// Kills a process group. Says whether there was one.
pub(crate) fn kill_group(leader: u32) -> bool {
    let leader = i32::try_from(leader).ok().and_then(Pid::from_raw);
    leader.is_some_and(|leader| kill_process_group(leader, Signal::KILL).is_ok())
}

/// A process that waits for the end of this one, however that comes, and then kills every
/// process that carries the mark. Without it, a test that is killed would leave its machines.
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
        // Opened before it is looked at, the descriptor stands for what was looked at, even if
        // the number is given to another process in between.
        let process = pidfd_open(pid, PidfdFlags::empty());
        if !is_marked(pid, marks) {
            continue;
        }
        any = true;
        // What cannot be killed has gone, or will be found again.
        match process {
            Ok(process) => pidfd_send_signal(process, Signal::KILL).ok(),
            Err(_) => kill_process(pid, Signal::KILL).ok(),
        };
    }
    any
}

/// Dead ones have no environment, and those of others cannot be read.
fn is_marked(pid: Pid, marks: &[String]) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())) else {
        return false;
    };
    environment.split(|byte| *byte == 0).any(|it| marks.iter().any(|mark| mark.as_bytes() == it))
}
