//! The file as settings: which setting each key is, with its text and its place.

use std::collections::BTreeMap;

use ondeck_core::inputs::{FileForm, FileKey, Input, InputScope, InputValue};
use ondeck_core::model::excerpt::{one_line, quoted};
use toml::Spanned;
use toml::de::DeTable;

use super::source::{Problem, Source, Span};
use super::structures;
use super::suggestion::nearest;
use super::values::{self, Value};
use crate::inputs::rows;

/// A setting of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    /// Where its key is in the text of the file.
    pub(crate) span: Span,
    /// The parts of a structured setting, each with its own text and place.
    pub(crate) parts: Vec<(String, Span)>,
}

/// Settings of one pool, by name.
pub(crate) type Layer = BTreeMap<&'static str, Entry>;

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// The inputs of the process that the file gives: which pool it is, and where.
    pub(crate) process: Layer,
    /// The settings of the pool.
    pub(crate) base: Layer,
    /// For each trust level, where its table is and what differs from the base.
    pub(crate) levels: BTreeMap<String, (Span, Layer)>,
}

/// The keys at the top of the file that are inputs of the process, with the names of those inputs.
pub(super) const PROCESS_KEYS: [(&str, &str); 3] =
    [("pool", "pool"), ("backend", "backend"), ("region", "aws-region")];
/// The table with the trust levels.
pub(super) const TRUST: &str = "trust";

/// Reads a file. The document holds what could be read; the problems are all that is wrong with single
/// keys and values, in no order.
pub(crate) fn read(source: &Source) -> (Document, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let syntax: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or(0..0);
            Problem::new(span, format!("not valid TOML: {}", one_line(&error.message())))
        })
        .collect();
    let mut reader = Reader::default();
    let document = reader.document(table.get_ref());
    // On a line that is no TOML, what was read may not be what was meant.
    let line = |span: &Span| source.position(span.start).0;
    let broken: Vec<usize> = syntax.iter().map(|problem| line(&problem.span)).collect();
    reader.problems.retain(|problem| !broken.contains(&line(&problem.span)));
    (document, [syntax, reader.problems].concat())
}

/// The stored settings that the file can hold, with their places.
pub(crate) fn settings() -> impl Iterator<Item = (&'static Input, FileKey)> {
    rows().filter_map(|row| Some((row, row.file?)))
}

/// The row of an input of the process that the file can give. A build without AWS lacks some.
pub(super) fn process_row(name: &str) -> Option<&'static Input> {
    rows().find(|row| row.name == name)
}

