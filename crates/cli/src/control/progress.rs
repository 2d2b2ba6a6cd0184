//! Telling whoever waits what is being done, once it takes longer than a second: a moving line
//! on a terminal, plain lines elsewhere. On GitHub, the log is folded by it.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ondeck_core::ports::Progress;
use tracing_subscriber::fmt::MakeWriter;

use crate::control::actions::{self, Groups};
use crate::inputs::Common;

/// What takes less is not worth a word.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a plain line repeats itself.
const REPEAT: Duration = Duration::from_secs(15);

/// Watches one mode. Also the writer of its logs, so that both can share a terminal.
#[derive(Clone)]
pub(crate) struct Watcher(Arc<Inner>);

struct Inner {
    mode: &'static str,
    quiet: bool,
    bar: Option<ProgressBar>,
    groups: Option<Groups>,
    doing: Mutex<(String, Instant)>,
}

impl Watcher {
    /// Starts to watch. Must be called within the runtime.
    pub(crate) fn start(mode: &'static str, common: &Common) -> Watcher {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !common.quiet).then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let bar = ProgressBar::new_spinner();
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        let watcher = Watcher(Arc::new(Inner {
            mode,
            quiet: common.quiet,
            bar,
            groups: (actions::is_in_force() && !common.quiet).then(Groups::default),
            doing: Mutex::new((String::new(), Instant::now())),
        }));
        tokio::spawn(watcher.clone().tell());
        watcher
    }

    /// Clears the terminal's line, and ends what is folded.
    pub(crate) fn finish(&self) {
        if let Some(groups) = &self.0.groups {
            self.write(&groups.finish());
        }
        if let Some(bar) = &self.0.bar {
            bar.finish_and_clear();
        }
    }

    async fn tell(self) {
        if self.0.quiet {
            return;
        }
        tokio::time::sleep(PATIENCE).await;
        if let Some(bar) = &self.0.bar {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(100));
            return;
        }
        let mut told = (String::new(), Instant::now());
        loop {
            let (doing, since) = self.doing();
            let news = doing != told.0 || told.1.elapsed() >= REPEAT;
            if news && since.elapsed() >= PATIENCE {
                let seconds = since.elapsed().as_secs();
                let line = format!("{}: {doing} ({seconds} s)", self.0.mode);
                match &self.0.groups {
                    Some(groups) => self.write(&groups.tell(&line)),
                    None => self.write(&format!("{line}\n")),
                }
                told = (doing, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    fn write(&self, text: &str) {
        // Where stderr is closed there is nobody to tell.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }

    fn doing(&self) -> (String, Instant) {
        self.0.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Progress for Watcher {
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

/// For commands that are over at once.
pub(crate) struct Nobody;

impl Progress for Nobody {
    fn stage(&self, _doing: &str) {}
}

/// A writer of log lines that steps around the moving line.
pub(crate) struct Around(Watcher);

impl Write for Around {
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

impl<'a> MakeWriter<'a> for Watcher {
    type Writer = Around;
    fn make_writer(&'a self) -> Around {
        Around(self.clone())
    }
}
