//! Failures that a person reads: what happened, what to do about it, and which kind it is.

use std::fmt;

use crate::ports::PortError;

/// A failed mode, as it is told to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Decides the exit code.
    pub kind: FailureKind,
    /// Lowercase, no full stop, the value last.
    pub message: String,
    /// What to try; may be empty.
    pub hint: String,
}

/// The kinds of failure that users can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The request makes no sense.
    InvalidInput,
    /// Refresh has never run here.
    NotSetUp,
    /// Machines could not be had.
    NoCapacity,
    /// Machines were launched and did not become ready.
    NotReady,
    /// Store, queue or compute did not answer.
    Unavailable,
    /// Compute answered, time and again, that it has too much to do.
    Busy,
    /// GitHub refused, or the token is bad.
    Forge,
    /// Released, but some machines did not answer.
    PartlyReleased,
    /// A bug, or something nobody thought of.
    Unexpected,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Stopped,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [FailureKind; 11] = [
        FailureKind::InvalidInput,
        FailureKind::NotSetUp,
        FailureKind::NoCapacity,
        FailureKind::NotReady,
        FailureKind::Unavailable,
        FailureKind::Busy,
        FailureKind::Forge,
        FailureKind::PartlyReleased,
        FailureKind::Unexpected,
        FailureKind::Interrupted,
        FailureKind::Stopped,
    ];

    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            FailureKind::InvalidInput => 2,
            FailureKind::NotSetUp => 3,
            FailureKind::NoCapacity => 4,
            FailureKind::NotReady => 5,
            FailureKind::Unavailable | FailureKind::Busy => 6,
            FailureKind::Forge => 7,
            FailureKind::PartlyReleased => 8,
            FailureKind::Unexpected => 10,
            FailureKind::Interrupted => 130,
            FailureKind::Stopped => 143,
        }
    }

    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::InvalidInput => "invalid-input",
            FailureKind::NotSetUp => "not-set-up",
            FailureKind::NoCapacity => "no-capacity",
            FailureKind::NotReady => "not-ready",
            FailureKind::Unavailable => "unavailable",
            FailureKind::Busy => "busy",
            FailureKind::Forge => "forge",
            FailureKind::PartlyReleased => "partly-released",
            FailureKind::Unexpected => "unexpected",
            FailureKind::Interrupted => "interrupted",
            FailureKind::Stopped => "stopped",
        }
    }
}

impl Failure {
    /// A failure without a hint.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), hint: String::new() }
    }

    /// Adds what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }

    /// Bad input.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::InvalidInput, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Failure {
        let failure = Failure::new(
            match error {
                PortError::NotSetUp { .. } => FailureKind::NotSetUp,
                PortError::Setting(_) => FailureKind::InvalidInput,
                PortError::Forge { .. } => FailureKind::Forge,
                PortError::Unavailable { .. } | PortError::Unusable { .. } => {
                    FailureKind::Unavailable
                }
            },
            error.to_string(),
        );
        match error {
            PortError::NotSetUp { .. } => failure.hint("run ondeck refresh first"),
            PortError::Setting(_) => {
                failure.hint("run ondeck refresh with a valid value for the setting")
            }
            PortError::Unusable { hint, .. } => failure.hint(hint),
            PortError::Forge { hint, .. } => failure.hint(hint),
            PortError::Unavailable { .. } => failure.hint(
                "retry; partial work expires on its own, or run ondeck refresh to clean up now",
            ),
        }
    }
}
