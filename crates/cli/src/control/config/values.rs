//! Values of the file, as the texts of their settings.

use ondeck_core::inputs::{FileForm, Input, InputValue};
use ondeck_core::model::excerpt::quoted;
use toml::Spanned;
use toml::de::DeValue;

use super::source::{Problem, Span};

pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// The text of a setting that is a plain value. Fails if the value has another form, or if the
/// setting's row refuses the text. An empty text is not checked: it means the default.
pub(super) fn plain(row: &Input, form: FileForm, value: &Value<'_>) -> Result<String, Problem> {
    let text = match form {
        FileForm::Number => number(row.name, value)?,
        FileForm::Whole => whole(row.name, value)?,
        FileForm::Flag => flag(row.name, value)?,
        FileForm::List(separator) => words(row.name, value)?.join(separator),
        _ => string(row.name, value)?.to_owned(),
    };
    check(row, row.name, &text, value.span())?;
    Ok(text)
}

/// Fails if the row refuses the text. `name` is what the message calls the input.
pub(super) fn check(row: &Input, name: &str, text: &str, span: Span) -> Result<(), Problem> {
    if text.is_empty() {
        return Ok(());
    }
    if let InputValue::Choice(_, words) = row.value
        && !words.contains(&text)
    {
        let message = format!("{name} is none of {}: {}", words.join(", "), quoted(text));
        return Err(Problem::new(span, message));
    }
    (row.check)(text).map_err(|problem| Problem::new(span, format!("{name} {problem}")))
}

pub(super) fn string<'a>(name: &str, value: &'a Value<'_>) -> Result<&'a str, Problem> {
    value.get_ref().as_str().ok_or_else(|| not("a string", name, value))
}

fn flag(name: &str, value: &Value<'_>) -> Result<String, Problem> {
    let flag = value.get_ref().as_bool().ok_or_else(|| not("true or false", name, value))?;
    Ok(flag.to_string())
}

fn number(name: &str, value: &Value<'_>) -> Result<String, Problem> {
    let number = match value.get_ref() {
        DeValue::Float(float) => float.as_str().parse::<f64>().ok().filter(|n| n.is_finite()),
        _ => return whole(name, value).map_err(|_| not("a number", name, value)),
    };
    number.map(|number| number.to_string()).ok_or_else(|| not("a number", name, value))
}

/// The digits of a whole number. One with decimals that are all zero is whole, as in JSON.
pub(super) fn whole(name: &str, value: &Value<'_>) -> Result<String, Problem> {
    let number = match value.get_ref() {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok(),
        DeValue::Float(float) => {
            let float = float.as_str().parse::<f64>().ok();
            let float = float.filter(|n| n.fract() == 0.0 && n.abs() < MOST_EXACT);
            float.map(|float| float as i64)
        }
        _ => None,
    };
    number.map(|number| number.to_string()).ok_or_else(|| not("a whole number", name, value))
}

/// Up to here, a float that is a whole number is exactly that number.
const MOST_EXACT: f64 = 9e15;

/// A list of words. A separator within one of them would make two of it.
pub(super) fn words(name: &str, value: &Value<'_>) -> Result<Vec<String>, Problem> {
    let array = value.get_ref().as_array().ok_or_else(|| not("a list of strings", name, value))?;
    let mut words = Vec::new();
    for item in array.iter() {
        let word = item.get_ref().as_str().ok_or_else(|| not("a list of strings", name, item))?;
        if word.is_empty() || word.contains([' ', ',', ';', '\n', '\r', '\t']) {
            let message = format!("{name} has an item that is not one word: {}", quoted(word));
            return Err(Problem::new(item.span(), message));
        }
        words.push(word.to_owned());
    }
    Ok(words)
}

/// The value is not of the form that it should have.
pub(super) fn not(what: &str, name: &str, value: &Value<'_>) -> Problem {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let found = if found == what { "another one" } else { found };
    Problem::new(value.span(), format!("{name} must be {what}, and is {found}"))
}
