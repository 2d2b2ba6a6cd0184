//! What SQLite's errors mean to a caller: try again, or call a person.

use std::path::Path;

use ondeck_core::ports::PortError;
use rusqlite::ErrorCode;

/// How this port is called in messages.
pub(crate) const SERVICE: &str = "store";

/// Translates an error about the file.
pub(crate) fn from_sqlite(file: &Path, error: &rusqlite::Error) -> PortError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OutOfMemory,
        ) => PortError::Unavailable {
            service: SERVICE,
            reason: format!("{}: {error}", file.display()),
        },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => PortError::Unusable {
            service: SERVICE,
            reason: format!("{}: {error}", file.display()),
            hint: "move the file away and run ondeck refresh, or choose another --home".to_owned(),
        },
        Some(ErrorCode::DiskFull) => PortError::Unusable {
            service: SERVICE,
            reason: format!("{}: {error}", file.display()),
            hint: "free some space on its disk".to_owned(),
        },
        Some(_) => unusable(file, &error.to_string()),
        // Not SQLite's complaint but ours: a row holds what it should not.
        None => PortError::Unusable {
            service: SERVICE,
            reason: format!("{}: {error}", file.display()),
            hint: "correct or delete the row, or move the file away".to_owned(),
        },
    }
}

/// The file, or its directory, is not what it should be.
pub(crate) fn unusable(file: &Path, problem: &str) -> PortError {
    PortError::Unusable {
        service: SERVICE,
        reason: format!("{}: {problem}", file.display()),
        hint: "make it a file that this user may write, or choose another --home".to_owned(),
    }
}
