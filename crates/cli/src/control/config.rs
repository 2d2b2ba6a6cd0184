//! The file of a pool, `ondeck.toml`, and the commands that read it: `ondeck config` and
//! `ondeck apply`.

mod apply;
mod branch;
mod check;
mod diagnostics;
mod document;
mod process;
#[cfg(test)]
#[cfg(all(feature = "aws", feature = "github", feature = "local"))]
mod reference;
mod render;
#[cfg(test)]
#[cfg(all(feature = "aws", feature = "github", feature = "local"))]
mod schema;
mod show;
mod source;
mod structures;
mod suggestion;
#[cfg(test)]
#[cfg(all(feature = "aws", feature = "github", feature = "local"))]
mod tests;
mod together;
mod values;

use std::collections::BTreeMap;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::failure::Failure;
use sha2::{Digest, Sha256};

use self::document::{Document, Layer};
use self::source::Source;
use crate::control::report::config::{ExportReport, FileProblem, invalid_file};
use crate::control::report::{Report, deliver};
use crate::inputs::{Common, rows};
use crate::logging;
use crate::surroundings::stop_on_signals;

/// A file without a problem.
#[derive(Debug)]
pub(crate) struct PoolFile {
    pub(crate) source: Source,
    document: Document,
}

/// The lines of a file with these settings, by name. Those that are empty are left out.
#[cfg(feature = "simulate")]
pub(crate) fn file_of(settings: &BTreeMap<String, String>) -> String {
    render::render(&BTreeMap::new(), settings)
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It could not be read.
    Unread(Failure),
    /// Something is wrong with what it says.
    Invalid { path: String, problems: Vec<FileProblem> },
}

impl PoolFile {
    /// Reads the file that was named, or `ondeck.toml` in the current folder.
    pub(crate) fn read(common: &Common) -> Result<PoolFile, Unusable> {
        let path = common.given.owned(&rows::CONFIG).unwrap_or_default();
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let message = format!("the file of the pool cannot be read: {path}: {error}");
            Unusable::Unread(Failure::invalid(message).hint("give --config FILE"))
        })?;
        PoolFile::parse(Source { path, text })
    }

    fn parse(source: Source) -> Result<PoolFile, Unusable> {
        let (document, mut problems) = document::read(&source);
        if problems.is_empty() {
            problems = together::problems(&document);
        }
        match problems.is_empty() {
            true => Ok(PoolFile { source, document }),
            false => {
                let problems = source.locate(&problems);
                Err(Unusable::Invalid { path: source.path, problems })
            }
        }
    }

    /// The trust levels, in alphabetical order.
    fn levels(&self) -> impl Iterator<Item = String> {
        self.document.levels.keys().cloned()
    }

    /// The settings of the pool, or of its trust level. Fails if the file has no such level.
    pub(crate) fn layer(&self, level: Option<&str>) -> Result<Layer, Failure> {
        let Some(level) = level else { return Ok(self.document.base.clone()) };
        match self.document.levels.get(level) {
            Some((_, layer)) => Ok(together::layered(&self.document.base, Some(layer))),
            None => {
                let message = format!("{} has no trust level {}", self.source.path, quoted(level));
                Err(Failure::invalid(message)
                    .hint(format!("add [trust.{level}], which may be empty")))
            }
        }
    }
}

/// Checks the text of a file that is not written yet. A draft may lack settings that a pool needs.
/// Fails after each problem was shown.
#[cfg(feature = "init")]
pub(crate) fn check_text(path: &str, text: &str, is_draft: bool) -> Result<(), Failure> {
    let source = Source { path: path.to_owned(), text: text.to_owned() };
    if !is_draft {
        return PoolFile::parse(source).map(drop).map_err(Unusable::shown);
    }
    let (_, problems) = document::read(&source);
    let problems = source.locate(&problems);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Unusable::Invalid { path: source.path, problems }.shown()),
    }
}

impl Unusable {
    /// Shows each problem of the file, and makes one failure of them.
    fn shown(self) -> Failure {
        match self {
            Unusable::Unread(failure) => failure,
            Unusable::Invalid { path, problems } => {
                diagnostics::show(&path, &problems);
                invalid_file(&path, problems.len())
            }
        }
    }
}

/// The tasks of `ondeck config`.
pub(crate) const TASKS: [&str; 3] = ["check", "show", "export"];

/// Runs `ondeck config` and returns its exit code.
pub(crate) async fn config(common: &Common, arguments: &[String]) -> u8 {
    logging::start(common, std::io::stderr);
    let stop = stop_on_signals();
    match arguments.first().map(String::as_str) {
        Some("show") => {
            let shown = stop.unless_raised(show::show(common)).await;
            tell("config", &shown.unwrap_or_else(|stop| Err(stop.into())), common)
        }
        Some("export") => {
            let made = stop.unless_raised(show::export(common)).await;
            let made = made.unwrap_or_else(|stop| Err(stop.into()));
            tell("config", &made.map(|text| ExportReport { text }), common)
        }
        _ => {
            let checked = check::check(common);
            if let Ok(report) = &checked {
                diagnostics::show(&report.path, &report.problems);
            }
            tell("config", &checked, common)
        }
    }
}

/// Runs `ondeck apply` and returns its exit code.
pub(crate) async fn apply(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let stop = stop_on_signals();
    let work = async {
        match common.given.is_set(&rows::CLEAR) {
            true => apply::clear(common).await,
            false => apply::apply(common).await,
        }
    };
    // A signal leaves what was applied before, or all that is applied now: there is one write.
    let result = stop.unless_raised(work).await.unwrap_or_else(|stop| Err(stop.into()));
    tell("apply", &result, common)
}

fn tell<R: Report>(command: &'static str, result: &Result<R, Failure>, common: &Common) -> u8 {
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver(command, told, common)
}

/// The SHA-256 of the settings' names and texts, in hexadecimal digits. Equal settings have equal
/// digests, however the file writes them.
pub(crate) fn digest(settings: &BTreeMap<String, String>) -> String {
    let text = serde_json::json!(settings).to_string();
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The trust level that was given.
pub(crate) fn level(common: &Common) -> Option<String> {
    let row = document::process_row(document::TRUST)?;
    common.given.owned(row).filter(|level| !level.is_empty())
}
