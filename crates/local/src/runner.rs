use std::fmt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::ports::{Clock, PortError, PortResult, Runner};
use ondeck_processes::{MARKER, Process, kill_group};
use tokio::process::{Child, Command};

use crate::compute::environment;
use crate::compute::folders::Folders;
use crate::compute::groups;
use crate::forge::jobs::{self, JobId, JobState, Offer, Stream, TAKEN_AWAY, Taken};
use crate::home::Home;
use crate::store::db::Db;

mod output;

/// How often a runner looks for work, and for a wish to cancel what it works on.
const LOOK: Duration = Duration::from_millis(100);

/// The exit code of a command that could not be started, as shells have it.
const NOT_STARTED: i32 = 127;

/// The runner on a local machine: takes jobs from the shared file and runs them as processes.
pub struct LocalRunner {
    db: Db,
    home: Home,
    clock: Arc<dyn Clock>,
    instance: InstanceId,
    now: Mutex<Now>,
}

/// What the runner is about. Kept apart from the future that works, which may be dropped at any
/// moment and still leaves processes that must be found.
#[derive(Debug, Default)]
struct Now {
    registrations: u32,
    name: String,
    /// The group of the job at hand.
    group: Option<Process>,
}

impl LocalRunner {
    /// On this machine.
    pub fn new(db: Db, home: Home, clock: Arc<dyn Clock>, instance: InstanceId) -> LocalRunner {
        LocalRunner { db, home, clock, instance, now: Mutex::default() }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folders(&self) -> Folders {
        Folders::of(&self.home, &self.instance)
    }

    /// The next job, when there is one; `None` if the runner was struck from the list.
    async fn next_job(&self, runner: &str) -> PortResult<Option<Taken>> {
        loop {
            let name = runner.to_owned();
            let worth = self.db.call(move |conn| jobs::is_worth_asking(conn, &name)).await?;
            if worth {
                let (name, now) = (runner.to_owned(), self.clock.now());
                match self.db.write(move |tx| jobs::take(tx, &name, now)).await? {
                    Offer::Job(taken) => return Ok(Some(taken)),
                    Offer::Struck => return Ok(None),
                    Offer::Nothing => {}
                }
            }
            self.clock.sleep(LOOK).await;
        }
    }

    fn start(&self, run: &RunId, job: &Taken) -> std::io::Result<Child> {
        let [program, args @ ..] = job.argv.as_slice() else {
            return Err(std::io::Error::other("the job has no command"));
        };
        let folders = self.folders();
        Command::new(program)
            .args(args)
            .env_clear()
            .envs(environment::handed_on())
            .env(MARKER, self.instance.as_str())
            .env("ONDECK_RUN_ID", run.as_str())
            .env("TMPDIR", &folders.tmp)
            .env("HOME", &folders.home)
            .current_dir(&folders.work)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }

    /// Runs one job to its end, and keeps what it wrote and how it ended.
    async fn run_job(&self, run: &RunId, job: &Taken) -> PortResult<()> {
        tracing::info!(job = %job.id, %run, "job taken");
        let mut child = match self.start(run, job) {
            Ok(child) => child,
            Err(error) => {
                let command = job.argv.first().map_or("", String::as_str);
                let line = format!("ondeck: cannot start {command}: {error}\n");
                output::keep(&self.db, job.id, Stream::Stderr, line.into_bytes()).await?;
                return self.settle(job.id, JobState::Done, NOT_STARTED).await;
            }
        };
        let leader = Process::of_child(&child);
        self.now().group = leader;
        if let Some(leader) = leader {
            groups::note(&self.db, &self.instance, leader).await?;
        }
        let mut pumps = output::Pumps::new(self.db.clone(), job.id);
        if let Some(stdout) = child.stdout.take() {
            pumps.add(Stream::Stdout, stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            pumps.add(Stream::Stderr, stderr);
        }
        let (state, exit_code) = self.wait(job.id, &mut child).await?;
        pumps.drain().await;
        self.now().group = None;
        if let Some(leader) = leader {
            groups::drop_if_gone(&self.db, &self.instance, leader).await;
        }
        self.settle(job.id, state, exit_code).await
    }

    /// Waits for the command to end, and ends it if somebody wants that.
    async fn wait(&self, id: JobId, child: &mut Child) -> PortResult<(JobState, i32)> {
        let mut cancelled = false;
        loop {
            match tokio::time::timeout(LOOK, child.wait()).await {
                Ok(Ok(_)) if cancelled => return Ok((JobState::Cancelled, TAKEN_AWAY)),
                Ok(Ok(status)) => return Ok((JobState::Done, output::exit_code(status))),
                Ok(Err(error)) => {
                    let reason = format!("cannot wait for job {id}: {error}");
                    return Err(PortError::Unavailable { service: "runner", reason });
                }
                Err(_) if cancelled => {}
                // The file being out of reach for a while is no reason to give up on the job.
                Err(_) => cancelled = self.is_cancelled(id).await.unwrap_or(false),
            }
            if cancelled && let Some(leader) = Process::of_child(child) {
                kill_group(leader);
            }
        }
    }

    async fn is_cancelled(&self, id: JobId) -> PortResult<bool> {
        let sql = "SELECT cancel FROM jobs WHERE id = ?1";
        self.db
            .call(move |conn| conn.prepare_cached(sql)?.query_row([id.0], |row| row.get(0)))
            .await
    }

    async fn settle(&self, id: JobId, state: JobState, exit_code: i32) -> PortResult<()> {
        let now = self.clock.now();
        self.db.write(move |tx| jobs::finish(tx, id, state, exit_code, now)).await?;
        tracing::info!(job = %id, state = state.as_str(), exit_code, "job over");
        Ok(())
    }

    /// Ends the job that an earlier life of this runner may have left, and settles it.
    async fn abandon(&self) -> PortResult<()> {
        if let Some(leader) = self.now().group.take() {
            kill_group(leader);
        }
        let (instance, now) = (self.instance.clone(), self.clock.now());
        self.db.write(move |tx| jobs::settle_taken_away(tx, &instance, now)).await
    }

    async fn kill_leftovers(&self) -> Result<(), String> {
        let ended = groups::end_others(&self.db, &self.instance).await;
        ended.map_err(|e| format!("leftover processes: {e}"))
    }
}

impl fmt::Debug for LocalRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalRunner({})", self.instance)
    }
}

