//! The completions and the pages, generated.

use std::io::Write;
use std::path::Path;

use clap_complete::Shell;
use ondeck_core::model::failure::{Failure, FailureKind};

use crate::inputs::command_line::command;
use crate::output::unwritten;

/// Prints the script for a shell. Fails if the shell is unknown or stdout cannot be written. A pipe
/// that its reader has closed is no failure.
pub(super) fn completions(shell: &str) -> Result<(), Failure> {
    let shell: Shell = shell.parse().map_err(Failure::invalid)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "ondeck", &mut script);
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(&script).and_then(|()| stdout.flush());
    written.err().and_then(|error| unwritten("stdout", &error)).map_or(Ok(()), Err)
}

/// Writes `ondeck.1` and a page for each command. Fails if the directory cannot be written.
pub(super) fn man_pages(directory: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(command(), directory).map_err(|error| {
        let message = format!("the pages cannot be written: {}: {error}", directory.display());
        Failure::new(FailureKind::InvalidInput, message).hint("name a directory that exists")
    })
}
