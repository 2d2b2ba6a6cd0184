//! What a job writes, and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use ondeck_core::ports::PortResult;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::forge::jobs::{self, JobId, Stream};
use crate::store::db::Db;

/// The most that is kept in one piece.
const PIECE: usize = 64 * 1024;

/// The most that is kept of one stream of one job. All jobs of all runs share one file.
const MOST: usize = 256 * 1024 * 1024;

/// What stands in place of the rest.
const FULL: &[u8] = b"\nondeck: this is more than 256 MiB, and the rest is not kept\n";

/// How long is waited for more output once the command has ended. What it left running in the
/// background may hold the pipe open for ever. The time that it takes to keep what was read does
/// not count: the store may be busy, and the command's last words still in the pipe.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// How much is read at the most once the command has ended. No pipe holds more without a
/// privilege, so the rest is from the background, which may never fall silent.
const REST: usize = 1024 * 1024;

/// The output of one job, on its way to the store.
#[derive(Debug)]
pub(super) struct Pumps {
    db: Db,
    id: JobId,
    running: JoinSet<()>,
    ended: watch::Sender<bool>,
}

impl Pumps {
    /// None yet.
    pub(super) fn new(db: Db, id: JobId) -> Pumps {
        Pumps { db, id, running: JoinSet::new(), ended: watch::Sender::new(false) }
    }

    /// Keeps what comes from one stream, as it comes.
    pub(super) fn add(&mut self, stream: Stream, from: impl AsyncRead + Unpin + Send + 'static) {
        let from = Source { from, ended: self.ended.subscribe(), time: AFTERWARDS, bytes: REST };
        self.running.spawn(pump(self.db.clone(), self.id, stream, from));
    }

    /// The command has ended: waits for the rest of its output, but not for ever.
    pub(super) async fn drain(mut self) {
        self.ended.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

async fn pump(db: Db, id: JobId, stream: Stream, mut from: Source<impl AsyncRead + Unpin>) {
    let mut buffer = vec![0; PIECE];
    let mut room = MOST;
    loop {
        let kept = match from.read(&mut buffer).await {
            Ok(0) => return,
            // The command goes on, and nobody stands still; but the file has an end.
            Ok(_) if room == 0 => Ok(()),
            Ok(n) => {
                room = room.saturating_sub(n);
                let mut piece = buffer[..n].to_vec();
                if room == 0 {
                    piece.extend_from_slice(FULL);
                }
                keep(&db, id, stream, piece).await
            }
            Err(error) => {
                tracing::warn!(job = %id, "its output cannot be read: {error}");
                return;
            }
        };
        if let Err(error) = kept {
            // The command must not stand still because nobody reads, so reading goes on.
            tracing::warn!(job = %id, "some of its output is lost: {error}");
        }
    }
}

/// A stream of a command, and what may still be read of it once the command has ended.
struct Source<R> {
    from: R,
    ended: watch::Receiver<bool>,
    time: Duration,
    bytes: usize,
}

impl<R: AsyncRead + Unpin> Source<R> {
    /// As much as there is; nothing once the stream, or what may be read of it, is at its end.
    async fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !*self.ended.borrow() {
            tokio::select! {
                read = self.from.read(buffer) => return read,
                // Whoever drops the sender has gone away, and drops the pumps too.
                _ = self.ended.changed() => {}
            }
        }
        let most = buffer.len().min(self.bytes);
        let since = Instant::now();
        let read = tokio::time::timeout(self.time, self.from.read(&mut buffer[..most])).await;
        self.time = self.time.saturating_sub(since.elapsed());
        let Ok(read) = read else {
            tracing::debug!("something in the background still holds the output open");
            return Ok(0);
        };
        self.bytes -= *read.as_ref().unwrap_or(&0);
        read
    }
}

/// Keeps one piece.
pub(super) async fn keep(db: &Db, id: JobId, stream: Stream, bytes: Vec<u8>) -> PortResult<()> {
    db.write(move |transaction| jobs::write_output(transaction, id, stream, &bytes)).await
}

/// The code of a command; of one that a signal ended, 128 and the signal's number.
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

    async fn kept(db: &Db) -> Vec<u8> {
        let sql = "SELECT bytes FROM job_output ORDER BY seq";
        let pieces = db.call(move |connection| {
            let mut statement = connection.prepare(sql)?;
            let pieces = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
            pieces.collect::<rusqlite::Result<Vec<_>>>()
        });
        pieces.await.unwrap().concat()
    }

    #[tokio::test]
    async fn last_words_wait_for_a_busy_store() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let db = Db::create(&home).unwrap();
        let busy = Connection::open(home.database()).unwrap();
        busy.execute_batch("BEGIN IMMEDIATE").unwrap();
        // As full as it gets, so the second write is done when the first has been read.
        let (mut command, pipe) = tokio::io::duplex(5);
        let mut pumps = Pumps::new(db.clone(), JOB);
        pumps.add(Stream::Stdout, pipe);
        command.write_all(b"first").await.unwrap();
        command.write_all(b" last").await.unwrap();
        let release = async {
            tokio::time::sleep(AFTERWARDS * 2).await;
            busy.execute_batch("COMMIT").unwrap();
        };
        // The pipe stays open, as something in the background would have it.
        tokio::join!(pumps.drain(), release);
        assert_eq!(kept(&db).await, b"first last");
        drop(command);
    }

    #[tokio::test]
    async fn what_never_falls_silent_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::create(&Home::new(dir.path().to_owned())).unwrap();
        let mut pumps = Pumps::new(db.clone(), JOB);
        pumps.add(Stream::Stdout, tokio::io::repeat(b'y'));
        pumps.drain().await;
        let n = kept(&db).await.len();
        assert!((REST..REST + PIECE * 4).contains(&n), "{n}");
    }
}
