//! What goes to stderr: logs, errors and hints.

use std::io::Write;
#[cfg(feature = "aws")]
use std::sync::{Arc, OnceLock};

use ondeck_core::model::failure::Failure;
#[cfg(feature = "aws")]
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::inputs::Common;

/// Starts the log of the control plane. Lines carry no time, because they are read as they appear.
/// They are coloured by the rules of `anstream`: on terminals, unless `NO_COLOR` or `CLICOLOR=0` is
/// set, and everywhere if `CLICOLOR_FORCE` is.
#[cfg(feature = "control")]
pub(crate) fn start(
    common: &Common,
    writer: impl for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => LevelFilter::ERROR,
        // On GitHub the log is folded, and a finished run cannot be asked for more.
        (false, 0) if crate::control::github_actions::is_active() => LevelFilter::INFO,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    let colour = anstream::AutoStream::choice(&std::io::stderr());
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        // Otherwise a line that cannot be written is reported on stderr, which panics if stderr
        // is closed.
        .log_internal_errors(false)
        .without_time()
        .with_ansi(colour != anstream::ColorChoice::Never)
        .with_writer(writer);
    if crate::control::github_actions::is_active() {
        log.event_format(crate::control::github_actions::LogFormat)
            .finish()
            .with(own_lines())
            .init();
    } else {
        log.finish().with(own_lines()).init();
    }
}

/// Admits only ondeck's own lines. The AWS libraries log requests and answers with the strings that
/// were signed.
fn own_lines() -> Targets {
    Targets::new().with_target("ondeck", LevelFilter::TRACE)
}

/// Starts the log of an agent, which also goes to `copy`. Lines carry the time, because they are read
/// later.
pub(crate) fn start_for_agent(common: &Common, copy: LogCopy) {
    let level = if common.verbose > 0 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .log_internal_errors(false)
        .with_ansi(false)
        .with_writer(std::io::stderr.and(move || copy.clone()))
        .finish()
        .with(own_lines())
        .init();
}

/// What an agent logs, for a copy that outlives its machine. Holds nothing if none is wanted.
#[derive(Debug, Clone)]
pub(crate) struct LogCopy {
    #[cfg(feature = "aws")]
    pub(crate) lines: Option<ondeck_aws::LogBuffer>,
    /// What sends the lines away, once the machine knows its identity.
    #[cfg(feature = "aws")]
    pub(crate) sender: Arc<OnceLock<Arc<ondeck_aws::MachineLogs>>>,
}

impl LogCopy {
    /// The copy that the inputs ask for.
    #[cfg_attr(not(feature = "aws"), expect(unused_variables, reason = "only AWS keeps copies"))]
    pub(crate) fn wanted(common: &Common) -> LogCopy {
        LogCopy {
            #[cfg(feature = "aws")]
            lines: crate::backend::aws::log_destination(common)
                .map(|_| ondeck_aws::LogBuffer::default()),
            #[cfg(feature = "aws")]
            sender: Arc::default(),
        }
    }

    /// Returns when the process is told to end, as it is when its machine shuts down, and the rest of
    /// the log was sent. Does not return, and leaves signals as they are, if no copy is wanted.
    pub(crate) async fn sent_when_stopped(&self) {
        #[cfg(feature = "aws")]
        if self.lines.is_some()
            && let Ok(mut terminate) = signal(SignalKind::terminate())
        {
            terminate.recv().await;
            tracing::warn!("this machine shuts down, or its agent is stopped");
            if let Some(sender) = self.sender.get() {
                sender.send_at_the_end().await;
            }
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Write for LogCopy {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        #[cfg(feature = "aws")]
        if let Some(lines) = &mut self.lines {
            return lines.write(text);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Prints a failure and returns its exit code.
pub(crate) fn fail(failure: &Failure) -> u8 {
    error(&failure.message, &failure.hint);
    failure.kind.exit_code()
}

/// Prints an error and, unless it is empty, a hint, each on a line of its own.
pub(crate) fn error(message: &str, hint: &str) {
    use anstyle::{AnsiColor, Style};
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let mut stderr = anstream::stderr().lock();
    // If stderr is closed, the error is dropped.
    drop(writeln!(stderr, "{red}error{red:#}: {}", safe(message)));
    drop(stderr);
    if !hint.is_empty() {
        self::hint(hint);
    }
}

/// Prints what to do about an error that was printed before.
pub(crate) fn hint(hint: &str) {
    use anstyle::{AnsiColor, Style};
    let cyan = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    drop(writeln!(anstream::stderr(), "{cyan}hint{cyan:#}: {}", safe(hint)));
}

/// Makes a text one line that is no workflow command. It may quote what came from outside.
fn safe(text: &str) -> String {
    let line = text.replace(['\r', '\n'], " ");
    #[cfg(feature = "control")]
    if crate::control::github_actions::is_active() {
        return crate::control::github_actions::harmless(&line);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_libraries_are_not_logged() {
        let page = Captured::default();
        let writer = page.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log.with(own_lines()), || {
            tracing::error!(target: "aws_config::sts", "what was signed");
            tracing::info!(target: "ondeck_core::modes::plane", "a transition");
            tracing::warn!("a warning");
        });
        let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert!(page.contains("a transition") && page.contains("a warning"), "{page}");
        assert!(!page.contains("signed"), "{page}");
    }
}
