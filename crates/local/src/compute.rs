use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, InvalidId, ProviderName};
use ondeck_core::model::requirements::{Requirements, TypePatterns};
use ondeck_core::model::settings::{AGENT_KEY_PREFIX, Settings};
use ondeck_core::ports::{Clock, Compute, Launched, Machine, Order, PortError, PortResult};
use ondeck_core::runtime::batcher::Batcher;
use ondeck_processes::{MARKER, MachineProcesses, Process, Survivors, folder, kill_all};
use rusqlite::Connection;

use crate::forge::jobs::{self, Finished};
use crate::home::Home;
use crate::store::db::Db;

use self::capacity::Reservation;
use self::options::Options;

mod capacity;
pub(crate) mod catalogue;
pub(crate) mod environment;
pub(crate) mod folders;
pub(crate) mod groups;
pub(crate) mod machines;
pub(crate) mod options;

/// The instance types of a request that names none. The default catalogue has a type of these
/// families for each default resource class.
const DEFAULT_TYPES: &str = "c* m* r*";

/// The id of a machine in records: the name that it was launched under.
///
/// Names are random numbers, so machines of several computers can share one set of records.
pub fn identity(name: &ProviderName) -> Result<InstanceId, InvalidId> {
    InstanceId::new(name.as_str())
}

/// How to start the agent of a machine. `--home DIR --instance-id ID` follow the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    pub program: PathBuf,
    /// The arguments that come first. Other users of this computer can read them.
    pub args: Vec<OsString>,
    /// Variables that the agent inherits besides those that every machine does. Scripts and jobs do
    /// not inherit them from the agent.
    pub variables: &'static [&'static str],
}

/// Launches machines that are processes of this computer.
#[derive(Clone)]
pub struct LocalCompute {
    db: Db,
    home: Home,
    clock: Arc<dyn Clock>,
    agent: AgentCommand,
    /// Each call looks at every process of this computer, so concurrent ones share it.
    kills: Arc<Batcher<Vec<MachineProcesses>, Vec<Survivors>>>,
}

impl LocalCompute {
    /// Lists machines in `db`, keeps their files under `home`, and starts `agent` for each.
    pub fn new(db: Db, home: Home, clock: Arc<dyn Clock>, agent: AgentCommand) -> LocalCompute {
        LocalCompute { db, home, clock, agent, kills: Arc::default() }
    }

    /// Starts the process of a listed machine and detaches from it.
    fn start(&self, machine: &Machine) -> io::Result<Process> {
        let folder = self.home.machine(&machine.id);
        folder::make_private(&folder)?;
        let log = self.home.log(&machine.id);
        if let Some(logs) = log.parent() {
            folder::make_private(logs)?;
        }
        // A job's user may list the home, see `RunnerOptions::pool_folders`.
        let log = fs::File::options().create(true).append(true).mode(0o600).open(log)?;
        let child = tokio::process::Command::new(&self.agent.program)
            .args(&self.agent.args)
            .arg("--home")
            .arg(self.home.dir())
            .arg("--instance-id")
            .arg(machine.id.as_str())
            .current_dir(folder)
            .env_clear()
            .envs(environment::handed_on())
            .envs(environment::named(self.agent.variables))
            .env(MARKER, machine.id.as_str())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Process::of_child(&child).ok_or_else(|| io::Error::other("it ended at once"))
    }

