//! Processes and process groups, identified so that a reused pid is not mistaken for them.

use std::fs;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group,
};
use tokio::process::Child;

/// Whether a recorded pid and start time belong to the current boot. Both start over when the kernel
/// boots, and pids also when a container starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// The current boot: they can be compared with running processes.
    This,
    /// An earlier boot: a running process with the same pid and start time is a different one.
    Another,
}

impl Boot {
    /// The name to record with a process of the current boot: the kernel's boot id, the pid namespace
    /// and the start time of pid 1. The start time is part of it because the kernel reuses the names
    /// of namespaces.
    pub fn name() -> &'static str {
        static NAME: OnceLock<String> = OnceLock::new();
        NAME.get_or_init(|| {
            // A part that is unreadable here is unreadable for later readers too, so names still match.
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            let first = Process::of(1).map_or(0, |process| process.start_time);
            format!("{} {} {first}", boot.trim(), namespace.display())
        })
    }

    /// Compares a recorded name with that of the current boot.
    pub fn named(name: &str) -> Boot {
        if name == Boot::name() { Boot::This } else { Boot::Another }
    }
}

/// A process. The start time and the boot tell it apart from a later process with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// In the kernel's clock ticks since boot.
    pub start_time: i64,
    pub boot: Boot,
}

impl Process {
    /// The calling process, or `None` if `/proc` does not show it.
    pub fn current() -> Option<Process> {
        i32::try_from(std::process::id()).ok().and_then(Process::of)
    }

    /// Whether `/proc` is there and shows the processes of the caller's own pid namespace.
    pub fn are_visible() -> bool {
        let shown = fs::read_link("/proc/self").ok();
        shown.is_some_and(|pid| pid.to_str() == Some(&std::process::id().to_string()))
            && Process::current().is_some()
    }

    /// The calling process, followed by its ancestors.
    pub(crate) fn current_and_ancestors() -> Vec<Process> {
        let mut ancestry = Vec::new();
        let mut next = i32::try_from(std::process::id()).ok();
        while let Some(stat) = next.and_then(Stat::read) {
            ancestry.push(stat.process);
            next = (stat.parent > 0).then_some(stat.parent);
        }
        ancestry
    }

    /// A child, or `None` if its exit status has already been collected.
    pub fn of_child(child: &Child) -> Option<Process> {
        child.id().and_then(|pid| Process::of(pid.try_into().ok()?))
    }

    /// The process that has this pid now, including a zombie.
    pub fn of(pid: i32) -> Option<Process> {
        Stat::read(pid).map(|stat| stat.process)
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.process == self && stat.is_alive())
    }

    /// Whether it has a child of this name, as `/proc/PID/comm` shows it, that still runs.
    pub fn has_child(self, name: &str) -> bool {
        let Ok(entries) = fs::read_dir("/proc") else { return false };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_child = |pid: &i32| {
            Stat::read(*pid).is_some_and(|stat| stat.parent == self.pid && stat.is_alive())
        };
        let comm = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        self.is_alive()
            && pids.filter(is_child).any(|pid| comm(pid).is_some_and(|it| it.trim_end() == name))
    }

    /// Whether a process group with this pid would still be the group that this process led. The
    /// kernel does not reuse a pid while a group has that id, so if another process has the pid now,
    /// the group is gone.
    pub(crate) fn identifies_its_group(self) -> bool {
        self.boot == Boot::This && Process::of(self.pid).is_none_or(|owner| owner == self)
    }

    /// Sends `SIGKILL`, unless the process is gone. A process that reuses its pid is not signalled.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Sends `SIGSTOP`, unless the process is gone. A process that reuses its pid is not signalled.
    pub(crate) fn stop(self) {
        self.signal(Signal::STOP);
    }

    /// Sends `SIGINT`, as Ctrl-C does, unless the process is gone. A process that reuses its pid is
    /// not signalled.
    pub fn interrupt(self) {
        self.signal(Signal::INT);
    }

    /// A pidfd refers to one process for good. If the start time still matches once the pidfd is open,
    /// it refers to this process.
    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(_) if !self.is_alive() => Ok(()),
            Ok(process) => pidfd_send_signal(process, signal),
            // The kernel is too old for the call, or a sandbox forbids it.
            Err(Errno::NOSYS | Errno::PERM) if self.is_alive() => kill_process(pid, signal),
            Err(Errno::NOSYS | Errno::PERM) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = sent
            && error != Errno::SRCH
        {
            tracing::warn!(pid = self.pid, ?signal, "cannot send a signal: {error}");
        }
    }
}

/// The fields of `/proc/PID/stat` that this crate uses.
pub(crate) struct Stat {
    pub(crate) process: Process,
    state: u8,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    threads: u32,
}

impl Stat {
    /// Reads state, parent, group, number of threads and start time: fields 3, 4, 5, 20 and 22. Parsing
    /// starts after the last bracket, because the name in field 2 may contain blanks and brackets.
    pub(crate) fn read(pid: i32) -> Option<Stat> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let threads = fields.nth(14)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        let process = Process { pid, start_time, boot: Boot::This };
        Some(Stat { process, state, parent, group, threads })
    }

    /// Whether it runs. A process whose first thread has exited looks like a zombie, but runs as long
    /// as it has other threads.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x') || self.threads > 1
    }
}

/// Whether no member is left of the group that a process led. The kernel checks all members at once,
/// so a fork cannot hide one. Any error other than "no such group" counts as a living group.
pub fn is_group_gone(leader: Process) -> bool {
    let group = Pid::from_raw(leader.pid);
    group.is_some_and(|group| test_kill_process_group(group) == Err(Errno::SRCH))
}

/// Sends `SIGKILL` to the group that a process led, unless the group is gone. Failures are logged.
pub fn kill_group(leader: Process) {
    if let Some(group) = Pid::from_raw(leader.pid)
        && leader.identifies_its_group()
        && let Err(error) = kill_process_group(group, Signal::KILL)
        && error != Errno::SRCH
    {
        tracing::warn!(group = leader.pid, "cannot kill the group: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_pid_and_start_time() {
        assert!(Process::are_visible());
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start_time: me.start_time + 1, ..me }.is_alive());
        assert_eq!(Process::of(i32::MAX), None);
        let ancestry = Process::current_and_ancestors();
        assert_eq!(ancestry.first(), Some(&me));
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        assert!(parent == 0 || ancestry[1].pid == parent);
    }

    #[test]
    fn a_process_of_another_boot_is_not_alive() {
        assert_eq!(Boot::named(Boot::name()), Boot::This);
        assert_eq!(Boot::named(""), Boot::Another);
        let me = Process::current().unwrap();
        assert!(!Process { boot: Boot::Another, ..me }.is_alive());
    }
}
