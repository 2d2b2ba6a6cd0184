//! The agent's folder for its runner.
//!
//! Folders that jobs may write to are recreated for every run. Everything else belongs to the agent.
//! If the runner has its own user, jobs cannot change it, so that no job can affect a later run.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ondeck_processes::{Boot, Process, folder};

use super::user::User;

/// The paths in the agent's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The unpacked package, or the copy of the software on the image.
    pub(crate) package: PathBuf,
    /// The `HOME` of jobs.
    pub(crate) home: PathBuf,
    /// The `TMPDIR` of jobs.
    pub(crate) tmp: PathBuf,
    /// The scripts that the runner calls before and after each job.
    pub(crate) hooks: PathBuf,
    /// The file that the hooks append to. The folder belongs to the agent and the file to the runner's
    /// user, so the file cannot be replaced by a link. No decision depends on its content.
    pub(crate) notes: PathBuf,
    /// The runner's logs of earlier runs.
    pub(crate) diagnostics: PathBuf,
    /// Small files that must survive a restart of the agent.
    pub(crate) state: PathBuf,
    folder: PathBuf,
}

impl Layout {
    /// The paths in `folder`. Creates nothing.
    pub(crate) fn of(folder: &Path) -> Layout {
        let [package, home, tmp, hooks, notes, diagnostics, state] =
            ["actions-runner", "home", "tmp", "hooks", "notes/jobs", "diagnostics", "state"]
                .map(|name| folder.join(name));
        Layout { package, home, tmp, hooks, notes, diagnostics, state, folder: folder.to_owned() }
    }

    /// Creates missing folders and sets their modes. The folder itself is readable for all users,
    /// because the runner refuses to start unless it can list every folder above it.
    pub(crate) fn make(&self) -> Result<(), String> {
        let failed = |path: &Path, e: io::Error| format!("cannot make {}: {e}", path.display());
        let notes = self.notes.parent().unwrap_or(&self.folder);
        for (path, mode) in [
            (self.folder.as_path(), 0o755),
            (&self.hooks, 0o755),
            (notes, 0o711),
            (&self.diagnostics, 0o700),
            (&self.state, 0o700),
        ] {
            fs::create_dir_all(path)
                .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
                .map_err(|e| failed(path, e))?;
        }
        Ok(())
    }

    /// Recreates the home, the folder for temporary files and the notes, all empty.
    pub(crate) fn renew(&self, user: &User) -> Result<(), String> {
        for path in [&self.home, &self.tmp] {
            folder::remove(path)
                .and_then(|()| user.make_folder(path))
                .map_err(|e| format!("cannot renew {}: {e}", path.display()))?;
        }
        write_file(&self.notes, b"", 0o600, Some(user))
    }

    /// Reads a state file. `None` if it does not exist.
    pub(crate) fn load(&self, name: &str) -> Result<Option<String>, String> {
        let path = self.state.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    /// Writes a state file atomically.
    pub(crate) fn save(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.state.join(name);
        let new = self.state.join(format!("{name}.new"));
        write_file(&new, text.as_bytes(), 0o600, None)?;
        fs::rename(&new, &path).map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Removes a state file. Succeeds if it does not exist.
    pub(crate) fn discard(&self, name: &str) -> Result<(), String> {
        let path = self.state.join(name);
        folder::remove_file(&path).map_err(|e| format!("cannot remove {}: {e}", path.display()))
    }

    /// Records the process group of a listener, so that a restarted agent can kill it.
    pub(crate) fn record_group(&self, leader: Process) -> Result<(), String> {
        let line = format!("{} {} {}\n", leader.pid, leader.start_time, Boot::name());
        self.save(GROUP, &line)
    }

    /// The leader of the group that was recorded last. `None` if there is none or it is unreadable.
    pub(crate) fn group(&self) -> Result<Option<Process>, String> {
        let Some(noted) = self.load(GROUP)? else { return Ok(None) };
        let mut words = noted.trim_end().splitn(3, ' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        let (pid, start_time) = (number(), number());
        let boot = Boot::named(words.next().unwrap_or_default());
        let process =
            |pid: i64, start_time| Some(Process { pid: pid.try_into().ok()?, start_time, boot });
        Ok(pid.zip(start_time).and_then(|(pid, start)| process(pid, start)))
    }

    /// Returns the number for the next registration. No number is used twice, so that GitHub does not
    /// mistake a runner for an earlier one whose session is still open.
    pub(crate) fn next_count(&self) -> Result<u32, String> {
        const NAME: &str = "registrations";
        let last = self.load(NAME)?.and_then(|text| text.trim().parse::<u32>().ok());
        let next = last.unwrap_or(0).wrapping_add(1);
        self.save(NAME, &next.to_string())?;
        Ok(next)
    }
}

const GROUP: &str = "listener-group";

/// Writes a file and gives it to `owner`, or leaves it with the agent. An existing file is replaced
/// and not written to, because it may be a link.
pub(crate) fn write_file(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<&User>,
) -> Result<(), String> {
    let write = || {
        folder::remove_file(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(content)?;
        // The mode above is subject to the agent's umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        owner.map_or(Ok(()), |user| user.chown(path))
    };
    write().map_err(|e: io::Error| format!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::of(dir.path());
        layout.make().unwrap();
        (dir, layout)
    }

    #[test]
    fn each_registration_has_a_new_number() {
        let (dir, layout) = layout();
        assert_eq!(layout.next_count(), Ok(1));
        assert_eq!(layout.next_count(), Ok(2));
        assert_eq!(Layout::of(dir.path()).next_count(), Ok(3), "after a restart of the agent");
    }

    #[test]
    fn a_recorded_group_is_valid_in_this_boot_only() {
        let (_dir, layout) = layout();
        assert_eq!(layout.group(), Ok(None));
        let me = Process::current().unwrap();
        layout.record_group(me).unwrap();
        assert_eq!(layout.group(), Ok(Some(me)));
        layout.save(GROUP, &format!("{} {} elsewhere", me.pid, me.start_time)).unwrap();
        assert_eq!(layout.group(), Ok(Some(Process { boot: Boot::Another, ..me })));
        layout.save(GROUP, "rubbish").unwrap();
        assert_eq!(layout.group(), Ok(None));
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let (dir, layout) = layout();
        let target = dir.path().join("target");
        fs::write(&target, "theirs").unwrap();
        let path = layout.state.join("file");
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write_file(&path, b"ours", 0o640, None).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
