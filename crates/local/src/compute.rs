use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use ondeck_core::ids::InstanceId;
use ondeck_core::ports::{Clock, Compute, Launched, Machine, Order, PortError, PortResult};
use ondeck_core::record::MachineSpec;
use ondeck_core::settings::Settings;
use ondeck_core::time::Timestamp;
use rusqlite::Transaction;

use crate::catalogue::MachineType;
use crate::db::Db;
use crate::home::Home;
use crate::machines::{self, Listed};
use crate::options::{self, Options};
use crate::process::{MARKER, Process, end_all};
use crate::{folder, store};

/// How the agent of a machine is started: this program with these arguments, followed by
/// `--home DIR --instance-id ID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    /// What to run.
    pub program: PathBuf,
    /// What to tell it first.
    pub args: Vec<OsString>,
}

/// The provider of machines: each is a process of this computer.
#[derive(Clone)]
pub struct LocalCompute {
    db: Db,
    home: Home,
    clock: Arc<dyn Clock>,
    agent: AgentCommand,
}

impl LocalCompute {
    /// Launches `agent` for a machine, under this home.
    pub fn new(db: Db, home: Home, clock: Arc<dyn Clock>, agent: AgentCommand) -> LocalCompute {
        LocalCompute { db, home, clock, agent }
    }

    /// Starts the process of a machine that is on the list, and detaches from it.
    fn start(&self, machine: &Machine) -> io::Result<Process> {
        let folder = self.home.machine(&machine.id);
        fs::create_dir_all(&folder)?;
        let log = self.home.log(&machine.id);
        if let Some(logs) = log.parent() {
            fs::create_dir_all(logs)?;
        }
        let log = fs::File::options().create(true).append(true).open(log)?;
        let child = tokio::process::Command::new(&self.agent.program)
            .args(&self.agent.args)
            .arg("--home")
            .arg(self.home.dir())
            .arg("--instance-id")
            .arg(machine.id.as_str())
            .current_dir(folder)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_for_machines(name)))
            .env(MARKER, machine.id.as_str())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        child
            .id()
            .and_then(|pid| Process::of(pid.try_into().ok()?))
            .ok_or_else(|| io::Error::other("it ended at once"))
    }

    /// Starts what was enlisted, and notes the processes. A machine that cannot be started, or
    /// was ended before it could be noted, is a shortfall.
    async fn start_all(&self, enlisted: Vec<Machine>) -> PortResult<Launched> {
        let mut launched = Launched::default();
        let mut started = Vec::new();
        let mut failed = Vec::new();
        for machine in enlisted {
            match self.start(&machine) {
                Ok(process) => started.push((machine, process)),
                Err(error) => {
                    let program = self.agent.program.display();
                    launched.shortfalls.push(format!("cannot start {program}: {error}"));
                    failed.push(machine.id);
                }
            }
        }
        let now = self.clock.now();
        let noting = started.clone();
        let dropped = failed.clone();
        let noted = self
            .db
            .write(move |transaction| {
                machines::strike(transaction, &dropped, now)?;
                let note = |(machine, process): &(Machine, Process)| {
                    machines::embody(transaction, machine.id.as_str(), *process)
                };
                noting.iter().map(note).collect::<rusqlite::Result<Vec<bool>>>()
            })
            .await?;
        for ((machine, process), noted) in started.into_iter().zip(noted) {
            if noted {
                launched.machines.push(machine);
            } else {
                launched.shortfalls.push(format!("ended while it was started: {}", machine.id));
                self.kill(&[machine.id], &[process]).await?;
            }
        }
        self.remove_folders(&failed).await;
        Ok(launched)
    }

    async fn kill(&self, ids: &[InstanceId], known: &[Process]) -> PortResult<()> {
        end_all(ids, known).await.map_err(|error| PortError::Unavailable {
            service: "compute",
            reason: format!("processes of a machine: {error}"),
        })
    }

    /// The machines that have a directory, ended or not.
    fn with_folders(&self) -> Vec<InstanceId> {
        // Nobody has made the first one yet, or nobody may look: then none can be cleared up.
        let Ok(entries) = fs::read_dir(self.home.machines()) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// A directory that stays behind costs space, but hands no machine to anybody. The next look
    /// at the machines clears it up.
    async fn remove_folders(&self, ids: &[InstanceId]) {
        for id in ids {
            let path = self.home.machine(id);
            let removed = tokio::task::spawn_blocking(move || folder::remove(&path)).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(instance = %id, "cannot remove its directory: {error}");
            }
        }
    }
}

