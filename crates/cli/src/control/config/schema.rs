//! The JSON schema of the file, made from the rows of the settings.
//!
//! `UPDATE=1 cargo test -p ondeck --all-features ondeck_toml` writes it to `docs/reference/schemas`.

use std::collections::BTreeMap;

use ondeck_core::inputs::{FileForm, FileKey, Input, InputDefault, InputValue};
use serde_json::{Map, Value, json};

use super::document::{PROCESS_KEYS, TRUST, process_row, settings};
use super::structures;

/// The schema of a whole file.
pub(super) fn schema() -> Value {
    let mut properties = layer();
    for (key, input) in PROCESS_KEYS {
        let row = process_row(input).expect("a build with all features has the row");
        properties.insert(key.to_owned(), plain(row, FileForm::Text));
    }
    properties.insert(
        TRUST.to_owned(),
        json!({
            "description": "For each trust level, the settings that differ from those of the pool.",
            "type": "object",
            "propertyNames": { "pattern": "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$" },
            "additionalProperties": object(&layer()),
        }),
    );
    let mut schema = object(&properties);
    let head = [
        ("$schema", "https://json-schema.org/draft/2020-12/schema"),
        ("title", "ondeck.toml"),
        ("description", "The settings of a pool of ondeck."),
    ];
    for (key, text) in head {
        schema[key] = text.into();
    }
    schema
}

/// The tables and structures that hold settings.
fn layer() -> Map<String, Value> {
    let mut tables: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut layer = Map::new();
    for (row, FileKey { table, form }) in settings() {
        match form {
            FileForm::Classes => layer.insert(table.to_owned(), classes(row)),
            FileForm::MinIdle => layer.insert(table.to_owned(), min_idle()),
            FileForm::MaxMachines => layer.insert(table.to_owned(), max_machines()),
            _ => {
                tables.entry(table).or_default().insert(row.name.to_owned(), plain(row, form));
                None
            }
        };
    }
    layer.extend(tables.into_iter().map(|(name, rows)| (name.to_owned(), object(&rows))));
    layer
}

fn object(properties: &Map<String, Value>) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// A key with one value.
fn plain(row: &Input, form: FileForm) -> Value {
    let mut schema = match form {
        FileForm::Number => json!({ "type": "number" }),
        FileForm::Whole => json!({ "type": "integer" }),
        FileForm::Flag => json!({ "type": "boolean" }),
        FileForm::List(_) => json!({ "type": "array", "items": word() }),
        _ => json!({ "type": "string" }),
    };
    if let (InputValue::Choice(_, words), FileForm::Text) = (row.value, form) {
        let words = words.iter().copied().chain(row.may_be_empty().then_some(""));
        schema["enum"] = words.collect();
    }
    let default = match row.default {
        InputDefault::None => String::new(),
        InputDefault::Value(text) | InputDefault::Described(text) => format!(" [default: {text}]"),
    };
    schema["description"] = format!("{}{default}.", row.help).into();
    schema
}

/// A string without blanks and separators.
fn word() -> Value {
    json!({ "type": "string", "pattern": "^[^ ,;\\n\\r\\t]+$" })
}

/// Names of resource classes.
const CLASS: &str = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$";

fn class_name() -> Value {
    json!({ "pattern": CLASS })
}

fn size(what: &str) -> Value {
    json!({ "description": what, "type": "integer", "minimum": 1, "maximum": u32::MAX })
}

fn classes(row: &Input) -> Value {
    let [cpu, mem] = structures::CLASS_KEYS;
    let sizes = [(cpu, size("vCPUs.")), (mem, size("Memory in MiB."))];
    let sizes: Map<_, _> = sizes.map(|(key, size)| (key.to_owned(), size)).into_iter().collect();
    let mut class = object(&sizes);
    class["required"] = json!(structures::CLASS_KEYS);
    let InputDefault::Described(default) = row.default else { unreachable!("it is described") };
    json!({
        "description": format!("Resource classes and their sizes [default: {default}]."),
        "type": "object",
        "minProperties": 1,
        "propertyNames": class_name(),
        "additionalProperties": class,
    })
}

fn min_idle() -> Value {
    let text = |what: &str, pattern: &str| json!({ "description": what, "type": "string", "pattern": pattern });
    let types = "Patterns of instance types to accept, such as c7i.*.";
    let schemas = [
        text("Resource class.", CLASS),
        json!({
            "description": "Idle machines to keep.",
            "type": "integer", "minimum": 0, "maximum": 1000,
        }),
        json!({ "description": "Purchase option.", "enum": ["spot", "on-demand"] }),
        json!({
            "description": types, "type": "array", "minItems": 1,
            "items": { "type": "string", "pattern": "^[^ ,;/=\\n\\r\\t]+$" },
        }),
        text("Days, a time span, or both, such as Mon-Fri 08:00-18:00.", "^[^;=]*[^;=\\s][^;=]*$"),
        text("Time zone of the window, such as Europe/Berlin.", "^[^;= \\n\\r\\t]+$"),
    ];
    let keys = structures::MIN_IDLE_KEYS.map(str::to_owned);
    let mut entry = object(&keys.into_iter().zip(schemas).collect());
    entry["required"] = json!(["class", "count"]);
    entry["dependentRequired"] = json!({ "time-zone": ["window"] });
    json!({ "description": "Idle machines to keep in the pool.", "type": "array", "items": entry })
}

fn max_machines() -> Value {
    json!({
        "description": "Most machines that may exist at once: in the pool, and by class.",
        "type": "object",
        "propertyNames": class_name(),
        "additionalProperties": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
    })
}
