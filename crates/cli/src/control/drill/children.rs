//! This program, as a child with another command: with the inputs of the drill and the role of its mode.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ondeck_core::inputs::{Input, InputScope, Mode};
use ondeck_core::runtime::stop::StopSignal;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::inputs::{Common, rows};

/// How long a child that was told to stop may take. A mode cleans up within 5 s.
const CLEAN_UP: Duration = Duration::from_secs(15);

/// What would make a child write into the step of the drill, or take it for another run.
const OF_WORKFLOW: [&str; 5] =
    ["GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_RUN_ID", "ONDECK_ACTION"];

/// Credentials that are found before those of a profile.
const CREDENTIALS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// What a child printed, and how it ended.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Negative if a signal ended it.
    pub(super) code: i32,
    pub(super) stdout: String,
    /// The last line of stderr.
    pub(super) last_line: String,
    /// Since its start, or since the signal that ended it.
    pub(super) took: Duration,
}

pub(super) struct Children {
    program: PathBuf,
    /// The inputs that were given, with the rows that they are of.
    given: Vec<(&'static Input, String)>,
    stop: StopSignal,
    /// No child takes longer.
    at_most: Duration,
}

impl Children {
    /// Fails if this program cannot be found.
    pub(super) fn new(
        common: &Common,
        stop: StopSignal,
        at_most: Duration,
    ) -> io::Result<Children> {
        let rows = crate::inputs::rows();
        let given = rows.filter_map(|row| Some((row, common.given.text(row)?.to_owned())));
        let given = given.filter(|(row, _)| row.has_variable()).collect();
        Ok(Children { program: std::env::current_exe()?, given, stop, at_most })
    }

    /// The program with this command. Inputs are variables, because other users see arguments.
    pub(super) fn command(&self, mode: Mode, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(mode.name()).arg("--json").args(arguments);
        for name in OF_WORKFLOW {
            command.env_remove(name);
        }
        for row in crate::inputs::rows() {
            // What this process was given for other runs is not meant for those of the drill, and
            // secrets are for the mode that needs them.
            let is_foreign = match row.scope {
                InputScope::Call => mode != Mode::Refresh,
                InputScope::Secret => !row.is_of(mode),
                InputScope::Stored | InputScope::Process => false,
            };
            if is_foreign {
                command.env_remove(row.variable());
            }
        }
        for (row, text) in self.given.iter().filter(|(row, _)| row.is_of(mode)) {
            command.env(row.variable(), text);
        }
        let profile = match mode {
            Mode::Provision => self.text(&rows::PROVISION_PROFILE),
            Mode::Release => self.text(&rows::RELEASE_PROFILE),
            _ => self.text(&rows::REFRESH_PROFILE),
        };
        if let Some(profile) = profile {
            for name in CREDENTIALS {
                command.env_remove(name);
            }
            command.env("AWS_PROFILE", profile);
        }
        // A Ctrl-C is for the drill, which passes it on.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn text(&self, row: &Input) -> Option<&str> {
        let found = self.given.iter().find(|(it, _)| it.name == row.name);
        found.map(|(_, text)| text.as_str()).filter(|text| !text.is_empty())
    }

    /// Runs a child to its end. `until` gets each line of its stderr, and returns a signal to end it by.
    /// Fails if it cannot be started.
    pub(super) async fn run(
        &self,
        mut command: Command,
        mut until: impl FnMut(&str) -> Option<Signal>,
    ) -> io::Result<Said> {
        let mut since = Instant::now();
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let printed = tokio::spawn(async move { read_all(stdout).await });
        // One that begins after a signal cleans up after the others.
        let is_clean_up = self.stop.is_raised();
        let mut signalled = false;
        let mut last_line = String::new();
        let mut lines = stderr.map(|stderr| BufReader::new(stderr).lines());
        loop {
            let at_most = self.at_most.saturating_sub(since.elapsed());
            let line = async {
                match &mut lines {
                    Some(lines) => lines.next_line().await.ok().flatten(),
                    None => None,
                }
            };
            tokio::select! {
                line = line => match line {
                    None => break,
                    Some(line) => {
                        if let Some(by) = until(&line).filter(|_| !signalled) {
                            (signalled, since) = (true, Instant::now());
                            send(&child, by);
                        }
                        last_line = line;
                    }
                },
                _ = self.stop.raised(), if !is_clean_up && !signalled => {
                    signalled = true;
                    send(&child, Signal::INT);
                }
                () = tokio::time::sleep(at_most) => break,
            }
        }
        let status = self.end(&mut child, since).await?;
        let took = since.elapsed();
        let stdout = printed.await.unwrap_or_default();
        Ok(Said { code: code(status), stdout, last_line, took })
    }

    /// Waits for the end of a child that has closed its stderr, or has taken too long.
    async fn end(&self, child: &mut Child, since: Instant) -> io::Result<ExitStatus> {
        if since.elapsed() >= self.at_most {
            send(child, Signal::INT);
        }
        match tokio::time::timeout(CLEAN_UP, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                child.start_kill()?;
                child.wait().await
            }
        }
    }
}

async fn read_all(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe
        && let Err(error) = pipe.read_to_end(&mut bytes).await
    {
        tracing::warn!("the output of a mode cannot be read: {error}");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a signal to a child that was not waited for, so that its id is still its own.
fn send(child: &Child, which: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(Err(error)) = id.map(|id| kill_process(id, which)) {
        tracing::warn!("a mode cannot be signalled: {error}");
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| -signal)).unwrap_or(-1)
}
