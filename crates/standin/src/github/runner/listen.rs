//! `run.sh`'s listener: a session, and the jobs that come in it.

use std::path::Path;
use std::time::Duration;

use hyper::StatusCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::github::protocol::{Message, Opened, Opening, Order};

use super::job::{self, Place};
use super::server::{Server, ServerError};
use super::settings::{self, Credentials, Settings};
use super::terminal::{complain, say, succeed, timed};
use super::{End, version};

/// How long a session that is somebody else's is waited for. The real one has four minutes.
const CONFLICT: Duration = Duration::from_millis(500);
/// How long a GitHub that does not answer is waited for. The real one never gives up, and would
/// outlive the test.
const SILENCE: Duration = Duration::from_secs(20);
/// Between one attempt and the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes jobs until somebody ends it.
pub(super) async fn listen(root: &Path) -> End {
    let (Some(settings), Some(credentials)) = (Settings::read(root), Credentials::read(root))
    else {
        complain("An error occurred: Not configured. Run config.(sh/cmd) to configure the runner.");
        return End::Terminated;
    };
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return End::Retryable };
    let key = format!("Bearer {}", credentials.data.client_id);
    let listener = Listener {
        server: Server::new(&settings.server_url, key),
        place: Place::of(root, &settings),
        version: version(root),
        settings,
    };
    let session = tokio::select! {
        opened = listener.open() => match opened {
            Ok(session) => session,
            Err(end) => return end,
        },
        () = either(&mut interrupt, &mut terminate) => {
            say("Exiting...");
            return End::Done;
        }
    };
    say(&format!("Current runner version: '{}'", listener.version));
    say(&timed("Listening for Jobs"));
    let mut working = None;
    let end = tokio::select! {
        end = listener.take_jobs(&session, &mut working) => end,
        () = either(&mut interrupt, &mut terminate) => {
            say("Exiting...");
            End::Done
        }
    };
    if let Some(working) = working {
        listener.stop(&session, working).await;
    }
    let path = format!("/sessions/{session}");
    // A session that cannot be ended ends by itself.
    listener.server.ask("DELETE", &path, &()).await.ok();
    end
}

async fn either(first: &mut Signal, second: &mut Signal) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}

struct Listener {
    server: Server,
    settings: Settings,
    place: Place,
    version: String,
}

/// The job that is being done, or was the last to be.
struct Working {
    job: u64,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Opens a session, which is what makes a runner be online.
    async fn open(&self) -> Result<String, End> {
        let begun = Instant::now();
        let opening = Opening { runner: self.settings.agent_id, version: self.version.clone() };
        let mut complained = false;
        loop {
            let (patience, problem) = match self.server.ask("POST", "/sessions", &opening).await {
                Err(error) => (SILENCE, error.to_string()),
                Ok(reply) => match reply.status {
                    StatusCode::OK => {
                        let opened: Opened = reply.read().map_err(|error| failed(&error))?;
                        say("");
                        succeed("Connected to GitHub");
                        say("");
                        return Ok(opened.session);
                    }
                    StatusCode::CONFLICT => (CONFLICT, reply.message()),
                    StatusCode::UNAUTHORIZED => return Err(struck()),
                    _ => return Err(failed(&ServerError::new(reply.message()))),
                },
            };
            if !complained {
                let line = format!("Runner connect error: {problem}. Retrying until reconnected.");
                complain(&timed(&line));
                complained = true;
            }
            if begun.elapsed() >= patience {
                return Err(if patience == CONFLICT {
                    complain(&format!(
                        "Stop retry on SessionConflictException after retried for {} seconds.",
                        patience.as_secs_f32()
                    ));
                    End::SessionConflict
                } else {
                    End::Terminated
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits for messages and does what they say, until there are none to be had any more.
    async fn take_jobs(&self, session: &str, working: &mut Option<Working>) -> End {
        let path = format!("/sessions/{session}/message");
        let mut silent_since: Option<Instant> = None;
        loop {
            let reply = match self.server.ask("GET", &path, &()).await {
                Ok(reply) => reply,
                Err(error) => {
                    let since = *silent_since.get_or_insert_with(|| {
                        let line = format!("Runner connect error: {error}.");
                        complain(&timed(&format!("{line} Retrying until reconnected.")));
                        Instant::now()
                    });
                    if since.elapsed() > SILENCE {
                        return End::Terminated;
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if silent_since.take().is_some() {
                say(&timed("Runner reconnected."));
            }
            if reply.status == StatusCode::FORBIDDEN {
                complain(&format!("An error occurred: {}", reply.message()));
                return End::Deprecated;
            }
            if reply.status == StatusCode::UNAUTHORIZED {
                return self.struck_or_served(working).await;
            }
            match reply.read() {
                Ok(Message::Nothing) => {}
                Ok(Message::Job(order)) => *working = Some(self.begin(*order)),
                Ok(Message::Cancel { job }) => {
                    if let Some(working) = working.as_ref().filter(|working| working.job == job) {
                        working.stop.send_replace(true);
                    }
                }
                Ok(Message::Crash) => std::process::abort(),
                Err(error) => return failed(&error),
            }
        }
    }

    fn begin(&self, order: Order) -> Working {
        let (stop, stopping) = watch::channel(false);
        let job = order.job;
        let task = tokio::spawn(job::work(self.place.clone(), order, stopping));
        Working { job, stop, task }
    }

    /// Stops a job, and goes on asking for messages meanwhile: who does not is taken for gone.
    async fn stop(&self, session: &str, mut working: Working) {
        working.stop.send_replace(true);
        let path = format!("/sessions/{session}/message");
        loop {
            tokio::select! {
                // Whatever went wrong with it was said where it did.
                _ = &mut working.task => return,
                _ = self.server.ask("GET", &path, &()) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// There is no session any more. For a runner that takes one job only, that is as it should
    /// be once it has had it.
    async fn struck_or_served(&self, working: &mut Option<Working>) -> End {
        if !self.settings.ephemeral {
            return struck();
        }
        let Some(working) = working.take() else { return struck() };
        working.task.await.ok();
        settings::forget_credentials(&self.place.root);
        settings::forget_settings(&self.place.root);
        End::Done
    }
}

fn struck() -> End {
    complain(
        "Failed to create a session. The runner registration has been deleted from the server, \
         please re-configure. Runner registrations are automatically deleted for runners that \
         have not connected to the service recently.",
    );
    End::Terminated
}

fn failed(error: &ServerError) -> End {
    complain(&format!("An error occurred: {error}"));
    End::Retryable
}
