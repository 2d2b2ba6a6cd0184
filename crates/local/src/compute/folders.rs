//! The directories that a machine's script and jobs write to.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ondeck_core::model::ids::InstanceId;
use ondeck_processes::folder::{make_private, remove};

use crate::home::Home;

/// The directories of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folders {
    /// The working directory of jobs.
    pub(crate) work: PathBuf,
    /// The `TMPDIR` of the script and of jobs.
    pub(crate) tmp: PathBuf,
    /// The script's `HOME`, which is kept as long as the machine.
    pub(crate) prepared: PathBuf,
    /// The jobs' `HOME`: a new copy of `prepared` for each run.
    pub(crate) home: PathBuf,
}

impl Folders {
    /// The paths for a machine. Creates nothing.
    pub(crate) fn of(home: &Home, id: &InstanceId) -> Folders {
        let machine = home.machine(id);
        let [work, tmp, prepared, home] =
            ["work", "tmp", "prepared", "home"].map(|name| machine.join(name));
        Folders { work, tmp, prepared, home }
    }

    /// Creates the directories of the script that do not exist.
    pub(crate) fn make_for_script(&self) -> Result<(), String> {
        [&self.prepared, &self.tmp].into_iter().try_for_each(|folder| make(folder))
    }

    /// Creates the directories for the jobs of the first run. Files that the script left outside of its
    /// home are kept.
    pub(crate) fn make_for_jobs(&self) -> Result<(), String> {
        [&self.work, &self.tmp].into_iter().try_for_each(|folder| make(folder))?;
        self.renew_home()
    }

    /// Recreates the directories for the jobs of the next run, without files of the last run.
    pub(crate) fn renew(&self) -> Result<(), String> {
        for folder in [&self.work, &self.tmp] {
            clear(folder)?;
            make(folder)?;
        }
        self.renew_home()
    }

    fn renew_home(&self) -> Result<(), String> {
        clear(&self.home)?;
        make(&self.home)?;
        let failed = |what: &str| format!("cannot copy {}: {what}", self.prepared.display());
        match fs::read_dir(&self.prepared).map(|mut entries| entries.next()) {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => {}
            // No script has run.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(&error.to_string())),
        }
        // `cp -a` preserves links, times, sparse files and attributes, and every Linux has it.
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.prepared.join(".")).arg(&self.home).stdin(Stdio::null());
        let copied = ondeck_processes::output(&mut copy).map_err(|e| failed(&e.to_string()))?;
        if copied.status.success() {
            return Ok(());
        }
        Err(failed(String::from_utf8_lossy(&copied.stderr).trim()))
    }
}

fn make(folder: &Path) -> Result<(), String> {
    make_private(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
}

fn clear(folder: &Path) -> Result<(), String> {
    remove(folder).map_err(|e| format!("cannot remove {}: {e}", folder.display()))
}
