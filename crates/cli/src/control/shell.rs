//! `ondeck completions` and `ondeck man`: what a shell and `man` need to know about the program.
//! Both are made from the command line itself. A build without the feature `shell` has the
//! commands too, and says how to get one that can.

#[cfg(feature = "shell")]
mod generate;
#[cfg(not(feature = "shell"))]
#[path = "shell/absent.rs"]
mod generate;

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use ondeck_core::model::failure::Failure;

use crate::inputs::command_line::ARGUMENTS;
use crate::logging;

const COMPLETIONS: &str = "completions";
const MAN: &str = "man";

/// The definitions of the two commands.
pub(super) fn commands() -> Vec<Command> {
    let shell = Arg::new(ARGUMENTS)
        .value_name("SHELL")
        .help("Shell to complete for")
        .required(true)
        .value_parser(PossibleValuesParser::new(["bash", "elvish", "fish", "powershell", "zsh"]));
    let directory = Arg::new(ARGUMENTS)
        .value_name("DIR")
        .help("Existing directory for the pages")
        .required(true);
    vec![
        Command::new(COMPLETIONS)
            .about("Print a script that completes commands and options in a shell")
            .arg(shell)
            .after_help(
                "\
Examples:
  ondeck completions bash > ~/.local/share/bash-completion/completions/ondeck
  ondeck completions fish > ~/.config/fish/completions/ondeck.fish",
            ),
        Command::new(MAN)
            .about("Write the manual pages, one for each command")
            .arg(directory)
            .after_help(
                "\
Examples:
  ondeck man ~/.local/share/man/man1",
            ),
    ]
}

/// Runs one of the two commands and returns its exit code.
pub(super) fn run(command: &str, argument: &str) -> u8 {
    let result = match command {
        COMPLETIONS => generate::completions(argument),
        MAN => generate::man_pages(Path::new(argument)),
        other => Err(Failure::invalid(format!("no such command: {other}"))),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => logging::fail(&failure),
    }
}
