//! Writes files one by one, each whole or not at all, and none that exists without consent.

use std::fs::Permissions;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ondeck_core::model::failure::Failure;

use super::answers::prompted;
use super::diff::unified;
use super::files::GeneratedFile;

/// How the name of a file begins until it is whole.
const UNFINISHED: &str = ".ondeck-init";

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Created,
    Updated,
    Unchanged,
    /// It belongs to the user, or the user wants it as it is.
    Kept,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Updated => "updated",
            Outcome::Unchanged => "unchanged",
            Outcome::Kept => "kept",
        }
    }
}

/// What a file says, or `None` if there is none. Fails if it cannot be read.
pub(super) fn present(root: &Path, path: &str) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(root.join(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::invalid(format!("file cannot be read: {path}: {error}"))
            .hint("move it away, then run ondeck init again")),
    }
}

/// Writes a file, unless it exists and differs: then it shows the difference first, and writes with
/// consent only.
pub(super) fn write(root: &Path, file: &GeneratedFile, consents: bool) -> Result<Outcome, Failure> {
    let outcome = match present(root, file.path)? {
        None => Outcome::Created,
        Some(_) if file.only_if_absent => return Ok(Outcome::Kept),
        Some(old) if old == file.text => return Ok(Outcome::Unchanged),
        Some(old) => {
            // If stderr is closed, there is no consent either, unless it was given before.
            drop(write!(anstream::stderr(), "{}", unified(file.path, &old, &file.text)));
            if !consents && !is_agreed(file.path) {
                return Ok(Outcome::Kept);
            }
            Outcome::Updated
        }
    };
    replace(&root.join(file.path), &file.text).map_err(|error| {
        Failure::invalid(format!("file cannot be written: {}: {error}", file.path))
            .hint("ondeck init --print shows the files without writing them")
    })?;
    Ok(outcome)
}

/// Asks whether the file may be overwritten, if there is a person to ask.
fn is_agreed(path: &str) -> bool {
    std::io::stdin().is_terminal()
        && prompted(&format!("Overwrite {path} like this? [y/N]: "))
            .is_some_and(|answer| ["y", "yes"].contains(&answer.to_ascii_lowercase().as_str()))
}

/// Puts the text in the file's place in one step, so that a reader or a kill finds the old text or the
/// new one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    remove_unfinished(folder)?;
    let mut builder = tempfile::Builder::new();
    // As a file that is created without a mode of its own: less the user's mask.
    builder.prefix(UNFINISHED).permissions(Permissions::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    #[cfg(feature = "holds")]
    crate::control::hold_points::before_rename(path);
    file.persist(path)?;
    Ok(())
}

/// Removes what a call that was killed has left. One that runs beside this call may then fail to write
/// its file, but leaves none that is incomplete.
fn remove_unfinished(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
