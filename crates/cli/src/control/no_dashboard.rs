//! `ondeck dashboard` in a build without the page.

use ondeck_core::model::failure::Failure;

use crate::control::report::deliver;
use crate::inputs::Common;
use crate::logging;

/// Fails, and says how to build a program that can.
pub(crate) async fn dashboard(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let failure = Failure::invalid("this build of ondeck has no dashboard")
        .hint("use ondeck status --watch, or build it with --features dashboard; releases have it");
    deliver("dashboard", Err(failure), common)
}
