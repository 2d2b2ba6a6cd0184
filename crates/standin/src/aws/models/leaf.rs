//! Checks of single values: choices, ranges, lengths and patterns.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex_lite::Regex;

use super::{Found, Shape, ShapeType};

/// Checks a value of the Query protocol, where every value is text.
pub(super) fn check_text(shape: &Shape, text: &str, place: &str, found: &mut Found) {
    match shape.kind {
        ShapeType::String => check_string(shape, text, place, found),
        ShapeType::Integer | ShapeType::Long => match text.parse::<i64>() {
            Ok(number) => check_range(shape, number as f64, place, found),
            Err(_) => found.add(place, format!("not an integer: {text}")),
        },
        ShapeType::Float | ShapeType::Double => match text.parse::<f64>() {
            Ok(number) => check_range(shape, number, place, found),
            Err(_) => found.add(place, format!("not a number: {text}")),
        },
        ShapeType::Boolean if matches!(text, "true" | "false") => {}
        ShapeType::Boolean => found.add(place, format!("neither true nor false: {text}")),
        ShapeType::Timestamp if humantime::parse_rfc3339(text).is_ok() => {}
        ShapeType::Timestamp => found.add(place, format!("not a time: {text}")),
        ShapeType::Blob => check_base64(text, place, found),
        ShapeType::Structure | ShapeType::List | ShapeType::Map => {
            found.add(place, format!("a single value where there should be more: {text}"));
        }
    }
}

/// Checks a string against the choices, length and pattern of its shape.
pub(super) fn check_string(shape: &Shape, text: &str, place: &str, found: &mut Found) {
    if !shape.choices.is_empty() && !shape.choices.iter().any(|choice| choice == text) {
        found.add(place, format!("not among its values: {text}"));
    }
    check_size(shape, text.chars().count(), "characters", place, found);
    if let Some(pattern) = &shape.pattern
        && compiled(pattern).is_some_and(|pattern| !pattern.is_match(text))
    {
        found.add(place, format!("does not match {pattern}: {text}"));
    }
}

/// Checks that a text is base64.
pub(super) fn check_base64(text: &str, place: &str, found: &mut Found) {
    let data = text.trim_end_matches('=');
    let valid = text.len().is_multiple_of(4)
        && text.len() - data.len() <= 2
        && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    if !valid {
        found.add(place, "not base64");
    }
}

/// Checks a number against the range of its shape.
pub(super) fn check_range(shape: &Shape, number: f64, place: &str, found: &mut Found) {
    if shape.min.is_some_and(|min| number < min) || shape.max.is_some_and(|max| number > max) {
        found.add(place, format!("out of range: {number}"));
    }
}

/// Checks a length against the limits of the shape. `of` names what is counted.
pub(super) fn check_size(shape: &Shape, size: usize, of: &str, place: &str, found: &mut Found) {
    let number = size as f64;
    if shape.min.is_some_and(|min| number < min) {
        found.add(place, format!("too few {of}: {size}"));
    }
    if shape.max.is_some_and(|max| number > max) {
        found.add(place, format!("too many {of}: {size}"));
    }
}

/// Compiles a pattern of a model, anchored at both ends, because the services apply
/// patterns to the whole text. Returns `None` for patterns that this engine does
/// not support (surrogates, look-ahead).
fn compiled(pattern: &str) -> Option<Arc<Regex>> {
    type Patterns = HashMap<String, Option<Arc<Regex>>>;
    static PATTERNS: LazyLock<Mutex<Patterns>> = LazyLock::new(Mutex::default);
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let compile = || Regex::new(&format!("^(?:{pattern})$")).ok().map(Arc::new);
    patterns.entry(pattern.to_owned()).or_insert_with(compile).clone()
}
