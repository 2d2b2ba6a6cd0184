//! What a job writes, and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use ondeck_core::ports::PortResult;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;

use crate::db::Db;
use crate::jobs::{self, JobId, Stream};

/// The most that is kept in one piece.
const PIECE: usize = 64 * 1024;

/// How long output may follow after the command has ended. What it left running in the
/// background may hold the pipe open for ever.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// Keeps what comes from one stream, as it comes.
pub(super) async fn pump(
    db: Db,
    id: JobId,
    stream: Stream,
    mut from: impl AsyncRead + Unpin + Send + 'static,
) {
    let mut buffer = vec![0; PIECE];
    loop {
        let kept = match from.read(&mut buffer).await {
            Ok(0) => return,
            Ok(n) => keep(&db, id, stream, buffer[..n].to_vec()).await,
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

/// Waits for the rest of the output, but not for ever.
pub(super) async fn drain(mut pumps: JoinSet<()>) {
    let all = async { while pumps.join_next().await.is_some() {} };
    if tokio::time::timeout(AFTERWARDS, all).await.is_err() {
        tracing::debug!("something in the background still holds the output open");
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
