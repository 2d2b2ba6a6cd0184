use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ondeck_core::ports::{PortError, PortResult};
use ondeck_processes::folder;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::{CWD, FileType, Mode, chmod, mknodat};
use tokio::sync::oneshot;

use super::room;
use super::schema::{self, FileContent};
use crate::error::{SERVICE, from_sqlite, unusable};
use crate::home::Home;

/// How long a process waits for other writers before the file counts as unavailable.
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);

/// How many prepared statements a connection keeps: all that a mode uses.
const STATEMENTS: usize = 64;

/// The file's mode. Jobs and their output may contain secrets.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

type Task = Box<dyn FnOnce(&mut Connection) + Send>;

/// A connection to the shared file. One thread owns it and runs tasks in the order they are sent.
/// Clones use the same thread.
#[derive(Clone)]
pub struct Db {
    tasks: mpsc::Sender<Task>,
    file: Arc<PathBuf>,
}

impl Db {
    /// Opens an existing store. Fails with `NotSetUp` if refresh has not created it.
    pub fn open(home: &Home) -> PortResult<Db> {
        let file = home.database();
        if !file.try_exists().map_err(|e| unusable(&file, &e.to_string()))? {
            return Err(not_set_up(&file));
        }
        let mut connection = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        match schema::inspect(&connection).map_err(|e| from_sqlite(&file, &e))? {
            FileContent::Ours => {
                complete(&mut connection).map_err(|e| from_sqlite(&file, &e))?;
                Db::start(connection, file)
            }
            FileContent::Nothing => Err(not_set_up(&file)),
            FileContent::Other(problem) => Err(problem.error_for(&file)),
        }
    }

    /// Opens the store, and creates it if it does not exist. Any number of processes may do this at
    /// once. Fills up the reserve.
    pub fn create(home: &Home) -> PortResult<Db> {
        let file = home.database();
        folder::make_private(home.dir()).map_err(|e| unusable(home.dir(), &e.to_string()))?;
        make_private(&file);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut connection = connect(&file, flags)?;
        let found = schema::inspect(&connection).map_err(|e| from_sqlite(&file, &e))?;
        if let FileContent::Other(problem) = found {
            return Err(problem.error_for(&file));
        }
        if found == FileContent::Ours {
            complete(&mut connection).map_err(|e| from_sqlite(&file, &e))?;
        }
        if found == FileContent::Nothing {
            // An empty file may have existed before, readable for all users.
            let private = chmod(&file, PRIVATE);
            private.map_err(|e| unusable(&file, &e.to_string()))?;
            shrinkable(&connection).map_err(|e| from_sqlite(&file, &e))?;
            write_ahead(&connection).map_err(|e| from_sqlite(&file, &e))?;
            let made = in_transaction(&mut connection, schema::create);
            if let Some(problem) = made.map_err(|e| from_sqlite(&file, &e))? {
                return Err(problem.error_for(&file));
            }
        }
        room::fill_up(home.dir());
        Db::start(connection, file)
    }

    /// Runs a task on the connection and returns its result. A task that was sent is run even if this
    /// future is dropped.
    pub async fn call<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> PortResult<T> {
        let (answer, answered) = oneshot::channel();
        let task: Task = Box::new(move |connection| {
            // Fails only if the caller has dropped its future.
            answer.send(task(connection)).ok();
        });
        self.tasks.send(task).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?.map_err(|e| from_sqlite(&self.file, &e))
    }

    /// Whether the disk of the store is as good as full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.file.parent().is_some_and(room::is_low)
    }

    /// Runs a task in a write transaction. On a full disk it uses the reserve. The transaction takes the
    /// write lock at its start, because one that starts as a reader may be refused the lock later.
    pub async fn write<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> PortResult<T> {
        self.call(move |connection| in_transaction(connection, task)).await
    }

    /// Copies SQLite's log to the file and empties it, because it contains what was deleted from the
    /// file. Gives up once other processes have kept it from that for [`BUSY_TIMEOUT`].
    pub(crate) async fn empty_log(&self) -> PortResult<()> {
        self.call(|connection| empty_log(connection)).await
    }

    /// Makes the file shorter if much of it is unused. Other processes can write in between.
    pub(crate) async fn shrink(&self) -> PortResult<()> {
        /// Fewer unused pages, a megabyte of them, will be used again.
        const WORTH: i64 = 256;
        const UNUSED: &str = "PRAGMA freelist_count";
        const SLICE: &str = "PRAGMA incremental_vacuum(1000)";
        /// A file that cannot be shrunk stays as it is. One slice may have no effect, because another
        /// process deletes at the same time.
        const FUTILE: u32 = 5;
        let mut before = i64::MAX;
        let mut futile = 0;
        loop {
            let unused = self.call(|c| c.query_row(UNUSED, [], |row| row.get::<_, i64>(0))).await?;
            futile = if unused < before { 0 } else { futile + 1 };
            if unused < WORTH || futile == FUTILE {
                // Only then does the file become shorter.
                return if before < i64::MAX { self.empty_log().await } else { Ok(()) };
            }
            before = unused;
            self.call(|connection| connection.execute_batch(SLICE)).await?;
        }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    fn start(mut connection: Connection, file: PathBuf) -> PortResult<Db> {
        let (tasks, inbox) = mpsc::channel::<Task>();
        let serve = move || {
            for task in inbox {
                // A task that panics drops its answer, which its caller sees as an error. The thread
                // and all other tasks go on.
                if catch_unwind(AssertUnwindSafe(|| task(&mut connection))).is_err() {
                    tracing::error!("a call to the store panicked");
                }
            }
        };
        std::thread::Builder::new().name("store".to_owned()).spawn(serve).map_err(|e| {
            PortError::Unavailable {
                service: SERVICE,
                reason: format!("cannot start its thread: {e}"),
            }
        })?;
        Ok(Db { tasks, file: Arc::new(file) })
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db({})", self.file.display())
    }
}

