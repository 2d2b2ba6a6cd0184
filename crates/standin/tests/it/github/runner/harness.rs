//! A runner of the stand-in, as a process, with the GitHub that it talks to.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ondeck_standin::{GitHub, GitHubOptions, GitHubRunner, RunnerPackage};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::github::REPOSITORY;
use crate::harness::SOON;

/// A GitHub, and a folder with an unpacked runner package.
pub(crate) struct RunnerHarness {
    pub(crate) github: GitHub,
    pub(crate) folder: TempDir,
    variables: Vec<(String, String)>,
}

/// A package whose pauses are short.
pub(super) fn quick_package() -> RunnerPackage {
    RunnerPackage {
        restart_pause: Duration::from_millis(50),
        session_pause: Duration::from_millis(50),
        ..RunnerPackage::default()
    }
}

impl RunnerHarness {
    pub(crate) fn new() -> RunnerHarness {
        RunnerHarness::on(GitHub::start(GitHubOptions {
            session_timeout: Duration::from_secs(1),
            job_lock: Duration::from_secs(5),
            cancel_grace: Duration::from_millis(400),
            ..GitHubOptions::default()
        }))
    }

    pub(crate) fn on(github: GitHub) -> RunnerHarness {
        RunnerHarness::with(github, &quick_package())
    }

    pub(super) fn with(github: GitHub, package: &RunnerPackage) -> RunnerHarness {
        let harness =
            RunnerHarness { github, folder: tempfile::tempdir().unwrap(), variables: Vec::new() };
        package.lay_out(harness.folder.path());
        harness
    }

    /// A harness whose runner is registered for run 4711.
    pub(super) fn registered() -> RunnerHarness {
        let harness = RunnerHarness::new();
        harness.register();
        harness
    }

    /// Registers the runner for run 4711.
    pub(crate) fn register(&self) {
        let token = self.github.registration_token(REPOSITORY);
        let configured = self.config(&["--token", &token, "--labels", "4711"]);
        assert!(configured.status.success(), "{configured:?}");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn set(&mut self, name: &str, value: &Path) {
        self.variables.push((name.to_owned(), value.display().to_string()));
    }

    /// A command for a program of the package, in its own process group.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        command
            .current_dir(self.folder.path())
            .env("RUNNER_ALLOW_RUNASROOT", "1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Runs `config.sh` for the repository, with the run id as the only label.
    pub(crate) fn config(&self, more: &[&str]) -> Output {
        let url = format!("{}/{REPOSITORY}", self.github.url());
        let mut command = self.command("config.sh");
        command.args(["--unattended", "--url", &url, "--name", "i-1-1", "--no-default-labels"]);
        command.args(["--work", "_work", "--disableupdate"]).args(more).output().unwrap()
    }

    pub(crate) fn run(&self) -> Running {
        self.start(self.command("run.sh"))
    }

    pub(super) fn start(&self, mut command: Command) -> Running {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    pub(super) fn wait_online(&self) {
        let online = |runners: &[GitHubRunner]| runners.iter().any(|it| it.online);
        self.github.wait_for_runners(SOON, online).expect("a runner is online");
    }

    /// Writes a bash script to a file.
    pub(super) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// A process whose group is killed when this is dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(super) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        // The group may be gone already.
        kill_process_group(id, signal).ok();
    }

    /// Waits for the exit code and the output.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + SOON;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::park_timeout(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.code(), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // It may have been waited for already.
        self.0.wait().ok();
    }
}
