//! A failure, in every form: the `error` object, the section of the job summary, and the meaning
//! of its exit code.

use ondeck_core::model::failure::{Failure, FailureKind};
use serde::Serialize;

use super::markdown::plain;
use super::wire::{ResultStatus, SchemaVersion};

/// Printed by every command that fails before it has an outcome to report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FailureJson {
    schema_version: SchemaVersion,
    /// Always `failed` in this output.
    status: ResultStatus,
    error: ErrorJson,
}

impl From<&Failure> for FailureJson {
    fn from(failure: &Failure) -> FailureJson {
        let status = ResultStatus::Failed;
        FailureJson { schema_version: SchemaVersion, status, error: failure.into() }
    }
}

/// Why a command failed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ErrorJson {
    /// The kind of failure, which decides the exit code.
    kind: ErrorKind,
    /// What failed and on what.
    message: String,
    /// One command or setting to try. Empty if there is none.
    hint: String,
}

impl From<&Failure> for ErrorJson {
    fn from(failure: &Failure) -> ErrorJson {
        let (message, hint) = (failure.message.clone(), failure.hint.clone());
        ErrorJson { kind: failure.kind.into(), message, hint }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum ErrorKind {
    InvalidInput,
    NotSetUp,
    Closed,
    InUse,
    NoCapacity,
    AtCeiling,
    AtSpendCap,
    NotReady,
    Unavailable,
    Busy,
    Forge,
    PartlyReleased,
    WrongPermissions,
    FoundWarnings,
    FoundErrors,
    NotRecovered,
    Unreported,
    Unexpected,
    Interrupted,
    Stopped,
}

impl From<FailureKind> for ErrorKind {
    fn from(kind: FailureKind) -> ErrorKind {
        match kind {
            FailureKind::InvalidInput => ErrorKind::InvalidInput,
            FailureKind::NotSetUp => ErrorKind::NotSetUp,
            FailureKind::Closed => ErrorKind::Closed,
            FailureKind::InUse => ErrorKind::InUse,
            FailureKind::NoCapacity => ErrorKind::NoCapacity,
            FailureKind::AtCeiling => ErrorKind::AtCeiling,
            FailureKind::AtSpendCap => ErrorKind::AtSpendCap,
            FailureKind::NotReady => ErrorKind::NotReady,
            FailureKind::Unavailable => ErrorKind::Unavailable,
            FailureKind::Busy => ErrorKind::Busy,
            FailureKind::Forge => ErrorKind::Forge,
            FailureKind::PartlyReleased => ErrorKind::PartlyReleased,
            FailureKind::WrongPermissions => ErrorKind::WrongPermissions,
            FailureKind::FoundWarnings => ErrorKind::FoundWarnings,
            FailureKind::FoundErrors => ErrorKind::FoundErrors,
            FailureKind::NotRecovered => ErrorKind::NotRecovered,
            FailureKind::Unreported => ErrorKind::Unreported,
            FailureKind::Unexpected => ErrorKind::Unexpected,
            FailureKind::Interrupted => ErrorKind::Interrupted,
            FailureKind::Stopped => ErrorKind::Stopped,
        }
    }
}

/// The whole job summary of a command that failed before it had an outcome. The command is empty if
/// the process failed before it knew one.
pub(super) fn section(command: &str, failure: &Failure) -> String {
    let (meaning, reason) = (meaning(failure.kind), reason(failure));
    let subject = format!("ondeck {command}");
    let subject = subject.trim_end();
    format!("### {subject} failed: {meaning}\n\n{reason}\n{}", exit_code(failure))
}

/// The message and the hint, as a quotation.
pub(super) fn reason(failure: &Failure) -> String {
    let mut text = format!("> {}\n", plain(&failure.message));
    if !failure.hint.is_empty() {
        text += &format!(">\n> **hint:** {}\n", plain(&failure.hint));
    }
    text
}

pub(super) fn exit_code(failure: &Failure) -> String {
    format!("Exit code {}: {}.\n", failure.kind.exit_code(), meaning(failure.kind))
}

/// What a kind of failure is, in a few words.
pub(super) fn meaning(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::InvalidInput => "invalid input",
        FailureKind::NotSetUp => "not set up, run refresh first",
        FailureKind::Closed => "the pool is closed by a teardown",
        FailureKind::InUse => "runs own machines of the pool",
        FailureKind::NoCapacity => "no capacity",
        FailureKind::AtCeiling => "max-machines is reached",
        FailureKind::AtSpendCap => "max-spend-per-day is reached",
        FailureKind::NotReady => "machines did not become ready",
        FailureKind::Unavailable => "store, queue or compute unavailable",
        FailureKind::Busy => "compute throttles requests",
        FailureKind::Forge => "GitHub refused the request or the token is invalid",
        FailureKind::PartlyReleased => "released, but some machines did not respond",
        FailureKind::WrongPermissions => "a role has other permissions than it should",
        FailureKind::FoundWarnings => "doctor found warnings",
        FailureKind::FoundErrors => "doctor found errors",
        FailureKind::NotRecovered => "the pool did not recover as expected",
        FailureKind::Unreported => "the output could not be written",
        FailureKind::Unexpected => "unexpected error",
        FailureKind::Interrupted => "interrupted and cleaned up",
        FailureKind::Stopped => "terminated and cleaned up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_in_json_are_those_of_core() {
        for kind in FailureKind::ALL {
            assert_eq!(serde_json::to_value(ErrorKind::from(kind)).unwrap(), kind.as_str());
        }
    }

    #[test]
    fn every_kind_of_failure_has_a_meaning() {
        let sections = FailureKind::ALL.map(|kind| {
            let failure = Failure::new(kind, "it went <wrong>").hint("try `again`");
            section("refresh", &failure)
        });
        let heads = sections.iter().map(|section| {
            let meaning = section.lines().last().unwrap();
            format!("{} / {meaning}", section.lines().next().unwrap())
        });
        insta::assert_snapshot!(heads.collect::<Vec<_>>().join("\n"), @"
        ### ondeck refresh failed: invalid input / Exit code 2: invalid input.
        ### ondeck refresh failed: not set up, run refresh first / Exit code 3: not set up, run refresh first.
        ### ondeck refresh failed: the pool is closed by a teardown / Exit code 3: the pool is closed by a teardown.
        ### ondeck refresh failed: runs own machines of the pool / Exit code 12: runs own machines of the pool.
        ### ondeck refresh failed: no capacity / Exit code 4: no capacity.
        ### ondeck refresh failed: max-machines is reached / Exit code 4: max-machines is reached.
        ### ondeck refresh failed: max-spend-per-day is reached / Exit code 4: max-spend-per-day is reached.
        ### ondeck refresh failed: machines did not become ready / Exit code 5: machines did not become ready.
        ### ondeck refresh failed: store, queue or compute unavailable / Exit code 6: store, queue or compute unavailable.
        ### ondeck refresh failed: compute throttles requests / Exit code 6: compute throttles requests.
        ### ondeck refresh failed: GitHub refused the request or the token is invalid / Exit code 7: GitHub refused the request or the token is invalid.
        ### ondeck refresh failed: released, but some machines did not respond / Exit code 8: released, but some machines did not respond.
        ### ondeck refresh failed: a role has other permissions than it should / Exit code 9: a role has other permissions than it should.
        ### ondeck refresh failed: doctor found warnings / Exit code 20: doctor found warnings.
        ### ondeck refresh failed: doctor found errors / Exit code 21: doctor found errors.
        ### ondeck refresh failed: the pool did not recover as expected / Exit code 22: the pool did not recover as expected.
        ### ondeck refresh failed: the output could not be written / Exit code 11: the output could not be written.
        ### ondeck refresh failed: unexpected error / Exit code 10: unexpected error.
        ### ondeck refresh failed: interrupted and cleaned up / Exit code 130: interrupted and cleaned up.
        ### ondeck refresh failed: terminated and cleaned up / Exit code 143: terminated and cleaned up.
        ");
        insta::assert_snapshot!(sections[4], @r"
        ### ondeck refresh failed: no capacity

        > it went &lt;wrong&gt;
        >
        > **hint:** try \`again\`

        Exit code 4: no capacity.
        ");
    }
}
