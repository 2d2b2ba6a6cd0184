//! `ondeck watch` in a build without the terminal program.

use ondeck_core::model::failure::Failure;

use crate::control::report::deliver;
use crate::inputs::Common;
use crate::logging;

/// Fails, and says how to build a program that can.
pub(crate) async fn watch(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let failure = Failure::invalid("this build of ondeck has no watch")
        .hint("use ondeck status --watch, or build it with --features watch; releases have it");
    deliver("watch", Err(failure), common)
}
