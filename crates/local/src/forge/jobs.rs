//! Jobs in the shared file: what GitHub would keep about them.

use std::fmt;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::timestamp::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::store::column;

/// Names a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Waiting for a runner that has its label.
    Queued,
    /// A runner has it.
    Running,
    /// It has an exit code.
    Done,
    /// Somebody did not want it any more.
    Cancelled,
}

impl JobState {
    const ALL: [JobState; 4] =
        [JobState::Queued, JobState::Running, JobState::Done, JobState::Cancelled];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
        }
    }

    fn parse(word: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing more will come of it.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Done | JobState::Cancelled)
    }
}

/// A job, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// The only label that a runner must have: the run.
    pub label: RunId,
    /// Where it stands.
    pub state: JobState,
    /// The runner that took it.
    pub runner: Option<String>,
    /// The machine of that runner.
    pub instance: Option<InstanceId>,
    /// How it ended; 128 and the signal's number where a signal ended it.
    pub exit_code: Option<i32>,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When a runner took it.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub finished_at: Option<Timestamp>,
}

/// Where a job wrote something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error, and what the runner has to say.
    Stderr,
}

impl Stream {
    fn as_str(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    fn parse(word: &str) -> Option<Stream> {
        [Stream::Stdout, Stream::Stderr].into_iter().find(|stream| stream.as_str() == word)
    }
}

/// Something that a job wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Counted up within the job.
    pub seq: i64,
    /// Where.
    pub stream: Stream,
    /// What.
    pub bytes: Vec<u8>,
}

/// The exit code of a job that was ended from outside, as after a `SIGTERM`.
pub(crate) const TAKEN_AWAY: i32 = 143;

/// A job that a runner has taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) id: JobId,
    pub(crate) argv: Vec<String>,
}

/// What a runner finds when it looks for work.
#[derive(Debug, Clone)]
pub(crate) enum Offer {
    /// A job with its label.
    Job(Taken),
    /// Nothing.
    Nothing,
    /// It is not on the list of runners any more.
    Struck,
}

/// A row of `jobs`.
pub(crate) fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let state = |text: &str| column::word(text, JobState::parse);
    Ok(Job {
        id: JobId(row.get("id")?),
        label: column::parsed(row, "label", str::parse)?,
        state: column::parsed(row, "state", state)?,
        runner: Some(row.get("runner")?).filter(|name: &String| !name.is_empty()),
        instance: column::optional(row, "instance", str::parse)?,
        exit_code: row.get("exit_code")?,
        queued_at: column::time(row, "queued_at")?,
        started_at: column::optional_time(row, "started_at")?,
        finished_at: column::optional_time(row, "finished_at")?,
    })
}

/// A row of `job_output`.
pub(crate) fn chunk(row: &Row<'_>) -> rusqlite::Result<Chunk> {
    let stream = |text: &str| column::word(text, Stream::parse);
    Ok(Chunk {
        seq: row.get("seq")?,
        stream: column::parsed(row, "stream", stream)?,
        bytes: row.get("bytes")?,
    })
}

/// Whether there is work for a runner. Only a look, because many runners look often and writers
/// wait for each other.
pub(crate) fn is_worth_asking(connection: &Connection, runner: &str) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT NOT EXISTS (SELECT 1 FROM runners WHERE name = ?1)
        OR EXISTS (SELECT 1 FROM jobs JOIN runners ON jobs.label = runners.label
            WHERE runners.name = ?1 AND jobs.state = 'queued')";
    connection.prepare_cached(SQL)?.query_row([runner], |row| row.get(0))
}

/// The queued jobs whose callers are gone: nobody waits for them any more. A job without a noted
/// caller is nobody's to give up.
pub(crate) fn orphans(connection: &Connection) -> rusqlite::Result<Vec<JobId>> {
    let sql = "SELECT id, pid, start_time, boot FROM jobs WHERE state = 'queued' ORDER BY id";
    let job = |row: &Row<'_>| Ok((JobId(row.get("id")?), column::process(row)?));
    let mut queued = column::sound(connection.prepare_cached(sql)?.query_map([], job)?)?;
    queued.retain(|(_, caller)| caller.is_some_and(|caller| !caller.is_alive()));
    Ok(queued.into_iter().map(|(id, _)| id).collect())
}

