use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{
    Clock, Forge, ListedRunner, OpenRun, OpenRuns, PortResult, RequestBudget, WaitingJobs,
};
use ondeck_processes::{Boot, Process};
use rusqlite::{Connection, OptionalExtension, Row};

use self::jobs::{Chunk, Finished, Job, JobId, JobState};
use crate::compute::machines;
use crate::store::column;
use crate::store::db::{Db, in_transaction};

pub(crate) mod jobs;

/// The local forge: runners and jobs in the shared file, in place of GitHub.
#[derive(Clone)]
pub struct LocalForge {
    db: Db,
    clock: Arc<dyn Clock>,
}

impl LocalForge {
    pub fn new(db: Db, clock: Arc<dyn Clock>) -> LocalForge {
        LocalForge { db, clock }
    }

    /// The jobs that wait for a runner, by label of their run. Unlike [`open_runs`](Forge::open_runs), it changes
    /// nothing.
    pub async fn waiting(&self) -> PortResult<BTreeMap<Label, u32>> {
        let runs = self.db.call(|connection| waiting_jobs(connection)).await?;
        Ok(runs.into_values().flat_map(|waiting| waiting.labels).collect())
    }

    /// Queues a command for a run. If the calling process exits before a runner takes the job, the job
    /// is cancelled.
    pub async fn queue(&self, run: &RunId, argv: &[String]) -> PortResult<JobId> {
        self.queue_under(run.to_string(), None, argv).await
    }

    /// As [`queue`](LocalForge::queue), for a runner that is registered with a label of its machine.
    pub async fn queue_for_machine(
        &self,
        run: &RunId,
        label: &MachineLabel,
        argv: &[String],
    ) -> PortResult<JobId> {
        self.queue_under(label.to_string(), Some(run), argv).await
    }

    async fn queue_under(
        &self,
        label: String,
        run: Option<&RunId>,
        argv: &[String],
    ) -> PortResult<JobId> {
        const SQL: &str = "INSERT INTO jobs (label, argv, queued_at, pid, start_time, boot, run)
            VALUES (?,?,?,?,?,?,?)";
        let argv = serde_json::json!(argv).to_string();
        let (pid, start_time) = Process::current().map(|me| (me.pid, me.start_time)).unzip();
        let queued_at = self.clock.now().to_string();
        let run = run.map_or("", RunId::as_str).to_owned();
        let job = (label, argv, queued_at, pid, start_time, Boot::name(), run);
        self.db
            .write(move |transaction| {
                transaction.execute(SQL, job)?;
                Ok(JobId(transaction.last_insert_rowid()))
            })
            .await
    }

    /// Returns a job, or `None` if there is none with this id. If the job's machine is gone, the job is
    /// first recorded as failed, so that no caller waits for it in vain.
    pub async fn job(&self, id: JobId) -> PortResult<Option<Job>> {
        let (job, process) = self.db.call(move |connection| look(connection, id)).await?;
        match (&job, process) {
            (Some(Job { state: JobState::Running, instance: Some(instance), .. }), Some(gone))
                if !gone.is_alive() =>
            {
                let (instance, now) = (instance.clone(), self.clock.now());
                self.db
                    .write(move |transaction| {
                        jobs::fail_jobs_of(transaction, &instance, now)?;
                        look(transaction, id).map(|(job, _)| job)
                    })
                    .await
            }
            _ => Ok(job),
        }
    }

    /// Returns all jobs in the order they were queued. Corrupt rows are logged and skipped.
    pub async fn jobs(&self) -> PortResult<Vec<Job>> {
        self.db
            .call(|connection| {
                let mut statement = connection.prepare_cached("SELECT * FROM jobs ORDER BY id")?;
                column::readable(statement.query_map([], jobs::job)?)
            })
            .await
    }

    /// Returns the output of a job after chunk number `after_seq`; 0 returns all.
    pub async fn output(&self, id: JobId, after_seq: i64) -> PortResult<Vec<Chunk>> {
        const SQL: &str = "SELECT * FROM job_output WHERE job = ?1 AND seq > ?2 ORDER BY seq";
        self.db
            .call(move |connection| {
                let mut statement = connection.prepare_cached(SQL)?;
                let chunks = statement.query_map((id.0, after_seq), jobs::chunk)?;
                chunks.collect()
            })
            .await
    }

    /// Erases the command and the output of a finished job if its machine has left the run. The caller
    /// of [`queue`](LocalForge::queue) calls this when it has read everything; otherwise the machine
    /// erases both when it leaves the run.
    pub async fn erase_if_released(&self, id: JobId) -> PortResult<()> {
        jobs::erase(&self.db, Finished::This(id)).await
    }

