//! Failures that a person reads: what happened, what to do about it, and which kind it is.

use std::fmt;

use crate::ports::PortError;

/// A failed mode, as it is told to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Decides the exit code.
    pub kind: Kind,
    /// Lowercase, no full stop, the value last.
    pub message: String,
    /// What to try; may be empty.
    pub hint: String,
}

/// The kinds of failure that users can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
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

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 11] = [
        Kind::InvalidInput,
        Kind::NotSetUp,
        Kind::NoCapacity,
        Kind::NotReady,
        Kind::Unavailable,
        Kind::Busy,
        Kind::Forge,
        Kind::PartlyReleased,
        Kind::Unexpected,
        Kind::Interrupted,
        Kind::Stopped,
    ];

    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::InvalidInput => 2,
            Kind::NotSetUp => 3,
            Kind::NoCapacity => 4,
            Kind::NotReady => 5,
            Kind::Unavailable | Kind::Busy => 6,
            Kind::Forge => 7,
            Kind::PartlyReleased => 8,
            Kind::Unexpected => 10,
            Kind::Interrupted => 130,
            Kind::Stopped => 143,
        }
    }

    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::InvalidInput => "invalid-input",
            Kind::NotSetUp => "not-set-up",
            Kind::NoCapacity => "no-capacity",
            Kind::NotReady => "not-ready",
            Kind::Unavailable => "unavailable",
            Kind::Busy => "busy",
            Kind::Forge => "forge",
            Kind::PartlyReleased => "partly-released",
            Kind::Unexpected => "unexpected",
            Kind::Interrupted => "interrupted",
            Kind::Stopped => "stopped",
        }
    }
}

impl Failure {
    /// A failure without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
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
        Failure::new(Kind::InvalidInput, message)
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
                PortError::NotSetUp { .. } => Kind::NotSetUp,
                PortError::Setting(_) => Kind::InvalidInput,
                PortError::Forge { .. } => Kind::Forge,
                PortError::Unavailable { .. } | PortError::Unusable { .. } => Kind::Unavailable,
            },
            error.to_string(),
        );
        match error {
            PortError::NotSetUp { .. } => failure.hint("run ondeck refresh first"),
            PortError::Setting(_) => failure.hint("give ondeck refresh a valid value for it"),
            PortError::Unusable { hint, .. } => failure.hint(hint),
            PortError::Forge { hint, .. } => failure.hint(hint),
            PortError::Unavailable { .. } => {
                failure.hint("try again; what was begun ends by itself, sooner by ondeck refresh")
            }
        }
    }
}
