//! The README says what the code does: same names, same defaults, same words.

mod action;
mod workflows;

use clap::CommandFactory;
use ondeck_core::failure::Kind;
use ondeck_core::times::TIMES;

use crate::inputs::Cli;

const README: &str = include_str!("../../../README.md");

#[test]
fn every_time_has_its_row() {
    for row in TIMES {
        let line = format!("| `{}` | {} | {} |", row.input, row.default, row.help);
        assert!(README.lines().any(|found| found == line), "not in the README: {line}");
    }
    let rows = README.lines().filter(|line| line.starts_with("| `") && line.contains("-sec` |"));
    let known = TIMES.iter().filter(|row| row.input.ends_with("-sec")).count();
    assert_eq!(rows.count(), known, "the README has a time that the code has not");
}

#[test]
fn every_input_of_aws_has_its_row() {
    let cli = Cli::command();
    let refresh = cli.find_subcommand("refresh").expect("there is a refresh");
    let of_aws = |arg: &&clap::Arg| arg.get_help_heading() == Some("AWS backend");
    let mut count = 0;
    for arg in refresh.get_arguments().filter(of_aws) {
        let (long, help) = (arg.get_long().unwrap_or_default(), arg.get_help().unwrap_or_default());
        let line = format!("| `--{long}` | {help} |");
        assert!(README.lines().any(|found| found == line), "not in the README: {line}");
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn every_exit_code_is_documented_in_readme_and_help() {
    let help = Cli::command().render_help().to_string();
    for kind in Kind::ALL {
        let code = kind.exit_code().to_string();
        let cell = |line: &str| {
            line.trim_start_matches("| ")
                .split('|')
                .next()
                .is_some_and(|cell| cell.split([',', ' ']).any(|word| word == code))
        };
        assert!(README.lines().filter(|line| line.starts_with("| ")).any(cell), "{code}");
        assert!(help.split_whitespace().any(|word| word == code), "{code} in the help");
    }
}

#[test]
fn every_command_and_option_of_the_readme_exists() {
    let cli = Cli::command();
    for command in cli.get_subcommands() {
        let line = format!("| `ondeck {}` |", command.get_name());
        assert!(README.contains(&line), "not in the README: {line}");
    }
    let known: Vec<&str> = cli
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .chain(cli.get_arguments())
        .filter_map(clap::Arg::get_long)
        .collect();
    let words = README.split(|c: char| c.is_whitespace() || c == '`');
    for option in words
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|option| option.starts_with(|c: char| c.is_ascii_alphabetic()))
    {
        let foreign = ["path", "features", "release"].contains(&option);
        assert!(foreign || known.contains(&option), "no such option: --{option}");
    }
}
