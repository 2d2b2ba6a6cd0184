//! Shows which stage a command is in, once it takes longer than a second: a spinner on a terminal,
//! plain lines elsewhere. On GitHub, the log is folded by stage, and there is no spinner: an
//! annotation behind one would not be at the beginning of its line.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ondeck_core::ports::Progress;
use tracing_subscriber::fmt::MakeWriter;

use crate::control::github_actions::{self, Groups};
use crate::inputs::Common;

/// A stage that takes less is not shown.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// How often the plain line of a long stage is repeated.
const REPEAT: Duration = Duration::from_secs(15);

/// The display of one command. It also writes the command's log lines, because both share a
/// terminal.
#[derive(Clone)]
pub(crate) struct ProgressDisplay(Arc<Inner>);

struct Inner {
    mode: &'static str,
    quiet: bool,
    bar: Option<ProgressBar>,
    groups: Option<Groups>,
    doing: Mutex<(String, Instant)>,
}

impl ProgressDisplay {
    /// Starts the display. Must be called within the runtime.
    pub(crate) fn start(mode: &'static str, common: &Common) -> ProgressDisplay {
        let is_step = github_actions::is_active();
        let is_terminal = std::io::stderr().is_terminal();
        let bar = (is_terminal && !is_step && !common.quiet).then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let bar = ProgressBar::new_spinner();
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        let display = ProgressDisplay(Arc::new(Inner {
            mode,
            quiet: common.quiet,
            bar,
            groups: (is_step && !common.quiet).then(Groups::default),
            doing: Mutex::new((String::new(), Instant::now())),
        }));
        tokio::spawn(display.clone().show());
        display
    }

    /// Removes the spinner and closes the open group.
    pub(crate) fn finish(&self) {
        if let Some(groups) = &self.0.groups {
            self.write(&groups.finish());
        }
        if let Some(bar) = &self.0.bar {
            bar.finish_and_clear();
        }
    }

    async fn show(self) {
        if self.0.quiet {
            return;
        }
        tokio::time::sleep(SHOW_AFTER).await;
        if let Some(bar) = &self.0.bar {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(100));
            return;
        }
        let mut shown = (String::new(), Instant::now());
        loop {
            let (doing, since) = self.doing();
            let news = doing != shown.0 || shown.1.elapsed() >= REPEAT;
            if news && since.elapsed() >= SHOW_AFTER {
                let seconds = since.elapsed().as_secs();
                let line = format!("{}: {doing} ({seconds} s)", self.0.mode);
                match &self.0.groups {
                    Some(groups) => self.write(&groups.name_stage(&line)),
                    None => self.write(&format!("{line}\n")),
                }
                shown = (doing, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    fn write(&self, text: &str) {
        // If stderr is closed, the text is dropped.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }

    fn doing(&self) -> (String, Instant) {
        self.0.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Progress for ProgressDisplay {
    fn stage(&self, doing: &str) {
        match &self.0.groups {
            Some(groups) => self.write(&groups.stage(doing)),
            None => tracing::debug!("{doing}"),
        }
        *self.0.doing.lock().unwrap_or_else(PoisonError::into_inner) =
            (doing.to_owned(), Instant::now());
        if let Some(bar) = &self.0.bar {
            bar.set_message(format!("{}: {doing}", self.0.mode));
        }
    }
}

/// For commands that show no stages.
pub(crate) struct NoProgress;

impl Progress for NoProgress {
    fn stage(&self, _doing: &str) {}
}

/// Writes log lines above the spinner.
pub(crate) struct LogWriter(ProgressDisplay);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(groups) = &self.0.0.groups {
            std::io::stderr().write_all(groups.before_log().as_bytes())?;
        }
        match &self.0.0.bar {
            Some(bar) => bar.suspend(|| std::io::stderr().write(bytes)),
            None => std::io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for ProgressDisplay {
    type Writer = LogWriter;
    fn make_writer(&'a self) -> LogWriter {
        LogWriter(self.clone())
    }
}
