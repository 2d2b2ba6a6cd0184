//! Directories of machines.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ondeck_core::ids::InstanceId;

use crate::home::Home;

/// What a machine's jobs may write to, and what is emptied between runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folders {
    /// Where jobs start.
    pub(crate) work: PathBuf,
    /// Their `TMPDIR`.
    pub(crate) tmp: PathBuf,
    /// Their `HOME`.
    pub(crate) home: PathBuf,
}

impl Folders {
    /// Those of one machine.
    pub(crate) fn of(home: &Home, id: &InstanceId) -> Folders {
        let machine = home.machine(id);
        Folders { work: machine.join("work"), tmp: machine.join("tmp"), home: machine.join("home") }
    }

    fn each(&self) -> [&Path; 3] {
        [&self.work, &self.tmp, &self.home]
    }

    /// Makes those that are missing.
    pub(crate) fn make(&self) -> Result<(), String> {
        self.each().into_iter().try_for_each(|folder| {
            fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
        })
    }

    /// Removes them with all that is in them, and makes them again.
    pub(crate) fn empty(&self) -> Result<(), String> {
        for folder in self.each() {
            remove(folder).map_err(|e| format!("cannot remove {}: {e}", folder.display()))?;
        }
        self.make()
    }
}

/// Removes a directory with all that is in it; one that is not there is removed already.
///
/// Build tools protect their caches by making directories read-only, so a refusal is answered by
/// taking the permission and trying once more.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_up(folder)?;
            fs::remove_dir_all(folder)
        }
        done => done,
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