#[async_trait]
impl Runner for LocalRunner {
    async fn prepare(&self) -> Result<(), String> {
        let folders = self.folders();
        tokio::task::spawn_blocking(move || folders.make_for_jobs())
            .await
            .map_err(|e| e.to_string())?
    }

    /// A machine has one runner at a time, so an earlier one that was never deregistered goes.
    async fn register(&self, run: &RunId) -> Result<(), String> {
        const SQL: &str =
            "INSERT INTO runners (name, instance, label, registered_at) VALUES (?,?,?,?)";
        let name = {
            let mut now = self.now();
            now.registrations += 1;
            now.name = format!("{}-{}", self.instance, now.registrations);
            now.name.clone()
        };
        let at = self.clock.now().to_string();
        let (instance, run) = (self.instance.to_string(), run.to_string());
        self.db
            .write(move |transaction| {
                transaction.execute("DELETE FROM runners WHERE instance = ?1", [&instance])?;
                transaction.execute(SQL, (name, instance, run, at)).map(drop)
            })
            .await
            .map_err(|e| e.to_string())
    }

    async fn work(&self, run: &RunId) -> String {
        let runner = self.now().name.clone();
        if let Err(error) = self.abandon().await {
            return error.to_string();
        }
        loop {
            let worked = match self.next_job(&runner).await {
                Ok(Some(job)) => self.run_job(run, &job).await,
                Ok(None) => return "the runner was struck from the list".to_owned(),
                Err(error) => Err(error),
            };
            if let Err(error) = worked {
                return error.to_string();
            }
        }
    }

    async fn stop(&self) -> Result<(), String> {
        self.kill_leftovers().await?;
        self.abandon().await.map_err(|e| e.to_string())
    }

    async fn deregister(&self) -> Result<(), String> {
        let instance = self.instance.to_string();
        let sql = "DELETE FROM runners WHERE instance = ?1";
        self.db
            .write(move |transaction| transaction.execute(sql, [instance]).map(drop))
            .await
            .map_err(|e| e.to_string())
    }

    async fn clean(&self) -> Result<(), String> {
        self.kill_leftovers().await?;
        let folders = self.folders();
        tokio::task::spawn_blocking(move || folders.renew()).await.map_err(|e| e.to_string())?
    }
}
