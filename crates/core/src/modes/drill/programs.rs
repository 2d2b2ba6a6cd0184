//! The modes, as a drill calls them: each as the program with the role that it has in a workflow.

use std::time::Duration;

use async_trait::async_trait;

use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::requirements::UsageClass;
use crate::modes::provision::SourcePolicy;
use crate::ports::PortResult;

/// One machine that a run of the drill asks provision for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub run: RunId,
    pub source: SourcePolicy,
    pub class: ResourceClass,
    pub usage: UsageClass,
    /// The only instance type to accept; `None` for those that provision accepts by itself.
    pub instance_type: Option<String>,
}

/// How a program ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Negative if a signal ended it, with the number of the signal.
    pub code: i32,
    /// The machines that it reported: those of the run, or after a failure of a provision those that
    /// it had touched.
    pub machines: Vec<InstanceId>,
    /// What it could not clean up.
    pub clean_up_failures: Vec<String>,
    /// Its error. Empty if it reported none.
    pub error: String,
    pub took: Duration,
}

impl Ended {
    /// How it ended, in words: the exit code, and its error.
    pub fn words(&self) -> String {
        let Ended { code, error, .. } = self;
        let how = match code {
            0.. => format!("exit code {code}"),
            _ => format!("ended by signal {}", code.unsigned_abs()),
        };
        if error.is_empty() { how } else { format!("{how}: {error}") }
    }
}

/// How a provision is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By SIGINT, as GitHub cancels a run.
    Interrupt,
    /// By SIGKILL.
    Kill,
}

/// A provision that was ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Its time is that since the signal.
    pub ended: Ended,
    /// The machine that it held when it was ended. `None` if it ended by itself before that.
    pub machine: Option<InstanceId>,
}

/// Runs the modes, and disturbs machines at their provider.
///
/// A program that is still running when the drill is told to stop is told to stop as well, and waited
/// for. Each call ends within a bounded time. A program that cannot be started has an error and a code
/// that is not 0.
#[async_trait]
pub trait Programs: Send + Sync {
    /// Runs provision to its end.
    async fn provision(&self, ask: &Ask) -> Ended;
    /// Runs provision, and ends it as soon as it has claimed or launched a machine.
    async fn cancel(&self, ask: &Ask, how: How) -> Cancelled;
    /// Runs release to its end.
    async fn release(&self, run: &RunId) -> Ended;
    /// Runs refresh to its end, with the inputs that it has otherwise.
    async fn refresh(&self) -> Ended;
    /// Ends a machine at its provider, and leaves its record as it is.
    async fn kill(&self, machine: &InstanceId) -> PortResult<()>;
    /// Lets the provider announce that it takes the machine away. Fails with the reason.
    async fn interrupt(&self, machine: &InstanceId) -> Result<(), String>;
}