/// Collects problems while a file is read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn note(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The value, or `None` after the problem is noted.
    pub(super) fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.note(problem)).ok()
    }

    /// The value as a table.
    pub(super) fn table<'a, 't>(
        &mut self,
        name: &str,
        value: &'a Value<'t>,
    ) -> Option<&'a DeTable<'t>> {
        let table = value.get_ref().as_table();
        self.keep(table.ok_or_else(|| values::not("a table", name, value)))
    }

    /// Notes each key of the table that is none of these.
    pub(super) fn only_keys(&mut self, name: &str, table: &DeTable<'_>, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            self.unknown(key, name, known.iter().copied());
        }
    }

    fn document(&mut self, table: &DeTable<'_>) -> Document {
        let mut document = Document::default();
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            if let Some((_, input)) = PROCESS_KEYS.iter().find(|(known, _)| *known == name) {
                if let Some(text) = self.process(name, input, value) {
                    let entry = Entry { text, span: key.span(), parts: Vec::new() };
                    document.process.insert(input, entry);
                }
            } else if name == TRUST {
                document.levels = self.levels(value);
            } else {
                let known = PROCESS_KEYS.iter().map(|(known, _)| *known).chain([TRUST]);
                self.part(&mut document.base, key, value, "", known);
            }
        }
        document
    }

    fn process(&mut self, key: &str, input: &str, value: &Value<'_>) -> Option<String> {
        let text = self.keep(values::string(key, value))?;
        if let Some(row) = process_row(input) {
            self.keep(values::check(row, key, text, value.span()))?;
        }
        Some(text.to_owned())
    }

    fn levels(&mut self, value: &Value<'_>) -> BTreeMap<String, (Span, Layer)> {
        let mut levels = BTreeMap::new();
        let Some(table) = self.table(TRUST, value) else { return levels };
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            if let Some(row) = process_row(TRUST) {
                self.keep(values::check(row, "a trust level", name, key.span()));
            }
            let within = format!("{TRUST}.{name}");
            let Some(table) = self.table(&within, value) else { continue };
            let mut layer = Layer::new();
            for (key, value) in table.iter() {
                self.part(&mut layer, key, value, &within, std::iter::empty());
            }
            levels.insert(name.to_owned(), (key.span(), layer));
        }
        levels
    }

    /// Reads a table with plain settings, or a structured setting. `others` are further keys that are
    /// known at the same place.
    fn part(
        &mut self,
        layer: &mut Layer,
        key: &Spanned<toml::de::DeString<'_>>,
        value: &Value<'_>,
        within: &str,
        others: impl Iterator<Item = &'static str>,
    ) {
        let name = key.get_ref().as_ref();
        let of_table: Vec<_> = settings().filter(|(_, place)| place.table == name).collect();
        match of_table.first() {
            None => {
                let tables = settings().map(|(_, place)| place.table);
                self.unknown(key, within, tables.chain(others));
            }
            Some((row, FileKey { form, .. })) if form.is_structured() => {
                let entry = structures::read(self, row, *form, key.span(), value);
                layer.extend(entry.map(|entry| (row.name, entry)));
            }
            Some(_) => {
                let within = path(within, name);
                let Some(table) = self.table(&within, value) else { return };
                for (key, value) in table.iter() {
                    self.setting(layer, &of_table, key, value, &within);
                }
            }
        }
    }

    fn setting(
        &mut self,
        layer: &mut Layer,
        of_table: &[(&'static Input, FileKey)],
        key: &Spanned<toml::de::DeString<'_>>,
        value: &Value<'_>,
        within: &str,
    ) {
        let name = key.get_ref().as_ref();
        let found = of_table.iter().find(|(row, _)| row.name == name);
        let Some((row, FileKey { form, .. })) = found else {
            return self.unknown(key, within, of_table.iter().map(|(row, _)| row.name));
        };
        if let Some(text) = self.keep(values::plain(row, *form, value)) {
            layer.insert(row.name, Entry { text, span: key.span(), parts: Vec::new() });
        }
    }

    /// Notes a key that is not known here, with the best guess at what was meant.
    fn unknown<'a>(
        &mut self,
        key: &Spanned<toml::de::DeString<'_>>,
        within: &str,
        known: impl Iterator<Item = &'a str>,
    ) {
        let name = key.get_ref().as_ref();
        let elsewhere = rows().find(|row| row.name == name);
        let problem = match elsewhere.map(|row| (row, row.scope, row.file)) {
            Some((row, InputScope::Secret, _)) => secret(row, key.span()),
            Some((row, InputScope::Stored, Some(place))) => moved(row, place, key.span()),
            Some((row, ..)) => not_a_setting(row, key.span()),
            None => {
                let place =
                    if within.is_empty() { String::new() } else { format!(" in [{within}]") };
                let message = format!("unknown key{place}: {}", quoted(name));
                Problem::new(key.span(), message).hint(guess(name, known))
            }
        };
        self.note(problem);
    }
}

fn guess<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    if let Some(here) = nearest(name, known) {
        return format!("did you mean {here}?");
    }
    let elsewhere = nearest(name, settings().map(|(row, _)| row.name));
    let place = elsewhere.and_then(|name| settings().find(|(row, _)| row.name == name));
    match place {
        Some((row, place)) => format!("did you mean {}?", told(row, place)),
        None => "docs/reference/ondeck-toml.md lists every key".to_owned(),
    }
}

/// A setting and where it belongs.
fn told(row: &Input, place: FileKey) -> String {
    match place.form {
        FileForm::Classes => "[classes.NAME]".to_owned(),
        FileForm::MinIdle => "[[min-idle]]".to_owned(),
        FileForm::MaxMachines => "[max-machines]".to_owned(),
        _ => format!("{} in [{}]", row.name, place.table),
    }
}

fn secret(row: &Input, span: Span) -> Problem {
    Problem::new(span, format!("a secret must not be in the file: {}", row.name)).hint(format!(
        "remove it, replace the secret, and give the new one to refresh as {}",
        row.variable()
    ))
}

fn moved(row: &Input, place: FileKey, span: Span) -> Problem {
    Problem::new(span, format!("a setting at the wrong place: {}", row.name))
        .hint(format!("write it as {}", told(row, place)))
}

fn not_a_setting(row: &Input, span: Span) -> Problem {
    let message = format!("not a setting of the pool, but an option of a command: {}", row.name);
    let given = match row.value {
        InputValue::Text(_) | InputValue::Choice(..) if row.has_variable() => {
            format!("give it as --{}, or as {}", row.name, row.variable())
        }
        _ => format!("give it as --{}", row.name),
    };
    Problem::new(span, message).hint(given)
}

fn path(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") }
}
