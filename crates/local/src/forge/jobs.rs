//! The tables of jobs and their output.

use std::fmt;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;
use ondeck_processes::Process;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::store::column;
use crate::store::db::Db;

/// The id of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Waits for a runner with its label.
    Queued,
    Running,
    /// Finished with an exit code.
    Done,
    /// Cancelled on request, or because its caller is gone.
    Cancelled,
}

impl JobState {
    const ALL: [JobState; 4] =
        [JobState::Queued, JobState::Running, JobState::Done, JobState::Cancelled];

    /// The keyword in the table and in output.
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

    /// Whether the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Done | JobState::Cancelled)
    }
}

/// A job and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    /// The run. Only runners with this label take the job.
    pub label: RunId,
    pub state: JobState,
    /// The name of the runner that took it.
    pub runner: Option<String>,
    pub instance: Option<InstanceId>,
    /// The exit code; 128 plus the signal's number if a signal killed it.
    pub exit_code: Option<i32>,
    pub queued_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// An output stream of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    /// Standard error of the job, and messages of the runner.
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

/// A piece of a job's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Consecutive within the job, starting at 1.
    pub seq: i64,
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

/// The exit code of a cancelled job or one whose machine is gone: that of `SIGTERM`.
pub(crate) const TERMINATED: i32 = 143;

/// A job that a runner has taken.
#[derive(Debug, Clone)]
pub(crate) struct TakenJob {
    pub(crate) id: JobId,
    pub(crate) argv: Vec<String>,
    /// The run that it is of; `None` if that is its label.
    pub(crate) run: Option<RunId>,
    pub(crate) label: String,
}

/// The answer to a runner that asks for a job.
#[derive(Debug, Clone)]
pub(crate) enum NextJob {
    Job(TakenJob),
    /// No job with its label is queued.
    None,
    /// The runner is no longer listed.
    RunnerRemoved,
}

/// Reads a row of `jobs`.
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

/// Reads a row of `job_output`.
pub(crate) fn chunk(row: &Row<'_>) -> rusqlite::Result<Chunk> {
    let stream = |text: &str| column::word(text, Stream::parse);
    Ok(Chunk {
        seq: row.get("seq")?,
        stream: column::parsed(row, "stream", stream)?,
        bytes: row.get("bytes")?,
    })
}

/// The label of the run that a runner's machine belongs to, if the runner is registered with a label of the
/// machine: what precedes that in its record. Jobs for any machine of the run name it.
const LABEL_OF_RUN: &str =
    "(SELECT substr(instances.label, 1, max(instr(instances.label, ' ') - 1, 0))
    FROM instances WHERE instances.id = runners.instance)";

/// Whether [`take`] would return anything but [`NextJob::None`]. It only reads, because runners poll
/// often and writers block each other.
pub(crate) fn may_have_job(connection: &Connection, runner: &str) -> rusqlite::Result<bool> {
    let sql = format!(
        "SELECT NOT EXISTS (SELECT 1 FROM runners WHERE name = ?1)
        OR EXISTS (SELECT 1 FROM jobs JOIN runners ON jobs.label IN (runners.label, {LABEL_OF_RUN})
            WHERE runners.name = ?1 AND jobs.state = 'queued')"
    );
    connection.prepare_cached(&sql)?.query_row([runner], |row| row.get(0))
}

/// Returns the queued jobs whose callers are gone. A job without a recorded caller is never among
/// them.
pub(crate) fn abandoned(connection: &Connection) -> rusqlite::Result<Vec<JobId>> {
    let sql = "SELECT id, pid, start_time, boot FROM jobs WHERE state = 'queued' ORDER BY id";
    let job = |row: &Row<'_>| Ok((JobId(row.get("id")?), column::process(row)?));
    let mut queued = column::readable(connection.prepare_cached(sql)?.query_map([], job)?)?;
    queued.retain(|(_, caller)| caller.is_some_and(|caller| !caller.is_alive()));
    Ok(queued.into_iter().map(|(id, _)| id).collect())
}

/// Cancels the queued jobs whose callers are gone. A later run with the same id would otherwise run
/// them.
pub(crate) fn cancel_abandoned(transaction: &Transaction<'_>, at: &str) -> rusqlite::Result<()> {
    for id in abandoned(transaction)? {
        tracing::info!(job = %id, "cancelled, because its caller is gone");
        cancel_queued(transaction, id, at)?;
    }
    Ok(())
}

/// Cancels a job if it is still queued.
pub(crate) fn cancel_queued(
    transaction: &Transaction<'_>,
    id: JobId,
    at: &str,
) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE jobs SET state = 'cancelled', finished_at = ?2
        WHERE id = ?1 AND state = 'queued'";
    transaction.prepare_cached(SQL)?.execute((id.0, at)).map(drop)
}

