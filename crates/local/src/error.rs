//! Translates SQLite's errors into those that can be retried and those that need an operator.

use std::fs::File;
use std::io;
use std::path::Path;

use ondeck_core::ports::PortError;
use rusqlite::ErrorCode;

use crate::store::room;

/// The errors of a process, and of a computer, that has too many open files.
const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

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
        // A job that fills the disk may have taken the room that was given up for this write. The next
        // attempt gives up more of the reserve.
        Some(ErrorCode::DiskFull) if file.parent().is_some_and(room::is_left) => {
            PortError::Unavailable {
                service: SERVICE,
                reason: format!("{}: {error}", file.display()),
            }
        }
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

/// Why no more files can be opened; `None` if they can. SQLite does not say why it cannot open a file,
/// and has closed the others by then.
fn no_more_files() -> Option<io::Error> {
    /// The database, its log, the index of the log, and their folder.
    const FILES: usize = 4;
    let opened = (0..FILES).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>();
    opened.err().filter(|error| matches!(error.raw_os_error(), Some(EMFILE | ENFILE)))
}

/// The error for a file or directory that cannot be used.
pub(crate) fn unusable(file: &Path, problem: &str) -> PortError {
    let no_more_files = no_more_files();
    let (problem, hint) = match no_more_files {
        Some(error) => {
            (error.to_string(), "allow more open files, for example with ulimit -n 1024")
        }
        None if file.extension().is_some() && file.is_dir() => {
            let problem = format!("{problem}, it is a folder");
            (problem, "move the folder away, or choose another --home")
        }
        None => {
            let hint = "make it a file that this user may write, or choose another --home";
            (problem.to_owned(), hint)
        }
    };
    PortError::Unusable {
        service: SERVICE,
        reason: format!("{}: {problem}", file.display()),
        hint: hint.to_owned(),
    }
}
