//! Faults that a test injects into the runner double.

/// A fault that [`GitHub::inject_runner_fault`](super::GitHub::inject_runner_fault) injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerFault {
    /// GitHub does not support its version any more. The listener exits with 7 after it connects.
    Deprecated,
    /// Another session of the runner does not end. The listener exits with 5, after eight pauses.
    SessionConflict,
    /// An answer that the listener does not expect. It exits with 2, and `run.sh` restarts it.
    Retryable,
    /// GitHub answers 503 to a request for a session. The listener tries again after a pause, without
    /// a word.
    SessionUnavailable,
    /// GitHub answers 500 to a request for a session. The listener says so, and tries again after its
    /// longest pause.
    SessionError,
    /// The runner is not registered any more when its listener starts. The listener exits with 1.
    Deleted,
    /// GitHub refuses its token like an expired one. `config.sh` exits with 1.
    RegistrationRefused,
    /// GitHub does not answer its registration.
    RegistrationHangs,
    /// GitHub does not answer its listener, so it never becomes online.
    NeverConnects,
    /// The listener crashes after it connects.
    Crash,
    /// The listener crashes when it gets a job.
    CrashOnJob,
    /// The listener announces a job that ends before it begins, and does not say that it has ended.
    JobNeverBegins,
}
