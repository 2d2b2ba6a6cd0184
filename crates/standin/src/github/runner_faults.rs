//! What can go wrong with a runner, on demand.

/// What a runner meets, where a test wants it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerFault {
    /// Its version is not served any more: the listener ends with 7, once it listens.
    Deprecated,
    /// It has a session elsewhere that does not end: the listener ends with 5.
    SessionConflict,
    /// Something that may pass: the listener ends with 2, and `run.sh` starts it again.
    Retryable,
    /// It has been struck from the list: the listener ends with 1.
    Deleted,
    /// Its token is not taken, as an expired one is not: `config.sh` ends with 1.
    RegistrationRefused,
    /// There is no answer to its registration.
    RegistrationHangs,
    /// There is no answer to its listener, which therefore never listens.
    NeverConnects,
    /// The listener falls over once it listens.
    Crash,
    /// The listener falls over once it has a job.
    CrashOnJob,
}
