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

use super::schema::{self, Found};
use crate::error::{SERVICE, from_sqlite, unusable};
use crate::home::Home;

/// How long a process waits for the others before it says that the file is out of reach.
const PATIENCE: Duration = Duration::from_secs(20);

/// Commands and what they write may hold secrets.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

type Errand = Box<dyn FnOnce(&mut Connection) + Send>;

/// The shared file, as one process holds it. One thread owns the connection and does what it is
/// sent in order; a clone is another way to the same thread.
#[derive(Clone)]
pub struct Db {
    errands: mpsc::Sender<Errand>,
    file: Arc<PathBuf>,
}

impl Db {
    /// Opens a store that refresh has made.
    pub fn open(home: &Home) -> PortResult<Db> {
        let file = home.database();
        if !file.try_exists().map_err(|e| unusable(&file, &e.to_string()))? {
            return Err(not_set_up(&file));
        }
        let connection = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        match schema::look(&connection).map_err(|e| from_sqlite(&file, &e))? {
            Found::Ours => Db::start(connection, file),
            Found::Nothing => Err(not_set_up(&file)),
            Found::Other(problem) => Err(problem.about(&file)),
        }
    }

    /// Opens the store, and makes whatever of it is missing. Any number of processes may do this
    /// at once.
    pub fn create(home: &Home) -> PortResult<Db> {
        let file = home.database();
        folder::make_private(home.dir()).map_err(|e| unusable(home.dir(), &e.to_string()))?;
        make_private(&file);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut connection = connect(&file, flags)?;
        let found = schema::look(&connection).map_err(|e| from_sqlite(&file, &e))?;
        if let Found::Other(problem) = found {
            return Err(problem.about(&file));
        }
        if found == Found::Nothing {
            // An empty file may have been there before, for everybody to read.
            let private = chmod(&file, PRIVATE);
            private.map_err(|e| unusable(&file, &e.to_string()))?;
            write_ahead(&connection).map_err(|e| from_sqlite(&file, &e))?;
            let made = in_transaction(&mut connection, schema::make);
            if let Some(problem) = made.map_err(|e| from_sqlite(&file, &e))? {
                return Err(problem.about(&file));
            }
        }
        Db::start(connection, file)
    }

    /// Sends an errand to the connection and waits for its answer. Once sent it is carried out,
    /// even if nobody waits for the answer any more.
    pub async fn call<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> PortResult<T> {
        let (answer, answered) = oneshot::channel();
        let errand: Errand = Box::new(move |connection| {
            // A caller who has gone away has no use for the answer.
            answer.send(errand(connection)).ok();
        });
        self.errands.send(errand).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?.map_err(|e| from_sqlite(&self.file, &e))
    }

    /// An errand that writes. It has the file for itself from its first statement on: a
    /// transaction that begins as a reader and then wants to write may be refused half way.
    pub async fn write<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> PortResult<T> {
        self.call(move |connection| in_transaction(connection, errand)).await
    }

    /// Where the file is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn start(mut connection: Connection, file: PathBuf) -> PortResult<Db> {
        let (errands, inbox) = mpsc::channel::<Errand>();
        let serve = move || {
            for errand in inbox {
                // An errand that panics drops its answer, and so tells its caller; the thread
                // and everybody else's errands live on.
                if catch_unwind(AssertUnwindSafe(|| errand(&mut connection))).is_err() {
                    tracing::error!("a call to the store panicked");
                }
            }
        };
        std::thread::Builder::new().name("store".to_owned()).spawn(serve).map_err(|e| {
            PortError::Unavailable { service: SERVICE, reason: format!("no thread for it: {e}") }
        })?;
        Ok(Db { errands, file: Arc::new(file) })
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db({})", self.file.display())
    }
}

/// Makes the file for one user, unless it is there; the files that SQLite puts beside it get the
/// same permissions. It is made without being opened: to close a file takes away the locks that
/// other connections of this process have on it. Where that cannot be done, SQLite makes the
/// file, or says why not.
fn make_private(file: &Path) {
    mknodat(CWD, file, FileType::RegularFile, PRIVATE, 0).ok();
}

fn connect(file: &Path, flags: OpenFlags) -> PortResult<Connection> {
    let open = || {
        let mut connection =
            Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        let mut queue = Queue::new();
        connection.busy_handler(Some(move |nth| queue.wait(nth)))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // SQLite opens a write-protected file for reading and says so only at the first write.
        let read_only = connection.is_readonly("main")?;
        Ok((connection, read_only))
    };
    let (connection, read_only) = open().map_err(|e| from_sqlite(file, &e))?;
    if read_only { Err(unusable(file, "it is write-protected")) } else { Ok(connection) }
}

/// Readers and the one writer do not wait for each other in this mode. SQLite does not call the
/// busy handler for the switch, so the waiting is done here.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut queue = Queue::new();
    for nth in 0.. {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && queue.wait(nth) => {}
            done => return done,
        }
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

pub(crate) fn in_transaction<T>(
    connection: &mut Connection,
    errand: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let answer = errand(&transaction)?;
    transaction.commit()?;
    Ok(answer)
}

/// Waiting for other processes to finish their writes.
struct Queue {
    since: Instant,
}

impl Queue {
    fn new() -> Queue {
        Queue { since: Instant::now() }
    }

    /// Waits a moment before attempt `nth`; `false` once it has been too long. Writes take a
    /// fraction of a millisecond, so short and uneven pauses keep the file busy without many
    /// processes returning in step.
    #[expect(
        clippy::disallowed_methods,
        reason = "SQLite calls this on the store's own thread, which has nothing else to do"
    )]
    fn wait(&mut self, nth: i32) -> bool {
        if nth == 0 {
            self.since = Instant::now();
        }
        if self.since.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(200..=2_000)));
        true
    }
}

fn not_set_up(file: &Path) -> PortError {
    PortError::NotSetUp { what: format!("there is no store at {}", file.display()) }
}

fn closed() -> PortError {
    PortError::Unavailable { service: SERVICE, reason: "its thread gave no answer".to_owned() }
}
