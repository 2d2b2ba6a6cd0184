//! Files that a run has left where everybody may write, and where its user lives.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ondeck_processes::folder;

use super::user::User;

/// Where users other than root can leave something.
const SHARED: [&str; 6] =
    ["/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/var/spool/cron", "/var/spool/at"];

/// Removes what the user has made since a moment, outside of the folders that are renewed anyway
/// (`ours`). Only for a user who is there for the runner alone.
pub(crate) fn sweep(user: &User, ours: &Path, since: SystemTime) -> Result<(), String> {
    let shared = SHARED.map(PathBuf::from);
    // Whoever lives at the root of everything, or nowhere, lives nowhere of their own.
    let is_home = |home: &&PathBuf| home.components().count() > 2 && !home.starts_with(ours);
    let home = Some(&user.home).filter(is_home);
    let sweep = Sweep { uid: user.uid, since, ours };
    for place in shared.iter().chain(home) {
        let own = Some(place) == home;
        sweep
            .folder(place, own)
            .map_err(|(path, why)| format!("cannot clean {}: {why}", path.display()))?;
    }
    Ok(())
}

struct Sweep<'a> {
    uid: u32,
    since: SystemTime,
    ours: &'a Path,
}

type Problem = (PathBuf, String);

impl Sweep<'_> {
    /// Removes what is in a folder. In the user's own home there are things that came with the
    /// image, and one of those that was changed cannot be had back.
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
            self.judge(&path, &found, own)?;
        }
        Ok(())
    }

    fn judge(&self, path: &Path, found: &Metadata, own: bool) -> Result<(), Problem> {
        let theirs = found.uid() == self.uid;
        if theirs && self.is_new(found) {
            return folder::remove_any(path).map_err(|e| (path.to_owned(), e.to_string()));
        }
        if found.is_dir() {
            return self.folder(path, own);
        }
        if own && theirs && self.is_changed(found) {
            let why = "it came with the machine and was changed by the run";
            return Err((path.to_owned(), why.to_owned()));
        }
        Ok(())
    }

    /// Whether it was made since. Where the disk does not know, its last change has to tell.
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

    /// The files of this test are this user's, whoever that is.
    fn sweep(place: &Path, own: bool, since: SystemTime) -> Result<(), Problem> {
        let uid = rustix::process::geteuid().as_raw();
        Sweep { uid, since, ours: &place.join("ours") }.folder(place, own)
    }

    fn names(place: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The moment of a change, as the disk would note it.
    fn mark(place: &Path) -> SystemTime {
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
    fn only_what_was_made_since_goes() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        fs::create_dir(place.join("old")).unwrap();
        fs::write(place.join("old/file"), "old").unwrap();
        let since = mark(place);
        fs::write(place.join("old/new"), "").unwrap();
        fs::create_dir_all(place.join("new/deep")).unwrap();
        std::os::unix::fs::symlink("/etc", place.join("link")).unwrap();
        sweep(place, false, since).unwrap();
        assert_eq!(names(place), ["old", "ours"]);
        assert_eq!(names(&place.join("old")), ["file"]);
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn what_came_with_the_machine_must_not_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        fs::write(place.join(".bashrc"), "clean").unwrap();
        let since = mark(place);
        sweep(place, true, since).unwrap();
        fs::write(place.join(".bashrc"), "evil").unwrap();
        sweep(place, false, since).unwrap();
        let (path, why) = sweep(place, true, since).unwrap_err();
        assert!(path.ends_with(".bashrc") && why.contains("changed by the run"), "{why}");
    }

    #[test]
    fn what_is_not_theirs_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let uid = rustix::process::geteuid().as_raw() + 1;
        let since = SystemTime::now() - Duration::from_secs(60);
        Sweep { uid, since, ours: Path::new("/nowhere") }.folder(dir.path(), true).unwrap();
        assert_eq!(names(dir.path()), ["file"]);
    }
}
