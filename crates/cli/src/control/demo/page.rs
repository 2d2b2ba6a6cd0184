//! The dashboard of the demo's pool, served while the story is played.

use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use super::narrator::Narrator;
use crate::control::dashboard::{Access, Dashboard, Pace, Source, Watched};
use crate::inputs::Common;

/// The story is quick, and its store is a file.
const PACE: Pace = Pace { pause: Duration::from_millis(250), history_kept: Duration::from_secs(1) };

/// The page. It is served until this is dropped.
pub(super) struct Page {
    url: String,
    watched: Watched,
    serving: JoinHandle<()>,
    /// Each press of Enter; `None` if there is no person at a terminal.
    enter: Option<Mutex<mpsc::UnboundedReceiver<()>>>,
}

impl Page {
    pub(super) async fn open(common: &Common) -> Result<Page, Failure> {
        let dashboard = Dashboard::open(Source::of(common), Access::on_any_port(), PACE).await?;
        let (url, watched) = (dashboard.url().to_owned(), dashboard.watched());
        let enter = (stdin().is_terminal() && stdout().is_terminal()).then(presses);
        Ok(Page { url, watched, serving: tokio::spawn(dashboard.serve()), enter })
    }

    /// Tells where the page is, and waits until it is open, if there is a person to open it.
    pub(super) async fn until_open(&self, narrator: &Narrator) {
        narrator.say(&format!("\ndashboard: {}", self.url));
        if let Some(enter) = &self.enter {
            narrator.say("Open it to begin, or press Enter to begin without it.");
            let mut enter = enter.lock().await;
            tokio::select! {
                () = self.watched.until_open() => {}
                _ = enter.recv() => {}
            }
        }
    }

    /// Waits until the page is no longer needed, if there is a person to tell.
    pub(super) async fn until_closed(&self, narrator: &Narrator) {
        if let Some(enter) = &self.enter {
            narrator.say("\nThe dashboard is open until you press Enter.");
            enter.lock().await.recv().await;
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Each line of stdin, until it ends. Reading blocks, so a thread does it, which ends with the process.
fn presses() -> Mutex<mpsc::UnboundedReceiver<()>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(1..) = stdin().read_line(&mut String::new()) {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    Mutex::new(receiver)
}
