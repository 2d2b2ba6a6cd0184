//! The control plane, in a build that has none: the program on a machine.

use ondeck_core::inputs::Mode;
use ondeck_core::model::failure::Failure;

use crate::inputs::Invocation;

/// Whether this build has the command.
pub(crate) fn has(mode: Mode) -> bool {
    mode == Mode::Agent
}

/// The tasks of a command that this build does not have.
pub(crate) const CONFIG_TASKS: [&str; 0] = [];

/// The commands that take no inputs from the tables: none here.
pub(crate) fn other_commands() -> Vec<clap::Command> {
    Vec::new()
}

/// Reports nothing and returns `None`: agents print no JSON, and are no steps of a workflow.
pub(crate) fn report_early(_failure: &Failure) -> Option<u8> {
    None
}

/// Whether this process is part of a step of ondeck's own action. Agents are not.
pub(crate) fn is_own_action() -> bool {
    false
}

/// Runs a command of the control plane and returns its exit code. The command line admits none
/// here.
pub(crate) async fn dispatch(invocation: &Invocation) -> u8 {
    let Invocation { command, arguments, .. } = invocation;
    crate::logging::error(
        &format!("this build has only the agent: {command} {}", arguments.join(" ")),
        "build it with the feature control",
    );
    2
}
