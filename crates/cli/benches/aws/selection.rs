//! Which rows are measured, and how far the benchmark is.

use std::io::Write;
use std::time::Instant;

/// Whether a row is selected, by its name or by the first words of it. All are if nothing is.
pub(crate) fn is_selected(selected: &[String], row: &str) -> bool {
    let begins = |words: &String| row.strip_prefix(words.as_str());
    let is_meant = |words: &String| begins(words).is_some_and(|rest| !rest.starts_with(is_word));
    selected.is_empty() || selected.iter().any(is_meant)
}

fn is_word(c: char) -> bool {
    c != '-'
}

/// Says on stderr how far the benchmark is that began at `started`.
pub(crate) fn note(started: Instant, what: &str) {
    let mut out = std::io::stderr().lock();
    writeln!(out, "{:>6.1} s  {what}", started.elapsed().as_secs_f64()).unwrap();
}
