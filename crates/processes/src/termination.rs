//! Finds every process of a machine and kills it.
//!
//! The agent of a machine adopts orphans, so all other processes of the machine are its descendants.
//! If the agent is gone, they are found in `/proc`: each carries the machine's id in its environment.
//! Children inherit it, and it survives a change of process group or session. A process that clears
//! its environment is found by the process group it was started in, or by its user.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ondeck_core::model::ids::InstanceId;

use crate::descendants::{adopts_orphans, blocking, kill_below, kill_descendants};
use crate::process::{Process, Stat, kill_group};

/// The environment variable that marks a process with the id of its machine.
pub const MARKER: &str = "ONDECK_INSTANCE_ID";

/// How long processes may take to disappear once they are killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the processes of a live agent may take to disappear before the agent itself is killed.
/// The agent is stopped meanwhile, and other processes may wait for a lock that it holds.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(2);

/// How many consecutive scans of `/proc` must find nothing. One is not enough: a process in the
/// middle of `execve` shows an empty environment.
const EMPTY_SCANS: u32 = 2;

/// The processes of one machine, and how to recognise them.
#[derive(Debug, Clone)]
pub struct MachineProcesses {
    pub id: InstanceId,
    /// The machine's agent, and other processes that belong to the machine even if nothing else
    /// identifies them. Their descendants belong to it too.
    pub known: Vec<Process>,
    /// Leaders, alive or dead, of the process groups that were started on the machine.
    pub groups: Vec<Process>,
    /// How all other processes are recognised.
    pub found_by: FoundBy,
}

/// What identifies the processes of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// The variable [`MARKER`] in the environment.
    Marker,
    /// A user that runs nothing else. The marker is ignored then, because processes that the
    /// operator starts on the machine may carry it too.
    User(u32),
}

impl MachineProcesses {
    /// Recognises the processes of `id` by the marker alone.
    pub fn of(id: &InstanceId) -> MachineProcesses {
        MachineProcesses {
            id: id.clone(),
            known: Vec::new(),
            groups: Vec::new(),
            found_by: FoundBy::Marker,
        }
    }

    fn marker(&self) -> Option<Vec<u8>> {
        (self.found_by == FoundBy::Marker).then(|| format!("{MARKER}={}", self.id).into_bytes())
    }

    fn includes(&self, stat: &Stat) -> bool {
        let started_in =
            |leader: &Process| leader.pid == stat.group && leader.identifies_its_group();
        let by_user = match self.found_by {
            FoundBy::User(user) => acts_as(stat.process.pid, user),
            FoundBy::Marker => false,
        };
        by_user || self.known.contains(&stat.process) || self.groups.iter().any(started_in)
    }
}

/// The processes of one machine that were still alive when [`kill_all`] gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivors {
    pub id: InstanceId,
    pub pids: Vec<i32>,
}

impl std::fmt::Display for Survivors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pids: Vec<String> = self.pids.iter().map(ToString::to_string).collect();
        write!(f, "processes of {} survived SIGKILL: {}", self.id, pids.join(" "))
    }
}

/// Kills every process of the calling agent's machine except the agent itself until none is left.
/// Returns the survivors if there are processes left after ten seconds.
///
/// If the agent adopts orphans and is the only process that starts others on its machine, only its
/// descendants are looked at: that takes no longer on a computer with many other processes. Otherwise
/// this is [`kill_all`].
pub async fn kill_others(machine: MachineProcesses) -> io::Result<Option<Survivors>> {
    if machine.found_by == FoundBy::Marker && adopts_orphans() {
        machine.groups.iter().for_each(|leader| kill_group(*leader));
        let pids = kill_descendants(KILL_TIMEOUT).await?;
        return Ok((!pids.is_empty()).then_some(Survivors { id: machine.id, pids }));
    }
    Ok(kill_all(&[machine]).await?.pop())
}

/// Kills every process of these machines until none is left. Returns the survivors of each machine
/// that still has processes after ten seconds, and fails if `/proc` cannot be listed. The calling
/// process and its ancestors are never killed, even if they belong to one of the machines.
pub async fn kill_all(machines: &[MachineProcesses]) -> io::Result<Vec<Survivors>> {
    kill_within(KILL_TIMEOUT, machines).await
}

