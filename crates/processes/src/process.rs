//! Single processes and their groups, as `/proc` shows them.

use std::fs;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group,
};
use tokio::process::Child;

/// When a process has got its number and its start: both begin anew with the kernel, and the
/// numbers also with the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// In this one, so that they may be compared with what runs now.
    This,
    /// In another one: whoever has the same number and start now is a stranger.
    Another,
}

impl Boot {
    /// What to write down about this one: the kernel's name for its boot, the namespace that
    /// processes are counted in, and when its first process started, because the kernel uses the
    /// names of namespaces again.
    pub fn name() -> &'static str {
        static NAME: OnceLock<String> = OnceLock::new();
        NAME.get_or_init(|| {
            // Where something is hidden, it is hidden from whoever reads the name later as well.
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            let first = Process::of(1).map_or(0, |process| process.start_time);
            format!("{} {} {first}", boot.trim(), namespace.display())
        })
    }

    /// The one that was written down under this name.
    pub fn named(name: &str) -> Boot {
        if name == Boot::name() { Boot::This } else { Boot::Another }
    }
}

/// A process, told apart from a later one under the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in the kernel's ticks since boot.
    pub start_time: i64,
    /// The boot that this counts from.
    pub boot: Boot,
}

impl Process {
    /// The calling one.
    pub fn current() -> Option<Process> {
        i32::try_from(std::process::id()).ok().and_then(Process::of)
    }

    /// The calling one, and all that it descends from.
    pub(crate) fn current_and_above() -> Vec<Process> {
        let mut line = Vec::new();
        let mut next = i32::try_from(std::process::id()).ok();
        while let Some(stat) = next.and_then(Stat::read) {
            line.push(stat.process);
            next = (stat.parent > 0).then_some(stat.parent);
        }
        line
    }

    /// A child that nobody has waited for yet.
    pub fn of_child(child: &Child) -> Option<Process> {
        child.id().and_then(|pid| Process::of(pid.try_into().ok()?))
    }

    /// The one that has this number now, dead or alive.
    pub fn of(pid: i32) -> Option<Process> {
        Stat::read(pid).map(|stat| stat.process)
    }

    /// Whether it still runs. One that waits to be collected by its parent does not.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.process == self && stat.is_alive())
    }

    /// Whether the group that it has led, if anything is left of that, still goes by its number.
    /// The kernel gives a number to nobody else while a group has it, so whoever has it now under
    /// another start has it because that group is gone.
    pub(crate) fn names_its_group(self) -> bool {
        self.boot == Boot::This && Process::of(self.pid).is_none_or(|owner| owner == self)
    }

    /// Kills it, and nobody who got its number meanwhile.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Asks it to end, as a terminal does when somebody presses the keys for that. What nobody
    /// asks any more is spared, like whoever got its number.
    pub fn interrupt(self) {
        self.signal(Signal::INT);
    }

    /// The descriptor stands for one process, and once it is open, a start that still matches
    /// says which.
    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(_) if !self.is_alive() => Ok(()),
            Ok(process) => pidfd_send_signal(process, signal),
            // An old kernel, or a sandbox that does not know the call and forbids it.
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

/// What the kernel says of a process.
pub(crate) struct Stat {
    pub(crate) process: Process,
    state: u8,
    parent: i32,
    pub(crate) group: i32,
}

impl Stat {
    /// State, parent, group and start time: fields 3, 4, 5 and 22. The name before them may hold blanks and
    /// brackets.
    pub(crate) fn read(pid: i32) -> Option<Stat> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let start_time = fields.nth(16)?.parse().ok()?;
        let process = Process { pid, start_time, boot: Boot::This };
        Some(Stat { process, state, parent, group })
    }

    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Whether nothing is left of the group that a process has led. The kernel looks at all of its
/// members at once, so none can slip by through a fork. In doubt there is something.
pub fn is_group_gone(leader: Process) -> bool {
    let group = Pid::from_raw(leader.pid);
    group.is_some_and(|group| test_kill_process_group(group) == Err(Errno::SRCH))
}

/// Kills the group that a process has led, if it is still there.
pub fn kill_group(leader: Process) {
    if let Some(group) = Pid::from_raw(leader.pid)
        && leader.names_its_group()
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
    fn a_process_is_known_by_number_and_start() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start_time: me.start_time + 1, ..me }.is_alive());
        assert_eq!(Process::of(i32::MAX), None);
        let line = Process::current_and_above();
        assert_eq!(line.first(), Some(&me));
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        assert!(parent == 0 || line[1].pid == parent);
    }

    #[test]
    fn a_process_of_another_boot_is_nobody_who_runs_now() {
        assert_eq!(Boot::named(Boot::name()), Boot::This);
        assert_eq!(Boot::named(""), Boot::Another);
        let me = Process::current().unwrap();
        assert!(!Process { boot: Boot::Another, ..me }.is_alive());
    }
}
