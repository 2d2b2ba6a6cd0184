//! Finds and deletes the files of a local pool.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{Infrastructure, PortError, PortResult, Resource, ResourceKind};
use ondeck_processes::folder;
use rusqlite::Transaction;

use crate::compute::machines;
use crate::error::{SERVICE, unusable};
use crate::home::Home;
use crate::store::db::Db;
use crate::store::{room, schema};

/// The files under a home. Files of other programs there are left alone.
#[derive(Debug, Clone)]
pub struct LocalInfrastructure {
    home: Home,
    /// The open file; `None` if it does not exist, or is empty.
    db: Option<Db>,
}

impl LocalInfrastructure {
    pub fn new(home: Home, db: Option<Db>) -> LocalInfrastructure {
        LocalInfrastructure { home, db }
    }

    /// The SQLite file, and the two that SQLite keeps beside it.
    fn database_files(&self) -> [PathBuf; 3] {
        ["", "-wal", "-shm"].map(|suffix| {
            let mut name = OsString::from(self.home.database());
            name.push(suffix);
            name.into()
        })
    }

    fn files(&self) -> [PathBuf; 3] {
        [self.home.machines(), self.home.log_folder(), room::reserve(self.home.dir())]
    }

    /// Drops the tables and removes the file. A process that has it open fails from then on. Fails if a
    /// machine runs, which was launched in the last moment.
    async fn delete_database(&self) -> PortResult<()> {
        if let Some(db) = &self.db {
            // SQLite would create a new file under this name, which is not to be.
            let exists = self.home.database().exists();
            if exists && !db.write(drop_unless_used).await? {
                let reason = "a machine was launched meanwhile".to_owned();
                return Err(PortError::Unavailable { service: SERVICE, reason });
            }
        }
        self.database_files().iter().try_for_each(|file| removed(file, folder::remove_file))?;
        // A folder with files of others stays.
        match fs::remove_dir(self.home.dir()) {
            Err(error) if !is_kept(&error) => Err(unusable(self.home.dir(), &error.to_string())),
            _ => Ok(()),
        }
    }
}

fn is_kept(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy
    )
}

/// Drops all tables unless a machine is listed. Returns whether they are dropped.
fn drop_unless_used(transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
    let is_free = match machines::not_ended_ids(transaction) {
        Ok(ids) => ids.is_empty(),
        // An earlier call has dropped them.
        Err(error) if error.to_string().contains("no such table") => return Ok(true),
        Err(error) => return Err(error),
    };
    if is_free {
        schema::drop_all(transaction)?;
    }
    Ok(is_free)
}

fn removed(path: &Path, remove: fn(&Path) -> io::Result<()>) -> PortResult<()> {
    remove(path).map_err(|error| unusable(path, &error.to_string()))
}

#[async_trait]
impl Infrastructure for LocalInfrastructure {
    async fn existing(&self, _classes: &[ResourceClass]) -> PortResult<Vec<Resource>> {
        let named = |kind, path: &Path| Resource { kind, name: path.display().to_string() };
        let files = self.files().into_iter().filter(|path| path.symlink_metadata().is_ok());
        let mut found: Vec<Resource> = files.map(|it| named(ResourceKind::Files, &it)).collect();
        if self.database_files().iter().any(|file| file.symlink_metadata().is_ok()) {
            found.push(named(ResourceKind::Table, &self.home.database()));
        }
        Ok(found)
    }

    async fn delete(&self, resource: &Resource) -> PortResult<()> {
        match resource.kind {
            ResourceKind::Files => {
                let files = self.files();
                let path = files.iter().find(|path| path.display().to_string() == resource.name);
                path.map_or(Ok(()), |path| removed(path, folder::remove_any))
            }
            ResourceKind::Table => self.delete_database().await,
            ResourceKind::LaunchTemplate | ResourceKind::Queue | ResourceKind::WakeUpQueue => {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_files_of_the_pool_are_deleted_and_a_second_call_finds_none() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let db = Db::create(&home).unwrap();
        let other = home.dir().join("notes.txt");
        fs::write(&other, "mine").unwrap();
        fs::create_dir(home.machines()).unwrap();
        let pool = LocalInfrastructure::new(home.clone(), Some(db));
        let existing = pool.existing(&[]).await.unwrap();
        let kinds: Vec<ResourceKind> = existing.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [ResourceKind::Files, ResourceKind::Files, ResourceKind::Table]);
        for resource in &existing {
            pool.delete(resource).await.unwrap();
            pool.delete(resource).await.unwrap();
        }
        assert_eq!(pool.existing(&[]).await.unwrap(), []);
        let left: Vec<_> = fs::read_dir(home.dir()).unwrap().map(|it| it.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&other));

        fs::remove_file(other).unwrap();
        pool.delete(&existing[2]).await.unwrap();
        assert!(!home.dir().exists());
    }

    #[tokio::test]
    async fn a_dropped_file_is_like_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let db = Db::create(&home).unwrap();
        let machine = "INSERT INTO machines (id) VALUES ('m-1')";
        db.write(move |transaction| transaction.execute(machine, [])).await.unwrap();
        assert!(!db.write(drop_unless_used).await.unwrap(), "a machine is listed");
        let ended = "UPDATE machines SET ended_at = 'now'";
        db.write(move |transaction| transaction.execute(ended, [])).await.unwrap();
        assert!(db.write(drop_unless_used).await.unwrap());
        assert!(db.write(drop_unless_used).await.unwrap(), "a second time");
        assert!(matches!(Db::open(&home), Err(PortError::NotSetUp { .. })));
        Db::create(&home).unwrap();
        Db::open(&home).unwrap();
    }
}
