//! The file of the last call's metrics, for a collector that may read it at any moment.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Replaces the file in one step: a reader sees the old text or the new one. The file may be read by
/// every user, because a collector runs as another one. Fails with what went wrong.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), String> {
    let problem = |error: std::io::Error| format!("{}: {error}", file.display());
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // Only files that end in .prom are collected.
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".ondeck-").permissions(Permissions::from_mode(0o644));
    let mut made = builder.tempfile_in(folder).map_err(problem)?;
    made.write_all(text.as_bytes()).and_then(|()| made.flush()).map_err(problem)?;
    made.persist(file).map_err(|error| problem(error.error))?;
    Ok(())
}
