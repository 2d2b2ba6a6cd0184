//! The runner's listener: the program that waits for jobs.
//!
//! It is started directly and not by `run.sh`, which restarts it on its own and exits with 0 in almost
//! every case. The agent could then see neither restarts nor reasons.

use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::Clock;
use ondeck_processes::{Awaited, Process, kill_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::program::{self, OutputTail, drain, read_lines, timeout};

/// How often to look whether a job has a worker.
const WORKER_CHECK: Duration = Duration::from_secs(1);

/// The program that executes a job, a child of the listener.
const WORKER: &str = "Runner.Worker";

/// A listener, running or exited. Clones refer to the same process.
#[derive(Clone)]
pub(crate) struct Listener {
    clock: Arc<dyn Clock>,
    leader: Process,
    state: watch::Receiver<ListenerState>,
    /// When it announced a job that it has not reported as completed, in steady time.
    job: watch::Receiver<Option<Duration>>,
    job_start: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ListenerState {
    Starting,
    /// GitHub refuses it a session, because another one of this runner is open.
    Conflicting,
    Listening,
    Exited(ListenerExit),
}

/// What came of the start of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    Listening,
    /// GitHub has another session of this runner. The listener would retry for four minutes.
    Conflicting,
    Exited(ListenerExit),
}

/// What a runner needs before it can listen again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Need {
    /// A new registration, for this reason.
    Registration(&'static str),
    /// Another version, because GitHub refuses the present one.
    Version,
}

pub(crate) const DELETED: &str = "the runner was deleted from GitHub's list";
pub(crate) const CONFLICT: &str = "GitHub kept an earlier session of the runner open";
pub(crate) const LOST_JOB: &str = "its listener died with a job";
pub(crate) const UNCONFIGURED: &str = "the runner's registration files were gone";

/// How a listener exited, with the end of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenerExit {
    code: Option<i32>,
    signal: Option<i32>,
    /// Whether it had announced a job and not reported its end.
    in_job: bool,
    words: String,
    /// The end of its standard error. The names of jobs are on its standard output only, so nothing
    /// here is chosen by a workflow.
    errors: String,
}

impl Listener {
    /// Starts a listener, whose jobs may take `job_start` to get a worker. `has_worked` is set once it
    /// has announced a job. `record` gets the leader of its process group first. If that fails, the
    /// listener is killed and the error returned.
    pub(crate) fn start(
        clock: Arc<dyn Clock>,
        mut command: Command,
        job_start: Duration,
        has_worked: Arc<AtomicBool>,
        record: impl FnOnce(Process) -> Result<(), String>,
    ) -> Result<Listener, String> {
        command.env("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1");
        stop_ignoring_interrupts()?;
        let started = program::spawn(&mut command)?;
        let leader = Process::of_child(&started.0).ok_or("the listener exited at once")?;
        if let Err(why) = record(leader) {
            kill_group(leader);
            return Err(why);
        }
        let (states, state) = watch::channel(ListenerState::Starting);
        let (jobs, job) = watch::channel(None);
        tokio::spawn(supervise(clock.clone(), started, states, jobs, has_worked));
        Ok(Listener { clock, leader, state, job, job_start })
    }

