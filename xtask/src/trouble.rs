//! What a person is told when something cannot be had.

use std::fmt::Display;
use std::path::Path;

use crate::say::say;

/// An error with what can be done about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    what: String,
    hint: String,
}

impl Trouble {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Trouble { what: what.into(), hint: hint.into() }
    }

    /// With a file or a folder below the workspace's root.
    pub(crate) fn with(path: &Path, error: impl Display) -> Self {
        Trouble::new(
            format!("{}: {error}", path.display()),
            "is the disk full, or the folder somebody else's?",
        )
    }

    pub(crate) fn say(&self) {
        say(&format!("error: {}", self.what));
        say(&format!("hint: {}", self.hint));
    }
}
