//! Errors that a person reads.

use std::fmt::Display;
use std::path::Path;

use crate::console::log;

/// Why a task failed, and the one thing to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TaskError {
    what: String,
    hint: String,
}

impl TaskError {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        TaskError { what: what.into(), hint: hint.into() }
    }

    /// An error about a file or a folder below the workspace's root.
    pub(crate) fn with(path: &Path, error: impl Display) -> Self {
        TaskError::new(
            format!("{}: {error}", path.display()),
            "check the free disk space and the owner of the folder",
        )
    }

    /// Prints the error and its hint to stderr.
    pub(crate) fn report(&self) {
        log(&format!("error: {}", self.what));
        log(&format!("hint: {}", self.hint));
    }
}
