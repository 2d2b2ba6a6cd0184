//! The processes of a machine, as `/proc` shows them.
//!
//! All of them carry the machine's id in their environment, which children inherit and which
//! leaving the process group or the session does not change. What has emptied its environment is
//! found by the process group that it was born into.

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ondeck_core::ids::InstanceId;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group,
};
use tokio::process::Child;

/// The variable by which a machine's processes are known.
pub(crate) const MARKER: &str = "ONDECK_INSTANCE_ID";

/// How long processes may take to disappear once they are killed.
const DYING: Duration = Duration::from_secs(10);

/// How often nothing must be found in a row: a process that is just becoming another program
/// shows no environment for a moment.
const LOOKS: u32 = 2;

/// When a process has got its number and its start: both begin anew with the kernel, and the
/// numbers also with the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boot {
    /// In this one, so that they may be compared with what runs now.
    This,
    /// In another one: whoever has the same number and start now is a stranger.
    Another,
}

impl Boot {
    /// What to write down about this one: the kernel's name for its boot, the namespace that
    /// processes are counted in, and when its first process started, because the kernel uses the
    /// names of namespaces again.
    pub(crate) fn name() -> &'static str {
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
    pub(crate) fn named(name: &str) -> Boot {
        if name == Boot::name() { Boot::This } else { Boot::Another }
    }
}

/// A process, told apart from a later one under the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// When it started, in the kernel's ticks since boot.
    pub(crate) start_time: i64,
    /// The boot that this counts from.
    pub(crate) boot: Boot,
}

impl Process {
    /// The calling one.
    pub(crate) fn current() -> Option<Process> {
        i32::try_from(std::process::id()).ok().and_then(Process::of)
    }

    /// A child that nobody has waited for yet.
    pub(crate) fn of_child(child: &Child) -> Option<Process> {
        child.id().and_then(|pid| Process::of(pid.try_into().ok()?))
    }

    /// The one that has this number now, dead or alive.
    pub(crate) fn of(pid: i32) -> Option<Process> {
        Stat::read(pid).map(|stat| stat.process)
    }

    /// Whether it still runs. One that waits to be collected by its parent does not.
    pub(crate) fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.process == self && stat.is_alive())
    }

    /// Whether the group that it has led, if anything is left of that, still goes by its number.
    /// The kernel gives a number to nobody else while a group has it, so whoever has it now under
    /// another start has it because that group is gone.
    fn names_its_group(self) -> bool {
        self.boot == Boot::This && Process::of(self.pid).is_none_or(|owner| owner == self)
    }

    /// Kills it, and nobody who got its number meanwhile: the descriptor stands for one process,
    /// and once it is open, a start that still matches says which.
    fn kill(self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let killed = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(_) if !self.is_alive() => Ok(()),
            Ok(process) => pidfd_send_signal(process, Signal::KILL),
            // An old kernel, or a sandbox that does not know the call and forbids it.
            Err(Errno::NOSYS | Errno::PERM) if self.is_alive() => kill_process(pid, Signal::KILL),
            Err(Errno::NOSYS | Errno::PERM) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = killed
            && error != Errno::SRCH
        {
            tracing::warn!(pid = self.pid, "cannot kill: {error}");
        }
    }
}

/// What the kernel says of a process.
struct Stat {
    process: Process,
    state: u8,
    group: i32,
}

impl Stat {
    /// State, group and start time: fields 3, 5 and 22. The name before them may hold blanks and
    /// brackets.
    fn read(pid: i32) -> Option<Stat> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let group = fields.nth(1)?.parse().ok()?;
        let start_time = fields.nth(16)?.parse().ok()?;
        let process = Process { pid, start_time, boot: Boot::This };
        Some(Stat { process, state, group })
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// A machine to be ended, and what is known of its processes beside the mark they carry.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    /// The machine.
    pub(crate) id: InstanceId,
    /// Some of its processes.
    pub(crate) known: Vec<Process>,
    /// The leaders, past or present, of process groups that were made on it.
    pub(crate) groups: Vec<Process>,
}

impl Ending {
    fn mark(&self) -> Vec<u8> {
        format!("{MARKER}={}", self.id).into_bytes()
    }

    fn knows(&self, stat: &Stat) -> bool {
        let born_into = |leader: &Process| leader.pid == stat.group && leader.names_its_group();
        self.known.contains(&stat.process) || self.groups.iter().any(born_into)
    }
}

/// A machine that could not be ended, because of these processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undying {
    pub(crate) id: InstanceId,
    pub(crate) pids: Vec<i32>,
}

impl std::fmt::Display for Undying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pids: Vec<String> = self.pids.iter().map(ToString::to_string).collect();
        write!(f, "processes of {} will not die: {}", self.id, pids.join(" "))
    }
}

/// Kills every process of these machines until none is left, and gives the machines of which
/// some will not die. The calling process is spared, even if it is one of them.
pub(crate) async fn end_all(machines: &[Ending]) -> io::Result<Vec<Undying>> {
    end_within(DYING, machines).await
}