/// Creates the file with mode 0600, unless it exists. SQLite gives the files next to it the same mode.
/// The file is not opened, because closing it would release the locks of other connections in this
/// process. If this fails, SQLite creates the file or reports why it cannot.
fn make_private(file: &Path) {
    mknodat(CWD, file, FileType::RegularFile, PRIVATE, 0).ok();
}

fn connect(file: &Path, flags: OpenFlags) -> PortResult<Connection> {
    // SQLite writes files next to this one when it opens it.
    file.parent().into_iter().for_each(room::give);
    let open = || {
        let mut connection =
            Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        let mut busy = BusyWait::new();
        connection.busy_handler(Some(move |nth| busy.wait(nth)))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // What is deleted must not be readable in the file: commands and output may contain secrets.
        connection.pragma_update(None, "secure_delete", true)?;
        // SQLite opens a write-protected file for reading and says so only at the first write.
        let read_only = connection.is_readonly("main")?;
        Ok((connection, read_only))
    };
    let (connection, read_only) = open().map_err(|e| from_sqlite(file, &e))?;
    if read_only { Err(unusable(file, "it is write-protected")) } else { Ok(connection) }
}

/// Adds what an earlier program of the same schema version did not create. Most calls only read.
fn complete(connection: &mut Connection) -> rusqlite::Result<()> {
    match schema::is_complete(connection)? {
        true => Ok(()),
        false => in_transaction(connection, schema::complete),
    }
}

/// Lets [`Db::shrink`] return pages to the file system. SQLite ignores this once there are tables.
fn shrinkable(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

/// Switches to WAL mode, in which readers and the writer do not block each other. SQLite does not call
/// the busy handler for this switch, so this function waits itself.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut busy = BusyWait::new();
    for nth in 0.. {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && busy.wait(nth) => {}
            done => return done,
        }
    }
    Ok(())
}

/// Empties the log. SQLite does not call the busy handler while another process copies the log, which
/// each process does when it finds the log long, so this function waits itself.
fn empty_log(connection: &Connection) -> rusqlite::Result<()> {
    const EMPTY: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
    let mut busy = BusyWait::new();
    for nth in 0.. {
        let kept_from_it = connection.query_row(EMPTY, [], |row| row.get::<_, bool>(0))?;
        if !kept_from_it || !busy.wait(nth) {
            break;
        }
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

pub(crate) fn in_transaction<T>(
    connection: &mut Connection,
    task: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let dir = connection.path().and_then(|file| Path::new(file).parent()).map(Path::to_owned);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Not before the lock is there: other processes would need the same room.
    dir.as_deref().into_iter().for_each(room::give);
    let answer = task(&transaction)?;
    transaction.commit()?;
    Ok(answer)
}

/// Waits for other processes to finish their writes.
struct BusyWait {
    since: Instant,
}

impl BusyWait {
    fn new() -> BusyWait {
        BusyWait { since: Instant::now() }
    }

    /// Pauses before attempt `nth`. Returns `false` once [`BUSY_TIMEOUT`] has passed. Writes take less
    /// than a tenth of a millisecond, so the first pauses are as short. They grow, because the attempts of
    /// hundreds of waiting processes would leave no time for the write they wait for, and are random
    /// to keep processes out of step.
    #[expect(
        clippy::disallowed_methods,
        reason = "SQLite calls this on the store's own thread, which has nothing else to do"
    )]
    fn wait(&mut self, nth: i32) -> bool {
        if nth == 0 {
            self.since = Instant::now();
        }
        if self.since.elapsed() > BUSY_TIMEOUT {
            return false;
        }
        let longest = 125 << nth.clamp(0, 9);
        std::thread::sleep(Duration::from_micros(fastrand::u64(20..=longest)));
        true
    }
}

fn not_set_up(file: &Path) -> PortError {
    PortError::NotSetUp { what: format!("there is no store at {}", file.display()) }
}

fn closed() -> PortError {
    PortError::Unavailable { service: SERVICE, reason: "its thread gave no answer".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn the_log_is_emptied_while_other_processes_copy_it() {
        const WRITE: &str = "CREATE TABLE IF NOT EXISTS filler (bytes);
            INSERT INTO filler VALUES (zeroblob(100000));";
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let db = Db::create(&home).unwrap();
        let stop = AtomicBool::new(false);
        let copy = || {
            let connection = Connection::open(home.database()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
            }
        };
        let log = home.dir().join("ondeck.db-wal");
        let mut lengths = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(copy);
            scope.spawn(copy);
            for _ in 0..30 {
                let mut writer =
                    connect(&home.database(), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
                in_transaction(&mut writer, |tx| tx.execute_batch(WRITE)).unwrap();
                empty_log(&writer).unwrap();
                lengths.push(std::fs::metadata(&log).unwrap().len());
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(lengths, [0; 30]);
        drop(db);
    }
}
