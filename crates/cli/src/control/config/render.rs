//! Settings as the text of a file that says the same.

use std::collections::BTreeMap;

use ondeck_core::inputs::{FileForm, FileKey};
use ondeck_core::model::ceiling::MaxMachines;
use ondeck_core::model::requirements::ClassSize;
use ondeck_core::model::settings::MinIdle;
use serde_json::json;

use super::document::{PROCESS_KEYS, settings};
use super::structures::POOL;

/// The text of a file with these inputs of the process and these settings, by name. Settings that are
/// empty are left out, and so are names that are no settings.
pub(super) fn render(
    process: &BTreeMap<String, String>,
    stored: &BTreeMap<String, String>,
) -> String {
    let mut text = String::new();
    for (key, input) in PROCESS_KEYS {
        if let Some(value) = process.get(input) {
            line(&mut text, key, &string(value));
        }
    }
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for (row, FileKey { table, form }) in settings() {
        let Some(value) = stored.get(row.name).filter(|value| !value.is_empty()) else { continue };
        let body = tables.entry(table).or_default();
        match form {
            FileForm::Classes => body.push_str(&classes(value)),
            FileForm::MinIdle => body.push_str(&min_idle(value)),
            FileForm::MaxMachines => body.push_str(&max_machines(value)),
            FileForm::List(_) => line(body, row.name, &list(value)),
            FileForm::Number | FileForm::Whole | FileForm::Flag => {
                line(body, row.name, value.trim());
            }
            FileForm::Text => line(body, row.name, &string(value)),
        }
    }
    for (table, body) in tables {
        let is_plain = !body.starts_with('[');
        let head = if is_plain { format!("[{table}]\n") } else { String::new() };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&head);
        text.push_str(body.trim_start_matches('\n'));
    }
    text
}

fn line(text: &mut String, key: &str, value: &str) {
    text.push_str(&format!("{key} = {value}\n"));
}

/// A string of one line, or a literal one of several where that says the same.
fn string(value: &str) -> String {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    let is_literal = value.contains('\n') && value.chars().all(is_plain);
    if is_literal && !value.contains("'''") && !value.ends_with('\'') {
        return format!("'''\n{value}'''");
    }
    // What JSON escapes, TOML reads in the same way. JSON leaves one more character as it is.
    json!(value).to_string().replace('\u{7f}', "\\u007F")
}

fn list(value: &str) -> String {
    let words = value.split([' ', ',', '\n', '\r', '\t']).filter(|word| !word.is_empty());
    format!("[{}]", words.map(string).collect::<Vec<_>>().join(", "))
}

/// A text that was stored by an earlier version and cannot be read becomes an empty table.
fn classes(value: &str) -> String {
    let classes: BTreeMap<String, ClassSize> = serde_json::from_str(value).unwrap_or_default();
    let tables = classes.iter().map(|(name, ClassSize { cpu, mem })| {
        format!("[classes.{}]\ncpu = {cpu}\nmem = {mem}\n", json!(name))
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn min_idle(value: &str) -> String {
    let minimums = value.parse::<MinIdle>().unwrap_or_default().to_string();
    let entries = minimums.split("; ").flat_map(|entry| {
        let words: Vec<&str> = entry.split(' ').collect();
        let first = words.iter().position(|word| word.contains('=')).unwrap_or(words.len());
        let (window, minimums) = words.split_at(first);
        minimums.iter().map(|word| minimum(window, word)).collect::<Vec<_>>()
    });
    entries.collect::<Vec<_>>().join("\n")
}

/// One minimum of the form `CLASS[/USAGE][/PATTERN,…]=COUNT`, with the words of its window.
fn minimum(window: &[&str], word: &str) -> String {
    let mut text = "[[min-idle]]\n".to_owned();
    let (kind, count) = word.split_once('=').unwrap_or((word, ""));
    let mut parts = kind.split('/');
    line(&mut text, "class", &string(parts.next().unwrap_or_default()));
    line(&mut text, "count", count);
    for part in parts {
        match part {
            "spot" => line(&mut text, "usage-class", &string(part)),
            patterns => line(&mut text, "instance-types", &list(patterns)),
        }
    }
    if let [times @ .., zone] = window {
        line(&mut text, "window", &string(&times.join(" ")));
        line(&mut text, "time-zone", &string(zone));
    }
    text
}

fn max_machines(value: &str) -> String {
    let max = value.parse::<MaxMachines>().unwrap_or_default();
    let mut text = String::new();
    if let Some(pool) = max.pool {
        line(&mut text, POOL, &pool.to_string());
    }
    for (class, number) in &max.classes {
        line(&mut text, &json!(class.as_str()).to_string(), &number.to_string());
    }
    text
}
