//! Translates SQLite's errors into those that can be retried and those that need an operator.

use std::path::Path;

use ondeck_core::ports::PortError;
use rusqlite::ErrorCode;

/// The name of this port in messages.
pub(crate) const SERVICE: &str = "store";

/// Translates an error from SQLite, or from reading a row. The message names the file.
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
        // This is not an error of SQLite: a row holds an invalid value.
        None => PortError::Unusable {
            service: SERVICE,
            reason: format!("{}: {error}", file.display()),
            hint: "correct or delete the row, or move the file away".to_owned(),
        },
    }
}

/// The error for a file or directory that cannot be used.
pub(crate) fn unusable(file: &Path, problem: &str) -> PortError {
    PortError::Unusable {
        service: SERVICE,
        reason: format!("{}: {problem}", file.display()),
        hint: "make it a file that this user may write, or choose another --home".to_owned(),
    }
}
