//! A disk that can be filled without harm to others.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// More than a pool of tests ever needs.
const SIZE: &str = "size=48m,mode=700";

/// Mounts, and unmounts when its input ends, also because the process that holds it has ended.
const HOLD: &str = r#"
    mount -t tmpfs -o "$2" tmpfs "$1" && echo mounted && cat >/dev/null
    umount -l "$1"
"#;

/// A small file system in memory, gone with this.
pub(crate) struct SmallDisk {
    holder: Child,
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// One, where this user may mount.
    pub(crate) fn mount() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mut holder = Command::new("/bin/sh")
            .args(["-c", HOLD, "disk"])
            .arg(folder.path())
            .arg(SIZE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let disk = SmallDisk { holder, folder };
        (said == "mounted\n").then_some(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves no room on it, until what is returned is dropped.
    pub(super) fn fill(&self) -> Full {
        let path = self.path().join("filler");
        let mut filler = File::create(&path).unwrap();
        let mut chunk = &[0; 1 << 16][..];
        // What no longer fits in one piece may fit in smaller ones.
        while !chunk.is_empty() {
            if filler.write_all(chunk).is_err() {
                chunk = &chunk[..chunk.len() / 2];
            }
        }
        Full(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // Where it never mounted anything, it has ended already.
        self.holder.wait().ok();
    }
}

/// A disk without room.
pub(super) struct Full(PathBuf);

impl Drop for Full {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}