/// Assigns the oldest queued job with the runner's label to it, unless the record of its machine is
/// past its threshold or terminated. Records may also be elsewhere; then the agent alone decides.
pub(crate) fn take(
    transaction: &Transaction<'_>,
    runner: &str,
    now: Timestamp,
) -> rusqlite::Result<NextJob> {
    let sql = "SELECT instance, label FROM runners WHERE name = ?1";
    let found = transaction
        .prepare_cached(sql)?
        .query_row([runner], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((instance, label)): Option<(String, String)> = found else {
        return Ok(NextJob::RunnerRemoved);
    };
    cancel_abandoned(transaction, &now.to_string())?;
    let take = format!(
        "UPDATE jobs
        SET state = 'running', runner = ?1, instance = ?2, started_at = ?4
        WHERE id = (SELECT jobs.id FROM jobs JOIN runners ON runners.name = ?1
            WHERE state = 'queued' AND jobs.label IN (?3, {LABEL_OF_RUN}) ORDER BY jobs.id LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM instances
            WHERE instances.id = ?2 AND (threshold <= ?4 OR instances.state = 'terminated'))
        RETURNING id, argv, run, label"
    );
    let taken = transaction
        .prepare_cached(&take)?
        .query_row((runner, instance, label, now.to_string()), |row| {
            let json = |error| column::invalid(row, "argv", error);
            Ok(TakenJob {
                id: JobId(row.get(0)?),
                argv: serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(json)?,
                run: column::optional(row, "run", str::parse)?,
                label: row.get("label")?,
            })
        })
        .optional()?;
    Ok(taken.map_or(NextJob::None, NextJob::Job))
}

/// Which finished jobs are to be erased.
#[derive(Debug, Clone)]
pub(crate) enum Finished {
    /// Those that ran on this machine.
    On(InstanceId),
    /// Those of runs that have no machine.
    WithoutMachine,
    /// This one, if its run has no runner on the job's machine.
    This(JobId),
}

impl Finished {
    /// The condition on a row of `jobs`, and its parameter.
    fn condition(&self) -> (&'static str, String) {
        match self {
            Finished::On(instance) => ("instance = ?1", instance.to_string()),
            Finished::WithoutMachine => (
                "?1 = '' AND NOT EXISTS (SELECT 1 FROM runners
                    JOIN machines ON machines.id = runners.instance
                    WHERE runners.label = jobs.label AND machines.ended_at = '')",
                String::new(),
            ),
            Finished::This(id) => (
                "id = CAST(?1 AS INTEGER) AND NOT EXISTS (SELECT 1 FROM runners
                    WHERE runners.instance = jobs.instance AND runners.label = jobs.label)",
                id.to_string(),
            ),
        }
    }
}

/// Erases the commands and the output of finished jobs, so that jobs of other runs cannot read them.
/// What became of the jobs stays. A job whose caller may still read its output is left to the caller.
pub(crate) async fn erase(db: &Db, which: Finished) -> PortResult<()> {
    /// Large transactions would keep other processes waiting.
    const SLICE: &str = "DELETE FROM job_output WHERE job = ?1 AND seq IN
        (SELECT seq FROM job_output WHERE job = ?1 ORDER BY seq LIMIT 64)";
    const COMMAND: &str = "UPDATE jobs SET argv = '[]' WHERE id = ?1";
    let found = db.call(move |connection| erasable(connection, &which)).await?;
    for id in &found {
        let id = id.0;
        while db.write(move |tx| tx.prepare_cached(SLICE)?.execute([id])).await? > 0 {}
        db.write(move |tx| tx.prepare_cached(COMMAND)?.execute([id]).map(drop)).await?;
    }
    if found.is_empty() { Ok(()) } else { db.empty_log().await }
}

fn erasable(connection: &Connection, which: &Finished) -> rusqlite::Result<Vec<JobId>> {
    let (condition, value) = which.condition();
    let sql = format!(
        "SELECT id, pid, start_time, boot FROM jobs WHERE finished_at <> '' AND {condition}
         AND (argv <> '[]' OR EXISTS (SELECT 1 FROM job_output WHERE job = jobs.id))"
    );
    let job = |row: &Row<'_>| Ok((JobId(row.get("id")?), column::process(row)?));
    let mut found = column::readable(connection.prepare_cached(&sql)?.query_map([value], job)?)?;
    let caller_reads = |caller: &Option<Process>| {
        let of_this_process = matches!(which, Finished::This(_));
        !of_this_process && caller.is_some_and(Process::is_alive)
    };
    found.retain(|(_, caller)| !caller_reads(caller));
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

/// Appends a chunk to a job's output.
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

/// Records the end of a running job. A job in a final state is not changed.
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

/// Whether a job runs on a machine.
pub(crate) fn has_jobs(connection: &Connection, instance: &InstanceId) -> rusqlite::Result<bool> {
    const SQL: &str =
        "SELECT EXISTS (SELECT 1 FROM jobs WHERE instance = ?1 AND state = 'running')";
    connection.prepare_cached(SQL)?.query_row([instance.as_str()], |row| row.get(0))
}

/// Records the jobs that run on a machine as failed, because the machine is gone.
pub(crate) fn fail_jobs_of(
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
        finish(transaction, id, JobState::Done, TERMINATED, now)?;
    }
    Ok(())
}
