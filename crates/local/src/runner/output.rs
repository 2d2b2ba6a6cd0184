//! Stores the output of a job, and translates its exit status.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use ondeck_core::ports::PortResult;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::forge::jobs::{self, JobId, Stream};
use crate::store::db::Db;

/// The most bytes that are stored in one chunk.
const PIECE: usize = 64 * 1024;

/// The most bytes that are stored of one stream of a job. All jobs of all runs share one file.
const LIMIT: usize = 256 * 1024 * 1024;

/// Stored in place of the rest.
const FULL: &[u8] = b"\nondeck: the output exceeds 256 MiB, and the rest is not stored\n";

/// Stored when the command has exited, if some of its output could not be stored.
const DISK_FULL: &[u8] = b"\nondeck: the disk is full, and some of the output is not stored\n";

/// How long to wait for more output after the command has exited. A background process may hold the
/// pipe open for ever. The time it takes to store output does not count, because the store may be
/// busy while the end of the output is still in the pipe.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// How many bytes are read after the command has exited. An unprivileged pipe holds no more, so the
/// rest comes from background processes, which may never stop writing.
const REST: usize = 1024 * 1024;

/// The tasks that copy the output of one job to the store.
#[derive(Debug)]
pub(super) struct OutputReaders {
    db: Db,
    id: JobId,
    running: JoinSet<()>,
    ended: watch::Sender<bool>,
}

impl OutputReaders {
    pub(super) fn new(db: Db, id: JobId) -> OutputReaders {
        OutputReaders { db, id, running: JoinSet::new(), ended: watch::Sender::new(false) }
    }

    /// Starts to copy one stream to the store.
    pub(super) fn add(&mut self, stream: Stream, from: impl AsyncRead + Unpin + Send + 'static) {
        let from = JobStream { from, ended: self.ended.subscribe(), time: AFTERWARDS, bytes: REST };
        self.running.spawn(copy_output(self.db.clone(), self.id, stream, from));
    }

    /// Waits for the rest of the output, for a bounded time. Call it after the command has exited.
    pub(super) async fn drain(mut self) {
        self.ended.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

async fn copy_output(
    db: Db,
    id: JobId,
    stream: Stream,
    mut from: JobStream<impl AsyncRead + Unpin>,
) {
    let mut buffer = vec![0; PIECE];
    let mut room = LIMIT;
    let mut is_lost = false;
    loop {
        let stored = match from.read(&mut buffer).await {
            Ok(0) => break,
            // The room that is left is for the end of the job.
            Ok(_) if db.is_disk_full() => {
                is_lost = true;
                Ok(())
            }
            // The limit is reached: reading goes on so that the command does not block.
            Ok(_) if room == 0 => Ok(()),
            Ok(n) => {
                room = room.saturating_sub(n);
                let mut piece = buffer[..n].to_vec();
                if room == 0 {
                    piece.extend_from_slice(FULL);
                }
                store(&db, id, stream, piece).await
            }
            Err(error) => {
                tracing::warn!(job = %id, "cannot read its output: {error}");
                break;
            }
        };
        if let Err(error) = stored {
            // Reading goes on, because the command would block on a full pipe.
            tracing::warn!(job = %id, "some of its output is lost: {error}");
        }
    }
    if is_lost && let Err(error) = store(&db, id, Stream::Stderr, DISK_FULL.to_vec()).await {
        tracing::warn!(job = %id, "cannot say that some of its output is lost: {error}");
    }
}

/// A stream of a command. `time` and `bytes` are what may still be spent on it after the exit.
struct JobStream<R> {
    from: R,
    ended: watch::Receiver<bool>,
    time: Duration,
    bytes: usize,
}

impl<R: AsyncRead + Unpin> JobStream<R> {
    /// Reads what is available. Returns 0 at the end of the stream, or when time or bytes are used up.
    async fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !*self.ended.borrow() {
            tokio::select! {
                read = self.from.read(buffer) => return read,
                // If the sender is dropped, this task is aborted too.
                _ = self.ended.changed() => {}
            }
        }
        let most = buffer.len().min(self.bytes);
        let since = Instant::now();
        let read = tokio::time::timeout(self.time, self.from.read(&mut buffer[..most])).await;
        self.time = self.time.saturating_sub(since.elapsed());
        let Ok(read) = read else {
            tracing::debug!("a background process still holds the output open");
            return Ok(0);
        };
        self.bytes -= *read.as_ref().unwrap_or(&0);
        read
    }
}

pub(super) async fn store(db: &Db, id: JobId, stream: Stream, bytes: Vec<u8>) -> PortResult<()> {
    db.write(move |transaction| jobs::write_output(transaction, id, stream, &bytes)).await
}

/// The exit code of a command; 128 plus the signal's number if a signal killed it.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use rusqlite::Connection;
    use tokio::io::AsyncWriteExt;

    const JOB: JobId = JobId(1);

    async fn stored(db: &Db) -> Vec<u8> {
        let sql = "SELECT bytes FROM job_output ORDER BY seq";
        let pieces = db.call(move |connection| {
            let mut statement = connection.prepare(sql)?;
            let pieces = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
            pieces.collect::<rusqlite::Result<Vec<_>>>()
        });
        pieces.await.unwrap().concat()
    }

    #[tokio::test]
    async fn the_end_of_the_output_is_stored_even_if_the_store_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let db = Db::create(&home).unwrap();
        let busy = Connection::open(home.database()).unwrap();
        busy.execute_batch("BEGIN IMMEDIATE").unwrap();
        // The pipe holds one write, so the second write returns when the first has been read.
        let (mut command, pipe) = tokio::io::duplex(5);
        let mut readers = OutputReaders::new(db.clone(), JOB);
        readers.add(Stream::Stdout, pipe);
        command.write_all(b"first").await.unwrap();
        command.write_all(b" last").await.unwrap();
        let release = async {
            tokio::time::sleep(AFTERWARDS * 2).await;
            busy.execute_batch("COMMIT").unwrap();
        };
        // The pipe stays open, as if a background process held it.
        tokio::join!(readers.drain(), release);
        assert_eq!(stored(&db).await, b"first last");
        drop(command);
    }

    #[tokio::test]
    async fn endless_background_output_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::create(&Home::new(dir.path().to_owned())).unwrap();
        let mut readers = OutputReaders::new(db.clone(), JOB);
        readers.add(Stream::Stdout, tokio::io::repeat(b'y'));
        readers.drain().await;
        let n = stored(&db).await.len();
        assert!((REST..REST + PIECE * 4).contains(&n), "{n}");
    }
}