/// Takes the jobs whose callers are gone from the queue. Whoever uses the name of their run again
/// would otherwise get to run them.
pub(crate) fn cancel_orphans(transaction: &Transaction<'_>, at: &str) -> rusqlite::Result<()> {
    for id in orphans(transaction)? {
        tracing::info!(job = %id, "cancelled, because its caller is gone");
        cancel_queued(transaction, id, at)?;
    }
    Ok(())
}

/// Takes a job from the queue, if it is still there.
pub(crate) fn cancel_queued(
    transaction: &Transaction<'_>,
    id: JobId,
    at: &str,
) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE jobs SET state = 'cancelled', finished_at = ?2
        WHERE id = ?1 AND state = 'queued'";
    transaction.prepare_cached(SQL)?.execute((id.0, at)).map(drop)
}

/// Gives a runner the oldest job that has its label, and a caller who waits for it.
pub(crate) fn take(
    transaction: &Transaction<'_>,
    runner: &str,
    now: Timestamp,
) -> rusqlite::Result<Offer> {
    let sql = "SELECT instance, label FROM runners WHERE name = ?1";
    let found = transaction
        .prepare_cached(sql)?
        .query_row([runner], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((instance, label)): Option<(String, String)> = found else {
        return Ok(Offer::Struck);
    };
    cancel_orphans(transaction, &now.to_string())?;
    const TAKE: &str = "UPDATE jobs
        SET state = 'running', runner = ?1, instance = ?2, started_at = ?4
        WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND label = ?3 ORDER BY id LIMIT 1)
        RETURNING id, argv";
    let taken = transaction
        .prepare_cached(TAKE)?
        .query_row((runner, instance, label, now.to_string()), |row| {
            let json = |error| column::unfit(row, "argv", error);
            Ok(Taken {
                id: JobId(row.get(0)?),
                argv: serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(json)?,
            })
        })
        .optional()?;
    Ok(taken.map_or(Offer::Nothing, Offer::Job))
}

/// Adds to what a job has written.
pub(crate) fn write_output(
    transaction: &Transaction<'_>,
    id: JobId,
    stream: Stream,
    bytes: &[u8],
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO job_output (job, seq, stream, bytes)
        SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3 FROM job_output WHERE job = ?1";
    transaction.prepare_cached(SQL)?.execute(params![id.0, stream.as_str(), bytes])?;
    Ok(())
}

/// Ends a running job. One that is over already stays as it is.
pub(crate) fn finish(
    transaction: &Transaction<'_>,
    id: JobId,
    state: JobState,
    exit_code: i32,
    now: Timestamp,
) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE jobs SET state = ?2, exit_code = ?3, finished_at = ?4
        WHERE id = ?1 AND state = 'running'";
    let values = (id.0, state.as_str(), exit_code, now.to_string());
    transaction.prepare_cached(SQL)?.execute(values)?;
    Ok(())
}

/// Settles the jobs that ran on a machine when it was taken from them.
pub(crate) fn settle_taken_away(
    transaction: &Transaction<'_>,
    instance: &InstanceId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    const SQL: &str = "SELECT id FROM jobs WHERE instance = ?1 AND state = 'running'";
    let mut statement = transaction.prepare_cached(SQL)?;
    let running = statement
        .query_map([instance.as_str()], |row| row.get(0).map(JobId))?
        .collect::<rusqlite::Result<Vec<JobId>>>()?;
    for id in running {
        let line = format!("ondeck: the machine was taken away: {instance}\n");
        write_output(transaction, id, Stream::Stderr, line.as_bytes())?;
        finish(transaction, id, JobState::Done, TAKEN_AWAY, now)?;
    }
    Ok(())
}
