//! What a command reports: one JSON object or a few lines of text on stdout, and Markdown for the
//! job summary on GitHub. Each outcome has a file with all three.
//!
//! The JSON comes from the types in those files. `docs/reference/json.md` and the JSON Schemas
//! beside it are generated from the same types.

#[cfg(any(test, feature = "config"))]
pub(crate) mod apply;
#[cfg(any(test, feature = "config"))]
pub(crate) mod config;
pub(crate) mod configuration;
pub(crate) mod cost;
pub(crate) mod doctor;
#[cfg(any(test, feature = "drill"))]
pub(crate) mod drill;
pub(crate) mod estimate;
pub(crate) mod explain;
mod failure;
pub(crate) mod machines;
mod markdown;
#[cfg(any(test, feature = "aws"))]
pub(crate) mod permissions;
pub(crate) mod pool;
mod provision;
#[cfg(test)]
pub(crate) mod reference;
pub(crate) mod refresh;
mod release;
#[cfg(any(test, feature = "config"))]
pub(crate) mod show;
#[cfg(any(test, feature = "simulate"))]
pub(crate) mod simulate;
mod span;
pub(crate) mod status;
mod svg;
mod table;
pub(crate) mod teardown;
mod timeline;
mod wire;
mod wrapped;

use std::io::{IsTerminal, Write};

use ondeck_core::model::failure::Failure;

use self::failure::FailureJson;
pub(crate) use self::span::span;
pub(crate) use self::table::table;
pub(crate) use self::wrapped::wrapped;
use crate::control::github_actions::{self, Step, StepReport};
use crate::inputs::{Backend, Common};
use crate::logging;
use crate::output::unwritten;

/// The outcome of a command, in every form in which it is shown.
pub(crate) trait Report {
    /// One JSON object on one line.
    fn json(&self) -> String;
    /// Lines for a terminal, without a final line break. Empty if there is nothing to show.
    fn text(&self) -> String;
    /// The failure that decides the exit code.
    fn failure(&self) -> Option<Failure>;
    /// Problems that do not make the command fail. They are logged.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// Facts that GitHub shows as notices on the run's page. Elsewhere they are not shown.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
    /// Markdown for the job summary, ending with a line break. Empty if there is none.
    fn markdown(&self, _backend: Backend) -> String {
        String::new()
    }
    /// Step outputs on GitHub, by name. `result` is added to them for every command.
    fn outputs(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Shows the result of a command on stdout, stderr and, in a workflow step, on GitHub. Returns
/// the exit code: that of the result, or if it is a success that could not be shown, that of
/// [`unwritten`].
pub(crate) fn deliver(
    command: &'static str,
    result: Result<&dyn Report, Failure>,
    common: &Common,
) -> u8 {
    show(command, result, common.json, common.compute)
}

/// Shows a failure of a process that has not understood its command line: as JSON if `--json` is
/// on it, and in a workflow step on GitHub. Returns the exit code. Does nothing and returns `None`
/// if there is neither.
pub(crate) fn report_early(failure: &Failure) -> Option<u8> {
    let arguments = std::env::args_os().take_while(|argument| argument != "--");
    let json = arguments.skip(1).any(|argument| {
        argument.as_encoded_bytes().split(|byte| *byte == b'=').next() == Some(b"--json")
    });
    let is_shown = json || github_actions::is_active();
    is_shown.then(|| show("", Err(failure.clone()), json, Backend::Local))
}

fn show(
    command: &'static str,
    result: Result<&dyn Report, Failure>,
    as_json: bool,
    compute: Backend,
) -> u8 {
    let (report, failure) = match result {
        Ok(report) => (Some(report), report.failure()),
        Err(failure) => (None, Some(failure)),
    };
    let json = match (&report, &failure) {
        (Some(report), _) => report.json(),
        (None, Some(failure)) => wire::to_json(&FailureJson::from(failure)),
        (None, None) => String::new(),
    };
    let step = Step::current();
    let text = match &report {
        _ if as_json => json.clone(),
        Some(report) => report.text(),
        None => String::new(),
    };
    let printed = match (&step, text.as_str()) {
        (_, "") => Ok(()),
        (Some(step), text) if as_json => print(&step.json(text)),
        (Some(step), text) => print(&step.text(text)),
        (None, text) => print(text),
    };
    let unprinted = printed.err().and_then(|error| unwritten("stdout", &error));
    if let (Some(_), Some(unprinted)) = (&failure, &unprinted) {
        // The failure of the command itself is the one to report.
        tracing::error!("{unprinted}");
    }
    let failure = failure.or(unprinted);
    for warning in report.iter().flat_map(|report| report.warnings()) {
        tracing::warn!("{warning}");
    }
    if let Some(step) = step {
        let markdown = match (&report, &failure) {
            (Some(report), _) => report.markdown(compute),
            (None, Some(failure)) => failure::section(command, failure),
            (None, None) => String::new(),
        };
        return step.show(&StepReport {
            command,
            notices: report.map(Report::notices).unwrap_or_default(),
            outputs: report.map(Report::outputs).unwrap_or_default(),
            json,
            markdown,
            failure,
        });
    }
    match failure {
        None => 0,
        Some(failure) => logging::fail(&failure),
    }
}

/// Clears the screen, if stdout is a terminal. It does not go through `anstream`, which would remove
/// it together with the colours if `NO_COLOR` is set. It is shown with the next [`print()`].
pub(crate) fn clear_screen() -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if stdout.is_terminal() && !is_dumb {
        stdout.write_all(b"\x1b[2J\x1b[H")?;
    }
    Ok(())
}

/// Prints a line on stdout, and leaves none of it in a buffer.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}