async fn end_within(patience: Duration, machines: &[Ending]) -> io::Result<Vec<Undying>> {
    let since = Instant::now();
    let mut looks = 0;
    while looks < LOOKS {
        let left = find(machines)?;
        looks = if left.is_empty() { looks + 1 } else { 0 };
        if !left.is_empty() && since.elapsed() > patience {
            return Ok(undying(machines, &left));
        }
        for (_, process) in left {
            process.kill();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(Vec::new())
}

fn undying(machines: &[Ending], left: &[(usize, Process)]) -> Vec<Undying> {
    let of = |(n, machine): (usize, &Ending)| {
        let its = left.iter().filter(|(of, _)| *of == n);
        let pids: Vec<i32> = its.map(|(_, process)| process.pid).collect();
        (!pids.is_empty()).then(|| Undying { id: machine.id.clone(), pids })
    };
    machines.iter().enumerate().filter_map(of).collect()
}

/// Every process of these machines that runs, with the machine's place among them. One look at
/// `/proc`, however many machines.
fn find(machines: &[Ending]) -> io::Result<Vec<(usize, Process)>> {
    let marks: Vec<Vec<u8>> = machines.iter().map(Ending::mark).collect();
    let me = Process::current();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // What has gone meanwhile is none of ours.
        let Some(stat) = Stat::read(pid).filter(Stat::is_alive) else { continue };
        if Some(stat.process) == me {
            continue;
        }
        let known = machines.iter().position(|machine| machine.knows(&stat));
        if let Some(n) = known.or_else(|| marked(&stat, &marks)) {
            found.push((n, stat.process));
        }
    }
    Ok(found)
}

/// Which of these marks a process carries. The environment is read by number, so the process must
/// be the same after it as before.
fn marked(stat: &Stat, marks: &[Vec<u8>]) -> Option<usize> {
    let pid = stat.process.pid;
    // What cannot be read belongs to somebody else.
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = |entry: &[u8]| marks.iter().position(|mark| mark == entry);
    let n = environ.split(|byte| *byte == 0).find_map(mark)?;
    (Process::of(pid) == Some(stat.process)).then_some(n)
}

/// Whether nothing is left of the group that a process has led. The kernel looks at all of its
/// members at once, so none can slip by through a fork. In doubt there is something.
pub(crate) fn is_group_gone(leader: Process) -> bool {
    let group = Pid::from_raw(leader.pid);
    group.is_some_and(|group| test_kill_process_group(group) == Err(Errno::SRCH))
}

/// Kills the group that a process has led, if it is still there.
pub(crate) fn kill_group(leader: Process) {
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
    use std::process::{Child, Command};

    use std::os::unix::process::CommandExt;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start_time: me.start_time + 1, ..me }.is_alive());
        assert_eq!(Process::of(i32::MAX), None);
    }

    #[test]
    fn a_process_of_another_boot_is_nobody_who_runs_now() {
        assert_eq!(Boot::named(Boot::name()), Boot::This);
        assert_eq!(Boot::named(""), Boot::Another);
        let me = Process::current().unwrap();
        assert!(!Process { boot: Boot::Another, ..me }.is_alive());
    }

    #[tokio::test]
    async fn a_group_of_another_boot_is_spared_even_without_its_leader() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 >/dev/null & echo $!"]).process_group(0);
        let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let leader = Process::of(shell.id().try_into().unwrap()).unwrap();
        let said = std::io::read_to_string(shell.stdout.take().unwrap()).unwrap();
        shell.wait().unwrap();
        let member = Process::of(said.trim().parse().unwrap()).unwrap();
        let stranger = Process { boot: Boot::Another, ..leader };
        kill_group(stranger);
        assert_eq!(end_all(&ending(Vec::new(), vec![stranger])).await.unwrap(), []);
        assert!(member.is_alive() && !is_group_gone(leader));
        assert_eq!(end_all(&ending(Vec::new(), vec![leader])).await.unwrap(), []);
        assert!(!member.is_alive());
    }

    /// A process in a group of its own.
    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let process = Process::of(child.id().try_into().unwrap()).unwrap();
        (child, process)
    }

    fn ending(known: Vec<Process>, groups: Vec<Process>) -> [Ending; 1] {
        let id = InstanceId::new(format!("i-unit-{}", std::process::id())).unwrap();
        [Ending { id, known, groups }]
    }

    #[tokio::test]
    async fn whoever_got_the_number_of_another_is_spared() {
        let (mut child, process) = sleeper();
        let earlier = Process { start_time: process.start_time - 1, ..process };
        earlier.kill();
        kill_group(earlier);
        let ended = end_all(&ending(vec![earlier], vec![earlier])).await.unwrap();
        assert_eq!(ended, []);
        assert!(process.is_alive());
        assert!(end_all(&ending(Vec::new(), vec![process])).await.unwrap().is_empty());
        assert!(!process.is_alive(), "and whoever has it still is not");
        child.wait().unwrap();
    }

    #[test]
    fn what_is_left_is_named_machine_by_machine() {
        let [first, second, third] = ["i-a", "i-b", "i-c"].map(|id| Ending {
            id: InstanceId::new(id).unwrap(),
            known: Vec::new(),
            groups: Vec::new(),
        });
        let process = |pid| Process { pid, start_time: 1, boot: Boot::This };
        let machines = [first, second, third];
        let left = [(2, process(7)), (0, process(8)), (2, process(9))];
        let named: Vec<String> =
            undying(&machines, &left).iter().map(ToString::to_string).collect();
        assert_eq!(
            named,
            ["processes of i-a will not die: 8", "processes of i-c will not die: 7 9"]
        );
    }

    #[tokio::test]
    async fn what_will_not_die_is_named() {
        if rustix::process::geteuid().is_root() {
            // Root is refused nothing, and had better not try.
            return;
        }
        let (mut child, process) = sleeper();
        let first = Process::of(1).unwrap();
        let mut machines = ending(vec![process], Vec::new()).to_vec();
        let id = InstanceId::new("i-first").unwrap();
        machines.push(Ending { id: id.clone(), known: vec![first], groups: Vec::new() });
        let left = end_within(Duration::from_millis(100), &machines).await.unwrap();
        assert_eq!(left, [Undying { id, pids: vec![1] }]);
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
