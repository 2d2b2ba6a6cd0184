//! The runner's listener: the program that waits for jobs.
//!
//! It is started directly and not by `run.sh`, which restarts it on its own and exits with 0 in almost
//! every case. The agent could then see neither restarts nor reasons.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::Clock;
use ondeck_processes::{Awaited, Process, kill_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::program::{self, OutputTail, drain, read_lines, timeout};

/// A listener, running or exited. Clones refer to the same process.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    leader: Process,
    state: watch::Receiver<ListenerState>,
    busy: watch::Receiver<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ListenerState {
    Starting,
    Listening,
    Exited(ListenerExit),
}

/// How a listener exited, with the end of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenerExit {
    code: Option<i32>,
    signal: Option<i32>,
    words: String,
}

impl Listener {
    /// Starts a listener. `record` gets the leader of its process group first. If that fails, the
    /// listener is killed and the error returned.
    pub(crate) fn start(
        clock: Arc<dyn Clock>,
        mut command: Command,
        record: impl FnOnce(Process) -> Result<(), String>,
    ) -> Result<Listener, String> {
        command.env("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1");
        let started = program::spawn(&mut command)?;
        let leader = Process::of_child(&started.0).ok_or("the listener exited at once")?;
        if let Err(why) = record(leader) {
            kill_group(leader);
            return Err(why);
        }
        let (states, state) = watch::channel(ListenerState::Starting);
        let (busy_states, busy) = watch::channel(false);
        tokio::spawn(supervise(clock, started, states, busy_states));
        Ok(Listener { leader, state, busy })
    }

    /// Waits until it can take jobs. Fails if it exits before.
    pub(crate) async fn listening(&self) -> Result<(), ListenerExit> {
        match self.wait(|state| *state != ListenerState::Starting).await {
            ListenerState::Exited(exit) => Err(exit),
            ListenerState::Starting | ListenerState::Listening => Ok(()),
        }
    }

    /// Waits until it has exited.
    pub(crate) async fn exited(&self) -> ListenerExit {
        match self.wait(|state| matches!(state, ListenerState::Exited(_))).await {
            ListenerState::Exited(exit) => exit,
            ListenerState::Starting | ListenerState::Listening => ListenerExit::unknown(),
        }
    }

    /// Whether it has a job, by its own words.
    pub(crate) fn is_busy(&self) -> bool {
        *self.busy.borrow() && !self.has_exited()
    }

    /// Waits until it has no job, or has exited.
    pub(crate) async fn without_job(&self) {
        let mut busy = self.busy.clone();
        // An error means that its output has ended, and so has the listener.
        tokio::select! {
            _ = busy.wait_for(|busy| !busy) => {}
            _ = self.exited() => {}
        }
    }

    /// Whether both are the same process.
    pub(crate) fn is(&self, other: &Listener) -> bool {
        self.leader == other.leader
    }

    pub(crate) fn has_exited(&self) -> bool {
        matches!(*self.state.borrow(), ListenerState::Exited(_))
    }

    /// Sends `SIGINT`, which makes it cancel its job and close its session, and waits for its exit: up
    /// to `busy` if a job runs, else up to `idle`. The caller must kill what is left then.
    pub(crate) async fn interrupt(&self, clock: &dyn Clock, busy: Duration, idle: Duration) {
        let timeout_span = if *self.busy.borrow() { busy } else { idle };
        self.leader.interrupt();
        if timeout(clock, timeout_span, self.exited()).await.is_none() {
            tracing::warn!("the listener did not exit within {} s", timeout_span.as_secs_f32());
        }
    }

    /// Kills its process group and returns the end of its output.
    pub(crate) async fn kill(&self, clock: &dyn Clock) -> String {
        const KILL_TIMEOUT: Duration = Duration::from_secs(10);
        kill_group(self.leader);
        timeout(clock, KILL_TIMEOUT, self.exited())
            .await
            .map_or_else(String::new, |exit| exit.words)
    }

    async fn wait(&self, until: impl FnMut(&ListenerState) -> bool) -> ListenerState {
        let mut state = self.state.clone();
        // The sender is dropped only if the whole program ends.
        let found = state.wait_for(until).await;
        found.map_or(ListenerState::Exited(ListenerExit::unknown()), |state| state.clone())
    }
}

