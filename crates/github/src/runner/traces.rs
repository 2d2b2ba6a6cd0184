//! Shows that a run left nothing on a machine that belongs to the pool alone.
//!
//! What a machine looked like before its first run is known by one moment: what was changed after
//! it is a trace of a run. The kernel sets the time of a file's last change itself, so a job without
//! root's rights cannot forge it. Traces in folders that every user may write to are removed. A trace
//! elsewhere cannot be undone, so it retires the machine.

mod exclusions;
mod files;
mod ipc;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use self::exclusions::Exclusions;
use self::files::{FileWalk, Rule};
use self::ipc::SysV;

/// The folders that are looked at, below the root, and what happens to a trace there. A folder that is
/// inside another one comes before it.
const PLACES: [(&str, Rule); 14] = [
    ("tmp", Rule::Remove),
    ("var/tmp", Rule::Remove),
    ("dev/shm", Rule::Remove),
    ("dev/mqueue", Rule::Remove),
    ("run/lock", Rule::RemoveNew),
    ("var/spool/cron", Rule::Remove),
    ("var/spool/at", Rule::Remove),
    ("var/lib/systemd/linger", Rule::Remove),
    ("etc", Rule::Retire),
    ("usr/local", Rule::Retire),
    ("opt", Rule::Retire),
    ("root", Rule::Retire),
    ("home", Rule::Retire),
    ("var/spool", Rule::Retire),
];

/// How many paths a failure names.
const NAMED: usize = 3;

/// What is not recognised by its time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Baseline {
    mounts: BTreeSet<String>,
    sysv: SysV,
}

/// The machine as far as runs can leave something on it.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `/`, or the folder that plays it.
    pub(crate) root: PathBuf,
    /// The home of the runner's user in the user database.
    pub(crate) home: PathBuf,
    /// The agent's own folder, and others that are cleaned in another way.
    pub(crate) cleaned_elsewhere: Vec<PathBuf>,
    /// The software of the runner, which writes beside its programs.
    pub(crate) software: PathBuf,
    /// What the operator lets runs change.
    pub(crate) ignored: Vec<PathBuf>,
}

impl Machine {
    /// What there is before the first run.
    pub(crate) fn baseline(&self) -> Result<Baseline, String> {
        Ok(Baseline { mounts: self.mounts()?, sysv: SysV::read(&self.root)? })
    }

    /// Removes the traces that were made after `since`. Fails with the first traces that cannot be
    /// removed. No process of a run may be left.
    pub(crate) fn remove_traces(&self, before: &Baseline, since: SystemTime) -> Result<(), String> {
        let mounts = self.mounts()?;
        let places: Vec<(PathBuf, Rule)> = self.places().collect();
        let watched = |mount: &&String| {
            let mount = Path::new(mount);
            places.iter().any(|(place, _)| mount.starts_with(place) && mount != place)
        };
        let excluded = self.exclusions();
        let is_new = |mount: &&String| watched(mount) && !excluded.contain(Path::new(mount));
        if let Some(mount) = mounts.difference(&before.mounts).find(is_new) {
            return Err(format!("a run has mounted something: {mount}"));
        }
        SysV::read(&self.root)?.remove_since(&before.sysv)?;
        let mut walk = FileWalk::new(since, &excluded, &mounts);
        for (place, rule) in &places {
            walk.place(place, *rule)?;
        }
        let traces: Vec<String> =
            walk.traces.iter().take(NAMED).map(|path| path.display().to_string()).collect();
        if traces.is_empty() {
            return Ok(());
        }
        let more = if walk.traces.len() > NAMED { " and others" } else { "" };
        Err(format!("a run has changed {}{more}", traces.join(", ")))
    }

    /// The folders to look at, each but once: a folder is not looked at again as a part of another.
    fn places(&self) -> impl Iterator<Item = (PathBuf, Rule)> {
        // A home such as `/` or `/nonexistent` is not the user's own.
        let own = self.home.components().count() > 2;
        let home = own.then(|| (below(&self.root, &self.home), Rule::Remove));
        let others = PLACES.map(|(path, rule)| (self.root.join(path), rule));
        home.into_iter().chain(others)
    }

    fn exclusions(&self) -> Exclusions {
        let operators = self.ignored.iter().map(|path| below(&self.root, path));
        Exclusions::new(
            &self.root,
            operators.chain(self.cleaned_elsewhere.iter().cloned()),
            &self.software,
        )
    }

    fn mounts(&self) -> Result<BTreeSet<String>, String> {
        let path = self.root.join("proc/self/mounts");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|e| format!("cannot read {}: {e}", path.display()))?,
        };
        Ok(text.lines().filter_map(|line| Some(unescape(line.split(' ').nth(1)?))).collect())
    }
}

/// An absolute path as seen below another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Undoes the kernel's way to write blanks and backslashes in a list of mounts.
fn unescape(path: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(path.to_owned(), |path, (code, text)| path.replace(code, text))
}

#[cfg(test)]
mod tests;
