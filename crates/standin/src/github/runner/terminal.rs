//! The listener's output, in the format of the real runner.

use std::io::{self, Write as _};
use std::time::SystemTime;

/// Prints a line. Ignores that stdout may be closed.
pub(super) fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}

/// Prints a line that reports a success.
pub(super) fn print_success(line: &str) {
    print_line(&format!("√ {line}"));
}

/// Prints the title of a section.
pub(super) fn print_section(title: &str) {
    print_line(&format!("\n# {title}\n"));
}

/// Prints an error message.
pub(super) fn print_error(line: &str) {
    let mut out = io::stderr().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}

/// Prefixes a line with the time: `2026-11-15 07:15:30Z: Listening for Jobs`.
pub(super) fn timestamped(line: &str) -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    format!("{}: {line}", now.replace('T', " "))
}
