//! Writes for GitHub: groups and annotations into the log, step outputs and the job summary into
//! their files. Active only in a workflow step, that is where `GITHUB_ACTIONS` is `true`; elsewhere
//! nothing here prints or writes. What is written is composed by [`report`](super::report).
//!
//! Workflow commands go to stderr, where GitHub reads them too, so that stdout holds only data.

mod commands;
mod groups;
mod log;
mod outputs;
mod summary;

use std::io::Write;
use std::path::PathBuf;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;

pub(crate) use self::commands::harmless;
use self::commands::{Level, add_mask, annotation};
pub(crate) use self::groups::Groups;
pub(crate) use self::log::LogFormat;
#[cfg(test)]
pub(crate) use self::summary::LONGEST as LONGEST_SUMMARY;

/// Masks a secret in every log of the job from here on. Call it before anything else is printed.
pub(crate) fn mask(secret: &Secret) {
    if is_active() {
        add_mask(secret.expose()).iter().for_each(|line| command(line));
    }
}

/// Marks a line and column of a file as the place of an error.
#[cfg(feature = "config")]
pub(crate) fn annotate_line(file: &str, place: (usize, usize), message: &str) {
    command(&commands::line_annotation(file, place, message));
}

/// Whether this process is part of a workflow step.
pub(crate) fn is_active() -> bool {
    is_true("GITHUB_ACTIONS")
}

/// Whether this process is part of a step of ondeck's own action.
pub(crate) fn is_own_action() -> bool {
    is_active() && is_true("ONDECK_ACTION")
}

/// The workflow step that this process is part of.
#[derive(Debug)]
pub(crate) struct Step {
    outputs: Option<PathBuf>,
    summary: Option<PathBuf>,
    /// Whether it is a step of ondeck's own action, which warns about machines that did not respond
    /// to a release instead of failing.
    lenient: bool,
}

/// What a command shows in its step.
pub(crate) struct StepReport {
    /// Empty if the process failed before it knew its command.
    pub(crate) command: &'static str,
    pub(crate) notices: Vec<String>,
    pub(crate) outputs: Vec<(&'static str, String)>,
    /// Becomes the output `result`.
    pub(crate) json: String,
    pub(crate) markdown: String,
    pub(crate) failure: Option<Failure>,
}

impl Step {
    /// The current step. `None` outside of a workflow.
    pub(crate) fn current() -> Option<Step> {
        let file = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        is_active().then(|| Step {
            outputs: file("GITHUB_OUTPUT"),
            summary: file("GITHUB_STEP_SUMMARY"),
            lenient: is_own_action(),
        })
    }

    /// Makes a text safe for stdout: no line of it is a workflow command.
    pub(crate) fn text(&self, text: &str) -> String {
        text.lines().map(commands::harmless).collect::<Vec<_>>().join("\n")
    }

    /// Makes a JSON object safe for stdout: it means the same, and holds no workflow command.
    pub(crate) fn json(&self, object: &str) -> String {
        object.replace("##[", "#\\u0023[")
    }

    /// Writes annotations, outputs and summary. Returns the exit code. Outputs that cannot be
    /// written fail the step, because later steps go by them; a summary is for people only.
    pub(crate) fn show(&self, report: &StepReport) -> u8 {
        let title = format!("ondeck {}", report.command);
        let title = title.trim_end();
        for notice in &report.notices {
            command(&annotation(Level::Notice, title, notice));
        }
        let unwritten = self.write_outputs(report).err();
        if let Some(file) = &self.summary
            && let Err(error) = summary::append(file, &report.markdown)
        {
            tracing::warn!("the job summary cannot be written: {error}");
        }
        let (warnings, errors): (Vec<&Failure>, Vec<&Failure>) =
            report.failure.iter().chain(&unwritten).partition(|failure| self.is_tolerated(failure));
        for warning in warnings {
            command(&annotation(Level::Warning, title, &with_hint(warning)));
        }
        for error in &errors {
            let title = format!("{title}: {}", error.kind.as_str());
            command(&annotation(Level::Error, &title, &with_hint(error)));
        }
        errors.first().map_or(0, |error| error.kind.exit_code())
    }

    fn write_outputs(&self, report: &StepReport) -> Result<(), Failure> {
        let Some(file) = &self.outputs else { return Ok(()) };
        let result = ("result", report.json.clone());
        outputs::append(file, &[&report.outputs[..], &[result]].concat()).map_err(|error| {
            let message = format!("step outputs cannot be written: {}: {error}", file.display());
            Failure::new(FailureKind::Unreported, message)
                .hint("GITHUB_OUTPUT must name a file that the step can write")
        })
    }

    fn is_tolerated(&self, failure: &Failure) -> bool {
        self.lenient && failure.kind == FailureKind::PartlyReleased
    }
}

fn with_hint(failure: &Failure) -> String {
    match failure.hint.as_str() {
        "" => failure.message.clone(),
        hint => format!("{}\nhint: {hint}", failure.message),
    }
}

fn is_true(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "true")
}

/// Prints a workflow command. If stderr is closed, it is dropped.
fn command(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
