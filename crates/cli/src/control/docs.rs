//! The documents say what the code does: same names, same defaults, same words.

mod action;
mod workflows;

use clap::CommandFactory;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::settings::Classes;

use crate::inputs::Cli;

const README: &str = include_str!("../../../../README.md");
const COMMANDS: &str = include_str!("../../../../docs/reference/commands.md");
const EXIT_CODES: &str = include_str!("../../../../docs/reference/exit-codes.md");

#[test]
fn the_sizes_that_there_are_by_default_are_those_of_the_code() {
    let help = Cli::command();
    let refresh = help.find_subcommand("refresh").expect("there is a refresh");
    let option = refresh.get_arguments().find(|arg| arg.get_id() == "resource_class_config");
    let words = option.and_then(clap::Arg::get_help).expect("it has a help").to_string();
    let classes = Classes::default();
    let sizes = classes.listing();
    let sizes = sizes.split(", ").map(|name| {
        let size = ResourceClass::new(name).ok().and_then(|name| classes.get(&name));
        let size = size.expect("a class that is listed has a size");
        format!("{name} {}/{}", size.cpu, size.mem)
    });
    let sizes: Vec<String> = sizes.collect();
    assert!(words.ends_with(&format!("[default: {}]", sizes.join(", "))), "{words}");
}

#[test]
fn every_exit_code_is_documented_in_the_reference_and_the_help() {
    let help = Cli::command().render_help().to_string();
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
    let cli = Cli::command();
    for command in cli.get_subcommands() {
        let line = format!("| `ondeck {}` |", command.get_name());
        assert!(COMMANDS.contains(&line), "not in the reference: {line}");
    }
    let known: Vec<&str> = cli
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .chain(cli.get_arguments())
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
