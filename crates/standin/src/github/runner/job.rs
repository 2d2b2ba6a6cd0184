//! Executes one job: hooks, script, log and cleanup.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::github::protocol::{Order, Progress};
use crate::processes::kill_marked;

use super::server::Server;
use super::settings::{self, Credentials, Settings};

/// How long to read output after the script has exited. Other processes may keep the
/// pipe open for ever.
const AFTERMATH: Duration = Duration::from_millis(100);
/// How much later than its script the listener may get the signal that was sent to both.
const SIGNALLED: Duration = Duration::from_millis(500);
const STARTED: (&str, &str) = ("ACTIONS_RUNNER_HOOK_JOB_STARTED", "started");
const COMPLETED: (&str, &str) = ("ACTIONS_RUNNER_HOOK_JOB_COMPLETED", "completed");

/// The folder in which jobs run, and the server that gets their progress.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) root: PathBuf,
    work: PathBuf,
    runner: String,
    server: Arc<Server>,
}

impl Place {
    pub(super) fn of(root: &Path, settings: &Settings) -> Place {
        let key = Credentials::read(root).map(|it| it.data.client_id).unwrap_or_default();
        Place {
            root: root.to_owned(),
            work: root.join(&settings.work_folder),
            runner: settings.agent_name.clone(),
            server: Arc::new(Server::new(&settings.server_url, format!("Bearer {key}"))),
        }
    }
}

/// The result of a hook or script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Outcome {
    Succeeded = 0,
    Failed = 2,
    Canceled = 3,
}

impl Outcome {
    pub(super) fn conclusion(self) -> &'static str {
        match self {
            Outcome::Succeeded => "success",
            Outcome::Failed => "failure",
            Outcome::Canceled => "cancelled",
        }
    }
}

/// Whether a job is to be stopped, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    /// GitHub has cancelled it, or deleted its runner.
    Cancelled,
    /// The listener was told to end. The real runner lets the job fail then.
    Shutdown,
}

/// Executes a job and reports its progress and conclusion.
pub(super) async fn work(place: Place, order: Order, stopping: watch::Receiver<Stop>) -> Outcome {
    let mut job = Work { place, order, stopping, environment: Vec::new() };
    let outcome = match job.prepare() {
        Ok(()) => job.steps().await,
        Err(error) => {
            job.log(&format!("##[error]{error}\n")).await;
            Outcome::Failed
        }
    };
    job.clean();
    let is_shutdown = *job.stopping.borrow() == Stop::Shutdown;
    let outcome = if is_shutdown { Outcome::Failed } else { outcome };
    let conclusion = Some(outcome.conclusion().to_owned());
    let progress = Progress { conclusion, ..Progress::default() };
    tell(&job.place, job.order.job, &progress).await;
    outcome
}

/// Reports the progress of a job. If GitHub does not answer, it gives up the job on its own.
pub(super) async fn tell(place: &Place, job: u64, progress: &Progress) {
    place.server.ask("POST", &format!("/jobs/{job}"), progress).await.ok();
}

struct Work {
    place: Place,
    order: Order,
    stopping: watch::Receiver<Stop>,
    environment: Vec<(String, String)>,
}

impl Work {
    /// Runs the hooks and the script. A failed hook fails the job. The last hook runs unless the job is
    /// stopped.
    async fn steps(&mut self) -> Outcome {
        let mut outcome = self.hook(STARTED).await;
        self.take_variables();
        if outcome == Outcome::Succeeded {
            let script = self.temporary().join("script.sh");
            outcome = match std::fs::write(&script, &self.order.script) {
                Ok(()) => self.script(&[script.as_os_str()]).await,
                Err(_) => Outcome::Failed,
            };
        }
        if *self.stopping.borrow() != Stop::No {
            return outcome;
        }
        let last = self.hook(COMPLETED).await;
        if outcome == Outcome::Succeeded { last } else { outcome }
    }

