//! What goes to stderr: logs, errors and hints.

use std::io::Write;

use tracing::level_filters::LevelFilter;

use crate::inputs::Common;

/// Logs of the modes: no time, since whoever reads them is there.
#[cfg(feature = "control")]
pub(crate) fn start(
    common: &Common,
    writer: impl for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => LevelFilter::ERROR,
        // There the log is folded, and read when it is too late to ask for more.
        (false, 0) if crate::actions::is_in_force() => LevelFilter::INFO,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        // A log that cannot be written is no reason to die, as saying so on stderr would be.
        .log_internal_errors(false)
        .without_time()
        .with_ansi(ansi)
        .with_writer(writer);
    if crate::actions::is_in_force() {
        log.event_format(crate::actions::Lines).init();
    } else {
        log.init();
    }
}

/// Logs of an agent: read later, by somebody who was not there.
pub(crate) fn start_for_agent(common: &Common) {
    let level = if common.verbose > 0 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .log_internal_errors(false)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
}

/// An error, and what to do about it.
pub(crate) fn error(message: &str, hint: &str) {
    use anstyle::{AnsiColor, Style};
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let cyan = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    let mut stderr = anstream::stderr().lock();
    // Where stderr is closed there is nobody to tell.
    drop(writeln!(stderr, "{red}error{red:#}: {message}"));
    if !hint.is_empty() {
        drop(writeln!(stderr, "{cyan}hint{cyan:#}: {hint}"));
    }
}
