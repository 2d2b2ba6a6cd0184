//! Finds files that were changed after a moment.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ondeck_processes::folder;

use super::exclusions::Exclusions;

/// What happens to what was made or changed in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Removes what is new, of any owner, and reports what was changed.
    Remove,
    /// Removes what is new. What was there may change.
    RemoveNew,
    /// Removes nothing, and reports what is new and what was changed.
    Retire,
}

/// After how many traces the search ends.
const ENOUGH: usize = 10;

pub(super) struct FileWalk<'a> {
    since: i128,
    excluded: &'a Exclusions,
    mounts: &'a BTreeSet<String>,
    /// Folders that were looked at and are not looked at again.
    seen: Vec<PathBuf>,
    /// What was changed and cannot be restored.
    pub(super) traces: Vec<PathBuf>,
}

impl<'a> FileWalk<'a> {
    pub(super) fn new(
        since: SystemTime,
        excluded: &'a Exclusions,
        mounts: &'a BTreeSet<String>,
    ) -> FileWalk<'a> {
        let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
        FileWalk { since, excluded, mounts, seen: Vec::new(), traces: Vec::new() }
    }

    /// Looks at everything in a folder on the same file system. A folder that does not exist, or is a
    /// link, is empty. Fails if something cannot be read or removed.
    pub(super) fn place(&mut self, place: &Path, rule: Rule) -> Result<(), String> {
        let failed = |(path, error): (PathBuf, io::Error)| {
            format!("cannot clean {}: {error}", path.display())
        };
        if let Some(found) = look_at(place).map_err(failed)?
            && found.is_dir()
        {
            self.folder(place, found.dev(), rule).map_err(failed)?;
        }
        self.seen.push(place.to_owned());
        Ok(())
    }

    fn folder(
        &mut self,
        folder: &Path,
        device: u64,
        rule: Rule,
    ) -> Result<(), (PathBuf, io::Error)> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| (folder.to_owned(), e))?,
        };
        let excluded = self.excluded.of(folder);
        let has_seen = self.seen.iter().any(|seen| seen.parent() == Some(folder));
        for entry in entries {
            let entry = entry.map_err(|e| (folder.to_owned(), e))?;
            if self.traces.len() >= ENOUGH {
                return Ok(());
            }
            let path = entry.path();
            if excluded.contain(&entry.file_name()) || has_seen && self.seen.contains(&path) {
                continue;
            }
            if let Some(found) = look_at(&path)?
                && found.dev() == device
            {
                self.entry(&path, &found, rule)?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &Path,
        found: &Metadata,
        rule: Rule,
    ) -> Result<(), (PathBuf, io::Error)> {
        let changed = changed_at(found) > self.since;
        if changed && rule != Rule::Retire && self.is_new(found) {
            return self.remove(path, found);
        }
        if found.is_dir() {
            let before = self.traces.len();
            self.folder(path, found.dev(), rule)?;
            // Something was removed from it, or its owner or mode was changed.
            let unexplained = changed && self.traces.len() == before;
            if unexplained && rule == Rule::Retire && !self.has_own_times(path) {
                self.traces.push(path.to_owned());
            }
            return Ok(());
        }
        if changed && rule != Rule::RemoveNew {
            self.traces.push(path.to_owned());
        }
        Ok(())
    }

    /// Whether a folder changes with entries that are cleaned or ignored.
    fn has_own_times(&self, path: &Path) -> bool {
        !self.excluded.of(path).is_empty()
            || self.seen.iter().any(|seen| seen.parent() == Some(path))
    }

    /// Removes what is new, but nothing of a file system that is mounted there.
    fn remove(&mut self, path: &Path, found: &Metadata) -> Result<(), (PathBuf, io::Error)> {
        if self.mounts.iter().any(|mount| Path::new(mount).starts_with(path)) {
            self.traces.push(path.to_owned());
            return Ok(());
        }
        // A folder that holds what is cleaned elsewhere stays.
        if found.is_dir() && self.excluded.reach_into(path) {
            return self.folder(path, found.dev(), Rule::Remove);
        }
        folder::remove_any(path).map_err(|e| (path.to_owned(), e))
    }

    /// Whether it was created since. The time of the last change decides if the file system does not
    /// record creation times.
    fn is_new(&self, found: &Metadata) -> bool {
        found.created().map_or(true, |made| {
            let made = made.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i128::try_from(made.as_nanos()).unwrap_or(i128::MAX) > self.since
        })
    }
}

/// `None` if it is gone.
fn look_at(path: &Path) -> Result<Option<Metadata>, (PathBuf, io::Error)> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(|e| (path.to_owned(), e)),
    }
}

fn changed_at(found: &Metadata) -> i128 {
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
}