async fn kill_within(
    timeout: Duration,
    machines: &[MachineProcesses],
) -> io::Result<Vec<Survivors>> {
    let machines: Arc<[MachineProcesses]> = machines.into();
    kill_below_agents(&machines).await?;
    let since = Instant::now();
    let mut empty_scans = 0;
    while empty_scans < EMPTY_SCANS {
        let among = machines.clone();
        let left = blocking(move || {
            let left = find(&among)?;
            left.iter().for_each(|(_, process)| process.kill());
            Ok(left)
        });
        let left = left.await?;
        empty_scans = if left.is_empty() { empty_scans + 1 } else { 0 };
        if !left.is_empty() && since.elapsed() > timeout {
            return Ok(survivors(&machines, &left));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(Vec::new())
}

/// Kills the descendants of agents that are alive. Once an agent is gone, those that have cleared
/// their environment and left their group cannot be recognised any more. The agents are stopped
/// first, so that they start nothing else. The caller must kill them.
async fn kill_below_agents(machines: &[MachineProcesses]) -> io::Result<()> {
    let spared = Process::current_and_ancestors();
    let known = machines.iter().flat_map(|machine| machine.known.iter().copied());
    let agents: Vec<Process> = known.filter(|it| it.is_alive() && !spared.contains(it)).collect();
    agents.iter().for_each(|agent| agent.stop());
    let pids: Vec<i32> = agents.iter().map(|agent| agent.pid).collect();
    let since = Instant::now();
    let mut empty_passes = 0;
    while !pids.is_empty() && empty_passes < EMPTY_SCANS && since.elapsed() < STOPPED_TIMEOUT {
        let among = pids.clone();
        let left = blocking(move || kill_below(&among)).await?;
        empty_passes = if left.is_empty() { empty_passes + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn survivors(machines: &[MachineProcesses], left: &[(usize, Process)]) -> Vec<Survivors> {
    let of = |(n, machine): (usize, &MachineProcesses)| {
        let its = left.iter().filter(|(of, _)| *of == n);
        let pids: Vec<i32> = its.map(|(_, process)| process.pid).collect();
        (!pids.is_empty()).then(|| Survivors { id: machine.id.clone(), pids })
    };
    machines.iter().enumerate().filter_map(of).collect()
}

/// Returns every live process of these machines with the index of its machine. Scans `/proc` once,
/// regardless of the number of machines.
fn find(machines: &[MachineProcesses]) -> io::Result<Vec<(usize, Process)>> {
    let markers: Vec<Option<Vec<u8>>> = machines.iter().map(MachineProcesses::marker).collect();
    let spared = Process::current_and_ancestors();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have exited since the directory was listed.
        let Some(stat) = Stat::read(pid).filter(Stat::is_alive) else { continue };
        if spared.contains(&stat.process) {
            continue;
        }
        let known = machines.iter().position(|machine| machine.includes(&stat));
        if let Some(n) = known.or_else(|| marked(&stat, &markers)) {
            found.push((n, stat.process));
        }
    }
    Ok(found)
}

/// Returns the index of the marker that a process carries. `/proc/PID/environ` is addressed by pid,
/// so the pid must belong to the same process before and after it is read.
fn marked(stat: &Stat, markers: &[Option<Vec<u8>>]) -> Option<usize> {
    let pid = stat.process.pid;
    // The environment of another user's process is not readable.
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let marker = |entry: &[u8]| markers.iter().position(|marker| marker.as_deref() == Some(entry));
    let n = environ.split(|byte| *byte == 0).find_map(marker)?;
    (Process::of(pid) == Some(stat.process)).then_some(n)
}

/// Whether any of a process's four user ids (real, effective, saved, file system) is this user's, so
/// that a setuid program which the user started counts as well.
fn acts_as(pid: i32, user: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_ascii_whitespace().any(|id| id.parse() == Ok(user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use crate::process::{Boot, is_group_gone, kill_group};

    #[tokio::test]
    async fn a_group_of_another_boot_is_not_killed_even_without_its_leader() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 >/dev/null & echo $!"]).process_group(0);
        let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let leader = Process::of(shell.id().try_into().unwrap()).unwrap();
        let said = std::io::read_to_string(shell.stdout.take().unwrap()).unwrap();
        shell.wait().unwrap();
        let member = Process::of(said.trim().parse().unwrap()).unwrap();
        let stranger = Process { boot: Boot::Another, ..leader };
        kill_group(stranger);
        assert_eq!(kill_all(&processes_of(Vec::new(), vec![stranger])).await.unwrap(), []);
        assert!(member.is_alive() && !is_group_gone(leader));
        assert_eq!(kill_all(&processes_of(Vec::new(), vec![leader])).await.unwrap(), []);
        assert!(!member.is_alive());
    }

    /// Starts a process that leads its own group.
    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let process = Process::of(child.id().try_into().unwrap()).unwrap();
        (child, process)
    }

    fn processes_of(known: Vec<Process>, groups: Vec<Process>) -> [MachineProcesses; 1] {
        let id = InstanceId::new(format!("i-unit-{}", std::process::id())).unwrap();
        [MachineProcesses { known, groups, ..MachineProcesses::of(&id) }]
    }

    #[tokio::test]
    async fn a_process_that_reuses_a_pid_is_not_killed() {
        let (mut child, process) = sleeper();
        let earlier = Process { start_time: process.start_time - 1, ..process };
        earlier.kill();
        kill_group(earlier);
        let survivors = kill_all(&processes_of(vec![earlier], vec![earlier])).await.unwrap();
        assert_eq!(survivors, []);
        assert!(process.is_alive());
        assert!(kill_all(&processes_of(Vec::new(), vec![process])).await.unwrap().is_empty());
        assert!(!process.is_alive(), "the process with the recorded start time is killed");
        child.wait().unwrap();
    }

    #[test]
    fn survivors_are_reported_per_machine() {
        let [first, second, third] =
            ["i-a", "i-b", "i-c"].map(|id| MachineProcesses::of(&InstanceId::new(id).unwrap()));
        let process = |pid| Process { pid, start_time: 1, boot: Boot::This };
        let machines = [first, second, third];
        let left = [(2, process(7)), (0, process(8)), (2, process(9))];
        let named: Vec<String> =
            survivors(&machines, &left).iter().map(ToString::to_string).collect();
        assert_eq!(
            named,
            ["processes of i-a survived SIGKILL: 8", "processes of i-c survived SIGKILL: 7 9"]
        );
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_killed_is_reported() {
        if rustix::process::geteuid().is_root() {
            // Root may kill every process, and pid 1 must survive this test.
            return;
        }
        let (mut child, process) = sleeper();
        let first = Process::of(1).unwrap();
        let mut machines = processes_of(vec![process], Vec::new()).to_vec();
        let id = InstanceId::new("i-first").unwrap();
        machines.push(MachineProcesses { known: vec![first], ..MachineProcesses::of(&id) });
        let left = kill_within(Duration::from_millis(100), &machines).await.unwrap();
        assert_eq!(left, [Survivors { id, pids: vec![1] }]);
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn processes_of_a_user_are_found_without_marker_and_group() {
        const OTHER_USER: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            ondeck_standin::not_applicable("root: processes of another user");
            return;
        }
        let ids = [format!("--reuid={OTHER_USER}"), format!("--regid={OTHER_USER}")];
        let mut command = Command::new("setpriv");
        command.args(ids).args(["--clear-groups", "sleep", "60"]).env_clear().process_group(0);
        let mut child = command.spawn().unwrap();
        let process = Process::of(child.id().try_into().unwrap()).unwrap();
        while !acts_as(process.pid, OTHER_USER) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let id = InstanceId::new("i-user").unwrap();
        assert_eq!(kill_all(&[MachineProcesses::of(&id)]).await.unwrap(), []);
        assert!(process.is_alive());
        let machine =
            MachineProcesses { found_by: FoundBy::User(OTHER_USER), ..MachineProcesses::of(&id) };
        assert_eq!(kill_all(&[machine]).await.unwrap(), []);
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
