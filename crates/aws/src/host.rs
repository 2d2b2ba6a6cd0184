//! The machine, as its own agent has it.

mod script;

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{Clock, Compute, Host};
use tokio::process::Command;

use self::script::Script;
use crate::imds::Imds;

/// How often EC2 is asked whether it wants the machine back; it says so two minutes before.
const NOTICE_EVERY: Duration = Duration::from_secs(5);
/// How long EC2 may take to end a machine that it has agreed to end.
const ENDING: Duration = Duration::from_secs(300);

/// An EC2 instance, from within.
pub struct Ec2Host {
    imds: Imds,
    compute: Arc<dyn Compute>,
    clock: Arc<dyn Clock>,
    instance: InstanceId,
    folder: PathBuf,
    shutdown: String,
}

impl Ec2Host {
    /// This machine, with a folder for what it writes down and the command that shuts it down.
    pub fn new(
        imds: Imds,
        compute: Arc<dyn Compute>,
        clock: Arc<dyn Clock>,
        instance: InstanceId,
        folder: PathBuf,
        shutdown: String,
    ) -> Ec2Host {
        Ec2Host { imds, compute, clock, instance, folder, shutdown }
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

    /// Through EC2, or else by shutting down, which ends an instance as well. Where neither
    /// works, the agent ends, is started again by its service, and tries again.
    async fn terminate(&self, why: &str) {
        match self.compute.terminate(std::slice::from_ref(&self.instance)).await {
            Ok(()) => self.clock.sleep(ENDING).await,
            Err(error) => {
                tracing::error!(instance = %self.instance, "EC2 does not end it: {error}");
                shut_down(&self.shutdown, why).await;
            }
        }
    }
}

impl fmt::Debug for Ec2Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ec2Host({})", self.instance)
    }
}

/// Shuts the machine down with the operating system's own command.
pub async fn shut_down(command: &str, why: &str) {
    tracing::error!(why, "shutting down: {command}");
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else {
        return tracing::error!("there is no command that shuts this machine down");
    };
    match Command::new(program).args(words).stdin(Stdio::null()).status().await {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::error!("{command} ended with {status}"),
        Err(error) => tracing::error!("{command} does not start: {error}"),
    }
}

#[cfg(test)]
mod tests;
