//! The pool as a file: `ondeck.toml` is checked, shown, applied, and enforced by refresh.

mod enforced;
mod read;
mod workflow;

use std::fs;

use crate::harness::{Driven, Home};

/// Writes the file of the pool beside the home, and returns its path.
fn write(home: &Home, text: &str) -> String {
    let path = home.outside().join("ondeck.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Applies a file with this text.
fn apply(home: &Home, text: &str) -> serde_json::Value {
    let file = write(home, text);
    home.ondeck(&["apply", "--json", "--config", &file]).succeeded().json()
}

/// The stored value of a setting; `None` if it has its default.
fn stored(home: &Home, name: &str) -> Option<String> {
    home.texts(&format!("SELECT value FROM settings WHERE name = '{name}'")).pop()
}

/// Everything that is stored, but for what each refresh writes anew.
fn all_stored(home: &Home) -> Vec<String> {
    let sql =
        "SELECT name || '=' || value FROM settings WHERE name != 'set-up-checked' ORDER BY name";
    home.texts(sql)
}
