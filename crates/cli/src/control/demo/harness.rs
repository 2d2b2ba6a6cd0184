//! Runs this program as a user would, and looks at the store and the processes behind it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::modes::plane::Plane;
use serde_json::Value;
use tokio::process::{Child, Command};

use super::failed;
use crate::control::backend::{self, LocalFiles};
use crate::control::progress::NoProgress;
use crate::inputs::{Backend, Common};

/// How long the story waits for one condition.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct DemoHarness {
    program: PathBuf,
    common: Common,
}

pub(super) struct Done {
    pub(super) code: i32,
    pub(super) json: Value,
    pub(super) stdout: String,
}

impl DemoHarness {
    pub(super) fn new(home: &Path) -> Result<DemoHarness, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| failed(format!("own program not found: {error}")))?;
        let common = Common {
            records: Backend::Local,
            compute: Backend::Local,
            home: Some(home.to_owned()),
            json: true,
            verbose: 0,
            quiet: true,
            given: ondeck_core::inputs::Given::default(),
        };
        Ok(DemoHarness { program, common })
    }

    /// Runs a command to its end. Fails if it does not start or does not end in time.
    pub(super) async fn ondeck(&self, arguments: &[&str]) -> Result<Done, Failure> {
        let output = self.command(arguments).output();
        let output = tokio::time::timeout(PATIENCE * 2, output)
            .await
            .map_err(|_| failed(format!("did not end in time: ondeck {}", arguments.join(" "))))?
            .map_err(|error| failed(format!("did not start: {error}")))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let json = serde_json::from_str(&stdout).unwrap_or(Value::Null);
        Ok(Done { code: output.status.code().unwrap_or(-1), json, stdout })
    }

    /// Starts a command in the background. It is killed when the result is dropped.
    pub(super) fn start(&self, arguments: &[&str]) -> Result<Child, Failure> {
        self.command(arguments).spawn().map_err(|error| failed(format!("did not start: {error}")))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // Neither the user's settings nor a workflow around the demo are part of the story.
        for (name, _) in std::env::vars_os() {
            let is_of = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
            if ["ONDECK_", "GITHUB_", "INPUT_", "RUNNER_", "ACTIONS_"].iter().any(is_of) {
                command.env_remove(&name);
            }
        }
        command
            .args(arguments)
            .env("ONDECK_BACKEND", "local")
            .env("ONDECK_HOME", self.common.home.as_deref().unwrap_or(Path::new(".")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if !arguments.contains(&"--") {
            command.arg("--json");
        }
        command
    }

    /// What the commands are given, for a process that looks at the same pool.
    pub(super) fn common(&self) -> &Common {
        &self.common
    }

    /// The store and the forge, as the audit reads them.
    pub(super) fn local(&self) -> Result<LocalFiles, Failure> {
        LocalFiles::open(&self.common)
    }

    pub(super) async fn plane(&self) -> Result<Plane, Failure> {
        backend::plane(&self.common, std::sync::Arc::new(NoProgress)).await
    }

    /// The machines whose processes are alive.
    pub(super) async fn machines(&self) -> Result<Vec<InstanceId>, Failure> {
        let machines = self.plane().await?.compute.machines().await?;
        Ok(machines.into_iter().map(|machine| machine.id).collect())
    }

    /// Waits until the condition holds. Fails after [`PATIENCE`].
    pub(super) async fn until<F>(
        &self,
        what: &str,
        mut holds: impl FnMut() -> F,
    ) -> Result<(), Failure>
    where
        F: Future<Output = Result<bool, Failure>>,
    {
        let wait = async {
            while !holds().await? {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .map_err(|_| failed(format!("still waiting after {} s: {what}", PATIENCE.as_secs())))?
    }

    /// Terminates every machine that is still alive, and returns their ids.
    pub(super) async fn terminate_all_machines(&self) -> Result<Vec<InstanceId>, Failure> {
        // Before the first refresh there is no store, and so no machine.
        let Ok(plane) = self.plane().await else { return Ok(Vec::new()) };
        let alive = self.machines().await?;
        plane.terminate(&alive).await?;
        Ok(alive)
    }
}
