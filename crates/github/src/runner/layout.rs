//! What is where, in the folder that the agent has for its runner.
//!
//! What jobs may write is theirs and renewed for every run. Everything else belongs to the agent,
//! and where the runner has a user of its own, jobs cannot change it: a job of one run must not be
//! able to lay anything in store for the next.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ondeck_processes::{Boot, Process, folder};

use super::user::User;

/// The folder, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where a package is unpacked, or linked to.
    pub(crate) package: PathBuf,
    /// The `HOME` of jobs.
    pub(crate) home: PathBuf,
    /// The `TMPDIR` of jobs.
    pub(crate) tmp: PathBuf,
    /// What the runner calls before and after each job.
    pub(crate) hooks: PathBuf,
    /// What the hooks have noted. The folder is the agent's, the file the user's: it cannot be
    /// turned into a link, and what stands in it is believed for no decision.
    pub(crate) notes: PathBuf,
    /// What the runner has written about itself in earlier runs.
    pub(crate) diagnostics: PathBuf,
    /// What the agent has to remember when it is started again.
    pub(crate) state: PathBuf,
    folder: PathBuf,
}

impl Layout {
    /// Of this folder.
    pub(crate) fn of(folder: &Path) -> Layout {
        let [package, home, tmp, hooks, notes, diagnostics, state] =
            ["actions-runner", "home", "tmp", "hooks", "notes/jobs", "diagnostics", "state"]
                .map(|name| folder.join(name));
        Layout { package, home, tmp, hooks, notes, diagnostics, state, folder: folder.to_owned() }
    }

    /// Makes what is missing. Others may look into the folder on the way to what is theirs: the
    /// runner does nothing at all unless it can list every folder above it.
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

    /// Gives the user an empty home, an empty folder for temporary files, and no notes.
    pub(crate) fn renew(&self, user: &User) -> Result<(), String> {
        for path in [&self.home, &self.tmp] {
            folder::remove(path)
                .and_then(|()| user.make_folder(path))
                .map_err(|e| format!("cannot renew {}: {e}", path.display()))?;
        }
        put(&self.notes, b"", 0o600, Some(user))
    }

    /// What was kept under a name; nothing if nothing was.
    pub(crate) fn kept(&self, name: &str) -> Result<Option<String>, String> {
        let path = self.state.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    /// Keeps something under a name, whole or not at all.
    pub(crate) fn keep(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.state.join(name);
        let new = self.state.join(format!("{name}.new"));
        put(&new, text.as_bytes(), 0o600, None)?;
        fs::rename(&new, &path).map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Keeps it no longer.
    pub(crate) fn drop_kept(&self, name: &str) -> Result<(), String> {
        let path = self.state.join(name);
        folder::remove_file(&path).map_err(|e| format!("cannot remove {}: {e}", path.display()))
    }

    /// Notes the group of a listener before it does anything that somebody might have to find.
    pub(crate) fn note_group(&self, leader: Process) -> Result<(), String> {
        let line = format!("{} {} {}\n", leader.pid, leader.start_time, Boot::name());
        self.keep(GROUP, &line)
    }

    /// The leader of the group that was noted last.
    pub(crate) fn group(&self) -> Result<Option<Process>, String> {
        let Some(noted) = self.kept(GROUP)? else { return Ok(None) };
        let mut words = noted.trim_end().splitn(3, ' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        let (pid, start_time) = (number(), number());
        let boot = Boot::named(words.next().unwrap_or_default());
        let process =
            |pid: i64, start_time| Some(Process { pid: pid.try_into().ok()?, start_time, boot });
        Ok(pid.zip(start_time).and_then(|(pid, start)| process(pid, start)))
    }

    /// The number of the next registration. Never used twice, so that GitHub never takes a runner
    /// for one whose session it still has.
    pub(crate) fn next_count(&self) -> Result<u32, String> {
        const NAME: &str = "registrations";
        let last = self.kept(NAME)?.and_then(|text| text.trim().parse::<u32>().ok());
        let next = last.unwrap_or(0).wrapping_add(1);
        self.keep(NAME, &next.to_string())?;
        Ok(next)
    }
}

const GROUP: &str = "listener-group";

/// Writes a file anew, as the agent's or as somebody else's. What stood there is not written to,
/// because it may be a link to somewhere.
pub(crate) fn put(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<&User>,
) -> Result<(), String> {
    let write = || {
        folder::remove_file(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(content)?;
        // The mode above is cut by whatever mask the agent was started with.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        owner.map_or(Ok(()), |user| user.own(path))
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
    fn a_registration_has_a_number_that_none_had_before() {
        let (dir, layout) = layout();
        assert_eq!(layout.next_count(), Ok(1));
        assert_eq!(layout.next_count(), Ok(2));
        assert_eq!(Layout::of(dir.path()).next_count(), Ok(3), "by another life of the agent");
    }

    #[test]
    fn a_group_is_found_again_in_this_boot_only() {
        let (_dir, layout) = layout();
        assert_eq!(layout.group(), Ok(None));
        let me = Process::current().unwrap();
        layout.note_group(me).unwrap();
        assert_eq!(layout.group(), Ok(Some(me)));
        layout.keep(GROUP, &format!("{} {} elsewhere", me.pid, me.start_time)).unwrap();
        assert_eq!(layout.group(), Ok(Some(Process { boot: Boot::Another, ..me })));
        layout.keep(GROUP, "rubbish").unwrap();
        assert_eq!(layout.group(), Ok(None));
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let (dir, layout) = layout();
        let target = dir.path().join("target");
        fs::write(&target, "theirs").unwrap();
        let path = layout.state.join("file");
        std::os::unix::fs::symlink(&target, &path).unwrap();
        put(&path, b"ours", 0o640, None).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
