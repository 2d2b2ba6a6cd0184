//! The processes of a machine, as `/proc` shows them.
//!
//! All of them carry the machine's id in their environment, which children inherit and which
//! leaving the process group or the session does not change.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use ondeck_core::ids::InstanceId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable by which a machine's processes are known.
pub(crate) const MARKER: &str = "ONDECK_INSTANCE_ID";

/// How long processes may take to disappear once they are killed.
const DYING: Duration = Duration::from_secs(10);

/// A process, told apart from a later one under the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// When it started, in the kernel's ticks since boot.
    pub(crate) start_time: i64,
}

impl Process {
    /// The calling one.
    pub(crate) fn current() -> Option<Process> {
        i32::try_from(std::process::id()).ok().and_then(Process::of)
    }

    /// The one that has this number now, dead or alive.
    pub(crate) fn of(pid: i32) -> Option<Process> {
        stat(pid).map(|(_, start_time)| Process { pid, start_time })
    }

    /// Whether it still runs. One that waits to be collected by its parent does not.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, start_time)| {
            start_time == self.start_time && !matches!(state, b'Z' | b'X' | b'x')
        })
    }

    fn kill(self) {
        if let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = kill_process(pid, Signal::KILL)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(pid = self.pid, "cannot kill: {error}");
        }
    }
}

/// State and start time: fields 3 and 22. The name before them may hold blanks and brackets.
fn stat(pid: i32) -> Option<(u8, i64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    Some((state, start_time))
}

/// Every process of these machines. One look at `/proc`, however many machines.
pub(crate) fn list_by_marker(ids: &[InstanceId]) -> io::Result<Vec<Process>> {
    let entries: BTreeSet<Vec<u8>> =
        ids.iter().map(|id| format!("{MARKER}={id}").into_bytes()).collect();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // What has gone meanwhile, or belongs to somebody else, is none of ours.
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        if environ.split(|byte| *byte == 0).any(|entry| entries.contains(entry)) {
            processes.extend(Process::of(pid));
        }
    }
    Ok(processes)
}

/// Kills every process of these machines, and the known ones, until none is left. The calling
/// process is spared, even if it is one of them.
pub(crate) async fn end_all(ids: &[InstanceId], known: &[Process]) -> io::Result<()> {
    let me = Process::current();
    let since = Instant::now();
    loop {
        let mut left = list_by_marker(ids)?;
        left.extend(known);
        left.retain(|process| Some(*process) != me && process.is_alive());
        if left.is_empty() {
            return Ok(());
        }
        if since.elapsed() > DYING {
            let pids: Vec<String> = left.iter().map(|process| process.pid.to_string()).collect();
            return Err(io::Error::other(format!("will not die: {}", pids.join(" "))));
        }
        for process in left {
            process.kill();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Kills a process group, if it is still there.
pub(crate) fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw)
        && let Err(error) = kill_process_group(group, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(group = leader, "cannot kill the group: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start_time: me.start_time + 1, ..me }.is_alive());
        assert_eq!(Process::of(i32::MAX), None);
    }
}
