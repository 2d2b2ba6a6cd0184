//! The outcome of `ondeck apply`.

use std::collections::{BTreeMap, BTreeSet};

use ondeck_core::model::failure::Failure;
use serde::Serialize;

use super::Report;
use super::configuration::{cut, short};
use super::markdown::{code, plain};
use super::wire::{ResultStatus, SchemaVersion, to_json};
use crate::inputs::Backend;

/// What became of the configuration.
#[derive(Debug)]
pub(crate) struct ApplyReport {
    /// The file; `None` if the configuration was cleared.
    pub(crate) path: Option<String>,
    pub(crate) trust: Option<String>,
    pub(crate) digest: Option<String>,
    /// How many settings the file has for the pool.
    pub(crate) settings: usize,
    pub(crate) changes: Vec<SettingChange>,
    pub(crate) result: ApplyResult,
}

/// Printed by `ondeck apply --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ApplyJson<'a> {
    schema_version: SchemaVersion,
    status: ResultStatus,
    result: ApplyResult,
    /// Only with a trust level.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<&'a str>,
    /// The SHA-256 of the settings. Absent with `--clear`.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    /// How many settings the file has for the pool.
    settings: usize,
    /// What differs from the configuration that was applied before; if none was, from the stored
    /// settings.
    changes: &'a [SettingChange],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum ApplyResult {
    /// The configuration was stored.
    Applied,
    /// The same one was stored before, or with `--clear` there was none.
    Unchanged,
    /// The applied configuration was removed.
    Cleared,
    /// Nothing was stored, because of `--dry-run`.
    DryRun,
}

/// One setting that differs.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChangeJson"))]
pub(crate) struct SettingChange {
    pub(crate) setting: String,
    /// Absent if the setting had its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    /// Absent if the setting returns to its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

/// What differs between two sets of settings, by name.
pub(crate) fn changes(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<SettingChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &String| SettingChange {
        setting: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    };
    names.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

impl SettingChange {
    fn line(&self) -> String {
        let SettingChange { setting, before, after } = self;
        match (before, after) {
            (Some(before), Some(after)) => {
                format!("~ {setting}: {} -> {}", cut(before), cut(after))
            }
            (Some(before), None) => format!("- {setting}: {}", cut(before)),
            (None, after) => format!("+ {setting}: {}", cut(after.as_deref().unwrap_or_default())),
        }
    }
}

impl ApplyReport {
    fn head(&self) -> String {
        let settings = match self.settings {
            1 => "1 setting".to_owned(),
            count => format!("{count} settings"),
        };
        let digest = short(self.digest.as_deref().unwrap_or_default());
        match (self.result, &self.path) {
            (ApplyResult::Applied, _) => {
                format!("applied {settings}, digest {digest}; the next refresh enforces them")
            }
            (ApplyResult::DryRun, _) => format!("would apply {settings}, digest {digest}"),
            (ApplyResult::Cleared, _) => {
                "cleared: refresh takes settings from flags; the stored ones stay".to_owned()
            }
            (ApplyResult::Unchanged, Some(_)) => {
                format!("already applied: {settings}, digest {digest}; nothing was written")
            }
            (ApplyResult::Unchanged, None) => "no configuration is applied".to_owned(),
        }
    }
}

impl Report for ApplyReport {
    fn json(&self) -> String {
        to_json(&ApplyJson {
            schema_version: SchemaVersion,
            status: ResultStatus::Success,
            result: self.result,
            trust: self.trust.as_deref(),
            digest: self.digest.as_deref(),
            settings: self.settings,
            changes: &self.changes,
        })
    }

    fn text(&self) -> String {
        let lines = self.changes.iter().map(SettingChange::line);
        std::iter::once(self.head()).chain(lines).collect::<Vec<_>>().join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn markdown(&self, _backend: Backend) -> String {
        let changes = self.changes.iter().map(|change| format!("- {}\n", code(&change.line())));
        format!("### ondeck apply: {}\n\n{}", plain(&self.head()), changes.collect::<String>())
    }
}
