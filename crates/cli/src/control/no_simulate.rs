//! `ondeck simulate` in a build without it.

use ondeck_core::model::failure::Failure;

use crate::control::report::deliver;
use crate::inputs::Common;
use crate::logging;

/// Fails, and says how to build a program that can.
pub(crate) async fn simulate(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let failure = Failure::invalid("this build of ondeck has no simulation")
        .hint("build it with --features simulate; releases have it");
    deliver("simulate", Err(failure), common)
}