    /// Waits until it can take jobs, or is known not to.
    pub(crate) async fn started(&self) -> Start {
        match self.wait(|state| *state != ListenerState::Starting).await {
            ListenerState::Exited(exit) => Start::Exited(exit),
            ListenerState::Conflicting => Start::Conflicting,
            ListenerState::Starting | ListenerState::Listening => Start::Listening,
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        *self.state.borrow() == ListenerState::Listening
    }

    /// Waits until it has exited.
    pub(crate) async fn exited(&self) -> ListenerExit {
        match self.wait(|state| matches!(state, ListenerState::Exited(_))).await {
            ListenerState::Exited(exit) => exit,
            _ => ListenerExit::unknown(),
        }
    }

    /// Whether it has a job: it has announced one, and either the job has a worker or it is too early
    /// for that. The listener does not report the end of a job that never began.
    pub(crate) fn is_busy(&self) -> bool {
        let Some(since) = *self.job.borrow() else { return false };
        let is_early = self.clock.steady().saturating_sub(since) < self.job_start;
        !self.has_exited() && (is_early || self.leader.has_child(WORKER))
    }

    /// Waits until it has no job, or has exited.
    pub(crate) async fn without_job(&self) {
        let mut job = self.job.clone();
        while self.is_busy() {
            tokio::select! {
                _ = job.wait_for(Option::is_none) => {}
                _ = self.exited() => return,
                () = self.clock.sleep(WORKER_CHECK) => {}
            }
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
    pub(crate) async fn interrupt(&self, busy: Duration, idle: Duration) {
        let timeout_span = if self.is_busy() { busy } else { idle };
        self.leader.interrupt();
        if timeout(&*self.clock, timeout_span, self.exited()).await.is_none() {
            tracing::warn!("the listener did not exit within {} s", timeout_span.as_secs_f32());
        }
    }

    /// Ends it: by `SIGINT`, so that it closes its session, and after `idle` by killing its process
    /// group. Returns the end of its output.
    pub(crate) async fn end(&self, idle: Duration) -> String {
        const KILL_TIMEOUT: Duration = Duration::from_secs(10);
        self.interrupt(idle, idle).await;
        if !self.has_exited() {
            kill_group(self.leader);
        }
        let exit = timeout(&*self.clock, KILL_TIMEOUT, self.exited()).await;
        exit.map_or_else(String::new, |exit| exit.words)
    }

    async fn wait(&self, until: impl FnMut(&ListenerState) -> bool) -> ListenerState {
        let mut state = self.state.clone();
        // The sender is dropped only if the whole program ends.
        let found = state.wait_for(until).await;
        found.map_or(ListenerState::Exited(ListenerExit::unknown()), |state| state.clone())
    }
}

/// Makes programs that this process starts react to `SIGINT`. A shell without job control starts
/// programs in the background so that they ignore it, and they pass that on. They do not pass on a
/// handler; the one that is installed here does nothing, so that this process goes on ignoring it.
fn stop_ignoring_interrupts() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores_interrupts(&status) {
        drop(signal(SignalKind::interrupt()).map_err(|e| format!("cannot handle SIGINT: {e}"))?);
    }
    Ok(())
}

/// Whether a process with this `/proc/PID/status` ignores `SIGINT`.
fn ignores_interrupts(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 0b10 != 0)
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({:?}, {:?})", self.leader, *self.state.borrow())
    }
}

/// Reads a listener's output until it exits. The state becomes `Exited` only after all output is read.
async fn supervise(
    clock: Arc<dyn Clock>,
    (mut child, _awaited): (Child, Awaited),
    states: watch::Sender<ListenerState>,
    jobs: watch::Sender<Option<Duration>>,
    has_worked: Arc<AtomicBool>,
) {
    let (said, errors) = (OutputTail::default(), OutputTail::default());
    let senders = Arc::new((states, jobs));
    let each = {
        let (senders, clock) = (senders.clone(), clock.clone());
        Arc::new(move |line: &str| {
            read_line(line, clock.steady(), &senders.0, &senders.1);
            has_worked.fetch_or(senders.1.borrow().is_some(), Ordering::Relaxed);
        })
    };
    let readers = read_lines(&mut child, &[&said], &[&said, &errors], &each);
    let waited = child.wait().await;
    drain(&*clock, readers).await;
    let mut exit = waited
        .map(|status| ListenerExit::of(status, &said.text(), errors.text()))
        .unwrap_or_else(|_| ListenerExit::unknown());
    exit.in_job = senders.1.borrow().is_some();
    senders.0.send_replace(ListenerState::Exited(exit));
}

