//! Removes files that a run left in world-writable folders and in its user's home.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ondeck_processes::folder;

use super::user::User;

/// Folders outside of home that users other than root can write to.
const SHARED: [&str; 6] =
    ["/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/var/spool/cron", "/var/spool/at"];

/// Removes the files that `user` created since `since`, except those under `ours`, which is recreated
/// anyway. The user must be one that only the runner uses. Fails if a file cannot be removed, or if a
/// file in the user's home that came with the machine was changed.
pub(crate) fn remove(user: &User, ours: &Path, since: SystemTime) -> Result<(), String> {
    let shared = SHARED.map(PathBuf::from);
    // A home such as `/` or `/nonexistent` is not the user's own.
    let is_home = |home: &&PathBuf| home.components().count() > 2 && !home.starts_with(ours);
    let home = Some(&user.home).filter(is_home);
    let sweep = FileSweep { uid: user.uid, since, ours };
    for place in shared.iter().chain(home) {
        let own = Some(place) == home;
        sweep
            .folder(place, own)
            .map_err(|(path, why)| format!("cannot clean {}: {why}", path.display()))?;
    }
    Ok(())
}

struct FileSweep<'a> {
    uid: u32,
    since: SystemTime,
    ours: &'a Path,
}

type Problem = (PathBuf, String);

impl FileSweep<'_> {
    /// Cleans a folder. `own` is set for the user's home: files there may have come with the image,
    /// and one that was changed cannot be restored.
    fn folder(&self, place: &Path, own: bool) -> Result<(), Problem> {
        let failed = |path: &Path, e: &io::Error| (path.to_owned(), e.to_string());
        let entries = match fs::read_dir(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| failed(place, &e))?,
        };
        for entry in entries {
            let path = entry.map_err(|e| failed(place, &e))?.path();
            if path == self.ours {
                continue;
            }
            let found = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found.map_err(|e| failed(&path, &e))?,
            };
            self.visit(&path, &found, own)?;
        }
        Ok(())
    }

    fn visit(&self, path: &Path, found: &Metadata, own: bool) -> Result<(), Problem> {
        let owned = found.uid() == self.uid;
        if owned && self.is_new(found) {
            return folder::remove_any(path).map_err(|e| (path.to_owned(), e.to_string()));
        }
        if found.is_dir() {
            return self.folder(path, own);
        }
        if own && owned && self.is_changed(found) {
            let why = "it came with the machine and was changed by the run";
            return Err((path.to_owned(), why.to_owned()));
        }
        Ok(())
    }

    /// Whether it was created since. The time of the last change decides if the file system does not
    /// record creation times.
    fn is_new(&self, found: &Metadata) -> bool {
        found.created().map_or_else(|_| self.is_changed(found), |made| made >= self.since)
    }

    fn is_changed(&self, found: &Metadata) -> bool {
        let changed = i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        changed >= i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Sweeps the files of the user that runs the tests.
    fn sweep(place: &Path, own: bool, since: SystemTime) -> Result<(), Problem> {
        let uid = rustix::process::geteuid().as_raw();
        FileSweep { uid, since, ours: &place.join("ours") }.folder(place, own)
    }

    fn names(place: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Returns a file time that is later than that of every file made before.
    fn next_file_time(place: &Path) -> SystemTime {
        let path = place.join("ours");
        let made = |path: &Path| fs::symlink_metadata(path).unwrap().created().unwrap();
        fs::write(&path, "").unwrap();
        let first = made(&path);
        // The kernel's clock for files moves in steps of some milliseconds.
        while made(&path) <= first {
            fs::remove_file(&path).unwrap();
            fs::write(&path, "").unwrap();
        }
        made(&path)
    }

    #[test]
    fn only_files_created_since_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        fs::create_dir(place.join("old")).unwrap();
        fs::write(place.join("old/file"), "old").unwrap();
        let since = next_file_time(place);
        fs::write(place.join("old/new"), "").unwrap();
        fs::create_dir_all(place.join("new/deep")).unwrap();
        std::os::unix::fs::symlink("/etc", place.join("link")).unwrap();
        sweep(place, false, since).unwrap();
        assert_eq!(names(place), ["old", "ours"]);
        assert_eq!(names(&place.join("old")), ["file"]);
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn a_changed_file_of_the_image_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        fs::write(place.join(".bashrc"), "clean").unwrap();
        let since = next_file_time(place);
        sweep(place, true, since).unwrap();
        fs::write(place.join(".bashrc"), "evil").unwrap();
        sweep(place, false, since).unwrap();
        let (path, why) = sweep(place, true, since).unwrap_err();
        assert!(path.ends_with(".bashrc") && why.contains("changed by the run"), "{why}");
    }

    #[test]
    fn files_of_other_users_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let uid = rustix::process::geteuid().as_raw() + 1;
        let since = SystemTime::now() - Duration::from_secs(60);
        FileSweep { uid, since, ours: Path::new("/nowhere") }.folder(dir.path(), true).unwrap();
        assert_eq!(names(dir.path()), ["file"]);
    }
}
