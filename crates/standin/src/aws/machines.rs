//! Machines as processes: started on launch, and killed with all their descendants.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

use crate::aws::ec2::{Ec2, Instance, MachineState};
use crate::aws::gateway::GatewayOptions;
use crate::aws::imds;
use crate::processes;
use crate::sync::locked;

/// The variable that marks the processes of a machine, in any process group or session.
const INSTANCE_MARK: &str = "ONDECK_STANDIN_INSTANCE";
/// The variable by which an agent marks the processes of its runner. They inherit nothing else
/// of the agent's environment.
const RUNNER_MARK: &str = "ONDECK_INSTANCE_ID";
/// The variable that marks the processes of all machines of a gateway.
const GATEWAY_MARK: &str = "ONDECK_STANDIN_GATEWAY";
/// How often to look for machines that have shut themselves down.
const SHUTDOWN_BEAT: Duration = Duration::from_millis(20);

/// The command that a machine runs.
///
/// It starts in its own process group, with this process's environment but without any `AWS_*`
/// variable except `AWS_ENDPOINT_URL` and the address of its metadata service.
/// `ONDECK_SHUTDOWN_COMMAND` holds a command that shuts the machine down, and
/// `ONDECK_METADATA_FIREWALL` is `off`.
#[derive(Debug, Clone, Default)]
pub struct MachineCommand {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Variables to add to its environment, where they override existing ones.
    pub env: Vec<(String, String)>,
}

/// Starts and kills the processes of a gateway's machines.
#[derive(Debug)]
pub(crate) struct Machines {
    command: Option<MachineCommand>,
    boot: Duration,
    shutdown: Duration,
    agents_url: String,
    handle: Handle,
    logs: PathBuf,
    mark: String,
    shutdowns: PathBuf,
    /// Holds shutdown notes, and the logs unless the options name another folder.
    folder: Mutex<Option<TempDir>>,
    /// A process that kills the machines' processes if this one is killed.
    warden: Mutex<Option<std::process::Child>>,
}

impl Machines {
    pub(crate) fn new(options: &GatewayOptions, agents_url: &str, handle: Handle) -> Machines {
        let folder = tempfile::Builder::new().prefix("ondeck-standin-").tempdir();
        let folder = folder.expect("the system has a folder for temporary files");
        let logs = options.logs.clone().unwrap_or_else(|| folder.path().join("logs"));
        let shutdowns = folder.path().join("shutdown");
        for path in [&logs, &shutdowns] {
            std::fs::create_dir_all(path)
                .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        }
        let mark = format!("{GATEWAY_MARK}={}-{:x}", std::process::id(), fastrand::u64(..));
        let warden = options.command.is_some().then(|| {
            processes::warden(&mark).unwrap_or_else(|error| panic!("cannot run sh: {error}"))
        });
        Machines {
            command: options.command.clone(),
            boot: options.boot,
            shutdown: options.shutdown,
            agents_url: agents_url.to_owned(),
            handle,
            logs,
            mark,
            shutdowns,
            folder: Mutex::new(Some(folder)),
            warden: Mutex::new(warden),
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(task));
    }

    /// Kills the processes of all machines, and waits until they are gone.
    pub(crate) fn terminate_all(&self, ids: &[String]) {
        if self.command.is_some() {
            let runners = ids.iter().map(|id| format!("{RUNNER_MARK}={id}"));
            let marks: Vec<String> = [self.mark.clone()].into_iter().chain(runners).collect();
            processes::kill_marked(&marks);
        }
        if let Some(mut warden) = locked(&self.warden).take() {
            // It is not needed any more, and may have exited already.
            warden.kill().ok();
            warden.wait().ok();
        }
        // Tasks of the runtime may hold `self` until the process exits, so the
        // folder is removed here.
        drop(locked(&self.folder).take());
    }

    fn start(&self, command: &MachineCommand, id: &str, metadata: &str) -> io::Result<Child> {
        let log = File::create(self.logs.join(format!("{id}.log")))?;
        let mut child = Command::new(&command.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AWS_") {
                child.env_remove(name);
            }
        }
        let (mark, gateway) = self.mark.split_once('=').unwrap_or_default();
        let shutdown = format!("touch {}", self.shutdowns.join(id).display());
        child
            .args(&command.args)
            .env("AWS_ENDPOINT_URL", &self.agents_url)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata)
            .env("ONDECK_SHUTDOWN_COMMAND", shutdown)
            // These machines share the computer's network with everything else on it.
            .env("ONDECK_METADATA_FIREWALL", "off")
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .env(INSTANCE_MARK, id)
            .env(mark, gateway)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
    }
}

