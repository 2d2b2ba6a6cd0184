//! Expressions of DynamoDB requests, and the words that they and PartiQL consist of.

use serde_json::Value;

use super::value_of;

/// A word of an expression or a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a keyword, a number, or a placeholder such as `#name` and `:value`.
    Word(String),
    /// A name in double quotation marks.
    Quoted(String),
    /// A text in single quotation marks.
    Text(String),
    /// Anything else, such as `=` and `?`.
    Symbol(char),
}

/// Splits a text into words. Returns `None` if a quotation mark is not closed.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..length].to_owned()));
            length
        } else if matches!(first, '"' | '\'') {
            let (quoted, length) = quoted(rest, first)?;
            tokens.push(if first == '"' { Token::Quoted(quoted) } else { Token::Text(quoted) });
            length
        } else {
            tokens.push(Token::Symbol(first));
            first.len_utf8()
        };
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '#' | ':')
}

/// The content of a quoted text, in which two marks stand for one, and its length in bytes.
fn quoted(text: &str, mark: char) -> Option<(String, usize)> {
    let mut content = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = letters.next() {
        if c != mark {
            content.push(c);
        } else if letters.peek().is_some_and(|(_, next)| *next == mark) {
            letters.next();
            content.push(mark);
        } else {
            return Some((content, at + c.len_utf8()));
        }
    }
    None
}

/// The values that a query's condition requires the partition key to have: one, in a valid query.
pub(super) fn pinned(request: &Value, hash: &str) -> Vec<String> {
    if let Some(old) = request.get("KeyConditions") {
        let condition = &old[hash];
        let values = condition["AttributeValueList"].as_array().into_iter().flatten();
        let is_equal = condition["ComparisonOperator"] == "EQ";
        return values.filter(|_| is_equal).filter_map(value_of).collect();
    }
    let condition = request["KeyConditionExpression"].as_str().unwrap_or_default();
    let Some(tokens) = tokens(condition) else { return Vec::new() };
    let names = &request["ExpressionAttributeNames"];
    let values = &request["ExpressionAttributeValues"];
    let value = |window: &[Token]| match window {
        [Token::Word(name), Token::Symbol('='), Token::Word(value)]
            if resolved(name, names) == hash =>
        {
            value_of(&values[value])
        }
        _ => None,
    };
    tokens.windows(3).filter_map(value).collect()
}

/// The names of the top-level attributes in an expression.
pub(super) fn names(expression: &str, names: &Value) -> Vec<String> {
    const KEYWORDS: [&str; 9] =
        ["AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"];
    let tokens = tokens(expression).unwrap_or_default();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Word(word) = token else { continue };
        let is_value = word.starts_with(':') || word.starts_with(|c: char| c.is_ascii_digit());
        let is_keyword = KEYWORDS.contains(&word.to_ascii_uppercase().as_str());
        let is_function = tokens.get(at + 1) == Some(&Token::Symbol('('));
        let is_nested = at > 0 && tokens[at - 1] == Token::Symbol('.');
        if !(is_value || is_keyword || is_function || is_nested) {
            found.push(resolved(word, names).to_owned());
        }
    }
    found
}

/// The attribute that a name or a placeholder stands for.
fn resolved<'a>(name: &'a str, names: &'a Value) -> &'a str {
    if name.starts_with('#') { names[name].as_str().unwrap_or(name) } else { name }
}
