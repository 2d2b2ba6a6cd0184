//! What settings must be together: checked by the rules of refresh, each problem at its place.

use std::collections::BTreeMap;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::settings::Settings;
use ondeck_core::modes::refresh::check_together;

use super::document::{Document, Entry, Layer};
use super::source::{Problem, Span};

/// The settings of one pool: those of the base, and in their place those of the trust level.
pub(crate) fn layered(base: &Layer, level: Option<&Layer>) -> Layer {
    let mut layer = base.clone();
    layer.extend(level.cloned().unwrap_or_default());
    layer
}

/// The texts of the settings, as refresh stores them.
pub(crate) fn texts(layer: &Layer) -> BTreeMap<String, String> {
    layer.iter().map(|(name, entry)| ((*name).to_owned(), entry.text.clone())).collect()
}

/// What is wrong with the settings of the pool and of each trust level. Expects settings that are each
/// valid by themselves.
pub(super) fn problems(document: &Document) -> Vec<Problem> {
    let mut found = of_pool(&document.base);
    // Where there are levels, the base need not be a pool of its own.
    if document.levels.is_empty() && found.is_empty() {
        found.extend(of_backend(document, &document.base));
    }
    for (_, level) in document.levels.values() {
        let layer = layered(&document.base, Some(level));
        let mut more = of_pool(&layer);
        if more.is_empty() {
            more.extend(of_backend(document, &layer));
        }
        let new: Vec<Problem> = more.into_iter().filter(|one| !found.contains(one)).collect();
        found.extend(new);
    }
    found
}

fn of_pool(layer: &Layer) -> Vec<Problem> {
    let mut found: Vec<Problem> =
        layer.iter().flat_map(|(name, entry)| of_parts(layer, name, entry)).collect();
    found.extend(contradictions(layer));
    if found.is_empty()
        && let Err(failure) = checked(&present(&texts(layer)))
    {
        found.push(at_setting(layer, &failure));
    }
    found
}

/// Each part of a structured setting by itself, with the classes.
fn of_parts(layer: &Layer, name: &str, entry: &Entry) -> Vec<Problem> {
    const CLASSES: &str = "resource-class-config";
    let classes = layer.get(CLASSES).filter(|_| name != CLASSES);
    let parts = entry.parts.iter().filter_map(|(text, span)| {
        let mut map = BTreeMap::from([(name.to_owned(), text.clone())]);
        map.extend(classes.map(|classes| (CLASSES.to_owned(), classes.text.clone())));
        checked(&present(&map)).err().map(|failure| at(&failure, span.clone()))
    });
    parts.collect()
}

/// All times that contradict each other. One of each pair is in the file, since the defaults agree.
fn contradictions(layer: &Layer) -> Vec<Problem> {
    let Ok(settings) = Settings::from_map(&present(&texts(layer))) else { return Vec::new() };
    let found = settings.times.contradictions().into_iter().map(|contradiction| {
        let mut entries = contradiction.inputs.iter().filter_map(|input| layer.get(input));
        let span = entries.next().map_or(0..0, |entry| entry.span.clone());
        Problem::new(span, contradiction.to_string()).hint(without_dashes(&contradiction.hint))
    });
    found.collect()
}

/// A text that is empty stands for the default.
fn present(texts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut texts = texts.clone();
    texts.retain(|_, text| !text.is_empty());
    texts
}

fn checked(texts: &BTreeMap<String, String>) -> Result<(), Failure> {
    let settings =
        Settings::from_map(texts).map_err(|error| Failure::invalid(error.to_string()))?;
    check_together(&settings, texts)
}

/// What EC2 machines need, if the file says that it is about them.
#[cfg(feature = "aws")]
fn of_backend(document: &Document, layer: &Layer) -> Option<Problem> {
    let backend = document.process.get(crate::inputs::rows::BACKEND.name)?;
    if backend.text != crate::inputs::rows::AWS {
        return None;
    }
    let problem = ondeck_aws::check_settings(&present(&texts(layer))).err()?;
    let span = layer.get(problem.name.as_str()).map_or(backend.span.clone(), |e| e.span.clone());
    Some(Problem::new(span, problem.to_string()))
}

#[cfg(not(feature = "aws"))]
fn of_backend(_document: &Document, _layer: &Layer) -> Option<Problem> {
    None
}

/// A failure at the setting whose name its message begins with.
fn at_setting(layer: &Layer, failure: &Failure) -> Problem {
    let name = failure.message.split(' ').next().unwrap_or_default();
    at(failure, layer.get(name).map_or(0..0, |entry| entry.span.clone()))
}

fn at(failure: &Failure, span: Span) -> Problem {
    Problem::new(span, failure.message.clone()).hint(without_dashes(&failure.hint))
}

/// Hints of refresh name flags; in the file the same names are keys.
fn without_dashes(hint: &str) -> String {
    hint.replace(" --", " ")
}
