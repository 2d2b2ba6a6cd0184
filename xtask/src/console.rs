//! The only functions of this program that print.

/// Prints a line about progress to stderr, where cargo prints too, so that the two stay in order.
#[expect(clippy::print_stderr, reason = "progress is for the person watching; there is no log")]
pub(crate) fn log(line: &str) {
    eprintln!("{line}");
}

/// Prints data to stdout.
#[expect(clippy::print_stdout, reason = "help and figures are this program's only data")]
pub(crate) fn print(text: &str) {
    print!("{text}");
}
