//! Finds every process of a machine and kills it.
//!
//! The agent of a machine adopts orphans, so all other processes of the machine are its descendants.
//! If the agent is gone, they are found in `/proc`: each carries the machine's id in its environment.
//! Children inherit it, and it survives a change of process group or session. A process that clears
//! its environment is found by the process group it was started in, or by its user.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ondeck_core::model::ids::InstanceId;

use crate::descendants::{adopts_orphans, blocking, is_gone, kill_below, kill_descendants};
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
    /// The folder of a cgroup of version 2 that holds nothing else, with the cgroups below it.
    pub cgroup: Option<PathBuf>,
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
            cgroup: None,
        }
    }

    /// The processes in its cgroup and in those below.
    fn in_cgroup(&self) -> io::Result<BTreeSet<i32>> {
        let mut found = BTreeSet::new();
        if let Some(folder) = &self.cgroup {
            add_members(folder, &mut found)?;
        }
        Ok(found)
    }

    fn marker(&self) -> Option<Vec<u8>> {
        (self.found_by == FoundBy::Marker).then(|| format!("{MARKER}={}", self.id).into_bytes())
    }

    fn includes(&self, stat: &Stat, in_cgroup: &BTreeSet<i32>) -> bool {
        if in_cgroup.contains(&stat.process.pid) {
            return true;
        }
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
    let in_cgroups =
        machines.iter().map(MachineProcesses::in_cgroup).collect::<io::Result<Vec<_>>>()?;
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
        let mut each = machines.iter().zip(&in_cgroups);
        let known = each.position(|(machine, in_cgroup)| machine.includes(&stat, in_cgroup));
        if let Some(n) = known.or_else(|| marked(&stat, &markers)) {
            found.push((n, stat.process));
        }
    }
    Ok(found)
}

/// Adds the members of a cgroup and of those below it. One that is gone has none.
fn add_members(cgroup: &Path, to: &mut BTreeSet<i32>) -> io::Result<()> {
    let mut read = || {
        let members = fs::read_to_string(cgroup.join("cgroup.procs"))?;
        to.extend(members.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        for entry in fs::read_dir(cgroup)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                add_members(&entry.path(), to)?;
            }
        }
        Ok(())
    };
    match read() {
        Err(error) if is_gone(&error) => Ok(()),
        done => done,
    }
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

    /// A cgroup of version 2, removed on drop.
    struct TemporaryCgroup(PathBuf);

    impl TemporaryCgroup {
        /// `None`, with a word, where none can be made.
        fn new() -> Option<TemporaryCgroup> {
            let mounts = fs::read_to_string("/proc/mounts").unwrap();
            let is_v2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
            let mounted = mounts.lines().find(is_v2).and_then(|line| line.split(' ').nth(1));
            let name = format!("ondeck-test-{}", std::process::id());
            let folder = mounted.map(|mounted| Path::new(mounted).join(name));
            let made = folder.filter(|folder| fs::create_dir(folder).is_ok());
            if made.is_none() {
                eprintln!("NOT APPLICABLE without root and cgroup v2: processes in a cgroup");
            }
            made.map(TemporaryCgroup)
        }
    }

    impl Drop for TemporaryCgroup {
        fn drop(&mut self) {
            for folder in [self.0.join("below"), self.0.clone()] {
                // The kernel lets go of the processes a little after they are gone.
                let since = Instant::now();
                while folder.exists()
                    && fs::remove_dir(&folder).is_err()
                    && since.elapsed() < Duration::from_secs(5)
                {
                    std::thread::yield_now();
                }
            }
        }
    }

    #[tokio::test]
    async fn processes_in_a_cgroup_are_found_without_marker_user_and_group() {
        let Some(cgroup) = TemporaryCgroup::new() else { return };
        fs::create_dir(cgroup.0.join("below")).unwrap();
        let mut started = Vec::new();
        for folder in [cgroup.0.clone(), cgroup.0.join("below")] {
            let mut command = Command::new("sleep");
            let mut child = command.arg("60").env_clear().process_group(0).spawn().unwrap();
            let process = Process::of(child.id().try_into().unwrap()).unwrap();
            fs::write(folder.join("cgroup.procs"), child.id().to_string()).unwrap();
            started.push((process, std::thread::spawn(move || child.wait())));
        }
        let outside = sleeper();
        let id = InstanceId::new("i-cgroup").unwrap();
        assert_eq!(kill_all(&[MachineProcesses::of(&id)]).await.unwrap(), []);
        assert!(started.iter().all(|(process, _)| process.is_alive()));
        let machine =
            MachineProcesses { cgroup: Some(cgroup.0.clone()), ..MachineProcesses::of(&id) };
        assert_eq!(kill_all(std::slice::from_ref(&machine)).await.unwrap(), []);
        for (process, waiter) in started {
            waiter.join().unwrap().unwrap();
            assert!(!process.is_alive());
        }
        let (mut child, process) = outside;
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = MachineProcesses { cgroup: Some(cgroup.0.join("gone")), ..machine };
        assert_eq!(kill_all(&[gone]).await.unwrap(), []);
    }
}
