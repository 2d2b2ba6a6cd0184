//! The listener of `run.sh`: opens a session and executes its jobs.

use std::path::Path;
use std::time::Duration;

use hyper::StatusCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::github::protocol::{Message, Opened, Opening, Order};

use super::job::{Place, Stop};
use super::pauses::{Pauses, RunnerTimes, wait_as_real};
use super::server::{Reply, Server, ServerError};
use super::settings::{self, Credentials, Settings};
use super::terminal::{print_error, print_line, print_success, timestamped};
use super::{ListenerExit, version, worker};

/// How many times to try again while another session of the runner is open.
const CONFLICTS: u32 = 8;
/// How often one message is asked for before that counts as an error.
const POLLS: u32 = 5;
/// After how many errors in a row the pause between them is longer.
const PATIENT: u32 = 5;
/// After how many errors in a row the listener exits.
const ERRORS: u32 = 10;
/// The time between two polls of a listener that stops its job.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes jobs until a signal or GitHub ends the listener. Returns its exit code.
pub(super) async fn listen(root: &Path) -> ListenerExit {
    let (Some(settings), Some(credentials)) = (Settings::read(root), Credentials::read(root))
    else {
        print_error(
            "An error occurred: Not configured. Run config.(sh/cmd) to configure the runner.",
        );
        return ListenerExit::Terminated;
    };
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return ListenerExit::Retryable };
    let key = format!("Bearer {}", credentials.data.client_id);
    let listener = Listener {
        server: Server::new(&settings.server_url, key),
        place: Place::of(root, &settings),
        version: version(root),
        pauses: Pauses::of(root),
        settings,
    };
    let opening = async {
        wait_as_real(root, |times| times.listen).await;
        listener.open().await
    };
    let session = tokio::select! {
        opened = opening => match opened {
            Ok(session) => session,
            Err(end) => return end,
        },
        () = either(&mut interrupt, &mut terminate) => return ListenerExit::Done,
    };
    print_line(&format!("Current runner version: '{}'", listener.version));
    print_line(&timestamped("Listening for Jobs"));
    let mut working = None;
    let end = tokio::select! {
        end = listener.take_jobs(&session, &mut working) => end,
        () = either(&mut interrupt, &mut terminate) => ListenerExit::Done,
    };
    if let Some(working) = working {
        listener.stop(&session, working).await;
    }
    let path = format!("/sessions/{session}");
    // If this fails, GitHub ends the session after a while.
    listener.server.ask("DELETE", &path, &()).await.ok();
    wait_as_real(root, |times| times.end).await;
    end
}

/// Waits for one of the signals. Only the first one is answered with a word.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => print_line("Exiting..."),
        _ = terminate.recv() => {}
    }
}

struct Listener {
    server: Server,
    settings: Settings,
    place: Place,
    version: String,
    pauses: Pauses,
}

