//! The inputs that one process was given, by name.

use std::collections::BTreeMap;
use std::fmt;

use super::{Input, InputDefault};
use crate::model::secret::Secret;

/// The texts of the inputs that were given. An input that was not given is absent, also when it
/// has a default.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given(BTreeMap<&'static str, String>);

impl Given {
    /// Notes that the input was given with this text.
    pub fn insert(&mut self, input: &Input, text: impl Into<String>) {
        self.0.insert(input.name, text.into());
    }

    /// The text that was given, even if it is empty.
    pub fn text(&self, input: &Input) -> Option<&str> {
        self.0.get(input.name).map(String::as_str)
    }

    /// The text that was given, or else the row's default value.
    pub fn text_or_default(&self, input: &Input) -> Option<&str> {
        self.text(input).or(match input.default {
            InputDefault::Value(text) => Some(text),
            InputDefault::None | InputDefault::Described(_) => None,
        })
    }

    /// The same as an owned text.
    pub fn owned(&self, input: &Input) -> Option<String> {
        self.text_or_default(input).map(str::to_owned)
    }

    /// The text as a secret.
    pub fn secret(&self, input: &Input) -> Option<Secret> {
        self.text(input).map(Secret::new)
    }

    /// Whether the switch was given.
    pub fn is_set(&self, input: &Input) -> bool {
        self.text(input) == Some("true")
    }

    /// The given inputs that are among these rows, as name and text.
    pub fn among<'a>(
        &'a self,
        rows: impl IntoIterator<Item = &'a Input>,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        rows.into_iter().filter_map(|row| Some((row.name, self.text(row)?)))
    }
}

/// Shows names only: values may be secrets, and inputs are never dumped.
impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
