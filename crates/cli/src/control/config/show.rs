//! `ondeck config show` and `ondeck config export`: the settings of the pool, by the file and by what
//! is stored.

use std::collections::BTreeMap;

use ondeck_core::inputs::{Input, InputDefault};
use ondeck_core::model::failure::Failure;
use ondeck_core::model::settings::ENFORCED_CONFIG;

use super::document::{Layer, PROCESS_KEYS, TRUST, process_row, settings};
use super::{PoolFile, Unusable, apply, digest, level, process, render, together};
use crate::control::applied::{Applied, follows_release};
use crate::control::backend;
use crate::control::report::show::{Origin, ShowReport, ShowRow, StoredConfiguration};
use crate::inputs::{Common, rows};

/// The effective values, and where each comes from; with `--stored`, also what the pool has stored.
pub(super) async fn show(common: &Common) -> Result<ShowReport, Failure> {
    let file = PoolFile::read(common).map_err(Unusable::shown)?;
    let layer = file.layer(level(common).as_deref())?;
    let of_pool = process::common(common, &file)?;
    let mut settings: Vec<ShowRow> =
        self::settings().map(|(row, _)| setting(&file, &layer, row)).collect();
    let mut stored = None;
    if common.given.is_set(&rows::STORED) {
        let plane = backend::plane_of_apply(&of_pool, false).await?;
        let found = apply::stored(&plane).await?.unwrap_or_default();
        for row in &mut settings {
            row.stored = Some(found.get(&row.setting).cloned().unwrap_or_default());
        }
        stored = Some(configuration(&found)?);
    }
    let process: Vec<ShowRow> = PROCESS_KEYS
        .iter()
        .map(|(_, input)| *input)
        .chain([TRUST])
        .filter_map(|input| Some(process_value(common, &file, process_row(input)?)))
        .collect();
    let digest = digest(&together::texts(&layer));
    Ok(ShowReport { path: file.source.path, digest, process, settings, stored })
}

/// The text of a file with the settings that the pool has stored.
pub(super) async fn export(common: &Common) -> Result<String, Failure> {
    let plane = backend::plane_of_apply(common, false).await?;
    let stored = plane.retried(|| plane.store.settings()).await?;
    let given = PROCESS_KEYS.iter().filter_map(|(_, input)| {
        let text = common.given.text(process_row(input)?).filter(|text| !text.is_empty())?;
        Some(((*input).to_owned(), text.to_owned()))
    });
    Ok(render::render(&given.collect(), &stored))
}

fn setting(file: &PoolFile, layer: &Layer, row: &'static Input) -> ShowRow {
    let variable = std::env::var(row.variable()).ok().filter(|text| !text.is_empty());
    let (value, origin) = match (layer.get(row.name), variable) {
        (Some(entry), _) => {
            let line = file.source.position(entry.span.start).0;
            (entry.text.clone(), Origin::File(format!("{}:{line}", file.source.path)))
        }
        (None, Some(text)) if follows_release(row) => (text, Origin::Variable(row.variable())),
        (None, _) => (default(row), Origin::Default),
    };
    ShowRow { setting: row.name.to_owned(), value, origin, stored: None }
}

fn process_value(common: &Common, file: &PoolFile, row: &'static Input) -> ShowRow {
    let given = common.given.text(row).filter(|text| !text.is_empty());
    let variable = std::env::var(row.variable()).ok();
    let (value, origin) = match (given, file.document.process.get(row.name)) {
        (Some(text), _) if variable.as_deref() == Some(text) => {
            (text.to_owned(), Origin::Variable(row.variable()))
        }
        (Some(text), _) => (text.to_owned(), Origin::CommandLine),
        (None, Some(entry)) => {
            let line = file.source.position(entry.span.start).0;
            (entry.text.clone(), Origin::File(format!("{}:{line}", file.source.path)))
        }
        (None, None) => (default(row), Origin::Default),
    };
    ShowRow { setting: row.name.to_owned(), value, origin, stored: None }
}

/// The default, or words about it.
fn default(row: &Input) -> String {
    match row.default {
        InputDefault::None => String::new(),
        InputDefault::Value(text) | InputDefault::Described(text) => text.to_owned(),
    }
}

fn configuration(stored: &BTreeMap<String, String>) -> Result<StoredConfiguration, Failure> {
    let applied = Applied::among(stored)?;
    Ok(StoredConfiguration {
        applied: applied.as_ref().map(|applied| applied.digest.clone()),
        applied_at: applied.map(|applied| applied.applied_at),
        enforced: stored.get(ENFORCED_CONFIG).cloned(),
    })
}
