//! Programs that are run to their end, in bounded time and with bounded output.

use std::future::Future;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::Clock;
use ondeck_processes::{Process, kill_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How much of what a program says is kept: the end of it.
const KEPT: usize = 256 * 1024;
/// What is longer than this counts as several lines.
const LONGEST_LINE: usize = 8 * 1024;
/// How long to wait for the rest of what a program has said once it has ended. Whatever it has
/// left in the background may hold the pipe for ever.
const REST: Duration = Duration::from_millis(500);

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// With 0.
    pub(crate) fn is_success(&self) -> bool {
        self.status.success()
    }

    /// With which code, unless by a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// What it wrote for programs to read.
    pub(crate) fn output(&self) -> String {
        self.stdout.clone()
    }

    /// All that it said, errors last.
    pub(crate) fn said(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    /// Nothing if it succeeded; else how it ended, and its last words.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.is_success() {
            return None;
        }
        let words = output_tail(&self.said());
        let how = self.status;
        Some(if words.is_empty() { how.to_string() } else { format!("{how}: {words}") })
    }
}

/// What something has said so far, as far back as it is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    /// As text.
    pub(crate) fn text(&self) -> String {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }

    fn add(&self, bytes: &[u8]) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(bytes);
        let surplus = said.len().saturating_sub(KEPT);
        said.drain(..surplus);
    }
}

/// Runs a program, and ends it with its whole group if it takes longer than this.
pub(crate) async fn run(
    clock: &dyn Clock,
    command: Command,
    within: Duration,
) -> Result<Ended, String> {
    run_hiding(clock, command, within, &[]).await
}

/// The same for a program that knows secrets. They are hidden before anything else is done with
/// what it says: of a text that was cut before, a part of one might be left that nobody knows.
pub(crate) async fn run_hiding(
    clock: &dyn Clock,
    mut command: Command,
    within: Duration,
    secrets: &[&Secret],
) -> Result<Ended, String> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let mut child = spawn(&mut command)?;
    let group = Process::of_child(&child);
    let (stdout, stderr) = (Said::default(), Said::default());
    let readers = follow_all(&mut child, &stdout, &stderr, &Arc::new(|_: &str| {}));
    let waited = bounded(clock, within, child.wait()).await;
    if waited.is_none()
        && let Some(group) = group
    {
        kill_group(group);
    }
    finish(clock, readers).await;
    let (stdout, stderr) = (hide(stdout.text(), secrets), hide(stderr.text(), secrets));
    match waited {
        Some(Ok(status)) => Ok(Ended { status, stdout, stderr }),
        Some(Err(error)) => Err(format!("cannot wait for {program}: {error}")),
        None => {
            let words = output_tail(&format!("{stdout}\n{stderr}"));
            Err(format!("{program} took more than {} s: {words}", within.as_secs_f32()))
        }
    }
}

/// The runner masks its token itself; this is for the day that it does not.
fn hide(words: String, secrets: &[&Secret]) -> String {
    let shown = secrets.iter().map(|secret| secret.expose()).filter(|secret| !secret.is_empty());
    shown.fold(words, |words, secret| words.replace(secret, "***"))
}

/// Starts a program in a group of its own, listened to and with nothing to read.
pub(crate) fn spawn(command: &mut Command) -> Result<Child, String> {
    let spawned = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    spawned.map_err(|error| {
        let program = command.as_std().get_program().to_string_lossy();
        format!("cannot start {program}: {error}")
    })
}

/// Keeps what a child says, and hands it on line by line.
pub(crate) fn follow_all(
    child: &mut Child,
    stdout: &Said,
    stderr: &Said,
    each: &Arc<impl Fn(&str) + Send + Sync + 'static>,
) -> Vec<JoinHandle<()>> {
    let out = child.stdout.take().map(|it| tokio::spawn(follow(it, stdout.clone(), each.clone())));
    let err = child.stderr.take().map(|it| tokio::spawn(follow(it, stderr.clone(), each.clone())));
    out.into_iter().chain(err).collect()
}

/// Waits for what is still in the pipes of a program that has ended.
pub(crate) async fn finish(clock: &dyn Clock, mut readers: Vec<JoinHandle<()>>) {
    let all = async {
        for reader in &mut readers {
            if let Err(error) = reader.await {
                tracing::warn!("cannot follow what a program says: {error}");
            }
        }
    };
    if bounded(clock, REST, all).await.is_none() {
        readers.iter().for_each(JoinHandle::abort);
    }
}

/// What comes of a future, unless that takes too long.
pub(crate) async fn bounded<T>(
    clock: &dyn Clock,
    within: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    tokio::select! {
        biased;
        done = &mut future => Some(done),
        () = clock.sleep(within) => None,
    }
}

async fn follow(
    mut from: impl AsyncRead + Unpin,
    said: Said,
    each: Arc<impl Fn(&str) + Send + Sync>,
) {
    let mut chunk = [0; 4096];
    let mut line = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        said.add(&chunk[..read]);
        for byte in &chunk[..read] {
            if *byte == b'\n' || line.len() >= LONGEST_LINE {
                each(String::from_utf8_lossy(&line).trim());
                line.clear();
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    if !line.is_empty() {
        each(String::from_utf8_lossy(&line).trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_do_not_get_into_words() {
        let (one, other, none) = (Secret::new("AREG"), Secret::new("AREM"), Secret::default());
        let words = || "bad AREG, AREM and AREG".to_owned();
        assert_eq!(hide(words(), &[&one, &other]), "bad ***, *** and ***");
        assert_eq!(hide(words(), &[&none]), words());
    }
}
