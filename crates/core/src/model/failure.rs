//! Failures that users read: what failed, what to do about it, and the kind that decides the exit
//! code.

use std::fmt;

use crate::ports::PortError;

/// Why a mode failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// What failed and on what: lowercase, no full stop, the value last.
    pub message: String,
    /// One command or one setting that may help. May be empty.
    pub hint: String,
}

/// The kinds of failure that users can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// An input or a setting is invalid.
    InvalidInput,
    /// Refresh has never run on this backend.
    NotSetUp,
    /// A teardown has closed the pool.
    Closed,
    /// Runs own machines of a pool that is to be torn down.
    InUse,
    /// The provider had fewer machines than requested.
    NoCapacity,
    /// The pool or the class has as many machines as `max-machines` allows.
    AtCeiling,
    /// A launch could make machines cost more than `max-spend-per-day` allows.
    AtSpendCap,
    /// Machines were launched and did not become ready.
    NotReady,
    /// Store, queue or compute did not answer.
    Unavailable,
    /// The provider throttled every attempt to launch.
    Busy,
    /// GitHub refused a request, or its token is invalid.
    Forge,
    /// The run was released, but some machines did not answer.
    PartlyReleased,
    /// A role is allowed or denied something else than it should be.
    WrongPermissions,
    /// Doctor has found what will make runs fail or wastes money.
    FoundWarnings,
    /// Doctor has found what makes runs fail now.
    FoundErrors,
    /// In a drill, the pool did not recover as it should, or nothing could be tested.
    NotRecovered,
    /// The command did its work, but its output could not be written.
    Unreported,
    /// A bug, or a state that no other kind covers.
    Unexpected,
    /// The process received SIGINT.
    Interrupted,
    /// The process received SIGTERM.
    Stopped,
}

impl FailureKind {
    pub const ALL: [FailureKind; 20] = [
        FailureKind::InvalidInput,
        FailureKind::NotSetUp,
        FailureKind::Closed,
        FailureKind::InUse,
        FailureKind::NoCapacity,
        FailureKind::AtCeiling,
        FailureKind::AtSpendCap,
        FailureKind::NotReady,
        FailureKind::Unavailable,
        FailureKind::Busy,
        FailureKind::Forge,
        FailureKind::PartlyReleased,
        FailureKind::WrongPermissions,
        FailureKind::FoundWarnings,
        FailureKind::FoundErrors,
        FailureKind::NotRecovered,
        FailureKind::Unreported,
        FailureKind::Unexpected,
        FailureKind::Interrupted,
        FailureKind::Stopped,
    ];

    pub fn exit_code(self) -> u8 {
        match self {
            FailureKind::InvalidInput => 2,
            FailureKind::NotSetUp | FailureKind::Closed => 3,
            FailureKind::NoCapacity | FailureKind::AtCeiling | FailureKind::AtSpendCap => 4,
            FailureKind::NotReady => 5,
            FailureKind::Unavailable | FailureKind::Busy => 6,
            FailureKind::Forge => 7,
            FailureKind::PartlyReleased => 8,
            FailureKind::WrongPermissions => 9,
            FailureKind::Unexpected => 10,
            FailureKind::Unreported => 11,
            FailureKind::InUse => 12,
            FailureKind::FoundWarnings => 20,
            FailureKind::FoundErrors => 21,
            FailureKind::NotRecovered => 22,
            FailureKind::Interrupted => 130,
            FailureKind::Stopped => 143,
        }
    }

    /// The value of `kind` in the JSON output.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::InvalidInput => "invalid-input",
            FailureKind::NotSetUp => "not-set-up",
            FailureKind::Closed => "closed",
            FailureKind::InUse => "in-use",
            FailureKind::NoCapacity => "no-capacity",
            FailureKind::AtCeiling => "at-ceiling",
            FailureKind::AtSpendCap => "at-spend-cap",
            FailureKind::NotReady => "not-ready",
            FailureKind::Unavailable => "unavailable",
            FailureKind::Busy => "busy",
            FailureKind::Forge => "forge",
            FailureKind::PartlyReleased => "partly-released",
            FailureKind::WrongPermissions => "wrong-permissions",
            FailureKind::FoundWarnings => "found-warnings",
            FailureKind::FoundErrors => "found-errors",
            FailureKind::NotRecovered => "not-recovered",
            FailureKind::Unreported => "unreported",
            FailureKind::Unexpected => "unexpected",
            FailureKind::Interrupted => "interrupted",
            FailureKind::Stopped => "stopped",
        }
    }
}

impl Failure {
    /// Makes a failure without a hint.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), hint: String::new() }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }

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
                PortError::Forge { .. } | PortError::Limited { .. } => FailureKind::Forge,
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
            PortError::Forge { hint, .. } | PortError::Limited { hint, .. } => failure.hint(hint),
            PortError::Unavailable { .. } => failure.hint(
                "retry; partial work expires on its own, or run ondeck refresh to clean up now",
            ),
        }
    }
}
