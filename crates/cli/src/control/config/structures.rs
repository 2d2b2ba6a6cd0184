//! The settings that have a structure of their own: resource classes, minimums of idle machines and
//! ceilings.

use std::collections::BTreeMap;
use std::str::FromStr;

use ondeck_core::inputs::{FileForm, Input};
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::MinIdle;
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Entry, Reader};
use super::source::{Problem, Span};
use super::values::{self, Value};

/// The keys of one class.
pub(super) const CLASS_KEYS: [&str; 2] = ["cpu", "mem"];
/// The keys of one minimum.
pub(super) const MIN_IDLE_KEYS: [&str; 6] =
    ["class", "count", "usage-class", "instance-types", "window", "time-zone"];
/// The key of the ceiling that holds for the whole pool.
pub(super) const POOL: &str = "pool";

/// Reads a structured setting. Notes what is wrong, and returns `None` then.
pub(super) fn read(
    reader: &mut Reader,
    row: &'static Input,
    form: FileForm,
    key: Span,
    value: &Value<'_>,
) -> Option<Entry> {
    let parts = match form {
        FileForm::Classes => classes(reader, row, value),
        FileForm::MinIdle => min_idle(reader, row, value),
        _ => max_machines(reader, row, value),
    }?;
    let texts: Vec<&str> = parts.iter().map(|(text, _)| text.as_str()).collect();
    let text = match form {
        FileForm::Classes => merged(&texts),
        FileForm::MinIdle => canonical(&texts.join("; ")),
        _ => texts.join(" "),
    };
    // Each part was checked by itself. What is left is what they are together, such as too many.
    let checked = match (text.as_str(), form) {
        ("{}", FileForm::Classes) => (row.check)(&text)
            .map_err(|problem| Problem::new(value.span(), format!("{} {problem}", row.name))),
        _ => values::check(row, row.name, &text, value.span()),
    };
    reader.keep(checked)?;
    Some(Entry { text, span: key, parts })
}

type Parts = Option<Vec<(String, Span)>>;

/// Each class, as the JSON of a map that holds only this one.
fn classes(reader: &mut Reader, row: &Input, value: &Value<'_>) -> Parts {
    let table = reader.table("classes", value)?;
    let parts = table.iter().map(|(name, class)| {
        let sizes = reader.table(&format!("classes.{}", name.get_ref()), class)?;
        reader.only_keys(&format!("classes.{}", name.get_ref()), sizes, &CLASS_KEYS);
        let [cpu, mem] = CLASS_KEYS.map(|key| positive(reader, sizes, key, name.span()));
        let (cpu, mem) = (cpu?, mem?);
        let text = json!({ name.get_ref().as_ref(): { "cpu": cpu, "mem": mem } }).to_string();
        reader.keep(values::check(row, row.name, &text, name.span()))?;
        Some((text, name.span()))
    });
    parts.collect::<Vec<_>>().into_iter().collect()
}

/// A size that must be there.
fn positive(reader: &mut Reader, table: &DeTable<'_>, key: &str, of: Span) -> Option<u32> {
    let value = required(reader, table, key, of)?;
    let number = reader.keep(values::whole(key, value))?;
    let number = number.parse::<u32>().ok().filter(|number| *number > 0);
    let outside = || Problem::new(value.span(), format!("{key} must be from 1 to {}", u32::MAX));
    reader.keep(number.ok_or_else(outside))
}

fn required<'a, 't>(
    reader: &mut Reader,
    table: &'a DeTable<'t>,
    key: &str,
    of: Span,
) -> Option<&'a Spanned<DeValue<'t>>> {
    let value = table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value);
    reader.keep(value.ok_or_else(|| Problem::new(of, format!("a key is missing: {key}"))))
}

fn merged(classes: &[&str]) -> String {
    let maps = classes
        .iter()
        .filter_map(|text| serde_json::from_str::<BTreeMap<String, serde_json::Value>>(text).ok());
    let all: BTreeMap<String, serde_json::Value> = maps.flatten().collect();
    json!(all).to_string()
}

/// Each minimum, as an entry of the setting's text.
fn min_idle(reader: &mut Reader, row: &Input, value: &Value<'_>) -> Parts {
    let array = value.get_ref().as_array();
    let array =
        reader.keep(array.ok_or_else(|| values::not("a list of tables", row.name, value)))?;
    let parts = array.iter().map(|item| {
        let table = reader.table(row.name, item)?;
        reader.only_keys(row.name, table, &MIN_IDLE_KEYS);
        let text = minimum(reader, table, item.span())?;
        reader.keep(values::check(row, row.name, &text, item.span()))?;
        Some((text, item.span()))
    });
    parts.collect::<Vec<_>>().into_iter().collect()
}

