//! Groups of processes in the kernel's hierarchy of cgroups, version 2.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Where systemd mounts the hierarchy, and where nft looks paths up.
const MOUNTED: &str = "/sys/fs/cgroup";

/// A cgroup, by its path below the root of the hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cgroup {
    path: String,
}

impl Cgroup {
    /// The cgroup that the calling process is in. Fails if the hierarchy is not mounted in its usual
    /// place, as on systems that use cgroup v1.
    pub(super) fn of_this_process() -> Result<Cgroup, String> {
        if !Path::new(MOUNTED).join("cgroup.controllers").exists() {
            return Err(format!("cgroup v2 is not mounted on {MOUNTED}"));
        }
        let file = "/proc/self/cgroup";
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        parse(&text).ok_or_else(|| format!("{file} names no usable cgroup: {text:?}"))
    }

    /// The cgroup at this path below the root.
    pub(super) fn at(path: &str) -> Cgroup {
        Cgroup { path: path.to_owned() }
    }

    pub(super) fn exists(&self) -> bool {
        self.folder().exists()
    }

    /// The cgroup of this name directly below, which is created if it is missing.
    pub(super) fn child(&self, name: &str) -> Result<Cgroup, String> {
        let separator = if self.path.is_empty() { "" } else { "/" };
        let child = Cgroup { path: format!("{}{separator}{name}", self.path) };
        match fs::create_dir(child.folder()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(child),
            made => made.map(|()| child.clone()).map_err(|error| child.failed("created", &error)),
        }
    }

    /// Moves the calling process here, with all its threads.
    pub(super) fn enter(&self) -> Result<(), String> {
        let entered = fs::write(self.processes(), "0");
        entered.map_err(|error| self.failed("entered", &error))
    }

    /// The words that, in front of a command, start it here. The shell moves itself and is then
    /// replaced by the command, so the pid stays the same and the command never runs elsewhere.
    pub(super) fn wrapper(&self) -> Vec<OsString> {
        let script = "echo 0 >\"$0\" && exec \"$@\"";
        vec!["/bin/sh".into(), "-c".into(), script.into(), self.processes().into()]
    }

    /// The path below the root, without a slash in front.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// How many steps it is below the root.
    pub(super) fn level(&self) -> usize {
        self.path.split('/').filter(|part| !part.is_empty()).count()
    }

    pub(super) fn folder(&self) -> PathBuf {
        Path::new(MOUNTED).join(&self.path)
    }

    fn processes(&self) -> PathBuf {
        self.folder().join("cgroup.procs")
    }

    fn failed(&self, done: &str, error: &io::Error) -> String {
        format!("the cgroup {} cannot be {done}: {error}", self.path)
    }
}

/// Reads the entry of version 2. A path that could not be quoted in a rule is refused, and so is the
/// path of a cgroup that was deleted or is outside of this process's namespace.
fn parse(text: &str) -> Option<Cgroup> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let usable = !path.contains(['"', '\n']) && !path.ends_with(" (deleted)");
    (usable && !path.split('/').any(|part| part == "..")).then(|| Cgroup { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_level_are_derived() {
        for (text, expected) in [
            ("0::/\n", Some(("", 0))),
            (
                "0::/system.slice/ondeck-agent.service\n",
                Some(("system.slice/ondeck-agent.service", 2)),
            ),
            ("12:pids:/x\n1:name=systemd:/y\n0::/a/b/c\n", Some(("a/b/c", 3))),
            (r"0::/a\x2db.slice", Some((r"a\x2db.slice", 1))),
            ("12:pids:/x\n", None),
            ("", None),
            ("0::/../outside\n", None),
            ("0::/was/there (deleted)\n", None),
            ("0::/a\"b\n", None),
        ] {
            let found = parse(text);
            let found = found.as_ref().map(|cgroup| (cgroup.path(), cgroup.level()));
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
