use std::fmt;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::{Clock, Host};
use ondeck_processes::{MARKER, Process, folder};
use tokio::process::Command;

use crate::compute::environment;
use crate::compute::folders::Folders;
use crate::compute::groups;
use crate::compute::machines;
use crate::forge::jobs::{self, Finished};
use crate::home::Home;
use crate::store::db::Db;

/// The machine that the calling agent runs on.
pub struct LocalHost {
    db: Db,
    home: Home,
    instance: InstanceId,
    clock: Arc<dyn Clock>,
}

impl LocalHost {
    /// Creates the host of the machine that the calling process runs on. `clock` is that of its
    /// records.
    pub fn new(db: Db, home: Home, instance: InstanceId, clock: Arc<dyn Clock>) -> LocalHost {
        LocalHost { db, home, instance, clock }
    }

    /// Runs a script with its output going to a file. A pipe would be held open by background processes
    /// of the script.
    async fn run(&self, script: &str) -> Result<(), String> {
        let machine = self.home.machine(&self.instance);
        let folders = Folders::of(&self.home, &self.instance);
        folders.make_for_script()?;
        let io = |e: std::io::Error| format!("cannot run the script: {e}");
        let (file, said) = (machine.join("pre-runner.sh"), machine.join("pre-runner.out"));
        folder::make_private_file(&file)
            .and_then(|mut it| it.write_all(script.as_bytes()))
            .map_err(io)?;
        let output = folder::make_private_file(&said).map_err(io)?;
        let mut command = Command::new("sh");
        command
            .arg("-e")
            .arg(&file)
            .env_clear()
            .envs(environment::handed_on())
            .env(MARKER, self.instance.as_str())
            .env("ONDECK_HOME_DIR", self.home.dir())
            .env("TMPDIR", &folders.tmp)
            .env("HOME", &folders.prepared)
            .current_dir(&machine)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(io)?)
            .stderr(output)
            .kill_on_drop(true);
        let (mut child, _awaited) = ondeck_processes::spawn(&mut command).map_err(io)?;
        let leader = Process::of_child(&child);
        if let Some(leader) = leader {
            let noted = groups::record(&self.db, &self.instance, leader).await;
            noted.map_err(|e| format!("cannot run the script: {e}"))?;
        }
        let status = child.wait().await.map_err(io)?;
        if let Some(leader) = leader {
            groups::forget_if_gone(&self.db, &self.instance, leader).await;
        }
        if status.success() {
            return Ok(());
        }
        let words = fs::read(&said).unwrap_or_default();
        let words = output_tail(&String::from_utf8_lossy(&words));
        Err(format!("the script ended with {status}: {words}"))
    }

    async fn leave(&self) -> Result<(), String> {
        groups::kill_others(&self.db, &self.instance).await?;
        // Before the write, which may need the room.
        let removed = folder::remove(&self.home.machine(&self.instance));
        let (instance, now) = (self.instance.clone(), self.clock.now());
        self.db
            .write(move |transaction| {
                let sql = "DELETE FROM runners WHERE instance = ?1";
                transaction.execute(sql, [instance.as_str()])?;
                machines::mark_terminated(transaction, &instance, now)
            })
            .await
            .map_err(|e| e.to_string())?;
        let erased = jobs::erase(&self.db, Finished::On(self.instance.clone())).await;
        removed.map_err(|e| e.to_string()).and(erased.map_err(|e| e.to_string()))
    }
}

impl fmt::Debug for LocalHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalHost({})", self.instance)
    }
}

#[async_trait]
impl Host for LocalHost {
    async fn run_script(&self, script: &str) -> Result<(), String> {
        self.run(script).await
    }

    /// Never completes: local machines get no notice of an interruption.
    async fn interruption(&self) -> String {
        std::future::pending().await
    }

    /// Kills every process of the machine except the calling one, which the caller must end.
    async fn terminate(&self, why: &str) {
        tracing::info!(instance = %self.instance, why, "terminating this machine");
        if let Err(error) = self.leave().await {
            // When this process is gone, the control plane's next listing completes the termination.
            tracing::error!(instance = %self.instance, "the cleanup is incomplete: {error}");
        }
    }
}
