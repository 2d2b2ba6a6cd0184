//! What holds for every row of every table.

use ondeck_core::inputs::{Input, InputDefault, InputScope, InputValue, Mode};

use super::action::OF_THE_ACTION;
use crate::inputs::command_line::command;
use crate::inputs::rows;

#[test]
fn no_two_rows_share_a_name() {
    let names: Vec<&str> = rows().map(|row| row.name).collect();
    for (n, name) in names.iter().enumerate() {
        assert!(!names[..n].contains(name), "declared twice: {name}");
        assert!(!OF_THE_ACTION.contains(name), "both an option and an input of the action: {name}");
    }
}

#[test]
fn every_row_is_complete() {
    for row in rows() {
        let Input { name, help, modes, .. } = row;
        assert!(!help.is_empty() && !help.ends_with('.') && !help.contains("[default"), "{name}");
        assert!(help.starts_with(|c: char| c.is_uppercase()), "{name}: {help}");
        assert!(!modes.is_empty(), "{name}");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(plain), "{name}");
        for other in row.conflicts_with.iter().chain(row.requires) {
            assert!(rows().any(|row| row.name == *other), "{name} refers to no input: {other}");
        }
        if row.scope == InputScope::Secret {
            assert!(!matches!(row.default, InputDefault::Value(_)), "{name} has a known default");
        }
    }
}

#[test]
fn every_parser_accepts_the_default_of_its_row() {
    for row in rows() {
        if let InputDefault::Value(text) = row.default {
            assert_eq!((row.check)(text), Ok(()), "{}", row.name);
            if let InputValue::Choice(_, values) = row.value {
                assert!(values.contains(&text), "{}", row.name);
            }
        }
    }
}

#[test]
fn every_row_is_a_flag_of_its_commands_and_of_no_other() {
    let program = command();
    for row in rows() {
        let flag = |command: &clap::Command| {
            command.get_arguments().any(|argument| argument.get_long() == Some(row.name))
        };
        assert_eq!(flag(&program), row.is_of_every_mode(), "{}", row.name);
        for mode in Mode::ALL.into_iter().filter(|_| !row.is_of_every_mode()) {
            let command = program.find_subcommand(mode.name()).expect("every mode is a command");
            assert_eq!(flag(command), row.is_of(mode), "{} of {}", row.name, mode.name());
        }
    }
}

#[test]
fn every_command_has_examples() {
    for command in command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let example = format!("\n  ondeck {}", command.get_name());
        assert!(help.contains("Examples:\n") && help.contains(&example), "{}", command.get_name());
    }
}