impl fmt::Debug for LocalCompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalCompute({:?}, {:?})", self.db, self.agent)
    }
}

/// What a machine may know of the place it was launched from. The variables of the workflow that
/// launches it are that workflow's own, and some hold secrets; besides, GitHub's runner kills
/// whatever carries its `RUNNER_TRACKING_ID` at the end of the job.
fn is_for_machines(name: &OsStr) -> bool {
    const NOT: [&str; 7] = ["ONDECK_", "GITHUB_", "GH_", "ACTIONS_", "AWS_", "INPUT_", "RUNNER_"];
    let name = name.to_string_lossy();
    !NOT.iter().any(|prefix| name.starts_with(prefix))
}

/// What came of looking for room.
enum Enlisted {
    /// The same intent was launched before.
    Before(Vec<Machine>),
    /// These may be started now; the texts say why not more.
    Now(Vec<Machine>, Vec<String>),
    /// The settings make no sense.
    Refused(PortError),
}

/// Looks for room and takes it, in one transaction: two launches at once never take the same.
fn enlist(
    transaction: &Transaction<'_>,
    order: &Order,
    now: Timestamp,
) -> rusqlite::Result<Enlisted> {
    let before = machines::of_intent(transaction, &order.intent)?;
    let before: Vec<Listed> = before.into_iter().filter(Listed::was_started).collect();
    if !before.is_empty() {
        let machines = before.into_iter().map(|listed| listed.machine);
        return Ok(Enlisted::Before(machines.collect()));
    }
    let options = match Options::from_map(&store::settings(transaction)?) {
        Ok(options) => options,
        Err(invalid) => return Ok(Enlisted::Refused(options::refused(&invalid))),
    };
    if let Some(failure) = options.launch_failure {
        return Ok(Enlisted::Now(Vec::new(), vec![failure]));
    }
    let fitting = options.catalogue.fitting(&order.requirements);
    if fitting.is_empty() {
        return Ok(Enlisted::Now(Vec::new(), vec![nothing_fits(order)]));
    }
    let mut alive = machines::not_ended(transaction)?;
    alive.retain(|listed| listed.is_up(now));
    let mut types: Vec<String> =
        alive.into_iter().map(|listed| listed.machine.spec.instance_type).collect();
    let mut machines = Vec::new();
    let mut shortfalls = Vec::new();
    while machines.len() < order.count as usize {
        match room(&options, &fitting, &types) {
            Ok(this) => {
                let machine = new_machine(order, this, now);
                let boot_ms = this.boot_ms.unwrap_or(options.boot_ms);
                machines::enlist(transaction, &machine, &order.run, boot_ms)?;
                types.push(this.name.clone());
                machines.push(machine);
            }
            Err(limit) => {
                let (got, wanted) = (machines.len(), order.count);
                let code = "InsufficientInstanceCapacity";
                shortfalls.push(format!("{code}: {got} of {wanted} launched, {limit}"));
                break;
            }
        }
    }
    Ok(Enlisted::Now(machines, shortfalls))
}

/// The best type of which one more may be launched, or the limit that forbids it.
fn room<'a>(
    options: &Options,
    fitting: &[&'a MachineType],
    alive: &[String],
) -> Result<&'a MachineType, String> {
    if let Some(capacity) = options.capacity
        && alive.len() >= capacity
    {
        return Err(format!("the home's capacity is {capacity}"));
    }
    let has_room = |this: &&&MachineType| {
        let same = alive.iter().filter(|name| **name == this.name).count();
        this.capacity.is_none_or(|capacity| same < capacity)
    };
    fitting.iter().find(has_room).copied().ok_or_else(|| {
        let limit = |this: &&MachineType| {
            format!("the capacity of {} is {}", this.name, this.capacity.unwrap_or_default())
        };
        fitting.iter().map(limit).collect::<Vec<_>>().join(", ")
    })
}

