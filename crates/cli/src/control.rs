//! Everything but the agent: the three modes as commands, and what operators use.

mod demo;
#[cfg(test)]
mod docs;
pub(crate) mod github_actions;
#[cfg(feature = "holds")]
pub(crate) mod hold_points;
mod modes;
pub(crate) mod progress;
pub(crate) mod report;
mod run;
mod status;

use crate::inputs::{Command, Common};

/// Runs a command of the control plane and returns its exit code.
pub(crate) async fn dispatch(common: &Common, command: Command) -> u8 {
    match command {
        Command::Refresh(inputs) => modes::refresh(common, &inputs).await,
        Command::Provision(inputs) => modes::provision(common, &inputs).await,
        Command::Release(inputs) => modes::release(common, &inputs).await,
        Command::Run(inputs) => run::run(common, &inputs).await,
        Command::Status(inputs) => status::status(common, &inputs).await,
        Command::Demo(inputs) => demo::demo(&inputs).await,
        Command::Agent(inputs) => crate::agent::live(common, &inputs).await,
    }
}
