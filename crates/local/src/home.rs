use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ondeck_core::model::ids::InstanceId;

/// The directory that holds everything of one local pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home(PathBuf);

impl Home {
    /// Names it; nothing is made yet. The path is made absolute here, because machines work in
    /// directories of their own.
    pub fn new(dir: PathBuf) -> Home {
        Home(std::path::absolute(&dir).unwrap_or(dir))
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The one file that all processes share.
    pub fn database(&self) -> PathBuf {
        self.0.join("ondeck.db")
    }

    /// Where the machines have their disks.
    pub(crate) fn machines(&self) -> PathBuf {
        self.0.join("machines")
    }

    /// What a machine has for a disk. Ids hold no slash and no leading dot, so this never leaves
    /// the home.
    pub fn machine(&self, id: &InstanceId) -> PathBuf {
        self.machines().join(id.as_str())
    }

    /// What a machine's agent has said. Outlives the machine, until the list forgets it.
    pub fn log(&self, id: &InstanceId) -> PathBuf {
        self.0.join("logs").join(format!("{id}.log"))
    }

    /// The logs that there are, and whose. Other files are not ours to know.
    pub(crate) fn logs(&self) -> io::Result<Vec<(InstanceId, PathBuf)>> {
        let entries = match fs::read_dir(self.0.join("logs")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut logs = Vec::new();
        for entry in entries {
            let entry = entry?;
            let id =
                entry.file_name().to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
            logs.extend(id.map(|id| (id, entry.path())));
        }
        Ok(logs)
    }
}