/// Updates the state from a line of output, which is the only place where the listener reports it.
fn read_line(
    line: &str,
    now: Duration,
    states: &watch::Sender<ListenerState>,
    jobs: &watch::Sender<Option<Duration>>,
) {
    if line.is_empty() {
        return;
    }
    let become_first = |next: ListenerState| {
        states.send_if_modified(|state| {
            let is_first = matches!(state, ListenerState::Starting | ListenerState::Conflicting);
            if is_first {
                *state = next;
            }
            is_first
        });
    };
    if line.contains(SESSION_EXISTS) {
        become_first(ListenerState::Conflicting);
    }
    match after_time(line) {
        Some("Listening for Jobs") => become_first(ListenerState::Listening),
        Some(said) if said.starts_with("Running job: ") => {
            jobs.send_replace(Some(now));
        }
        Some(said) if said.starts_with("Job ") && said.contains(" completed with result: ") => {
            jobs.send_replace(None);
        }
        _ => {}
    }
    tracing::info!("runner: {line}");
}

/// What the listener prints, and retries, while GitHub has another session of the runner.
const SESSION_EXISTS: &str = "A session for this runner already exists.";

/// The part of a line after the time, as in `2026-11-15 22:51:26Z: Listening for Jobs`. The name of a
/// job may hold any of the other lines.
fn after_time(line: &str) -> Option<&str> {
    let (time, said) = line.split_once("Z: ")?;
    let fits = |c: char| c.is_ascii_digit() || matches!(c, '-' | ' ' | ':');
    (time.len() == "2026-11-15 22:51:26".len() && time.chars().all(fits)).then_some(said)
}

impl ListenerExit {
    fn of(status: ExitStatus, said: &str, errors: String) -> ListenerExit {
        let words = output_tail(said);
        let (code, signal) = (status.code(), status.signal());
        ListenerExit { code, signal, in_job: false, words, errors }
    }

    fn unknown() -> ListenerExit {
        let (words, errors) = (String::new(), String::new());
        ListenerExit { code: None, signal: None, in_job: false, words, errors }
    }

    /// What the runner needs before it can listen again. `None` if it can be started as it is. Only
    /// the exit code and the runner's own errors decide.
    pub(crate) fn need(&self) -> Option<Need> {
        let says = |words: &str| self.errors.contains(words);
        // Versions before 2.333 have no exit code for being deprecated.
        if self.code == Some(7) || says("deprecated and cannot receive messages") {
            Some(Need::Version)
        } else if self.code == Some(5) || says(SESSION_EXISTS) {
            Some(Need::Registration(CONFLICT))
        } else if says("no longer exists on the server") || says("registration has been deleted") {
            Some(Need::Registration(DELETED))
        } else if says("Not configured.") {
            Some(Need::Registration(UNCONFIGURED))
        } else {
            self.has_lost_job().then_some(Need::Registration(LOST_JOB))
        }
    }

    /// Whether it died before it could report the end of its job. GitHub keeps such a job open for up to
    /// ten minutes, in which it calls the runner busy, gives it no other job and does not remove it. An
    /// exit of its own accord is no loss: it reports the job first.
    pub(crate) fn has_lost_job(&self) -> bool {
        self.in_job && self.code.is_none()
    }

