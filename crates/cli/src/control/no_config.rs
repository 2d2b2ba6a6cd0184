//! The commands about the file of a pool, in a build that cannot read it.

use ondeck_core::model::failure::Failure;

use crate::control::report::deliver;
use crate::inputs::Common;
use crate::logging;

/// The tasks of `ondeck config`.
pub(crate) const TASKS: [&str; 3] = ["check", "show", "export"];

/// Fails, and says how to build a program that can.
pub(crate) async fn config(common: &Common, _arguments: &[String]) -> u8 {
    refuse("config", common)
}

/// Fails, and says how to build a program that can.
pub(crate) async fn apply(common: &Common) -> u8 {
    refuse("apply", common)
}

fn refuse(command: &'static str, common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let failure = Failure::invalid("this build of ondeck cannot read ondeck.toml")
        .hint("build it with --features config; builds with aws or github have it");
    deliver(command, Err(failure), common)
}
