//! What people read.

use std::io::{self, Write as _};
use std::time::SystemTime;

/// A line. A reader that has gone does not want it.
pub(super) fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}

/// A line that says that something went well.
pub(super) fn succeed(line: &str) {
    say(&format!("√ {line}"));
}

/// The beginning of something.
pub(super) fn section(title: &str) {
    say(&format!("\n# {title}\n"));
}

/// A line that says that something went wrong.
pub(super) fn complain(line: &str) {
    let mut out = io::stderr().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}

/// A line with its time: `2026-11-15 07:15:30Z: Listening for Jobs`.
pub(super) fn timed(line: &str) -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    format!("{}: {line}", now.replace('T', " "))
}
