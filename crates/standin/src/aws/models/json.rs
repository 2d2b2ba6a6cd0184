//! Checks of the JSON protocol, which DynamoDB and SQS use.

use serde_json::Value;

use super::{Found, Model, Shape, ShapeType, below, leaf};

/// Checks a value against a shape, and its members against those of the shape.
pub(super) fn check(model: &Model, shape: &str, value: &Value, place: &str, found: &mut Found) {
    let shape = model.shape(shape);
    match (shape.kind, value) {
        (ShapeType::Structure, Value::Object(members)) => {
            for (name, value) in members {
                let place = below(place, name);
                match shape.members.get(name) {
                    Some(member) => check(model, &member.shape, value, &place, found),
                    None => found.add(&place, "no such member"),
                }
            }
            for name in shape.required.iter().filter(|name| !members.contains_key(*name)) {
                found.add(&below(place, name), "missing");
            }
        }
        (ShapeType::List, Value::Array(entries)) => {
            leaf::check_size(shape, entries.len(), "entries", place, found);
            for (index, entry) in entries.iter().enumerate() {
                if let Some(member) = &shape.member {
                    check(model, &member.shape, entry, &below(place, &index.to_string()), found);
                }
            }
        }
        (ShapeType::Map, Value::Object(entries)) => {
            leaf::check_size(shape, entries.len(), "entries", place, found);
            for (name, entry) in entries {
                let place = below(place, name);
                if let Some(key) = &shape.key {
                    leaf::check_string(model.shape(&key.shape), name, &place, found);
                }
                if let Some(member) = &shape.value {
                    check(model, &member.shape, entry, &place, found);
                }
            }
        }
        _ => check_leaf(shape, value, place, found),
    }
}

fn check_leaf(shape: &Shape, value: &Value, place: &str, found: &mut Found) {
    match (shape.kind, value) {
        (ShapeType::String, Value::String(text)) => leaf::check_string(shape, text, place, found),
        (ShapeType::Blob, Value::String(text)) => leaf::check_base64(text, place, found),
        (ShapeType::Boolean, Value::Bool(_)) => {}
        (ShapeType::Integer | ShapeType::Long, Value::Number(number)) if !number.is_f64() => {
            leaf::check_range(shape, number.as_f64().unwrap_or_default(), place, found);
        }
        (ShapeType::Float | ShapeType::Double | ShapeType::Timestamp, Value::Number(number)) => {
            leaf::check_range(shape, number.as_f64().unwrap_or_default(), place, found);
        }
        (kind, value) => {
            let kind = format!("{kind:?}").to_ascii_lowercase();
            found.add(place, format!("should be of type {kind}: {value}"));
        }
    }
}
