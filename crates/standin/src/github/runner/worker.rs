//! `Runner.Worker`, the process that executes a job, and the listener's side of it. The real listener
//! also has a process for each job, and reports what it printed if it does not end in good order.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::github::protocol::{Order, Progress};

use super::job::{self, Outcome, Place, Stop, stopped};
use super::pauses::Pauses;
use super::settings::Settings;
use super::terminal::{print_error, print_line, timestamped};

/// The name by which the program is a worker.
pub(super) const NAME: &str = "Runner.Worker";
/// The line by which a listener that ends stops its worker.
const SHUTDOWN: &str = "shutdown";
/// The exit code of a worker is this, and a number for the result.
const RESULTS: u8 = 100;

/// Whether this process was started as a worker.
pub(super) fn is_this_process() -> bool {
    std::env::args_os().next().is_some_and(|called| Path::new(&called).ends_with(NAME))
}

/// Executes the job that comes as the first line of stdin. A second line stops it. Returns the exit
/// code.
pub(super) fn run(root: &Path) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(work(root)) {
        Ok(Some(outcome)) => ExitCode::from(RESULTS + outcome as u8),
        // The listener is gone, and no process waits for the result.
        Ok(None) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn work(root: &Path) -> io::Result<Option<Outcome>> {
    // A signal to the process group is for the listener.
    let _signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stdin = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut lines = BufReader::new(stdin).lines();
    let order = lines.next_line().await?.unwrap_or_default();
    let order: Order = serde_json::from_str(&order)?;
    let settings = Settings::read(root).ok_or_else(|| io::Error::other("not configured"))?;
    let (stop, stopping) = watch::channel(Stop::No);
    let told = async {
        while let Ok(Some(line)) = lines.next_line().await {
            stop.send_replace(if line == SHUTDOWN { Stop::Shutdown } else { Stop::Cancelled });
        }
    };
    tokio::select! {
        outcome = job::work(Place::of(root, &settings), order, stopping) => Ok(Some(outcome)),
        () = told => Ok(None),
    }
}

/// Lets a worker execute a job, and prints the listener's line about its end. A listener that is told to
/// end just before that line calls the job cancelled, also if GitHub was told otherwise.
pub(super) async fn supervise(
    place: Place,
    order: Order,
    mut stopping: watch::Receiver<Stop>,
    pauses: Pauses,
) {
    let (name, id) = (order.name.clone(), order.job);
    let result = match execute(&place, &order, stopping.clone()).await {
        Ok((status, said)) => match Outcome::of(status) {
            Some(outcome) => outcome,
            None => {
                job::tell(&place, id, &crashed(&said)).await;
                Outcome::Failed
            }
        },
        Err(error) => {
            job::tell(&place, id, &crashed(&error.to_string())).await;
            Outcome::Failed
        }
    };
    // It comes later, but not after a signal.
    tokio::time::timeout(pauses.closing, stopped(&mut stopping)).await.ok();
    let is_stopped = *stopping.borrow() == Stop::Shutdown;
    let result = if is_stopped { Outcome::Canceled } else { result };
    print_line(&timestamped(&format!("Job {name} completed with result: {result:?}")));
}

fn crashed(said: &str) -> Progress {
    Progress {
        log: String::new(),
        conclusion: Some(Outcome::Failed.conclusion().to_owned()),
        annotation: Some(said.to_owned()),
    }
}

/// Runs a worker until it exits. Returns how it exited and what it printed.
async fn execute(
    place: &Place,
    order: &Order,
    mut stopping: watch::Receiver<Stop>,
) -> io::Result<(ExitStatus, String)> {
    let mut child = Command::new(place.root.join("bin").join(NAME))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(|| io::Error::other("no stdin"))?;
    stdin.write_all(format!("{}\n", serde_json::to_string(order)?).as_bytes()).await?;
    let reading = tokio::spawn(output(&mut child));
    let status = tokio::select! {
        status = child.wait() => status?,
        () = stopped(&mut stopping) => {
            // It may have ended meanwhile.
            let is_shutdown = *stopping.borrow() == Stop::Shutdown;
            let line = if is_shutdown { SHUTDOWN } else { "cancel" };
            stdin.write_all(format!("{line}\n").as_bytes()).await.ok();
            child.wait().await?
        }
    };
    Ok((status, reading.await.unwrap_or_default()))
}

fn output(child: &mut Child) -> impl Future<Output = String> + use<> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    async move {
        let mut said = Vec::new();
        if let Some(mut stdout) = stdout {
            stdout.read_to_end(&mut said).await.ok();
        }
        if let Some(mut stderr) = stderr {
            stderr.read_to_end(&mut said).await.ok();
        }
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Outcome {
    /// The result that a worker reported by its exit code; `None` if it crashed.
    fn of(status: ExitStatus) -> Option<Outcome> {
        let code = status.code()?.checked_sub(RESULTS.into())?;
        [Outcome::Succeeded, Outcome::Failed, Outcome::Canceled]
            .into_iter()
            .find(|outcome| *outcome as i32 == code)
    }
}
