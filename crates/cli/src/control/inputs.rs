//! What the control plane makes of the inputs.

use std::collections::BTreeMap;
use std::error::Error as _;

use clap::error::{ContextKind, ContextValue};
use ondeck_core::inputs::{Given, InputScope};
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::secret::Secret;
use ondeck_core::modes::provision::run_from_inputs;

use crate::control::github_actions;
use crate::inputs::{Backend, Common, rows};

/// The secrets among the inputs.
pub(crate) fn secrets(given: &Given) -> impl Iterator<Item = Secret> {
    let secret = crate::inputs::rows().filter(|row| row.scope == InputScope::Secret);
    secret.filter_map(|row| given.secret(row))
}

/// The settings that refresh is to store: what was given, and the forge also when it was not given
/// and machines come from a cloud, because they are of no use to the local forge. An empty text
/// restores a default. Fails with the first setting that its row's parser refuses.
pub(crate) fn settings(common: &Common) -> Result<BTreeMap<String, String>, Failure> {
    let mut settings = BTreeMap::new();
    if common.compute != Backend::Local {
        settings.insert(rows::FORGE.name.to_owned(), rows::GITHUB.to_owned());
    }
    for row in crate::inputs::rows().filter(|row| row.scope == InputScope::Stored) {
        let Some(text) = common.given.text(row) else { continue };
        if !text.is_empty() {
            (row.check)(text).map_err(|problem| {
                Failure::invalid(format!("{} {problem}", row.name))
                    .hint("ondeck refresh --help shows what it takes")
            })?;
        }
        settings.insert(row.name.to_owned(), text.to_owned());
    }
    Ok(settings)
}

/// The run that was named, or the one that this process is part of.
pub(crate) fn run_id(given: &Given) -> Result<RunId, Failure> {
    let of_process = std::env::var("GITHUB_RUN_ID").ok().filter(|run| !run.is_empty());
    run_from_inputs(given, of_process)
}

/// Shows what is wrong with a command line as an annotation, if this process is a step of a
/// workflow. Returns whether it did.
pub(crate) fn show_misuse(error: &clap::Error) -> bool {
    github_actions::show_usage_error(&misuse(error))
}

/// What is wrong with a command line, without the part about the help. A wrong value is not taken
/// from clap's message, which leaves control characters out and may be cut by an empty line in it.
fn misuse(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(one_line(text)),
        _ => None,
    };
    let (value, argument) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    if let (Some(value), Some(argument)) = (value, argument) {
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
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) {
        message = message.replacen(given, &one_line(given), 1);
    }
    let message = message.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    message.trim().to_owned()
}