    /// Adds the variables that the last script has written for the following ones, each on a line.
    fn take_variables(&mut self) {
        let file = self.files().join("env");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let variables = written.lines().filter_map(|line| line.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.environment.extend(variables);
    }

    async fn hook(&mut self, (variable, stage): (&str, &str)) -> Outcome {
        let Some(path) = settings::variable(variable) else { return Outcome::Succeeded };
        self.log(&format!(
            "A job {stage} hook has been configured by the self-hosted runner administrator\n"
        ))
        .await;
        if !Path::new(&path).is_file() {
            self.log("##[error]File doesn't exist\n").await;
            return Outcome::Failed;
        }
        // As the real runner, without quotes.
        let words: Vec<&OsStr> = path.split_whitespace().map(OsStr::new).collect();
        self.script(&words).await
    }

    /// Runs a script, given with its arguments, until it exits or the job is stopped.
    async fn script(&mut self, script: &[&OsStr]) -> Outcome {
        let (mut child, mut output) = match self.spawn(script) {
            Ok(spawned) => spawned,
            Err(error) => {
                self.log(&format!("##[error]{error}\n")).await;
                return Outcome::Failed;
            }
        };
        let mut stopping = self.stopping.clone();
        let mut buffer = [0; 8_192];
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.ok(),
                read = output.read(&mut buffer) => match read {
                    Ok(read) if read > 0 => {
                        self.log(&String::from_utf8_lossy(&buffer[..read])).await;
                    }
                    _ => break child.wait().await.ok(),
                },
                () = stopped(&mut stopping) => {
                    self.log("##[error]The operation was canceled.\n").await;
                    self.stop(&mut child).await;
                    return Outcome::Canceled;
                }
            }
        };
        while let Ok(Ok(read)) = tokio::time::timeout(AFTERMATH, output.read(&mut buffer)).await {
            if read == 0 {
                break;
            }
            self.log(&String::from_utf8_lossy(&buffer[..read])).await;
        }
        match status.and_then(|status| status.code()) {
            Some(0) => Outcome::Succeeded,
            Some(code) => {
                self.log(&format!("##[error]Process completed with exit code {code}.\n")).await;
                Outcome::Failed
            }
            // A signal to the process group may end the script before the listener sees it.
            None => match tokio::time::timeout(SIGNALLED, stopped(&mut stopping)).await {
                Ok(()) => Outcome::Canceled,
                Err(_) => Outcome::Failed,
            },
        }
    }

    fn spawn(&self, script: &[&OsStr]) -> io::Result<(Child, Receiver)> {
        let (reader, writer) = io::pipe()?;
        let child = Command::new("bash")
            .arg("-e")
            .args(script)
            .current_dir(self.workspace())
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()?;
        Ok((child, Receiver::from_owned_fd(reader.into())?))
    }

    /// Stops the script by SIGINT, then SIGTERM, then SIGKILL.
    async fn stop(&self, child: &mut Child) {
        let grace = self.order.cancel_grace;
        for (signal, patience) in [(Signal::INT, grace * 3 / 4), (Signal::TERM, grace / 4)] {
            let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            // The process may have exited already.
            pid.map(|pid| kill_process(pid, signal).ok());
            if tokio::time::timeout(patience, child.wait()).await.is_ok() {
                return;
            }
        }
        child.kill().await.ok();
    }

    /// Creates the job's folders and environment.
    fn prepare(&mut self) -> io::Result<()> {
        self.empty_temporary()?;
        std::fs::create_dir_all(self.workspace())?;
        let files = self.files();
        std::fs::create_dir_all(&files)?;
        let event = self.temporary().join("_github_workflow").join("event.json");
        std::fs::create_dir_all(event.parent().unwrap_or(&event))?;
        std::fs::write(&event, "{}")?;
        let mut variables = settings::environment();
        variables
            .extend(self.variables().into_iter().map(|(name, value)| (name.to_owned(), value)));
        for name in ["ENV", "OUTPUT", "PATH", "STEP_SUMMARY", "STATE"] {
            let file = files.join(name.to_lowercase());
            std::fs::write(&file, "")?;
            variables.push((format!("GITHUB_{name}"), text(&file)));
        }
        variables.push(("GITHUB_EVENT_PATH".to_owned(), text(&event)));
        self.environment = variables;
        Ok(())
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let Order { name, repository, run_id, run_attempt, run_number, .. } = &self.order;
        let owner = repository.split('/').next().unwrap_or_default();
        vec![
            ("CI", "true".to_owned()),
            ("GITHUB_ACTIONS", "true".to_owned()),
            ("GITHUB_ACTOR", owner.to_owned()),
            ("GITHUB_API_URL", self.order.api_url.clone()),
            ("GITHUB_EVENT_NAME", "push".to_owned()),
            ("GITHUB_JOB", name.clone()),
            ("GITHUB_REF", "refs/heads/main".to_owned()),
            ("GITHUB_REPOSITORY", repository.clone()),
            ("GITHUB_REPOSITORY_OWNER", owner.to_owned()),
            ("GITHUB_RUN_ATTEMPT", run_attempt.to_string()),
            ("GITHUB_RUN_ID", run_id.clone()),
            ("GITHUB_RUN_NUMBER", run_number.to_string()),
            ("GITHUB_SERVER_URL", self.order.server_url.clone()),
            ("GITHUB_WORKFLOW", "build".to_owned()),
            ("GITHUB_WORKSPACE", text(&self.workspace())),
            ("RUNNER_ARCH", "X64".to_owned()),
            ("RUNNER_ENVIRONMENT", "self-hosted".to_owned()),
            ("RUNNER_NAME", self.place.runner.clone()),
            ("RUNNER_OS", "Linux".to_owned()),
            ("RUNNER_TEMP", text(&self.temporary())),
            ("RUNNER_TOOL_CACHE", text(&self.place.work.join("_tool"))),
            ("RUNNER_TRACKING_ID", self.tracking_id()),
            ("RUNNER_WORKSPACE", text(self.workspace().parent().unwrap_or(&self.place.work))),
        ]
    }

    /// Kills processes with the job's mark, and empties its temporary folder.
    fn clean(&self) {
        kill_marked(&[format!("RUNNER_TRACKING_ID={}", self.tracking_id())]);
        // The next job tries again to remove what is left.
        self.empty_temporary().ok();
    }

    fn empty_temporary(&self) -> io::Result<()> {
        let temporary = self.temporary();
        match std::fs::remove_dir_all(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::create_dir_all(temporary)
    }

    fn tracking_id(&self) -> String {
        format!("github_{}_{}", std::process::id(), self.order.job)
    }

    /// The folder of the files by which scripts talk to the runner.
    fn files(&self) -> PathBuf {
        self.temporary().join("_runner_file_commands")
    }

    fn temporary(&self) -> PathBuf {
        self.place.work.join("_temp")
    }

    fn workspace(&self) -> PathBuf {
        let name = self.order.repository.rsplit('/').next().unwrap_or_default();
        self.place.work.join(name).join(name)
    }

    async fn log(&self, text: &str) {
        let progress = Progress { log: text.to_owned(), ..Progress::default() };
        tell(&self.place, self.order.job, &progress).await;
    }
}

/// Waits until the job is to be stopped, or the listener is gone.
pub(super) async fn stopped(stopping: &mut watch::Receiver<Stop>) {
    stopping.wait_for(|stop| *stop != Stop::No).await.ok();
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