/// Reads a listener's output until it exits. The state becomes `Exited` only after all output is read.
async fn supervise(
    clock: Arc<dyn Clock>,
    (mut child, _awaited): (Child, Awaited),
    states: watch::Sender<ListenerState>,
    busy: watch::Sender<bool>,
) {
    let said = OutputTail::default();
    let states = Arc::new(states);
    let each = {
        let states = states.clone();
        Arc::new(move |line: &str| read_line(line, &states, &busy))
    };
    let readers = read_lines(&mut child, &said, &said, &each);
    let waited = child.wait().await;
    drain(&*clock, readers).await;
    let exit = waited
        .map_or_else(|_| ListenerExit::unknown(), |status| ListenerExit::of(status, &said.text()));
    states.send_replace(ListenerState::Exited(exit));
}

/// Updates the state from a line of output, which is the only place where the listener reports it.
fn read_line(line: &str, states: &watch::Sender<ListenerState>, busy: &watch::Sender<bool>) {
    if line.is_empty() {
        return;
    }
    if line.ends_with(": Listening for Jobs") {
        states.send_if_modified(|state| {
            let starting = *state == ListenerState::Starting;
            if starting {
                *state = ListenerState::Listening;
            }
            starting
        });
    } else if line.contains(": Running job: ") {
        busy.send_replace(true);
    } else if line.contains(" completed with result: ") {
        busy.send_replace(false);
    }
    tracing::info!("runner: {line}");
}

impl ListenerExit {
    fn of(status: ExitStatus, said: &str) -> ListenerExit {
        ListenerExit { code: status.code(), signal: status.signal(), words: output_tail(said) }
    }

    fn unknown() -> ListenerExit {
        ListenerExit { code: None, signal: None, words: String::new() }
    }

    /// The reason, for people. For a deprecated version it includes the remedy, which depends on where
    /// the software came from.
    pub(crate) fn reason(&self, version: &str, on_image: bool) -> String {
        let ListenerExit { code, signal, words } = self;
        // Versions before 2.333 have no exit code for being deprecated.
        if *code == Some(7) || words.contains("deprecated and cannot receive messages") {
            let remedy = if on_image {
                "set actions-runner-version to a newer one, or update the image"
            } else {
                "set actions-runner-version to latest"
            };
            return format!("this version of actions/runner is deprecated: {version}; {remedy}");
        }
        let what = match (code, signal) {
            (Some(0), _) => "the listener ended".to_owned(),
            (Some(1), _) => "the listener gave up".to_owned(),
            (Some(2), _) => "the listener met an error that may pass".to_owned(),
            (Some(3 | 4), _) => "the listener ended to be updated".to_owned(),
            (Some(5), _) => "another listener has this runner's session".to_owned(),
            (Some(6), _) => "the listener ended because it was configured anew".to_owned(),
            (Some(code), _) => format!("the listener ended with code {code}"),
            (None, Some(signal)) => format!("the listener was killed by signal {signal}"),
            (None, None) => "the listener exited for an unknown reason".to_owned(),
        };
        if words.is_empty() { what } else { format!("{what}: {words}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exit_code_has_a_reason() {
        let exit =
            |code, signal, words: &str| ListenerExit { code, signal, words: words.to_owned() };
        let old =
            "An error occured: Runner version v2.300.0 is deprecated and cannot receive messages.";
        for (exit, on_image, reason) in [
            (exit(Some(0), None, "Exiting..."), false, "the listener ended: Exiting..."),
            (exit(Some(1), None, "no"), false, "the listener gave up: no"),
            (exit(Some(2), None, ""), false, "the listener met an error that may pass"),
            (exit(Some(3), None, ""), false, "the listener ended to be updated"),
            (exit(Some(4), None, ""), false, "the listener ended to be updated"),
            (exit(Some(5), None, "x"), false, "another listener has this runner's session: x"),
            (exit(Some(6), None, ""), false, "the listener ended because it was configured anew"),
            (
                exit(Some(7), None, "old"),
                false,
                "this version of actions/runner is deprecated: 2.300.0; set actions-runner-version to latest",
            ),
            (
                exit(Some(1), None, old),
                true,
                "this version of actions/runner is deprecated: 2.300.0; set actions-runner-version to a newer one, or update the image",
            ),
            (exit(Some(134), None, ""), false, "the listener ended with code 134"),
            (exit(None, Some(9), ""), false, "the listener was killed by signal 9"),
            (ListenerExit::unknown(), false, "the listener exited for an unknown reason"),
        ] {
            assert_eq!(exit.reason("2.300.0", on_image), reason);
        }
    }
}