    /// The reason, for people.
    pub(crate) fn reason(&self, version: &str) -> String {
        let ListenerExit { code, signal, words, .. } = self;
        if self.need() == Some(Need::Version) {
            return format!("this version of actions/runner is deprecated: {version}");
        }
        let what = match (code, signal) {
            _ if self.need() == Some(Need::Registration(CONFLICT)) => {
                "another listener has this runner's session".to_owned()
            }
            (Some(0), _) => "the listener ended".to_owned(),
            (Some(1), _) => "the listener gave up".to_owned(),
            (Some(2), _) => "the listener met an error that may pass".to_owned(),
            (Some(3 | 4), _) => "the listener ended to be updated".to_owned(),
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

    fn exit(code: i32, words: &str) -> ListenerExit {
        let words = words.to_owned();
        let errors = words.clone();
        ListenerExit { code: Some(code), signal: None, in_job: false, words, errors }
    }

    #[test]
    fn each_exit_code_has_a_reason() {
        for (code, words, reason) in [
            (0, "Exiting...", "the listener ended: Exiting..."),
            (1, "no", "the listener gave up: no"),
            (2, "", "the listener met an error that may pass"),
            (3, "", "the listener ended to be updated"),
            (4, "", "the listener ended to be updated"),
            (5, "x", "another listener has this runner's session: x"),
            (6, "", "the listener ended because it was configured anew"),
            (7, "old", "this version of actions/runner is deprecated: 2.300.0"),
            (134, "", "the listener ended with code 134"),
        ] {
            assert_eq!(exit(code, words).reason("2.300.0"), reason);
        }
        let killed = ListenerExit { signal: Some(9), ..ListenerExit::unknown() };
        assert_eq!(killed.reason("2.300.0"), "the listener was killed by signal 9");
        let unknown = ListenerExit::unknown().reason("2.300.0");
        assert_eq!(unknown, "the listener exited for an unknown reason");
    }

    #[test]
    fn an_exit_says_what_the_runner_needs() {
        let old =
            "An error occured: Runner version v2.300.0 is deprecated and cannot receive messages.";
        let deleted = "The runner no longer exists on the server. Cleaning up local configuration.";
        let gone = "Failed to create a session. The runner registration has been deleted from the \
                    server, please re-configure.";
        let missing =
            "An error occurred: Not configured. Run config.(sh/cmd) to configure the runner.";
        for (code, words, need) in [
            (0, "Exiting...", None),
            (0, deleted, Some(Need::Registration(DELETED))),
            (1, gone, Some(Need::Registration(DELETED))),
            (1, missing, Some(Need::Registration(UNCONFIGURED))),
            (1, "Failed to create a session.", None),
            (1, old, Some(Need::Version)),
            (2, "no network", None),
            (5, "", Some(Need::Registration(CONFLICT))),
            (0, SESSION_EXISTS, Some(Need::Registration(CONFLICT))),
            (7, "", Some(Need::Version)),
        ] {
            assert_eq!(exit(code, words).need(), need, "{code} {words}");
            let of_a_job = ListenerExit { errors: String::new(), ..exit(0, words) };
            assert_eq!(of_a_job.need(), None, "the name of a job: {words}");
        }
    }

    #[test]
    fn a_listener_that_is_killed_loses_its_job() {
        for (code, signal, in_job, lost) in [
            (None, Some(9), true, true),
            (None, Some(6), true, true),
            (None, Some(9), false, false),
            (Some(0), None, true, false),
            (Some(2), None, true, false),
        ] {
            let exit = ListenerExit { code, signal, in_job, ..ListenerExit::unknown() };
            assert_eq!(exit.has_lost_job(), lost, "{exit:?}");
            assert_eq!(exit.need(), lost.then_some(Need::Registration(LOST_JOB)), "{exit:?}");
        }
    }

    #[test]
    fn an_ignored_interrupt_is_found() {
        for (status, ignored) in [
            ("SigBlk:\t0000000000000002\nSigIgn:\t0000000000001000\n", false),
            ("Name:\tx\nSigIgn:\t0000000000001006\nSigCgt:\t0\n", true),
            ("", false),
        ] {
            assert_eq!(ignores_interrupts(status), ignored, "{status}");
        }
    }

    #[test]
    fn only_the_listeners_own_lines_change_its_state() {
        let (states, state) = watch::channel(ListenerState::Starting);
        let (jobs, job) = watch::channel(None);
        let read = |line: &str| {
            read_line(line, Duration::from_secs(1), &states, &jobs);
            (state.borrow().clone(), job.borrow().is_some())
        };
        const TIME: &str = "2026-11-15 22:51:26Z: ";
        for (line, next, busy) in [
            ("Current runner version: '2.336.0'", ListenerState::Starting, false),
            ("Listening for Jobs", ListenerState::Starting, false),
            (SESSION_EXISTS, ListenerState::Conflicting, false),
            (&format!("{TIME}Listening for Jobs"), ListenerState::Listening, false),
            (SESSION_EXISTS, ListenerState::Listening, false),
            (&format!("{TIME}Running job: x: Listening for Jobs"), ListenerState::Listening, true),
            (
                &format!("{TIME}Job x completed with result: Canceled"),
                ListenerState::Listening,
                false,
            ),
            (
                &format!("{TIME}Running job: Job x completed with result: "),
                ListenerState::Listening,
                true,
            ),
        ] {
            assert_eq!(read(line), (next, busy), "{line}");
        }
    }
}
