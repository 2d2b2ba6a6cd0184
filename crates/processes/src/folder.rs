//! Creates and removes the folders that the processes of a machine write to.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates a directory and its missing parents with mode 0700, because jobs and their output may
/// hold secrets.
pub fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates an empty file with mode 0600, or empties the one that exists.
pub fn make_private_file(path: &Path) -> io::Result<fs::File> {
    let file =
        fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Removes a directory with its content. Succeeds if the directory does not exist.
///
/// Build tools make directories of their caches read-only, so after a permission error the
/// directories are made writable and the removal is tried once more.
pub fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            make_writable(folder)?;
            fs::remove_dir_all(folder)
        }
        done => done,
    }
}

/// Removes a file or a symbolic link. Succeeds if the path does not exist.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes a directory with its content, a file or a symbolic link (not the link's target). Succeeds
/// if the path does not exist.
pub fn remove_any(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        _ => remove_file(path),
    }
}

fn make_writable(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_directories_are_removed() {
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
