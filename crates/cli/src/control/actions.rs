//! What GitHub shows of a call: groups and annotations in the log, step outputs, the job summary.
//! In force where `GITHUB_ACTIONS` says so; elsewhere nothing here prints or writes anything.
//!
//! Commands go to stderr, where GitHub looks for them as well, so that stdout stays data.

pub(crate) mod commands;
mod groups;
mod log;
mod money;
mod outputs;
pub(crate) mod summary;

use std::io::Write;
use std::path::PathBuf;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;
use serde_json::Value;

use self::commands::{Level, add_mask, annotation};
pub(crate) use self::groups::Groups;
pub(crate) use self::log::Lines;
use crate::control::output::Telling;
use crate::inputs::Backend;

/// Keeps a secret out of every log of the job from here on, should anything ever print it. To be
/// called before anything else is said.
pub(crate) fn mask(secret: &Secret) {
    if is_in_force() {
        add_mask(secret.expose()).iter().for_each(|line| say(line));
    }
}

/// A command line that makes no sense is shown where the other errors are; says whether it was.
pub(crate) fn show_misuse(message: &str) -> bool {
    if is_in_force() {
        say(&annotation(Level::Error, "ondeck: invalid-input", message));
    }
    is_in_force()
}

/// Whether this is a step of a workflow.
pub(crate) fn is_in_force() -> bool {
    says_true("GITHUB_ACTIONS")
}

/// A workflow's step, as far as it takes anything from us.
#[derive(Debug)]
pub(crate) struct Step {
    outputs: Option<PathBuf>,
    summary: Option<PathBuf>,
    /// Whether it is a step of ondeck's own action, which takes machines that did not come back
    /// for a warning.
    lenient: bool,
}

/// What a mode has to show.
pub(crate) struct Shown<'a> {
    /// Its name.
    pub(crate) mode: &'static str,
    /// What came of it, if it came to anything.
    pub(crate) telling: Option<&'a dyn Telling>,
    /// What went wrong, if anything did.
    pub(crate) failure: Option<&'a Failure>,
    /// The whole of it, for programs.
    pub(crate) object: &'a Value,
    /// What the machines were.
    pub(crate) backend: Backend,
}

impl Step {
    /// The step that this process is part of.
    pub(crate) fn around() -> Option<Step> {
        let file = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        is_in_force().then(|| Step {
            outputs: file("GITHUB_OUTPUT"),
            summary: file("GITHUB_STEP_SUMMARY"),
            lenient: says_true("ONDECK_ACTION"),
        })
    }

    /// A text for stdout, where GitHub looks for commands too.
    pub(crate) fn text(&self, text: &str) -> String {
        text.lines().map(commands::harmless).collect::<Vec<_>>().join("\n")
    }

    /// An object for stdout. It means the same, and holds no command.
    pub(crate) fn json(&self, object: &Value) -> String {
        object.to_string().replace("##[", "#\\u0023[")
    }

    /// Shows it, and gives the exit code.
    pub(crate) fn show(&self, shown: &Shown<'_>) -> u8 {
        let notices = shown.telling.map(Telling::notices).unwrap_or_default();
        let title = format!("ondeck {}", shown.mode);
        notices.iter().for_each(|notice| say(&annotation(Level::Notice, &title, notice)));
        if let Some(file) = &self.outputs {
            warn_unless("outputs", outputs::append(file, &outputs::of(shown)));
        }
        if let Some(file) = &self.summary {
            warn_unless("the summary", summary::append(file, &summary::of(shown)));
        }
        match shown.failure {
            None => 0,
            Some(failure) if self.lenient && failure.kind == FailureKind::PartlyReleased => {
                say(&annotation(Level::Warning, &title, &with_hint(failure)));
                0
            }
            Some(failure) => {
                let title = format!("{title}: {}", failure.kind.as_str());
                say(&annotation(Level::Error, &title, &with_hint(failure)));
                failure.kind.exit_code()
            }
        }
    }
}

fn with_hint(failure: &Failure) -> String {
    match failure.hint.as_str() {
        "" => failure.message.clone(),
        hint => format!("{}\nhint: {hint}", failure.message),
    }
}

/// What people do not get to see is no reason to fail a mode that has done its work.
fn warn_unless(what: &str, written: std::io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!("{what} cannot be written: {error}");
    }
}

fn says_true(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "true")
}

fn say(line: &str) {
    // Where stderr is closed there is nobody to tell.
    drop(writeln!(std::io::stderr(), "{line}"));
}
