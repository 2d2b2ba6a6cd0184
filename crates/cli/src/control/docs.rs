//! The documents say what the code does: same names, same defaults, same words.

mod action;
mod metrics;
mod table;
mod workflows;

use ondeck_core::model::failure::FailureKind;

use crate::inputs::command_line::command;

const README: &str = include_str!("../../../../README.md");
const COMMANDS: &str = include_str!("../../../../docs/reference/commands.md");
const EXIT_CODES: &str = include_str!("../../../../docs/reference/exit-codes.md");

#[test]
fn every_exit_code_is_documented_in_the_reference_and_the_help() {
    let help = command().render_help().to_string();
    for kind in FailureKind::ALL {
        let code = kind.exit_code().to_string();
        let cell = |line: &str| {
            line.trim_start_matches("| ")
                .split('|')
                .next()
                .is_some_and(|cell| cell.split([',', ' ']).any(|word| word == code))
        };
        assert!(EXIT_CODES.lines().filter(|line| line.starts_with("| ")).any(cell), "{code}");
        assert!(help.split_whitespace().any(|word| word == code), "{code} in the help");
    }
}

#[test]
fn every_documented_command_and_option_exists() {
    let program = command();
    for command in program.get_subcommands() {
        let line = format!("| `ondeck {}` |", command.get_name());
        assert!(COMMANDS.contains(&line), "not in the reference: {line}");
    }
    let known: Vec<&str> = program
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .chain(program.get_arguments())
        .filter_map(clap::Arg::get_long)
        .collect();
    let words = [README, COMMANDS].join("\n");
    let words = words.split(|c: char| c.is_whitespace() || c == '`');
    for option in words
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|option| option.starts_with(|c: char| c.is_ascii_alphabetic()))
    {
        let foreign = ["help", "path", "features", "release"].contains(&option);
        assert!(foreign || known.contains(&option), "no such option: --{option}");
    }
}
