//! Folders that processes write to.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes a directory, and those above it that are missing, for this user alone: jobs and their
/// output are nobody else's business.
pub fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Removes a directory with all that is in it; one that is not there is removed already.
///
/// Build tools protect their caches by making directories read-only, so a refusal is answered by
/// taking the permission and trying once more.
pub fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_up(folder)?;
            fs::remove_dir_all(folder)
        }
        done => done,
    }
}

/// Removes a file or a link; one that is not there is removed already.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes whatever has this name, a link itself and not what it points to.
pub fn remove_any(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        _ => remove_file(path),
    }
}

fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_only_goes_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        make_private(&folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/file"), "kept").unwrap();
        for inner in ["a/b/file", "a/b", "a", ""] {
            let mode = if inner.ends_with("file") { 0o400 } else { 0o500 };
            let path = folder.join(inner);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        remove(&folder).unwrap();
        assert!(!folder.exists());
        remove(&folder).unwrap();
    }
}