    /// Starts the inserted machines and records their processes. A machine that cannot be started, or
    /// is terminated before it can be recorded, is a shortfall.
    async fn start_all(&self, reserved: Vec<Machine>) -> PortResult<Launched> {
        let mut launched = Launched::default();
        let mut started = Vec::new();
        let mut failed = Vec::new();
        for machine in reserved {
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
                for id in &dropped {
                    machines::mark_terminated(transaction, id, now)?;
                }
                let note = |(machine, process): &(Machine, Process)| {
                    machines::record_process(transaction, machine.id.as_str(), *process)
                };
                noting.iter().map(note).collect::<rusqlite::Result<Vec<bool>>>()
            })
            .await?;
        for ((machine, process), noted) in started.into_iter().zip(noted) {
            if noted {
                launched.machines.push(machine);
            } else {
                launched
                    .shortfalls
                    .push(format!("terminated while it was started: {}", machine.id));
                let mut failures = Failures::default();
                let ending =
                    MachineProcesses { known: vec![process], ..MachineProcesses::of(&machine.id) };
                self.kill(vec![ending], &mut failures).await?;
                failures.into_result()?;
            }
        }
        self.remove_folders(&failed).await;
        Ok(launched)
    }

    /// Kills the processes of these machines. Returns the machines without survivors, and adds the
    /// others to `failures`.
    async fn kill(
        &self,
        machines: Vec<MachineProcesses>,
        failures: &mut Failures,
    ) -> PortResult<Vec<InstanceId>> {
        let kill = |batch: Vec<Vec<MachineProcesses>>| async move {
            let left = kill_all(&batch.concat()).await;
            let left = left.map_err(|error| out_of_reach(error.to_string()))?;
            let of = |machines: Vec<MachineProcesses>| {
                let is_its = |left: &&Survivors| machines.iter().any(|it| it.id == left.id);
                left.iter().filter(is_its).cloned().collect()
            };
            Ok(batch.into_iter().map(of).collect())
        };
        let survivors = self.kills.ask(machines.clone(), kill).await?;
        failures.0.extend(survivors.iter().map(ToString::to_string));
        let ids = machines.into_iter().map(|machine| machine.id);
        Ok(ids.filter(|id| survivors.iter().all(|left| left.id != *id)).collect())
    }

    /// Looks up these machines. Those that cannot be read are added to `failures`.
    async fn look_up(
        &self,
        ids: &[InstanceId],
        failures: &mut Failures,
        look: fn(&Connection, &InstanceId) -> rusqlite::Result<MachineProcesses>,
    ) -> Vec<MachineProcesses> {
        let mut found = Vec::new();
        for id in ids {
            let asked = id.clone();
            let answer = self.db.call(move |connection| look(connection, &asked)).await;
            found.extend(failures.unless(id, answer));
        }
        found
    }

    /// Removes the logs of machines that are no longer in the table. The logs are listed first, because
    /// a machine is in the table before it has a log.
    async fn remove_old_logs(&self) -> PortResult<()> {
        let logs = self.home.clone();
        let logs = tokio::task::spawn_blocking(move || logs.logs()).await;
        let logs = match logs.map_err(io::Error::other).flatten() {
            Ok(logs) => logs,
            Err(error) => {
                tracing::warn!("cannot look at the logs: {error}");
                return Ok(());
            }
        };
        let listed = self.db.call(|connection| machines::all_ids(connection)).await?;
        for (_, log) in logs.iter().filter(|(id, _)| !listed.contains(id.as_str())) {
            match fs::remove_file(log) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("cannot remove {}: {error}", log.display());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The machines that have a directory, terminated ones included.
    fn with_folders(&self) -> Vec<InstanceId> {
        // Without a readable directory there is nothing that can be removed.
        let Ok(entries) = fs::read_dir(self.home.machines()) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// Removes the directories of these machines. A failure is only logged, because a directory costs
    /// no more than space and the next call of `machines` removes it.
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

/// Why machines could not be terminated.
#[derive(Debug, Default)]
struct Failures(Vec<String>);

impl Failures {
    /// Returns the value, or records the error for this machine.
    fn unless<T>(&mut self, id: &InstanceId, answer: PortResult<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.0.push(format!("{id}: {error}"));
                None
            }
        }
    }

    fn into_result(self) -> PortResult<()> {
        if self.0.is_empty() { Ok(()) } else { Err(out_of_reach(self.0.join("; "))) }
    }
}

fn out_of_reach(reason: String) -> PortError {
    PortError::Unavailable { service: "compute", reason }
}

/// Finds a machine's processes by its agent.
fn by_process(connection: &Connection, id: &InstanceId) -> rusqlite::Result<MachineProcesses> {
    let known = machines::process_of(connection, id)?.into_iter().collect();
    Ok(MachineProcesses { known, ..MachineProcesses::of(id) })
}

/// Finds a machine's processes by the groups that were started on it.
fn by_groups(connection: &Connection, id: &InstanceId) -> rusqlite::Result<MachineProcesses> {
    Ok(MachineProcesses { groups: groups::of(connection, id)?, ..MachineProcesses::of(id) })
}

#[async_trait]
impl Compute for LocalCompute {
    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        Options::from_map(&settings.backend).map_err(PortError::Setting)?;
        self.remove_old_logs().await?;
        // What a killed agent or caller has left, and the room that erased output took.
        jobs::erase(&self.db, Finished::WithoutMachine).await?;
        self.db.shrink().await?;
        // Processes of this computer have no identity but their id.
        Ok(BTreeMap::from([(AGENT_KEY_PREFIX.to_owned(), String::new())]))
    }

    fn default_types(&self) -> TypePatterns {
        DEFAULT_TYPES.parse().expect("sound patterns")
    }

    fn launchable(
        &self,
        requirements: &Requirements,
        settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        let Ok(options) = Options::from_map(&settings.backend) else { return Vec::new() };
        let fitting = options.catalogue.fitting(requirements).into_iter();
        let known = fitting.filter(|this| types.contains(&this.name.as_str()));
        known.map(|this| this.name.clone()).collect()
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        identity(name)
    }

    /// Inserts rows before it starts processes. If the launcher is killed in between, `machines` marks a
    /// row without a process as terminated after some seconds.
    async fn launch(&self, order: &Order, settings: &Settings) -> PortResult<Launched> {
        let options = Options::from_map(&settings.backend).map_err(PortError::Setting)?;
        let (asked, now) = (order.clone(), self.clock.now());
        match self
            .db
            .write(move |transaction| capacity::reserve(transaction, &asked, &options, now))
            .await?
        {
            Reservation::Before(machines) => {
                let (got, wanted) = (machines.len(), order.count);
                let short = got < wanted as usize;
                let shortfall = format!("{got} of {wanted} are there of launch {}", order.intent);
                let shortfalls = short.then_some(shortfall).into_iter().collect();
                Ok(Launched { machines, shortfalls, ..Launched::default() })
            }
            Reservation::Now(machines, shortfalls) => {
                let mut launched = self.start_all(machines).await?;
                launched.shortfalls.extend(shortfalls);
                Ok(launched)
            }
        }
    }

    /// Terminates each machine independently: a failure does not keep the others.
    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        let mut failures = Failures::default();
        let machines = self.look_up(ids, &mut failures, by_process).await;
        let gone = self.kill(machines, &mut failures).await?;
        // The agents are gone now, so no more groups can be started.
        let machines = self.look_up(&gone, &mut failures, by_groups).await;
        let gone = self.kill(machines, &mut failures).await?;
        // Before the writes, which may need the room.
        self.remove_folders(&gone).await;
        let now = self.clock.now();
        for id in gone {
            let ended = id.clone();
            let write = self
                .db
                .write(move |transaction| machines::mark_terminated(transaction, &ended, now));
            if failures.unless(&id, write.await).is_some() {
                let erased = jobs::erase(&self.db, Finished::On(id.clone())).await;
                failures.unless(&id, erased);
            }
        }
        failures.into_result()
    }

    /// Returns the running machines. A machine runs as long as its agent: one whose agent is gone is
    /// terminated here, with all its processes. Directories of terminated machines, which a killed
    /// process may have left, are removed.
    async fn machines(&self) -> PortResult<Vec<Machine>> {
        let now = self.clock.now();
        // Directories are listed first, because a machine is in the table before it has one.
        let mut left = self.with_folders();
        let (listed, kept) = self
            .db
            .call(|conn| Ok((machines::not_ended(conn)?, machines::not_ended_ids(conn)?)))
            .await?;
        // A corrupt row may belong to a running machine.
        left.retain(|id| !kept.contains(id.as_str()));
        self.remove_folders(&left).await;
        let (up, gone): (Vec<_>, Vec<_>) = listed.into_iter().partition(|row| row.is_up(now));
        if !gone.is_empty() {
            let ids: Vec<InstanceId> = gone.into_iter().map(|row| row.machine.id).collect();
            // The next call tries again, and the running machines are returned either way.
            if let Err(error) = self.terminate(&ids).await {
                tracing::warn!("cannot terminate all machines whose agents are gone: {error}");
            }
        }
        Ok(up.into_iter().map(|row| row.machine).collect())
    }
}
