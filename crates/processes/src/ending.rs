//! Every process of a machine, and its end.
//!
//! All of them carry the machine's id in their environment, which children inherit and which
//! leaving the process group or the session does not change. What has emptied its environment is
//! found by the process group that it was born into, or by the user that it belongs to.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use ondeck_core::model::ids::InstanceId;

use crate::process::{Process, Stat};

/// The variable by which a machine's processes are known.
pub const MARKER: &str = "ONDECK_INSTANCE_ID";

/// How long processes may take to disappear once they are killed.
const DYING: Duration = Duration::from_secs(10);

/// How often nothing must be found in a row: a process that is just becoming another program
/// shows no environment for a moment.
const LOOKS: u32 = 2;

/// A machine to be ended, and what is known of its processes beside the mark they carry.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The machine.
    pub id: InstanceId,
    /// Some of its processes.
    pub known: Vec<Process>,
    /// The leaders, past or present, of process groups that were made on it.
    pub groups: Vec<Process>,
    /// By what all the others are known.
    pub sign: Sign,
}

/// By what the processes of a machine are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// By the mark in their environment.
    Mark,
    /// By the user that nobody else runs as. The mark says nothing then: what the operator has
    /// started on the machine may carry it as well.
    User(u32),
}

impl Ending {
    /// Of which nothing is known but the mark.
    pub fn of(id: &InstanceId) -> Ending {
        Ending { id: id.clone(), known: Vec::new(), groups: Vec::new(), sign: Sign::Mark }
    }

    fn mark(&self) -> Option<Vec<u8>> {
        (self.sign == Sign::Mark).then(|| format!("{MARKER}={}", self.id).into_bytes())
    }

    fn knows(&self, stat: &Stat) -> bool {
        let born_into = |leader: &Process| leader.pid == stat.group && leader.names_its_group();
        let by_user = match self.sign {
            Sign::User(user) => acts_as(stat.process.pid, user),
            Sign::Mark => false,
        };
        by_user || self.known.contains(&stat.process) || self.groups.iter().any(born_into)
    }
}

/// A machine that could not be ended, because of these processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undying {
    /// The machine.
    pub id: InstanceId,
    /// Their numbers.
    pub pids: Vec<i32>,
}

impl std::fmt::Display for Undying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pids: Vec<String> = self.pids.iter().map(ToString::to_string).collect();
        write!(f, "processes of {} will not die: {}", self.id, pids.join(" "))
    }
}

/// Kills every process of these machines until none is left, and gives the machines of which
/// some will not die. The calling process and those that it descends from are spared, even if they
/// are among them.
pub async fn end_all(machines: &[Ending]) -> io::Result<Vec<Undying>> {
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
    let marks: Vec<Option<Vec<u8>>> = machines.iter().map(Ending::mark).collect();
    let spared = Process::current_and_above();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // What has gone meanwhile is none of ours.
        let Some(stat) = Stat::read(pid).filter(Stat::is_alive) else { continue };
        if spared.contains(&stat.process) {
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
fn marked(stat: &Stat, marks: &[Option<Vec<u8>>]) -> Option<usize> {
    let pid = stat.process.pid;
    // What cannot be read belongs to somebody else.
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = |entry: &[u8]| marks.iter().position(|mark| mark.as_deref() == Some(entry));
    let n = environ.split(|byte| *byte == 0).find_map(mark)?;
    (Process::of(pid) == Some(stat.process)).then_some(n)
}

/// Whether a process is one of this user's, by any of the four identities that it has: what runs a
/// program of another owner is one as well.
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
        [Ending { known, groups, ..Ending::of(&id) }]
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
        let [first, second, third] =
            ["i-a", "i-b", "i-c"].map(|id| Ending::of(&InstanceId::new(id).unwrap()));
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
        machines.push(Ending { known: vec![first], ..Ending::of(&id) });
        let left = end_within(Duration::from_millis(100), &machines).await.unwrap();
        assert_eq!(left, [Undying { id, pids: vec![1] }]);
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn the_processes_of_a_user_are_found_without_mark_and_group() {
        const NOBODY: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOT APPLICABLE without root: processes of another user");
            return;
        }
        let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        let mut command = Command::new("setpriv");
        command.args(ids).args(["--clear-groups", "sleep", "60"]).env_clear().process_group(0);
        let mut child = command.spawn().unwrap();
        let process = Process::of(child.id().try_into().unwrap()).unwrap();
        while !acts_as(process.pid, NOBODY) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let id = InstanceId::new("i-user").unwrap();
        assert_eq!(end_all(&[Ending::of(&id)]).await.unwrap(), []);
        assert!(process.is_alive());
        let ending = Ending { sign: Sign::User(NOBODY), ..Ending::of(&id) };
        assert_eq!(end_all(&[ending]).await.unwrap(), []);
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