/// Boots a machine, runs its command and waits for the command to exit. The machine keeps running
/// then, as if its agent had crashed.
pub(crate) async fn live(ec2: Ec2, id: String) {
    let host = ec2.host();
    if !host.boot.is_zero() {
        tokio::time::sleep(host.boot).await;
    }
    let Some(command) = &host.command else {
        ec2.with(&id, |instance| up(instance).then_some(()));
        return;
    };
    let metadata = imds::start(&ec2, &id);
    let log = host.logs.join(format!("{id}.log"));
    // EC2's lock is held during the start, so a concurrent termination sees the process.
    let started = ec2.with(&id, |instance| {
        if !up(instance) {
            return None;
        }
        let child = host.start(command, &id, &metadata.url);
        instance.machine.pid = child.as_ref().ok().and_then(Child::id);
        instance.machine.metadata = Some(metadata.url.clone());
        instance.metadata = Some(metadata);
        instance.machine.log.clone_from(&log);
        Some(child)
    });
    match started.flatten() {
        None => {}
        Some(Err(error)) => {
            note(&log, &format!("cannot start {}: {error}\n", command.program.display()));
            ec2.terminate_with_reason(
                &[&id],
                "Server.InternalError: the command cannot be started",
            );
        }
        Some(Ok(mut child)) => {
            // The exit status does not matter.
            child.wait().await.ok();
            ec2.with(&id, |instance| instance.machine.pid = None);
        }
    }
}

/// Kills the processes of machines that are being stopped or terminated, and completes that.
pub(crate) async fn kill_processes(ec2: Ec2, ids: Vec<String>) {
    if ec2.host().command.is_some() {
        if !ec2.host().shutdown.is_zero() {
            shut_down_commands(&ec2, &ids).await;
        }
        for id in &ids {
            ec2.pid(id).map(processes::kill_group);
        }
        let marks =
            ids.iter().flat_map(|id| [INSTANCE_MARK, RUNNER_MARK].map(|m| format!("{m}={id}")));
        let marks: Vec<String> = marks.collect();
        let killed = tokio::task::spawn_blocking(move || processes::kill_marked(&marks)).await;
        drop(killed);
    }
    ec2.processes_gone(&ids);
}

/// Sends SIGTERM to the commands of machines, and waits until they have ended or their time is up.
async fn shut_down_commands(ec2: &Ec2, ids: &[String]) {
    for id in ids {
        ec2.pid(id).map(processes::terminate);
    }
    let ended = async {
        let mut beat = tokio::time::interval(SHUTDOWN_BEAT);
        while ids.iter().any(|id| ec2.pid(id).is_some()) {
            beat.tick().await;
        }
    };
    tokio::time::timeout(ec2.host().shutdown, ended).await.ok();
}

/// Stops or terminates machines that have left a shutdown note. Runs until the folder is gone.
pub(crate) async fn watch_shutdowns(ec2: Ec2) {
    if ec2.host().command.is_none() {
        return;
    }
    let folder = &ec2.host().shutdowns;
    let mut beat = tokio::time::interval(SHUTDOWN_BEAT);
    loop {
        beat.tick().await;
        let Ok(notes) = std::fs::read_dir(folder) else { return };
        for note in notes.flatten() {
            // A note that cannot be removed is found again, and has no effect then.
            std::fs::remove_file(note.path()).ok();
            ec2.shut_down(&note.file_name().to_string_lossy());
        }
    }
}

/// Makes a pending machine running. Returns whether it was pending.
fn up(instance: &mut Instance) -> bool {
    let pending = instance.machine.state == MachineState::Pending;
    if pending {
        instance.machine.state = MachineState::Running;
    }
    pending
}

fn note(log: &Path, text: &str) {
    // If the log cannot be written, the machine's termination reason still tells why.
    std::fs::write(log, text).ok();
}