    /// Cancels a queued job at once, and asks the runner of a running one to kill it.
    pub async fn cancel(&self, id: JobId) -> PortResult<()> {
        const RUNNING: &str = "UPDATE jobs SET cancel = 1 WHERE id = ?1 AND state = 'running'";
        let now = self.clock.now().to_string();
        self.db
            .write(move |transaction| {
                jobs::cancel_queued(transaction, id, &now)?;
                transaction.execute(RUNNING, [id.0]).map(drop)
            })
            .await
    }
}

/// Reads a job and the process of the machine that it runs on.
fn look(connection: &Connection, id: JobId) -> rusqlite::Result<(Option<Job>, Option<Process>)> {
    let sql = "SELECT * FROM jobs WHERE id = ?1";
    let job = connection.prepare_cached(sql)?.query_row([id.0], jobs::job).optional()?;
    let process = match job.as_ref().and_then(|job| job.instance.as_ref()) {
        Some(instance) => machines::process_of(connection, instance)?,
        None => None,
    };
    Ok((job, process))
}

/// The queued jobs of each run, but for those whose callers are gone.
fn waiting_jobs(connection: &Connection) -> rusqlite::Result<BTreeMap<RunId, WaitingJobs>> {
    // A job names its label only. If a run has asked for machines under it, the job is of that run.
    const SQL: &str = "SELECT id, label,
        (SELECT run FROM demands WHERE demands.label = jobs.label) AS run, jobs.run AS of_run
        FROM jobs WHERE state = 'queued' ORDER BY label";
    let abandoned = jobs::abandoned(connection)?;
    let mut statement = connection.prepare_cached(SQL)?;
    let queued = |row: &Row<'_>| {
        let plain: RunId = column::parsed(row, "label", str::parse)?;
        if let Some(of_run) = column::optional::<RunId, _>(row, "of_run", str::parse)?
            && let Ok(own) = MachineLabel::new(plain.as_str())
        {
            return Ok((JobId(row.get("id")?), of_run, Err(own)));
        }
        let asked: Option<String> = row.get("run")?;
        let run = asked.and_then(|run| RunId::new(run).ok());
        let label = run.and_then(|run| Label::of_run(&run, plain.as_str()));
        let label = label.unwrap_or_else(|| Label::from(&plain));
        Ok((JobId(row.get("id")?), label.run.clone(), Ok(label)))
    };
    let mut runs: BTreeMap<RunId, WaitingJobs> = BTreeMap::new();
    for (id, run, label) in column::readable(statement.query_map([], queued)?)? {
        if abandoned.contains(&id) {
            continue;
        }
        let waiting = runs.entry(run).or_default();
        *match label {
            Ok(label) => waiting.labels.entry(label).or_default(),
            Err(own) => waiting.machine_labels.entry(own).or_default(),
        } += 1;
    }
    Ok(runs)
}

impl fmt::Debug for LocalForge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalForge({:?})", self.db)
    }
}

#[async_trait]
impl Forge for LocalForge {
    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        self.db
            .call(|connection| {
                let mut statement = connection
                    .prepare_cached("SELECT name, instance FROM runners ORDER BY name")?;
                let mut rows = statement.query([])?;
                let mut runners = Vec::new();
                while let Some(row) = rows.next()? {
                    let instance = column::parsed(row, "instance", str::parse)?;
                    let process = machines::process_of(connection, &instance)?;
                    let online = process.is_some_and(Process::is_alive);
                    let name: String = row.get("name")?;
                    let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
                    let number = number.unwrap_or_default();
                    runners.push(ListedRunner { name, instance, number, online });
                }
                Ok(runners)
            })
            .await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        let name = name.to_owned();
        let sql = "DELETE FROM runners WHERE name = ?1";
        self.db.write(move |transaction| transaction.execute(sql, [name]).map(drop)).await
    }

    /// The runs with queued jobs. Also cancels queued jobs whose callers are gone. A run of this forge
    /// never completes, because more commands may follow.
    async fn open_runs(&self, _turn: u64, _budget: &RequestBudget) -> PortResult<OpenRuns> {
        let now = self.clock.now().to_string();
        self.db
            .call(move |connection| {
                // The write lock is taken only if there is something to write.
                if !jobs::abandoned(connection)?.is_empty() {
                    in_transaction(connection, |tx| jobs::cancel_abandoned(tx, &now))?;
                }
                let runs = waiting_jobs(connection)?;
                let open = |(run, waiting)| OpenRun { run, waiting: Some(waiting) };
                Ok(OpenRuns { runs: runs.into_iter().map(open).collect(), is_partial: false })
            })
            .await
    }
}
