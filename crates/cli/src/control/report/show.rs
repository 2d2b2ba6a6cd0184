//! What `ondeck config show` shows.

use ondeck_core::model::failure::Failure;
use serde::{Serialize, Serializer};

use super::configuration::{cut, short};
use super::wire::{SchemaVersion, to_json};
use super::{Report, table};

/// The settings of a pool, and where each comes from.
#[derive(Debug)]
pub(crate) struct ShowReport {
    pub(crate) path: String,
    pub(crate) digest: String,
    /// Which pool it is, and where.
    pub(crate) process: Vec<ShowRow>,
    pub(crate) settings: Vec<ShowRow>,
    /// With `--stored`.
    pub(crate) stored: Option<StoredConfiguration>,
}

/// Printed by `ondeck config show --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ConfigShowJson<'a> {
    schema_version: SchemaVersion,
    /// The file, as it was given.
    file: &'a str,
    /// The SHA-256 of its settings for this pool.
    digest: &'a str,
    /// Which pool it is, and where.
    process: &'a [ShowRow],
    /// Every setting.
    settings: Vec<SettingJson<'a>>,
    /// Only with `--stored`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<&'a StoredConfiguration>,
}

/// One input.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "InputJson"))]
pub(crate) struct ShowRow {
    /// The name of the input.
    pub(crate) setting: String,
    /// The value; for a default, it may be a description of it.
    pub(crate) value: String,
    /// Where the value comes from: file and line, a variable, `command line` or `default`.
    #[serde(rename = "from")]
    pub(crate) origin: Origin,
    /// With `--stored`. Empty if the setting has its default.
    #[serde(skip)]
    pub(crate) stored: Option<String>,
}

/// One setting.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SettingJson<'a> {
    #[serde(flatten)]
    row: &'a ShowRow,
    /// Only with `--stored`: what the pool has stored. Empty if the setting has its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<&'a str>,
    /// Only with `--stored`: whether that is another value than the file has.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<bool>,
}

/// Where a value comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file, with the line.
    File(String),
    Variable(String),
    CommandLine,
    Default,
}

/// What the pool has stored about its configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "StoredJson"))]
pub(crate) struct StoredConfiguration {
    /// The digest of the applied configuration. Absent if none is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) applied: Option<String>,
    /// When it was applied: RFC 3339, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) applied_at: Option<String>,
    /// The digest of the configuration that refresh has enforced. Absent if it has enforced none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enforced: Option<String>,
}

impl Origin {
    fn text(&self) -> &str {
        match self {
            Origin::File(text) | Origin::Variable(text) => text,
            Origin::CommandLine => "command line",
            Origin::Default => "default",
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Origin {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Origin".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

impl ShowRow {
    /// Whether another value is stored; `None` without `--stored`. What follows the release is not in
    /// the file, and may be stored.
    fn differs(&self) -> Option<bool> {
        let stored = self.stored.as_ref()?;
        Some(match self.origin {
            Origin::Default => !stored.is_empty(),
            _ => *stored != self.value,
        })
    }

    fn cells(&self, with_stored: bool) -> Vec<String> {
        let mut cells = vec![self.setting.clone(), cut(&self.value), self.origin.text().to_owned()];
        if with_stored {
            cells.push(match self.differs() {
                None => String::new(),
                Some(false) => "same".to_owned(),
                Some(true) if self.stored.as_deref() == Some("") => "default".to_owned(),
                Some(true) => cut(self.stored.as_deref().unwrap_or_default()),
            });
        }
        cells
    }
}

impl ShowReport {
    fn stored_line(&self, stored: &StoredConfiguration) -> String {
        let applied = match (&stored.applied, &stored.applied_at) {
            (Some(digest), Some(at)) if *digest == self.digest => format!("this file, at {at}"),
            (Some(digest), Some(at)) => format!("another one, {}, at {at}", short(digest)),
            _ => "none".to_owned(),
        };
        let enforced = match &stored.enforced {
            Some(digest) if stored.applied.as_ref() == Some(digest) => "the same".to_owned(),
            Some(digest) => short(digest).to_owned(),
            None => "none".to_owned(),
        };
        format!("applied: {applied}\nenforced by refresh: {enforced}")
    }
}

impl Report for ShowReport {
    fn json(&self) -> String {
        let settings = self.settings.iter().map(|row| SettingJson {
            row,
            stored: row.stored.as_deref(),
            differs: row.differs(),
        });
        to_json(&ConfigShowJson {
            schema_version: SchemaVersion,
            file: &self.path,
            digest: &self.digest,
            process: &self.process,
            settings: settings.collect(),
            stored: self.stored.as_ref(),
        })
    }

    fn text(&self) -> String {
        let with_stored = self.stored.is_some();
        let header = ["setting", "value", "from", "stored"];
        let header = if with_stored { &header[..] } else { &header[..3] };
        let rows = self.process.iter().chain(&self.settings);
        let table = table(header, rows.map(|row| row.cells(with_stored)).collect());
        let mut text = format!("{table}\n\n{}: digest {}", self.path, short(&self.digest));
        if let Some(stored) = &self.stored {
            text += &format!("\n{}", self.stored_line(stored));
        }
        text
    }

    fn failure(&self) -> Option<Failure> {
        None
    }
}
