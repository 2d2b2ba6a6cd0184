//! What this program prints, and what a machine prints on its console.

use std::path::Path;
use std::time::{Duration, Instant};

/// How often a file is read in which a line is awaited. There is no event for it.
const PAUSE: Duration = Duration::from_millis(100);

/// Prints a line to stderr, where `cargo xtask` prints too.
#[expect(clippy::print_stderr, reason = "progress is for the person watching; there is no log")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// Waits until `find` returns a value. Fails if that takes longer than `at_most`.
pub(crate) fn wait<T>(
    what: &str,
    at_most: Duration,
    mut find: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    let deadline = Instant::now() + at_most;
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("not within {} s: {what}", at_most.as_secs()));
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// The console of a machine as text, without what only a terminal understands; empty before it has
/// printed anything.
pub(crate) fn read(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
