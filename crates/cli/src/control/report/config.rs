//! What `ondeck config` shows.

use ondeck_core::model::failure::Failure;
use serde::Serialize;

use super::Report;
use super::configuration::short;
use super::failure::ErrorJson;
use super::wire::{ResultStatus, SchemaVersion, to_json};

/// What a check of the file found.
#[derive(Debug)]
pub(crate) struct CheckReport {
    /// The file, as it was given.
    pub(crate) path: String,
    /// Empty if there are problems.
    pub(crate) pools: Vec<PoolDigest>,
    pub(crate) problems: Vec<FileProblem>,
}

/// Printed by `ondeck config check --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ConfigCheckJson<'a> {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// The file that was checked, as it was given.
    file: &'a str,
    /// The pool and its trust levels. Empty if the file has errors.
    pools: &'a [PoolDigest],
    /// All errors of the file, in its order.
    problems: &'a [FileProblem],
    /// Only if the file has errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// The settings of one pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PoolJson"))]
pub(crate) struct PoolDigest {
    /// The trust level. Absent for the pool without a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trust: Option<String>,
    /// How many settings the file has for it.
    pub(crate) settings: usize,
    /// The SHA-256 of these settings.
    pub(crate) digest: String,
}

/// One error of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ProblemJson"))]
pub(crate) struct FileProblem {
    /// Counted from 1 on.
    pub(crate) line: usize,
    /// In characters, from 1 on.
    pub(crate) column: usize,
    pub(crate) message: String,
    /// What may help. Empty if there is nothing to say.
    pub(crate) hint: String,
    /// The line and marks below the part that the error is about. Empty if it may show a secret.
    pub(crate) excerpt: String,
}

impl Report for CheckReport {
    fn json(&self) -> String {
        let failure = self.failure();
        to_json(&ConfigCheckJson {
            schema_version: SchemaVersion,
            status: failure.as_ref().into(),
            file: &self.path,
            pools: &self.pools,
            problems: &self.problems,
            error: failure.as_ref().map(ErrorJson::from),
        })
    }

    fn text(&self) -> String {
        let lines = self.pools.iter().map(|pool| {
            let of_level = pool.trust.as_ref().map(|level| format!(" [trust.{level}]"));
            let PoolDigest { settings, digest, .. } = pool;
            let settings = if *settings == 1 {
                "1 setting".to_owned()
            } else {
                format!("{settings} settings")
            };
            format!(
                "{}{}: {settings}, digest {}",
                self.path,
                of_level.unwrap_or_default(),
                short(digest)
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        // The problems were listed, so there is nothing to hint at.
        (!self.problems.is_empty()).then(|| invalid_file(&self.path, self.problems.len()).hint(""))
    }
}

/// A file that says what the pool has stored.
#[derive(Debug)]
pub(crate) struct ExportReport {
    pub(crate) text: String,
}

/// Printed by `ondeck config export --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ConfigExportJson<'a> {
    schema_version: SchemaVersion,
    /// The text of the file.
    text: &'a str,
}

impl Report for ExportReport {
    fn json(&self) -> String {
        to_json(&ConfigExportJson { schema_version: SchemaVersion, text: &self.text })
    }

    fn text(&self) -> String {
        self.text.trim_end().to_owned()
    }

    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// The failure of a command whose file has this many errors.
pub(crate) fn invalid_file(path: &str, count: usize) -> Failure {
    let errors = if count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
    Failure::invalid(format!("{errors} in the file of the pool: {path}"))
        .hint(format!("ondeck config check --config {path} lists them"))
}
