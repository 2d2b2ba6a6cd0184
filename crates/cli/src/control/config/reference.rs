//! Generates `docs/reference/ondeck-toml.md` and the JSON schema of the file from the rows of the
//! settings, and checks that they are up to date.
//!
//! `UPDATE=1 cargo test -p ondeck --all-features ondeck_toml` writes them.

use std::collections::BTreeMap;

use ondeck_core::inputs::{FileForm, FileKey, Input, InputDefault, InputValue};

use super::document::settings;
use super::schema::schema;
use crate::control::report::reference::check;

/// A file that uses every kind of value.
pub(super) const EXAMPLE: &str = include_str!("../../../../../examples/ondeck.toml");
const TEXT: &str = include_str!("reference/page.template");

#[test]
fn ondeck_toml_docs_are_up_to_date() {
    let schema = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    let page = TEXT.replace("EXAMPLE\n", EXAMPLE).replace("TABLES\n", &tables());
    let outdated: Vec<_> =
        [check("schemas/ondeck-toml.json", &schema), check("ondeck-toml.md", &page)]
            .into_iter()
            .flatten()
            .collect();
    assert!(
        outdated.is_empty(),
        "out of date: {outdated:?}\nhint: UPDATE=1 cargo test -p ondeck --all-features ondeck_toml"
    );
}

/// The keys of each table with plain values.
fn tables() -> String {
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for (row, FileKey { table, form }) in settings().filter(|(_, key)| !key.form.is_structured()) {
        *tables.entry(table).or_default() += &line(row, form);
    }
    let head = "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
    let section = |(table, lines): (&str, String)| format!("\n### [{table}]\n\n{head}{lines}");
    tables.into_iter().map(section).collect::<String>().trim_start().to_owned()
}

fn line(row: &Input, form: FileForm) -> String {
    let value = match (form, row.value) {
        (FileForm::Number, _) => "number".to_owned(),
        (FileForm::Whole, _) => "whole number".to_owned(),
        (FileForm::Flag, _) => "`true` or `false`".to_owned(),
        (FileForm::List(_), _) => "list of strings".to_owned(),
        (_, InputValue::Choice(_, words)) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        _ => "string".to_owned(),
    };
    let default = match row.default {
        InputDefault::None => String::new(),
        InputDefault::Value(text) => format!("`{text}`"),
        InputDefault::Described(text) => text.to_owned(),
    };
    let cells = [format!("`{}`", row.name), value, default, row.help.to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}
