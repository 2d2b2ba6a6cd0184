//! What this computer tells about the surroundings of a pool.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ondeck_core::model::settings::Settings;
use ondeck_core::modes::doctor::facts::{Caller, Disk, Facts, ForgeFacts, Told};
use ondeck_core::ports::{Clock, Diagnosis, Forge, Machine, PortResult};
use rustix::fs::statvfs;

use crate::compute::machines;
use crate::compute::options::Options;
use crate::forge::LocalForge;
use crate::home::Home;
use crate::store::db::Db;

/// The mode bits with which other users may change a file.
const WRITABLE: u32 = 0o022;

/// This computer, as doctor asks about it.
pub struct LocalDiagnosis {
    db: Db,
    home: Home,
    clock: Arc<dyn Clock>,
    /// Whether the local forge serves the pool.
    has_forge: bool,
}

impl LocalDiagnosis {
    /// Asks about the machines in `db` and the files under `home`.
    pub fn new(db: Db, home: Home, clock: Arc<dyn Clock>, has_forge: bool) -> LocalDiagnosis {
        LocalDiagnosis { db, home, clock, has_forge }
    }

    /// The machines whose processes run. Unlike [`LocalCompute`](crate::LocalCompute), it leaves what
    /// the others have left behind.
    async fn machines(&self) -> PortResult<Vec<Machine>> {
        let now = self.clock.now();
        let listed = self.db.call(|connection| machines::not_ended(connection)).await?;
        Ok(listed.into_iter().filter(|row| row.is_up(now)).map(|row| row.machine).collect())
    }

    async fn forge(&self) -> ForgeFacts {
        let forge = LocalForge::new(self.db.clone(), self.clock.clone());
        match (forge.runners().await, forge.waiting().await) {
            (Ok(runners), Ok(waiting)) => ForgeFacts::of_jobs(runners, waiting),
            (Err(error), _) | (_, Err(error)) => ForgeFacts::untold(&error.to_string()),
        }
    }
}

#[async_trait]
impl Diagnosis for LocalDiagnosis {
    async fn caller(&self) -> Told<Caller> {
        Told::Nothing
    }

    async fn facts(&self, settings: &Settings) -> Facts {
        let files = [self.home.dir().to_owned(), self.home.database(), self.home.machines()];
        let writable: io::Result<Vec<_>> =
            files.iter().map(|file| writable_by_others(file)).collect();
        Facts {
            invalid: Options::from_map(&settings.backend).err().into_iter().collect(),
            machines: told(self.machines().await),
            disk: told(disk(self.home.dir())),
            writable_by_others: told(writable.map(|all| all.into_iter().flatten().collect())),
            forge: if self.has_forge { Some(self.forge().await) } else { None },
            ..Facts::default()
        }
    }
}

impl fmt::Debug for LocalDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalDiagnosis({})", self.home.dir().display())
    }
}

fn told<T, E: fmt::Display>(answer: Result<T, E>) -> Told<T> {
    answer.map_or_else(|error| Told::Untold(error.to_string()), Told::Known)
}

/// The path and the mode of a file that other users may change; `None` if they may not, or there is no
/// such file.
fn writable_by_others(path: &Path) -> io::Result<Option<(String, u32)>> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode() & 0o7777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok((mode & WRITABLE != 0).then(|| (path.display().to_string(), mode)))
}

/// How much is free for users other than root.
fn disk(place: &Path) -> io::Result<Disk> {
    let found = statvfs(place)?;
    // A file system that does not count something has enough of it.
    let percent = |free: u64, all: u64| {
        u8::try_from(free.saturating_mul(100).checked_div(all).unwrap_or(100)).unwrap_or(100)
    };
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Disk {
        place: place.display().to_string(),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        free_percent: percent(found.f_bavail, used.saturating_add(found.f_bavail)),
        free_inodes_percent: percent(found.f_favail, found.f_files),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_may_change_are_told_with_their_modes() {
        let folder = tempfile::tempdir().unwrap();
        for (mode, expected) in
            [(0o700, None), (0o755, None), (0o720, Some(0o720)), (0o702, Some(0o702))]
        {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let told = writable_by_others(folder.path()).unwrap();
            assert_eq!(told.map(|(_, mode)| mode), expected);
        }
        assert_eq!(writable_by_others(&folder.path().join("none")).unwrap(), None);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_disk_is_measured_where_the_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path()).unwrap();
        assert!(disk.free_percent <= 100 && disk.place == folder.path().display().to_string());
        assert!(super::disk(&folder.path().join("none")).is_err());
    }
}
