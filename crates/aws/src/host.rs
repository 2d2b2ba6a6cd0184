//! An EC2 instance, as the agent on it uses it.

mod script;

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{Clock, Host};
use tokio::process::Command;

use self::script::Script;
use crate::imds::Imds;
use crate::machine_logs::MachineLogs;

/// How often the agent asks for a spot interruption notice, which EC2 gives two minutes ahead.
const NOTICE_EVERY: Duration = Duration::from_secs(5);
/// How long a machine may take to shut down before the agent gives up waiting for it.
const SHUTTING_DOWN: Duration = Duration::from_secs(300);

pub struct Ec2Host {
    imds: Imds,
    clock: Arc<dyn Clock>,
    instance: InstanceId,
    folder: PathBuf,
    shutdown: String,
    logs: Option<Arc<MachineLogs>>,
}

impl Ec2Host {
    /// The machine `instance`. The host writes files to `folder`; `shutdown` is the command that shuts
    /// the machine down.
    pub fn new(
        imds: Imds,
        clock: Arc<dyn Clock>,
        instance: InstanceId,
        folder: PathBuf,
        shutdown: String,
    ) -> Ec2Host {
        Ec2Host { imds, clock, instance, folder, shutdown, logs: None }
    }

    /// The same machine, which sends the rest of its log before it shuts down.
    #[must_use]
    pub fn copying(self, logs: Option<Arc<MachineLogs>>) -> Ec2Host {
        Ec2Host { logs, ..self }
    }
}

#[async_trait]
impl Host for Ec2Host {
    async fn run_script(&self, script: &str) -> Result<(), String> {
        let script = Script { text: script, instance: &self.instance, folder: &self.folder };
        script.run_once().await
    }

    async fn interruption(&self) -> String {
        loop {
            match self.imds.spot_notice().await {
                Ok(Some(notice)) => return notice,
                Ok(None) => {}
                Err(error) => tracing::debug!("{error}"),
            }
            self.clock.sleep(NOTICE_EVERY).await;
        }
    }

    /// Shuts down, which terminates the instance: its launch template says so. A permission to call
    /// TerminateInstances would let every job that gets hold of it terminate the whole pool. If it
    /// does not work, the agent exits, its service starts it again, and it tries again.
    async fn terminate(&self, why: &str) {
        if let Some(logs) = &self.logs {
            logs.send_at_the_end().await;
        }
        if shut_down(&self.shutdown, why).await {
            self.clock.sleep(SHUTTING_DOWN).await;
        }
    }
}

impl fmt::Debug for Ec2Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ec2Host({})", self.instance)
    }
}

/// Runs the command that shuts the machine down. Returns whether it succeeded, and logs a failure.
pub async fn shut_down(command: &str, why: &str) -> bool {
    tracing::error!(why, "shutting down: {command}");
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else {
        tracing::error!("no command to shut this machine down");
        return false;
    };
    match Command::new(program).args(words).stdin(Stdio::null()).status().await {
        Ok(status) if status.success() => return true,
        Ok(status) => tracing::error!("{command} ended with {status}"),
        Err(error) => tracing::error!("{command} does not start: {error}"),
    }
    false
}

#[cfg(test)]
mod tests;
