//! Everything but the agent: the three modes as commands, and the commands that operators use.

pub(crate) mod backend;
#[cfg(feature = "aws")]
mod connect;
#[cfg(feature = "local")]
mod demo;
#[cfg(all(test, feature = "aws", feature = "github"))]
mod docs;
pub(crate) mod github_actions;
#[cfg(feature = "holds")]
pub(crate) mod hold_points;
pub(crate) mod inputs;
mod modes;
#[cfg(not(feature = "local"))]
mod no_local;
#[cfg(feature = "aws")]
mod permissions;
pub(crate) mod progress;
pub(crate) mod report;
#[cfg(feature = "local")]
mod run;
mod shell;
mod status;

use ondeck_core::inputs::Mode;

pub(crate) use self::github_actions::is_own_action;
#[cfg(not(feature = "local"))]
use self::no_local::{demo, run};
pub(crate) use self::report::report_early;
use crate::inputs::Invocation;

/// Whether this build has the command.
pub(crate) fn has(mode: Mode) -> bool {
    !matches!(mode, Mode::Permissions | Mode::Connect) || cfg!(feature = "aws")
}

/// The commands that take no inputs from the tables.
pub(crate) fn other_commands() -> Vec<clap::Command> {
    shell::commands()
}

/// Runs a command of the control plane and returns its exit code.
pub(crate) async fn dispatch(invocation: &Invocation) -> u8 {
    let Invocation { command, common, arguments } = invocation;
    match Mode::ALL.into_iter().find(|mode| mode.name() == command) {
        Some(Mode::Refresh) => modes::refresh(common).await,
        Some(Mode::Provision) => modes::provision(common).await,
        Some(Mode::Release) => modes::release(common).await,
        Some(Mode::Run) => run::run(common, arguments).await,
        Some(Mode::Status) => status::status(common).await,
        #[cfg(feature = "aws")]
        Some(Mode::Connect) => connect::connect(common, arguments).await,
        #[cfg(feature = "aws")]
        Some(Mode::Permissions) => permissions::check(common).await,
        Some(Mode::Demo) => demo::demo(common).await,
        Some(Mode::Agent) => crate::agent::live(common).await,
        // The command line of a build without AWS does not have them.
        #[cfg(not(feature = "aws"))]
        Some(Mode::Permissions | Mode::Connect) => 2,
        None => shell::run(command, arguments.first().map_or("", String::as_str)),
    }
}
