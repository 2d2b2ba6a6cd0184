//! Runs programs to completion with a time limit and bounded output.

use std::future::Future;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::Clock;
use ondeck_processes::{Awaited, Process, kill_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How many bytes at the end of a program's output are kept.
const TAIL: usize = 256 * 1024;
/// A longer line is split.
const LONGEST_LINE: usize = 8 * 1024;
/// How long to wait for the rest of a program's output after its exit. A background process may hold
/// the pipe open for ever.
const REST: Duration = Duration::from_millis(500);

/// The exit status of a program and the end of its output.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl ProgramOutput {
    pub(crate) fn is_success(&self) -> bool {
        self.status.success()
    }

    /// The exit code. `None` if a signal killed it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The end of its standard output.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.clone()
    }

    /// Its standard output. Fails if the beginning was not kept.
    pub(crate) fn whole_stdout(&self) -> Result<String, String> {
        if self.stdout.len() >= TAIL {
            return Err(format!("it printed more than {TAIL} bytes"));
        }
        Ok(self.stdout.clone())
    }

    /// Standard output followed by standard error.
    pub(crate) fn all(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    /// `None` if it succeeded, else its exit status and the end of its output.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.is_success() {
            return None;
        }
        let words = output_tail(&self.all());
        let how = self.status;
        Some(if words.is_empty() { how.to_string() } else { format!("{how}: {words}") })
    }
}

/// The last bytes of an output stream. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputTail(Arc<Mutex<Vec<u8>>>);

impl OutputTail {
    pub(crate) fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).into_owned()
    }

    fn add(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
}

/// Runs a program. Fails if it cannot be started, or takes longer than `within`; then its process
/// group is killed.
pub(crate) async fn run(
    clock: &dyn Clock,
    command: Command,
    within: Duration,
) -> Result<ProgramOutput, String> {
    run_redacted(clock, command, within, &[]).await
}

/// Like [`run`], for a program that knows secrets. They are removed from the output before it is cut
/// further, because a part of a secret would not be recognised.
pub(crate) async fn run_redacted(
    clock: &dyn Clock,
    mut command: Command,
    within: Duration,
    secrets: &[&Secret],
) -> Result<ProgramOutput, String> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let (mut child, _awaited) = spawn(&mut command)?;
    let group = Process::of_child(&child);
    let (stdout, stderr) = (OutputTail::default(), OutputTail::default());
    let readers = read_lines(&mut child, &[&stdout], &[&stderr], &Arc::new(|_: &str| {}));
    let waited = timeout(clock, within, child.wait()).await;
    if waited.is_none()
        && let Some(group) = group
    {
        kill_group(group);
    }
    drain(clock, readers).await;
    let (stdout, stderr) = (redact(stdout.text(), secrets), redact(stderr.text(), secrets));
    match waited {
        Some(Ok(status)) => Ok(ProgramOutput { status, stdout, stderr }),
        Some(Err(error)) => Err(format!("cannot wait for {program}: {error}")),
        None => {
            let words = output_tail(&format!("{stdout}\n{stderr}"));
            Err(format!("{program} took more than {} s: {words}", within.as_secs_f32()))
        }
    }
}

/// Replaces secrets. The runner masks its tokens itself; this is a second line of defence.
fn redact(words: String, secrets: &[&Secret]) -> String {
    let shown = secrets.iter().map(|secret| secret.expose()).filter(|secret| !secret.is_empty());
    shown.fold(words, |words, secret| words.replace(secret, "***"))
}

/// Starts a program in its own process group, with piped output and without input. Keep the second
/// part of the answer as long as the program is waited for.
pub(crate) fn spawn(command: &mut Command) -> Result<(Child, Awaited), String> {
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    ondeck_processes::spawn(command).map_err(|error| {
        let program = command.as_std().get_program().to_string_lossy();
        format!("cannot start {program}: {error}")
    })
}

/// Reads a child's output in the background: keeps the end of each stream in all of its tails, and
/// passes each line to `each`.
pub(crate) fn read_lines(
    child: &mut Child,
    stdout: &[&OutputTail],
    stderr: &[&OutputTail],
    each: &Arc<impl Fn(&str) + Send + Sync + 'static>,
) -> Vec<JoinHandle<()>> {
    let tails = |of: &[&OutputTail]| of.iter().copied().cloned().collect::<Vec<_>>();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = out.map(|it| tokio::spawn(follow(it, tails(stdout), each.clone())));
    let err = err.map(|it| tokio::spawn(follow(it, tails(stderr), each.clone())));
    out.into_iter().chain(err).collect()
}

/// Waits for the rest of the output of a program that has exited.
pub(crate) async fn drain(clock: &dyn Clock, mut readers: Vec<JoinHandle<()>>) {
    let all = async {
        for reader in &mut readers {
            if let Err(error) = reader.await {
                tracing::warn!("cannot read a program's output: {error}");
            }
        }
    };
    if timeout(clock, REST, all).await.is_none() {
        readers.iter().for_each(JoinHandle::abort);
    }
}

/// Returns the output of a future, or `None` if it takes longer than `within`.
pub(crate) async fn timeout<T>(
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
    tails: Vec<OutputTail>,
    each: Arc<impl Fn(&str) + Send + Sync>,
) {
    let mut chunk = [0; 4096];
    let mut line = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        tails.iter().for_each(|tail| tail.add(&chunk[..read]));
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
    fn secrets_are_redacted() {
        let (one, other, none) = (Secret::new("AREG"), Secret::new("AREM"), Secret::default());
        let words = || "bad AREG, AREM and AREG".to_owned();
        assert_eq!(redact(words(), &[&one, &other]), "bad ***, *** and ***");
        assert_eq!(redact(words(), &[&none]), words());
    }
}