/// The current or last job.
struct Working {
    job: u64,
    /// Closed when the job is over and the listener has said so.
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Opens a session, which makes the runner online. Fails with the listener's exit code. Like the
    /// real one it pauses before it tries again. After the statuses 502 to 504 it does so three times
    /// without a word.
    async fn open(&self) -> Result<String, ListenerExit> {
        let opening = Opening { runner: self.settings.agent_id, version: self.version.clone() };
        let pause = self.pauses.session;
        print_line("");
        print_success("Connected to GitHub");
        print_line("");
        let (mut conflicts, mut complained) = (0, false);
        loop {
            let asked = self.ask_for_session(&opening, pause).await;
            let status = asked.as_ref().map_or(StatusCode::INTERNAL_SERVER_ERROR, |it| it.status);
            match (status, asked) {
                (StatusCode::OK, Ok(reply)) => {
                    let opened: Opened = reply.read().map_err(|error| failed(&error))?;
                    return Ok(opened.session);
                }
                (StatusCode::CONFLICT, Ok(reply)) => {
                    print_error(&reply.message());
                    conflicts += 1;
                    if conflicts > CONFLICTS {
                        let seconds = (pause * CONFLICTS).as_secs_f32();
                        print_error(&format!(
                            "Stop retry on SessionConflictException after retried for {seconds} \
                             seconds."
                        ));
                        return Err(ListenerExit::SessionConflict);
                    }
                }
                (StatusCode::UNAUTHORIZED, _) => return Err(registration_deleted()),
                (status, _) if status.is_server_error() => {}
                (_, Ok(reply)) => return Err(failed(&ServerError::new(reply.message()))),
                (_, Err(error)) => return Err(failed(&error)),
            }
            if !complained {
                let problem = status.canonical_reason().unwrap_or_default();
                let line = format!("Runner connect error: Error: {problem}.");
                print_error(&timestamped(&format!("{line} Retrying until reconnected.")));
                complained = true;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks for a session. Statuses 502 to 504 are answered by three more attempts, with pauses of
    /// 11, 13 and 17 s where `pause` is 30 s.
    async fn ask_for_session(
        &self,
        opening: &Opening,
        pause: Duration,
    ) -> Result<Reply, ServerError> {
        if RunnerTimes::of(&self.place.root).is_some() {
            // If these fail, so does the request for the session.
            for path in ["/connection", "/oauth2/token"] {
                self.server.ask("GET", path, &()).await.ok();
            }
        }
        for seconds in [11, 13, 17] {
            let reply = self.server.ask("POST", "/sessions", opening).await?;
            if !matches!(reply.status.as_u16(), 502..=504) {
                return Ok(reply);
            }
            tokio::time::sleep(pause * seconds / 30).await;
        }
        self.server.ask("POST", "/sessions", opening).await
    }

    /// Executes messages until the session ends. Returns the listener's exit code.
    async fn take_jobs(&self, session: &str, working: &mut Option<Working>) -> ListenerExit {
        let path = format!("/sessions/{session}/message");
        let path_with_job = format!("{path}?status=Busy");
        let mut errors = 0;
        loop {
            let busy = working.as_ref().filter(|working| !working.stop.is_closed());
            let polled = match busy {
                None => self.poll(&path).await,
                // A listener gets no other job until it has reported the end of this one.
                Some(working) => tokio::select! {
                    polled = self.poll(&path_with_job) => polled,
                    () = working.stop.closed() => continue,
                },
            };
            let reply = match polled {
                Ok(reply) => reply,
                Err(error) => {
                    errors += 1;
                    if errors == 1 {
                        let line = format!("Runner connect error: {error}.");
                        print_error(&timestamped(&format!("{line} Retrying until reconnected.")));
                    }
                    // A test may have removed the folder while this listener waits.
                    if errors > ERRORS || !self.place.root.exists() {
                        return failed(&error);
                    }
                    let seconds = if errors <= PATIENT { 15.0..30.0 } else { 30.0..60.0 };
                    tokio::time::sleep(self.pauses.between(seconds)).await;
                    continue;
                }
            };
            if std::mem::take(&mut errors) > 0 {
                print_line(&timestamped("Runner reconnected."));
            }
            if reply.status == StatusCode::FORBIDDEN {
                print_error(&format!("An error occurred: {}", reply.message()));
                return ListenerExit::Deprecated;
            }
            if reply.status == StatusCode::UNAUTHORIZED {
                return self.deleted(working).await;
            }
            match reply.read() {
                Ok(Message::Nothing) => {}
                Ok(Message::Job(order)) => *working = Some(self.begin(*order)),
                Ok(Message::Cancel { job }) => {
                    if let Some(working) = working.as_ref().filter(|working| working.job == job) {
                        working.stop.send_replace(Stop::Cancelled);
                    }
                }
                Ok(Message::Refresh { version }) => {
                    if self.update(&version, working).await {
                        return ListenerExit::Updating;
                    }
                }
                Ok(Message::Crash) => std::process::abort(),
                Err(error) => return failed(&error),
            }
        }
    }

    /// Asks for a message up to [`POLLS`] times. Fails if there is no answer, or a server error.
    async fn poll(&self, path: &str) -> Result<Reply, ServerError> {
        let mut attempt = 1;
        loop {
            let error = match self.server.ask("GET", path, &()).await {
                Ok(reply) if !reply.status.is_server_error() => return Ok(reply),
                Ok(reply) => ServerError::new(reply.message()),
                Err(error) => error,
            };
            if attempt == POLLS || !self.place.root.exists() {
                return Err(error);
            }
            tokio::time::sleep(self.pauses.between(5.0..15.0)).await;
            attempt += 1;
        }
    }

    /// Updates itself, which `--disableupdate` does not prevent. Returns whether that has worked. The
    /// real one puts a new folder `bin` beside its own, replaces its scripts, and starts one of them,
    /// which exchanges the folders. If the scripts belong to another user, the update ends there. This
    /// one does not exchange the folders.
    async fn update(&self, version: &str, working: &mut Option<Working>) -> bool {
        print_line("Runner update in progress, do not shutdown runner.");
        print_line(&format!("Downloading {version} runner"));
        let root = &self.place.root;
        let made = std::fs::create_dir_all(root.join(format!("bin.{version}"))).and_then(|()| {
            std::fs::File::options().write(true).open(root.join("run.sh")).map(drop)
        });
        if made.is_ok() {
            print_line("Waiting for current job finish running.");
            if let Some(working) = working.take() {
                working.task.await.ok();
            }
            print_line("Generate and execute update script.");
            print_line(
                "Runner will exit shortly for update, should be back online within 10 seconds.",
            );
        }
        print_line("Runner update process finished.");
        made.is_ok()
    }

    fn begin(&self, order: Order) -> Working {
        print_line(&timestamped(&format!("Running job: {}", order.name)));
        let (stop, stopping) = watch::channel(Stop::No);
        let job = order.job;
        let task = if order.begins {
            tokio::spawn(worker::supervise(self.place.clone(), order, stopping, self.pauses))
        } else {
            tokio::spawn(async {})
        };
        Working { job, stop, task }
    }

    /// Stops a job. Keeps asking for messages meanwhile, or GitHub would
    /// consider the listener gone.
    async fn stop(&self, session: &str, mut working: Working) {
        working.stop.send_replace(Stop::Shutdown);
        let path = format!("/sessions/{session}/message");
        loop {
            tokio::select! {
                // The job has reported its own errors.
                _ = &mut working.task => return,
                _ = self.server.ask("GET", &path, &()) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Handles the deletion of the runner at GitHub's side: forgets its registration. That is normal
    /// for an ephemeral runner after its job; another one cancels a job first.
    async fn deleted(&self, working: &mut Option<Working>) -> ListenerExit {
        if let Some(working) = working.take() {
            if !self.settings.ephemeral {
                working.stop.send_replace(Stop::Cancelled);
            }
            working.task.await.ok();
        }
        if !self.settings.ephemeral {
            print_error(
                "The runner no longer exists on the server. Cleaning up local configuration.",
            );
        }
        settings::forget_credentials(&self.place.root);
        settings::forget_settings(&self.place.root);
        ListenerExit::Done
    }
}

fn registration_deleted() -> ListenerExit {
    print_error(
        "Failed to create a session. The runner registration has been deleted from the server, \
         please re-configure. Runner registrations are automatically deleted for runners that \
         have not connected to the service recently.",
    );
    ListenerExit::Terminated
}

fn failed(error: &ServerError) -> ListenerExit {
    print_error(&format!("An error occurred: {error}"));
    ListenerExit::Retryable
}
