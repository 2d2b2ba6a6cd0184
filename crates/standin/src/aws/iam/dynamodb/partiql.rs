//! PartiQL statements, as far as IAM looks at them.

use serde_json::Value;

use super::expression::{Token, tokens};
use super::value_of;

/// A statement: what it does, where, and which values it requires of attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    /// The action that it needs, such as `PartiQLUpdate`.
    pub(super) action: &'static str,
    pub(super) table: String,
    pub(super) index: Option<String>,
    /// The names of all attributes in it.
    pub(super) attributes: Vec<String>,
    /// What a write returns, by the names of `ReturnValues`.
    pub(super) returns: Option<String>,
    /// Attributes and the values that they must have; empty if there is an alternative to them.
    pins: Vec<(String, Vec<Operand>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operand {
    /// A question mark, by its position among all of them.
    Parameter(usize),
    Text(String),
}

impl Statement {
    /// Reads a statement. Returns `None` for one of another form.
    pub(super) fn parse(text: &str) -> Option<Statement> {
        let tokens = numbered(tokens(text)?);
        let verb = tokens.iter().find_map(|(token, _)| action(token))?;
        let after = |keyword: &str| {
            tokens.iter().position(|(token, _)| is(token, keyword)).map(|at| at + 1)
        };
        let place = match verb {
            "PartiQLSelect" | "PartiQLDelete" => after("FROM")?,
            "PartiQLInsert" => after("INTO")?,
            _ => after("UPDATE")?,
        };
        let table = name(&tokens.get(place)?.0)?;
        let has_index = matches!(tokens.get(place + 1), Some((Token::Symbol('.'), _)));
        let index = if has_index { Some(name(&tokens.get(place + 2)?.0)?) } else { None };
        let pins = match verb {
            "PartiQLInsert" => inserted(&tokens[after("VALUE")?..]),
            _ => after("WHERE").map_or_else(Vec::new, |at| required(&tokens[at..])),
        };
        let returning = after("RETURNING");
        let returns = returning.map(|at| {
            let words = tokens[at..].iter().filter_map(|(token, _)| word(token));
            words.collect::<Vec<_>>().join("_").to_ascii_uppercase()
        });
        let end = returning.map_or(tokens.len(), |at| at - 1);
        let columns = if verb == "PartiQLSelect" { &tokens[..place - 1] } else { &[] };
        let mut attributes = names_in(columns);
        attributes.extend(names_in(&tokens[place + 1..end]));
        attributes.extend(pins.iter().map(|(name, _)| name.clone()));
        Some(Statement { action: verb, table, index, attributes, returns, pins })
    }

    /// The values that an attribute must have.
    pub(super) fn pinned(&self, attribute: &str, parameters: &Value) -> Vec<String> {
        let pins = self.pins.iter().filter(|(name, _)| name == attribute);
        let value = |operand: &Operand| match operand {
            Operand::Parameter(at) => value_of(&parameters[*at]),
            Operand::Text(text) => Some(text.clone()),
        };
        pins.flat_map(|(_, operands)| operands.iter().filter_map(value)).collect()
    }
}

/// A token, with the number of question marks before it.
type Numbered = (Token, usize);

fn numbered(tokens: Vec<Token>) -> Vec<Numbered> {
    let mut count = 0;
    let number = |token: Token| {
        let before = count;
        count += usize::from(token == Token::Symbol('?'));
        (token, before)
    };
    tokens.into_iter().map(number).collect()
}

fn action(token: &Token) -> Option<&'static str> {
    Some(match word(token)?.to_ascii_uppercase().as_str() {
        "SELECT" => "PartiQLSelect",
        "INSERT" => "PartiQLInsert",
        "UPDATE" => "PartiQLUpdate",
        "DELETE" => "PartiQLDelete",
        _ => return None,
    })
}

fn word(token: &Token) -> Option<&str> {
    if let Token::Word(word) = token { Some(word) } else { None }
}

fn is(token: &Token, keyword: &str) -> bool {
    word(token).is_some_and(|word| word.eq_ignore_ascii_case(keyword))
}

fn name(token: &Token) -> Option<String> {
    match token {
        Token::Word(name) | Token::Quoted(name) => Some(name.clone()),
        _ => None,
    }
}

fn operand((token, number): &Numbered) -> Option<Operand> {
    match token {
        Token::Symbol('?') => Some(Operand::Parameter(*number)),
        Token::Text(text) => Some(Operand::Text(text.clone())),
        _ => None,
    }
}

/// The attributes of a condition that must have certain values: `PK = ?` and `PK IN [?, ?]`. A
/// condition with OR or NOT requires nothing.
fn required(tokens: &[Numbered]) -> Vec<(String, Vec<Operand>)> {
    if tokens.iter().any(|(token, _)| is(token, "OR") || is(token, "NOT")) {
        return Vec::new();
    }
    let mut pins = Vec::new();
    for at in 0..tokens.len() {
        let Some(attribute) = name(&tokens[at].0) else { continue };
        match &tokens[at + 1..] {
            [(Token::Symbol('='), _), value, ..] => {
                pins.extend(operand(value).map(|value| (attribute, vec![value])));
            }
            [(keyword, _), (Token::Symbol('[' | '('), _), values @ ..] if is(keyword, "IN") => {
                let listed = values
                    .iter()
                    .take_while(|(token, _)| !matches!(token, Token::Symbol(']' | ')')));
                pins.push((attribute, listed.filter_map(operand).collect()));
            }
            _ => {}
        }
    }
    pins
}

/// The attributes of an inserted item: `{'PK': ?, 'SK': 'text'}`.
fn inserted(tokens: &[Numbered]) -> Vec<(String, Vec<Operand>)> {
    let mut pins = Vec::new();
    for window in tokens.windows(3) {
        let [(name, _), (colon, _), value] = window else { continue };
        let is_colon = *colon == Token::Symbol(':') || is(colon, ":");
        if let (Token::Text(name) | Token::Quoted(name), true) = (name, is_colon) {
            pins.extend(operand(value).map(|value| (name.clone(), vec![value])));
        }
    }
    pins
}

/// The names in a statement that are no keywords.
fn names_in(tokens: &[Numbered]) -> Vec<String> {
    const KEYWORDS: [&str; 12] = [
        "SELECT", "EXISTS", "SET", "REMOVE", "WHERE", "AND", "OR", "NOT", "IN", "VALUE", "BETWEEN",
        "IS",
    ];
    let is_keyword = |word: &str| KEYWORDS.contains(&word.to_ascii_uppercase().as_str());
    let named = |(token, _): &Numbered| match token {
        Token::Quoted(name) => Some(name.clone()),
        Token::Word(word) if !is_keyword(word) && word.starts_with(char::is_alphabetic) => {
            Some(word.clone())
        }
        _ => None,
    };
    tokens.iter().filter_map(named).collect()
}
