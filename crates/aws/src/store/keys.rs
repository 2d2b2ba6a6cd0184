//! Where each kind of item is in the one table, and how expressions name attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_core::model::excerpt::quoted;

/// No time is later. Times are texts of one form, which sort like times.
pub(super) const LAST_TIME: &str = "9999-12-31T23:59:59.999Z";

/// One item, as the SDK has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The kinds of items: one partition key each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Instance,
    Heartbeat,
    Signal,
    Setting,
    Intent,
    Event,
    Run,
    Credentials,
    Demand,
}

impl Kind {
    pub(super) fn pk(self) -> &'static str {
        match self {
            Kind::Instance => "TYPE#Instance",
            Kind::Heartbeat => "TYPE#Heartbeat",
            Kind::Signal => "TYPE#WS",
            Kind::Setting => "TYPE#Setting",
            Kind::Intent => "TYPE#Intent",
            Kind::Event => "TYPE#Event",
            Kind::Run => "TYPE#Run",
            Kind::Credentials => "TYPE#Credentials",
            Kind::Demand => "TYPE#Demand",
        }
    }

    /// The key of one item of this kind.
    pub(super) fn key(self, id: impl std::fmt::Display) -> Key {
        Key { kind: self, sk: format!("ID#{id}") }
    }
}

/// One item's place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) sk: String,
}

impl Key {
    /// As attributes: what finds the item, and what a new one begins with.
    pub(super) fn attributes(&self) -> Item {
        item([("PK", text(self.kind.pk())), ("SK", text(&self.sk))])
    }
}

/// What an item's sort key names.
pub(super) fn id_of(item: &Item) -> Option<&str> {
    item.get("SK")?.as_s().ok()?.strip_prefix("ID#")
}

/// Attributes under their names.
pub(super) fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers have a value as often as a reference")]
pub(super) fn text(text: impl ToString) -> AttributeValue {
    AttributeValue::S(text.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "callers have a value as often as a reference")]
pub(super) fn number(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A text among an item's attributes, or what is wrong with it.
pub(super) fn read_text<'a>(item: &'a Item, name: &str) -> Result<&'a str, String> {
    match item.get(name) {
        None => Err(format!("{name} is missing")),
        Some(AttributeValue::S(text)) => Ok(text),
        Some(_) => Err(format!("{name} is not text")),
    }
}

/// A whole number among an item's attributes, or what is wrong with it.
pub(super) fn read_number(item: &Item, name: &str) -> Result<i64, String> {
    match item.get(name) {
        None => Err(format!("{name} is missing")),
        Some(AttributeValue::N(number)) => {
            number.parse().map_err(|_| format!("{name} is no whole number: {}", quoted(number)))
        }
        Some(_) => Err(format!("{name} is no number")),
    }
}

/// What the `#names` in expressions stand for. Every attribute is written so, since many of ours
/// are words that DynamoDB keeps to itself; and it refuses a name that no expression uses.
pub(super) fn names_in(expressions: &[&str]) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for part in expressions.iter().flat_map(|text| text.split('#').skip(1)) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        names.insert(format!("#{}", &part[..end]), part[..end].to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_expressions() {
        let names = names_in(&["SET #state = :state, #runId = :run", "(#state<>:x)", "a = :b"]);
        let expected = [("#state", "state"), ("#runId", "runId")];
        assert_eq!(names, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn keys_are_those_of_the_specification() {
        let key = Kind::Signal.key("i-123");
        let expected = item([("PK", text("TYPE#WS")), ("SK", text("ID#i-123"))]);
        assert_eq!(key.attributes(), expected);
        assert_eq!(id_of(&expected), Some("i-123"));
    }
}
