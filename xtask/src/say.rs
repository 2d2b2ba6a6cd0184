//! The only places that print.

/// Tells a person what goes on. It goes where cargo's own words go, so that the two stay in
/// order.
#[expect(clippy::print_stderr, reason = "a person is watching, and no log is kept")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// Prints what was asked for.
#[expect(clippy::print_stdout, reason = "help and figures are this program's only data")]
pub(crate) fn answer(text: &str) {
    print!("{text}");
}
