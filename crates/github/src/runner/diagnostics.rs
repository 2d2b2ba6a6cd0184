//! The runner's diagnostic logs. They are archived for the operator, out of reach of later jobs, and
//! pruned.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ondeck_processes::folder;

/// The size in bytes to which the archive is pruned.
const ARCHIVE_SIZE: u64 = 64 * 1024 * 1024;

/// Moves the files in `from` to `to`, removes `from`, and removes the oldest files in `to` beyond
/// [`ARCHIVE_SIZE`].
pub(crate) fn archive(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot archive {}: {e}", from.display());
    move_files(from, to).map_err(failed)?;
    folder::remove_any(from).map_err(failed)?;
    prune(to, ARCHIVE_SIZE).map_err(|e| format!("cannot prune {}: {e}", to.display()))
}

/// Moves regular files only, because the runner writes nothing else here.
fn move_files(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.is_dir() => return Ok(()),
        found => found?,
    };
    for (path, found) in files(from)? {
        let Some(name) = path.file_name() else { continue };
        // Jobs can write here too, so a file may have any size.
        if found.len() > ARCHIVE_SIZE {
            continue;
        }
        let place = to.join(name);
        if fs::rename(&path, &place).is_err() {
            // The archive may be on another file system.
            fs::copy(&path, &place)?;
        }
    }
    Ok(())
}

fn prune(folder: &Path, keep: u64) -> io::Result<()> {
    let mut kept = files(folder)?;
    kept.sort_by_key(|(_, found)| std::cmp::Reverse(found.modified().ok()));
    let mut size = 0;
    for (path, found) in kept {
        size += found.len();
        if size > keep {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn files(folder: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        if found.is_file() {
            files.push((path, found));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn only_regular_files_are_archived() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("_diag"), dir.path().join("kept"));
        fs::create_dir_all(from.join("pages")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("Runner_1.log"), "one").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("Worker_1.log")).unwrap();
        archive(&from, &to).unwrap();
        assert!(!from.exists());
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(to.join("Runner_1.log")).unwrap(), "one");
        archive(&from, &to).unwrap();
    }

    #[test]
    fn the_newest_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for (name, age) in [("old", 300), ("new", 100), ("newer", 50)] {
            let path = dir.path().join(name);
            fs::write(&path, "12345").unwrap();
            let at = SystemTime::now() - Duration::from_secs(age);
            fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        }
        prune(dir.path(), 10).unwrap();
        let left = ["old", "new", "newer"].map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }
}
