//! What is wrong with a command line, in the program's own words: on one line, with a hint.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use ondeck_core::inputs::Mode;
use ondeck_core::model::excerpt::{one_line, quoted};
use ondeck_core::model::failure::Failure;

use crate::control;

/// The failure of a process whose command line was refused.
pub(super) fn describe(error: &clap::Error) -> Failure {
    let unknown = text(error, ContextKind::InvalidSubcommand);
    let is_missing = matches!(
        error.kind(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let (word, modes) = match control::is_own_action() {
        true => ("mode", Mode::OF_ACTION.map(Mode::name).to_vec()),
        false => {
            let modes = Mode::ALL.into_iter().filter(|mode| control::has(*mode));
            ("command", modes.map(Mode::name).collect())
        }
    };
    let hint = format!("use one of {}", modes.join(", "));
    match unknown.as_deref() {
        _ if is_missing => Failure::invalid(format!("no {word} given")).hint(hint),
        Some("") => Failure::invalid(format!("no {word} given")).hint(hint),
        Some(other) => Failure::invalid(format!("no such {word}: {}", quoted(other))).hint(hint),
        None => Failure::invalid(problem(error)).hint(help()),
    }
}

/// Whether a line of the text other than the first could be taken for a workflow command. Values
/// are shown as they were given, line breaks included.
pub(super) fn may_be_misread(text: &str) -> bool {
    let is_command = |line: &str| line.trim_start().starts_with("::") || line.contains("##[");
    text.split(['\r', '\n']).any(is_command)
}

/// What is wrong, on one line and without the part about the help. A wrong value is not taken from clap's message,
/// which leaves control characters out and may be cut by an empty line in it.
fn problem(error: &clap::Error) -> String {
    let argument = text(error, ContextKind::InvalidArg);
    let value = text(error, ContextKind::InvalidValue);
    if let (Some(value), Some(argument)) = (value, &argument) {
        let mut message = format!("invalid value '{value}' for '{argument}'");
        if let Some(cause) = error.source() {
            message += &format!(": {}", one_line(&cause));
        }
        match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(valid)) if !valid.is_empty() => {
                message += &format!(" [possible values: {}]", valid.join(", "));
            }
            _ => {}
        }
        return message;
    }
    let mut message = error.render().to_string();
    if let (Some(ContextValue::String(given)), Some(shown)) =
        (error.get(ContextKind::InvalidArg), &argument)
    {
        message = message.replacen(given, shown, 1);
    }
    let message = message.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    let words = message.split(|c: char| c.is_whitespace() || c.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(one_line(text)),
        _ => None,
    }
}

/// Where to read on, by the first argument that is a command.
fn help() -> String {
    let is_mode = |argument: &String| Mode::ALL.iter().any(|mode| mode.name() == argument);
    let command = std::env::args_os().filter_map(|argument| argument.into_string().ok());
    let command = command.skip(1).find(is_mode).map(|mode| format!(" {mode}"));
    format!("ondeck{} --help shows what it takes", command.unwrap_or_default())
}