fn minimum(reader: &mut Reader, table: &DeTable<'_>, of: Span) -> Option<String> {
    let class = required(reader, table, "class", of.clone());
    let class = class.and_then(|value| parsed::<ResourceClass>(reader, "class", value));
    let count = required(reader, table, "count", of);
    let count = count.and_then(|value| reader.keep(values::whole("count", value)));
    let optional = |key: &str| table.iter().find(|(name, _)| name.get_ref() == key);
    let usage = match optional("usage-class") {
        Some((key, value)) => Some(parsed::<UsageClass>(reader, key.get_ref(), value)?),
        None => None,
    };
    let types = match optional("instance-types") {
        Some((_, value)) => Some(instance_types(reader, value)?),
        None => None,
    };
    let window = match optional("window") {
        Some((_, value)) => Some(window(reader, value)?),
        None => None,
    };
    let zone = match (optional("time-zone"), &window) {
        (Some((_, value)), Some(_)) => Some(reader.keep(one_word("time-zone", value))?),
        (Some((key, _)), None) => {
            let problem = Problem::new(key.span(), "time-zone needs a window");
            reader.note(problem.hint("add window, such as \"Mon-Fri 08:00-18:00\""));
            return None;
        }
        (None, _) => None,
    };
    let usage = usage.map(|usage| format!("/{usage}")).unwrap_or_default();
    let types = types.map(|types| format!("/{types}")).unwrap_or_default();
    let minimum = format!("{}{usage}{types}={}", class?, count?);
    Some([window, zone, Some(minimum)].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

fn parsed<T: FromStr>(reader: &mut Reader, key: &str, value: &Value<'_>) -> Option<T>
where
    T::Err: std::fmt::Display,
{
    let text = reader.keep(values::string(key, value))?;
    let parsed = text.parse();
    reader.keep(parsed.map_err(|error: T::Err| Problem::new(value.span(), error.to_string())))
}

fn instance_types(reader: &mut Reader, value: &Value<'_>) -> Option<String> {
    let types = reader.keep(values::words("instance-types", value))?;
    let is_pattern = |word: &String| !word.contains(['/', '=']);
    if types.is_empty() || !types.iter().all(is_pattern) {
        let message = "instance-types must be patterns of instance types";
        reader.note(Problem::new(value.span(), message).hint("such as [\"c7i.*\", \"m7i.large\"]"));
        return None;
    }
    Some(types.join(","))
}

/// Days, a span of the day, or both. A third word would be taken for a time zone.
fn window(reader: &mut Reader, value: &Value<'_>) -> Option<String> {
    let text = reader.keep(values::string("window", value))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let fits = !text.contains([';', '=']) && (1..=2).contains(&words.len());
    let problem = || {
        Problem::new(value.span(), "window must be days, a time span, or both")
            .hint("such as \"Mon-Fri 08:00-18:00\"; the time zone has a key of its own, time-zone")
    };
    reader.keep(fits.then(|| words.join(" ")).ok_or_else(problem))
}

fn one_word(key: &str, value: &Value<'_>) -> Result<String, Problem> {
    let text = values::string(key, value)?;
    let fits = !text.is_empty() && !text.contains([';', '=', ' ', '\n', '\r', '\t']);
    let problem = || Problem::new(value.span(), format!("{key} must be one word"));
    fits.then(|| text.to_owned()).ok_or_else(problem)
}

/// The text that means the same, in the form in which the setting is shown.
fn canonical(text: &str) -> String {
    text.parse::<MinIdle>().map_or_else(|_| text.to_owned(), |minimums| minimums.to_string())
}

/// Each ceiling, as a word of the setting's text. That of the pool comes first.
fn max_machines(reader: &mut Reader, row: &Input, value: &Value<'_>) -> Parts {
    let table = reader.table(row.name, value)?;
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(name, _)| name.get_ref() != POOL);
    let parts = keys.into_iter().map(|(name, value)| {
        let number = reader.keep(values::whole(name.get_ref(), value))?;
        let text = match name.get_ref().as_ref() {
            POOL => number,
            class => format!("{class}={number}"),
        };
        let class = name.get_ref().parse::<ResourceClass>();
        reader.keep(class.map_err(|error| Problem::new(name.span(), error.to_string())))?;
        reader.keep(values::check(row, row.name, &text, value.span()))?;
        Some((text, name.span()))
    });
    parts.collect::<Vec<_>>().into_iter().collect()
}
