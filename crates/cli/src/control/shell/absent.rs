//! A build that generates neither completions nor pages.

use std::path::Path;

use ondeck_core::model::failure::Failure;

/// Fails, and says how to build a program that can.
pub(super) fn completions(_shell: &str) -> Result<(), Failure> {
    Err(not_built("completions"))
}

/// Fails, and says how to build a program that can.
pub(super) fn man_pages(_directory: &Path) -> Result<(), Failure> {
    Err(not_built("manual pages"))
}

fn not_built(what: &str) -> Failure {
    Failure::invalid(format!("this build of ondeck cannot generate {what}"))
        .hint("build it with --features shell; releases include both")
}
