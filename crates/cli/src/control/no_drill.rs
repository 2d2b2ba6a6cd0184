//! `ondeck drill` in a build without it.

use ondeck_core::model::failure::Failure;

use crate::control::report::deliver;
use crate::inputs::Common;
use crate::logging;

/// Fails, and says how to build a program that can.
pub(crate) async fn drill(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let failure = Failure::invalid("this build of ondeck has no drill")
        .hint("build it with --features drill; releases have it");
    deliver("drill", Err(failure), common)
}
