//! `ondeck demo --dashboard` in a build without the page. If cargo has started the program, cargo builds one
//! with the page, which goes on in its place.

use std::os::unix::process::CommandExt;
use std::process::Command;

use ondeck_core::model::failure::Failure;

use super::narrator::Narrator;
use crate::inputs::Common;

/// No page is ever open.
pub(super) enum Page {}

/// Becomes a program with the page, called with the same arguments. Returns only why that was not possible.
pub(super) fn rebuilt() -> Failure {
    let failure = Failure::invalid("this build of ondeck has no dashboard")
        .hint("run cargo demo-dashboard, or build it with --features dashboard");
    // Cargo sets it for the programs that it runs.
    let Some(cargo) = std::env::var_os("CARGO") else { return failure };
    let error = Command::new(cargo)
        .args(["run", "--package", "ondeck", "--features", "dashboard", "--"])
        .args(std::env::args_os().skip(1))
        .exec();
    Failure::invalid(format!("cargo cannot build ondeck with its dashboard: {error}"))
        .hint(failure.hint)
}

impl Page {
    /// Fails: the demo has to be [`rebuilt`].
    pub(super) async fn open(_common: &Common) -> Result<Page, Failure> {
        Err(Failure::invalid("this build of ondeck has no dashboard"))
    }

    pub(super) async fn until_open(&self, _narrator: &Narrator) {
        match *self {}
    }

    pub(super) async fn until_closed(&self, _narrator: &Narrator) {
        match *self {}
    }
}
