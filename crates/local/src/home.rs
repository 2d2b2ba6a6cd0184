use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ondeck_core::model::ids::InstanceId;

/// The directory with all files of one local pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home(PathBuf);

impl Home {
    /// Creates nothing on disk. The path is made absolute, because machines have working directories
    /// of their own.
    pub fn new(dir: PathBuf) -> Home {
        Home(std::path::absolute(&dir).unwrap_or(dir))
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The SQLite file that all processes share.
    pub fn database(&self) -> PathBuf {
        self.0.join("ondeck.db")
    }

    /// The folder with the directories of all machines.
    pub fn machines(&self) -> PathBuf {
        self.0.join("machines")
    }

    /// The directory of a machine. Ids contain no slash and no leading dot, so it is inside the home.
    pub fn machine(&self, id: &InstanceId) -> PathBuf {
        self.machines().join(id.as_str())
    }

    /// The folder with the logs of all machines.
    pub fn log_folder(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// The log of a machine's agent. It is kept until the machine is pruned from the table.
    pub fn log(&self, id: &InstanceId) -> PathBuf {
        self.log_folder().join(format!("{id}.log"))
    }

    /// Returns all existing logs with their machines. Other files in the folder are ignored.
    pub(crate) fn logs(&self) -> io::Result<Vec<(InstanceId, PathBuf)>> {
        let entries = match fs::read_dir(self.log_folder()) {
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