fn nothing_fits(order: &Order) -> String {
    let requirements = &order.requirements;
    format!(
        "no type of the catalogue has {} vCPU, at least {} MiB, is to be had as {} and is one of {}",
        requirements.size.cpu, requirements.size.mem, requirements.usage, requirements.types
    )
}

fn new_machine(order: &Order, this: &MachineType, now: Timestamp) -> Machine {
    Machine {
        id: InstanceId::new(format!("i-0{:016x}", fastrand::u64(..))).expect("digits and a dash"),
        spec: MachineSpec {
            resource_class: order.requirements.class.clone(),
            instance_type: this.name.clone(),
            usage_class: order.requirements.usage,
            cpu: this.cpu,
            mem: this.mem,
        },
        intent: order.intent.clone(),
        launched_at: now,
    }
}

#[async_trait]
impl Compute for LocalCompute {
    async fn set_up(&self, settings: &Settings) -> PortResult<()> {
        Options::from_map(&settings.backend).map(drop).map_err(|e| options::refused(&e))
    }

    /// List first, process second: a launcher that dies in between leaves a row that is struck
    /// off once it has had no process for long enough.
    async fn launch(&self, order: &Order) -> PortResult<Launched> {
        let (asked, now) = (order.clone(), self.clock.now());
        match self.db.write(move |transaction| enlist(transaction, &asked, now)).await? {
            Enlisted::Refused(error) => Err(error),
            Enlisted::Before(machines) => {
                let (got, wanted) = (machines.len(), order.count);
                let short = got < wanted as usize;
                let shortfall = format!("{got} of {wanted} launched, when {} was", order.intent);
                let shortfalls = short.then_some(shortfall).into_iter().collect();
                Ok(Launched { machines, shortfalls })
            }
            Enlisted::Now(machines, shortfalls) => {
                let mut launched = self.start_all(machines).await?;
                launched.shortfalls.extend(shortfalls);
                Ok(launched)
            }
        }
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        let asked = ids.to_vec();
        let known = self
            .db
            .call(move |connection| {
                let processes = asked.iter().map(|id| machines::process_of(connection, id));
                processes.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()
            })
            .await?;
        self.kill(ids, &known).await?;
        let (asked, now) = (ids.to_vec(), self.clock.now());
        self.db.write(move |transaction| machines::strike(transaction, &asked, now)).await?;
        self.remove_folders(ids).await;
        Ok(())
    }

    /// A machine is its agent: one whose agent is gone is ended here, with whatever else still
    /// runs on it. Directories of machines that have ended are what somebody left who was killed
    /// while he ended them, or started them too late.
    async fn machines(&self) -> PortResult<Vec<Machine>> {
        let now = self.clock.now();
        // Directories first: a machine is on the list before it has one.
        let mut left = self.with_folders();
        let listed = self.db.call(|connection| machines::not_ended(connection)).await?;
        left.retain(|id| listed.iter().all(|row| row.machine.id != *id));
        self.remove_folders(&left).await;
        let (up, gone): (Vec<_>, Vec<_>) = listed.into_iter().partition(|row| row.is_up(now));
        if !gone.is_empty() {
            let ids: Vec<InstanceId> = gone.into_iter().map(|row| row.machine.id).collect();
            self.terminate(&ids).await?;
        }
        Ok(up.into_iter().map(|row| row.machine).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_do_not_inherit_what_belongs_to_the_workflow() {
        for (name, kept) in [
            ("PATH", true),
            ("HOME", true),
            ("LANG", true),
            ("MY_GITHUB_THING", true),
            ("GITHUB_TOKEN", false),
            ("GH_TOKEN", false),
            ("RUNNER_TRACKING_ID", false),
            ("ONDECK_RUN_ID", false),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("ACTIONS_RUNTIME_TOKEN", false),
            ("INPUT_GITHUB-TOKEN", false),
        ] {
            assert_eq!(is_for_machines(OsStr::new(name)), kept, "{name}");
        }
    }
}
