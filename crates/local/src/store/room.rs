//! Room on the disk for the store's own writes.
//!
//! A job may fill the disk that the store is on. A reserve, which is a file without a meaning, is then
//! given up bit by bit, so that the last writes of a run and the clean-up succeed. Refresh fills it up
//! again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The size of the reserve on a disk with enough space. The log of SQLite takes up half of it before
/// it is used from its start again.
const RESERVE: u64 = 8 * 1024 * 1024;

/// On a small disk, the reserve is one part in so many of the free space.
const SHARE: u64 = 8;

/// Less free space than this is too little for a write.
const LOW: u64 = 128 * 1024;

/// The reserve of the store in a directory.
pub(crate) fn reserve(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

/// The free space that this user may use. Unknown space counts as plenty, because the write itself
/// will tell.
fn free(dir: &Path) -> u64 {
    let Ok(disk) = statvfs(dir) else { return u64::MAX };
    // Some file systems keep blocks for root.
    let blocks = if geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    blocks.saturating_mul(disk.f_frsize)
}

/// Whether the disk of a directory is as good as full. What can be done without must not be written
/// then.
pub(crate) fn is_low(dir: &Path) -> bool {
    free(dir) < 2 * LOW
}

/// Whether there is a reserve that further writes can use.
pub(crate) fn is_left(dir: &Path) -> bool {
    reserve(dir).metadata().is_ok_and(|reserve| reserve.len() > 0)
}

/// Gives up as much of the reserve as the next write needs. Failures are logged: then the write fails
/// too, or does not.
pub(crate) fn give(dir: &Path) {
    let missing = LOW.saturating_sub(free(dir));
    if missing == 0 {
        return;
    }
    match shrink(&reserve(dir), missing) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("cannot give up the reserve of the store: {error}");
        }
        Err(_) => {}
        Ok(left) => {
            tracing::warn!(left, "the disk is full: part of the store's reserve was given up");
        }
    }
}

/// Makes the file shorter and returns its length.
fn shrink(file: &Path, by: u64) -> io::Result<u64> {
    let file = OpenOptions::new().write(true).open(file)?;
    let left = file.metadata()?.len().saturating_sub(by);
    file.set_len(left)?;
    Ok(left)
}

/// Fills up the reserve as far as the free space allows. Failures are logged, because a pool without a
/// reserve works as long as there is space.
pub(crate) fn fill_up(dir: &Path) {
    if let Err(error) = grow(dir) {
        tracing::warn!("cannot keep a reserve for the store: {error}");
    }
}

fn grow(dir: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(reserve(dir))?;
    let len = file.metadata()?.len();
    let target = RESERVE.min(free(dir).saturating_add(len) / SHARE);
    if target <= len {
        return Ok(());
    }
    match fallocate(&file, FallocateFlags::empty(), 0, target) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, target),
        done => Ok(done?),
    }
}

/// Allocates by writing, for file systems that cannot do it otherwise.
fn write_zeros(mut file: File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_real_space_and_shrinks_by_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        fill_up(dir.path());
        let file = reserve(dir.path());
        let allocated = |file: &Path| {
            use std::os::unix::fs::MetadataExt;
            let found = file.metadata().unwrap();
            (found.len(), found.blocks() * 512)
        };
        let (len, blocks) = allocated(&file);
        assert!(len > 0 && len <= RESERVE && blocks >= len, "{len} {blocks}");
        assert_eq!(shrink(&file, 4096).unwrap(), len - 4096);
        assert!(allocated(&file).1 <= len, "{:?}", allocated(&file));
        fill_up(dir.path());
        assert_eq!(allocated(&file).0, len);
        assert!(is_left(dir.path()));
        assert_eq!(shrink(&file, u64::MAX).unwrap(), 0);
        assert!(!is_left(dir.path()));
        write_zeros(OpenOptions::new().write(true).open(&file).unwrap(), 100_000).unwrap();
        assert_eq!(allocated(&file).0, 100_000);
    }

    #[test]
    fn a_disk_with_space_keeps_its_reserve() {
        let dir = tempfile::tempdir().unwrap();
        fill_up(dir.path());
        let len = reserve(dir.path()).metadata().unwrap().len();
        give(dir.path());
        assert_eq!(reserve(dir.path()).metadata().unwrap().len(), len);
        assert!(!is_low(dir.path()));
        assert_eq!(free(Path::new("/no/such/folder")), u64::MAX);
    }
}
