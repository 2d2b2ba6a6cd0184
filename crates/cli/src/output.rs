//! Output that cannot be written.

use std::io::{Error, ErrorKind};

use ondeck_core::model::failure::{Failure, FailureKind};

/// The failure of a command whose output could not be written to this stream. `None` if the reader
/// has closed its pipe, as `head` does: it has read all that it wants.
pub(crate) fn unwritten(stream: &str, error: &Error) -> Option<Failure> {
    if error.kind() == ErrorKind::BrokenPipe {
        return None;
    }
    let message = format!("{stream} cannot be written: {error}");
    let hint = "redirect the output elsewhere; ondeck status shows the machines";
    Some(Failure::new(FailureKind::Unreported, message).hint(hint))
}
