//! The condition keys of a request.

use std::collections::BTreeMap;

/// The keys that may have several values in one request. The Service Authorization Reference
/// gives their type as `ArrayOf…`.
const MULTIVALUED: [&str; 3] = ["aws:tagkeys", "dynamodb:attributes", "dynamodb:leadingkeys"];

/// Whether a key may have several values in one request.
pub(crate) fn is_multivalued(key: &str) -> bool {
    MULTIVALUED.contains(&key.to_ascii_lowercase().as_str())
}

/// The condition keys of one request, with their values. The names of keys ignore case; their
/// values do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Context(BTreeMap<String, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    values: Vec<String>,
}

impl Context {
    /// Sets a key to one value.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.set_all(name, [value.into()]);
    }

    /// Sets a key to several values. A key without values is absent.
    pub(crate) fn set_all(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let values: Vec<String> = values.into_iter().collect();
        if values.is_empty() {
            self.0.remove(&name.to_ascii_lowercase());
        } else {
            let entry = Entry { name: name.to_owned(), values };
            self.0.insert(name.to_ascii_lowercase(), entry);
        }
    }

    /// Sets a key to one value, or leaves it absent.
    pub(crate) fn set_if(&mut self, name: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// The values of a key; `None` if the request does not carry it.
    pub(crate) fn values(&self, name: &str) -> Option<&[String]> {
        self.0.get(&name.to_ascii_lowercase()).map(|entry| entry.values.as_slice())
    }

    /// The value that a policy variable stands for. A key with several values cannot be one.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        match self.values(name) {
            Some([value]) if !is_multivalued(name) => Some(value),
            _ => None,
        }
    }

    /// Adds the keys of another context, which replace equal ones.
    pub(crate) fn extend(&mut self, other: &Context) {
        self.0.extend(other.0.clone());
    }

    /// All keys with their values, by the names that were given.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.values().map(|entry| (entry.name.as_str(), entry.values.as_slice()))
    }
}
