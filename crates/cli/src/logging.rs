//! What goes to stderr: logs, errors and hints.

use std::io::Write;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
        (false, 0) if crate::control::actions::is_in_force() => LevelFilter::INFO,
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
    if crate::control::actions::is_in_force() {
        log.event_format(crate::control::actions::Lines).finish().with(ours()).init();
    } else {
        log.finish().with(ours()).init();
    }
}

/// Only what ondeck itself has to say. The libraries for AWS repeat answers and requests as they
/// are, and what was signed is among them.
fn ours() -> Targets {
    Targets::new().with_target("ondeck", LevelFilter::TRACE)
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
        .finish()
        .with(ours())
        .init();
}

/// An error, and what to do about it.
pub(crate) fn error(message: &str, hint: &str) {
    use anstyle::{AnsiColor, Style};
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let mut stderr = anstream::stderr().lock();
    // Where stderr is closed there is nobody to tell.
    drop(writeln!(stderr, "{red}error{red:#}: {message}"));
    drop(stderr);
    if !hint.is_empty() {
        self::hint(hint);
    }
}

/// Prints what to do about an error that was printed before.
pub(crate) fn hint(hint: &str) {
    use anstyle::{AnsiColor, Style};
    let cyan = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    drop(writeln!(anstream::stderr(), "{cyan}hint{cyan:#}: {hint}"));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn others_have_no_say() {
        let page = Page::default();
        let writer = page.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log.with(ours()), || {
            tracing::error!(target: "aws_config::sts", "what was signed");
            tracing::info!(target: "ondeck_core::modes::plane", "a transition");
            tracing::warn!("a warning");
        });
        let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert!(page.contains("a transition") && page.contains("a warning"), "{page}");
        assert!(!page.contains("signed"), "{page}");
    }
}
