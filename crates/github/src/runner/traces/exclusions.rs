//! What changes on a machine without a run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Paths below the root that the system itself changes, each with the reason. A `*` at the end of a
/// path stands for the rest of a name.
const SYSTEM: [(&str, &str); 23] = [
    ("etc/resolv.conf", "the network's services write it"),
    ("etc/.pwd.lock", "a lock of the user database"),
    ("etc/.updated", "systemd notes when it looked at the folder"),
    ("etc/adjtime", "the clock's drift"),
    ("etc/mtab", "a list of mounts"),
    ("etc/cups", "the printing service stores its state there"),
    ("etc/lvm", "the volume manager archives its state there"),
    ("etc/ssh/ssh_host_*", "made at the first start of the ssh service"),
    ("opt/aws/amazon-cloudwatch-agent", "logs and state of the CloudWatch agent"),
    ("root/snap", "made by snap for each revision"),
    ("tmp/systemd-private-*", "the private folder of a service"),
    ("tmp/snap-private-tmp", "the private folder of snaps"),
    ("tmp/.X*", "sockets of the display"),
    ("tmp/.ICE-unix", "sockets of the display"),
    ("tmp/.font-unix", "sockets of the display"),
    ("var/tmp/systemd-private-*", "the private folder of a service"),
    ("var/spool/anacron", "when jobs of the system ran last"),
    ("var/spool/cups", "the printing service's queue"),
    ("var/spool/exim4", "the mail service's queue"),
    ("var/spool/mail", "mail"),
    ("var/spool/postfix", "the mail service's queue"),
    ("var/spool/rsyslog", "the log service's queue"),
    ("run/lock/lvm", "locks of the volume manager"),
];

/// Paths that runs may change.
#[derive(Debug)]
pub(super) struct Exclusions {
    paths: Vec<PathBuf>,
    /// Folders with the beginning of names in them.
    beginnings: Vec<(PathBuf, String)>,
}

impl Exclusions {
    /// Those of the system, `others`, and what the runner writes beside its `software`.
    pub(super) fn new(
        root: &Path,
        others: impl Iterator<Item = PathBuf>,
        software: &Path,
    ) -> Exclusions {
        let mut made = Exclusions { paths: others.collect(), beginnings: Vec::new() };
        for (path, _) in SYSTEM {
            made.add(&root.join(path));
        }
        // Its configuration, which is written anew for each run, and what was cleaned already.
        for name in [".*", "_diag", "_work"] {
            made.add(&software.join(name));
        }
        made
    }

    fn add(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match (name.strip_suffix('*'), path.parent()) {
            (Some(beginning), Some(folder)) => {
                self.beginnings.push((folder.to_owned(), beginning.to_owned()));
            }
            _ => self.paths.push(path.to_owned()),
        }
    }

    /// Whether a path, or a folder above it, is excluded.
    pub(super) fn contain(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.name(path))
    }

    fn name(&self, path: &Path) -> bool {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
        self.of(folder).contain(name)
    }

    /// The exclusions directly in a folder. Most folders have none, and then their entries need not
    /// be compared.
    pub(super) fn of(&self, folder: &Path) -> ExcludedNames<'_> {
        let named = self.paths.iter().filter(|path| path.parent() == Some(folder));
        let beginnings = self.beginnings.iter().filter(|(of, _)| of == folder);
        ExcludedNames {
            names: named.filter_map(|path| path.file_name()).collect(),
            beginnings: beginnings.map(|(_, beginning)| beginning.as_str()).collect(),
        }
    }

    /// Whether an excluded path is somewhere below a folder.
    pub(super) fn reach_into(&self, folder: &Path) -> bool {
        self.paths.iter().any(|path| path.starts_with(folder))
            || self.beginnings.iter().any(|(of, _)| of.starts_with(folder))
    }
}

/// What is excluded in one folder.
#[derive(Debug)]
pub(super) struct ExcludedNames<'a> {
    names: Vec<&'a OsStr>,
    beginnings: Vec<&'a str>,
}

impl ExcludedNames<'_> {
    pub(super) fn contain(&self, name: &OsStr) -> bool {
        self.names.contains(&name)
            || self.beginnings.iter().any(|beginning| name.to_string_lossy().starts_with(beginning))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.beginnings.is_empty()
    }
}
