use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{Clock, PortError, PortResult, Runner};
use ondeck_processes::{Awaited, MARKER, Process, kill_group};
use rusqlite::OptionalExtension;
use tokio::process::{Child, Command};

use crate::compute::environment;
use crate::compute::folders::Folders;
use crate::compute::groups;
use crate::forge::jobs::{self, Finished, JobId, JobState, NextJob, Stream, TERMINATED, TakenJob};
use crate::home::Home;
use crate::inputs;
use crate::store::db::{Db, in_transaction};

mod output;

/// How often a runner checks for jobs, and for the cancellation of its job.
const POLL: Duration = Duration::from_millis(100);

/// A runner on a busy computer checks less often: its checks take at most one part in so many of its
/// time, but it checks at least once per [`SLOWEST_POLL`].
const POLL_SHARE: u32 = 20;
const SLOWEST_POLL: Duration = Duration::from_millis(500);

/// The exit code of a command that could not be started, as in shells.
const NOT_STARTED: i32 = 127;

/// The exit code of a job that was refused, because it is not of the machine's run.
const REFUSED: i32 = 1;

/// The runner on a local machine: takes jobs from the shared file and runs them as processes.
pub struct LocalRunner {
    db: Db,
    home: Home,
    clock: Arc<dyn Clock>,
    instance: InstanceId,
    wrapper: Vec<OsString>,
    state: Mutex<RunnerState>,
}

/// What outlives the calls of the port: the future of `work` may be dropped at any moment while its
/// job goes on running.
#[derive(Debug, Default)]
struct RunnerState {
    registrations: u32,
    name: String,
    /// The label of the machine that it is registered with, if that is not the label of a run.
    own_label: Option<MachineLabel>,
    /// The run whose jobs an own label lets in.
    owner: Option<RunId>,
    /// The process group of the current job.
    group: Option<Process>,
    /// Whether it takes no further job.
    draining: bool,
    /// Whether a job is being taken or runs.
    has_job: bool,
    /// Whether it has taken a job since it was registered.
    has_worked: bool,
}

impl LocalRunner {
    /// Creates the runner of this machine. Does nothing on the machine yet.
    pub fn new(db: Db, home: Home, clock: Arc<dyn Clock>, instance: InstanceId) -> LocalRunner {
        LocalRunner { db, home, clock, instance, wrapper: Vec::new(), state: Mutex::default() }
    }

    /// Puts these words in front of the command of each job. They must be a program that executes its
    /// other arguments in its own place.
    #[must_use]
    pub fn with_wrapper(self, wrapper: Vec<OsString>) -> LocalRunner {
        LocalRunner { wrapper, ..self }
    }

    fn state(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folders(&self) -> Folders {
        Folders::of(&self.home, &self.instance)
    }

    /// How long this registration is made to take: the setting, or a part of its range that depends
    /// on the runner's name, which no other registration has.
    async fn registration_time(&self, name: &str) -> Result<Duration, String> {
        let sql = "SELECT value FROM settings WHERE name = ?1";
        let set = self.db.call(|connection| {
            connection
                .query_row(sql, [inputs::REGISTRATION_MS.name], |row| row.get::<_, String>(0))
                .optional()
        });
        let Some(text) = set.await.map_err(|error| error.to_string())? else {
            return Ok(Duration::ZERO);
        };
        let range = inputs::millis_range(&text)?;
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = name.bytes().fold(0x811c_9dc5, step);
        let width = u64::from(range.end() - range.start()) + 1;
        Ok(Duration::from_millis(u64::from(*range.start()) + u64::from(hash) % width))
    }

    /// Waits for a job. Fails with the reason if the runner takes no more.
    async fn next_job(&self, runner: &str) -> Result<TakenJob, String> {
        const DRAINED: &str = "the runner takes no further job";
        loop {
            if self.state().draining {
                return Err(DRAINED.to_owned());
            }
            let (name, begun) = (runner.to_owned(), self.clock.steady());
            let worth = self.db.call(move |conn| jobs::may_have_job(conn, &name)).await;
            if worth.map_err(|error| error.to_string())? {
                let (name, now) = (runner.to_owned(), self.clock.now());
                if !self.may_take_job() {
                    return Err(DRAINED.to_owned());
                }
                let taken = self.db.write(move |tx| jobs::take(tx, &name, now)).await;
                match taken.map_err(|error| error.to_string())? {
                    NextJob::Job(taken) => {
                        self.state().has_worked = true;
                        return Ok(taken);
                    }
                    NextJob::RunnerRemoved => {
                        return Err("the runner was removed from the list".to_owned());
                    }
                    NextJob::None => self.state().has_job = false,
                }
            }
            let took = self.clock.steady().saturating_sub(begun);
            self.clock.sleep((took * POLL_SHARE).clamp(POLL, SLOWEST_POLL)).await;
        }
    }

    /// Whether it may take a job. If so, it counts as having one: from here on
    /// [`drain`](Runner::drain) waits.
    fn may_take_job(&self) -> bool {
        let mut now = self.state();
        now.has_job = !now.draining;
        now.has_job
    }

    /// Registers with this label, in place of an earlier registration. Returns its number.
    async fn enlist(&self, label: String) -> Result<u32, String> {
        const SQL: &str =
            "INSERT INTO runners (name, instance, label, registered_at) VALUES (?,?,?,?)";
        let (name, number) = {
            let mut now = self.state();
            now.registrations += 1;
            now.has_worked = false;
            now.name = format!("{}-{}", self.instance, now.registrations);
            (now.name.clone(), now.registrations)
        };
        self.clock.sleep(self.registration_time(&name).await?).await;
        let at = self.clock.now().to_string();
        let instance = self.instance.to_string();
        let enlisted = self.db.write(move |transaction| {
            transaction.execute("DELETE FROM runners WHERE instance = ?1", [&instance])?;
            transaction.execute(SQL, (name, instance, label, at)).map(drop)
        });
        enlisted.await.map_err(|e| e.to_string())?;
        Ok(number)
    }

    /// Whether the present registration is still in the list.
    async fn is_listed(&self) -> Result<bool, String> {
        const SQL: &str = "SELECT EXISTS (SELECT 1 FROM runners WHERE name = ?1)";
        let name = self.state().name.clone();
        let found = self.db.call(move |conn| {
            conn.prepare_cached(SQL)?.query_row([name], |row| row.get::<_, bool>(0))
        });
        found.await.map_err(|e| e.to_string())
    }

    /// Ends a job of another run than that of the machine, without running it.
    async fn refuse(&self, run: &RunId, job: &TakenJob) -> PortResult<()> {
        let of = job.run.as_ref().map_or("unknown", RunId::as_str);
        tracing::warn!(job = %job.id, %run, "a job of another run is refused: {of}");
        let why = "this machine was given to run";
        let line = format!("ondeck: {why} {run} and takes no job of another: {of}\n");
        output::store(&self.db, job.id, Stream::Stderr, line.into_bytes()).await?;
        self.settle(job.id, JobState::Done, REFUSED).await
    }

    fn start(&self, run: &RunId, job: &TakenJob) -> std::io::Result<(Child, Awaited)> {
        let argv = job.argv.iter().map(OsStr::new);
        let mut words = self.wrapper.iter().map(OsString::as_os_str).chain(argv);
        let (Some(program), false) = (words.next(), job.argv.is_empty()) else {
            return Err(std::io::Error::other("the job has no command"));
        };
        let folders = self.folders();
        let mut command = Command::new(program);
        command
            .args(words)
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
            .stderr(Stdio::piped());
        ondeck_processes::spawn(&mut command)
    }

    /// Runs a job to completion and stores its output and exit code.
    async fn run_job(&self, run: &RunId, job: &TakenJob) -> PortResult<()> {
        let own_label = self.state().own_label.clone();
        // A job that names the label of the run is the run's.
        let names_machine = own_label.is_some_and(|own| own.as_str() == job.label);
        if names_machine && job.run.as_ref() != Some(run) {
            return self.refuse(run, job).await;
        }
        tracing::info!(job = %job.id, %run, "job taken");
        let (mut child, _awaited) = match self.start(run, job) {
            Ok(started) => started,
            Err(error) => {
                let command = job.argv.first().map_or("", String::as_str);
                let line = format!("ondeck: cannot start {command}: {error}\n");
                output::store(&self.db, job.id, Stream::Stderr, line.into_bytes()).await?;
                return self.settle(job.id, JobState::Done, NOT_STARTED).await;
            }
        };
        let leader = Process::of_child(&child);
        self.state().group = leader;
        if let Some(leader) = leader {
            groups::record(&self.db, &self.instance, leader).await?;
        }
        let mut readers = output::OutputReaders::new(self.db.clone(), job.id);
        if let Some(stdout) = child.stdout.take() {
            readers.add(Stream::Stdout, stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            readers.add(Stream::Stderr, stderr);
        }
        let (state, exit_code) = self.wait(job.id, &mut child).await?;
        readers.drain().await;
        self.state().group = None;
        if let Some(leader) = leader {
            groups::forget_if_gone(&self.db, &self.instance, leader).await;
        }
        match self.settle(job.id, state, exit_code).await {
            Err(error) if self.db.is_disk_full() => {
                tracing::warn!(job = %job.id, "its files are removed, because its disk is full: {error}");
                self.make_room()
                    .await
                    .map_err(|reason| PortError::Unavailable { service: "runner", reason })?;
                self.settle(job.id, state, exit_code).await
            }
            settled => settled,
        }
    }

    /// Ends what the jobs of this run have left running, and removes their files.
    async fn make_room(&self) -> Result<(), String> {
        self.kill_processes().await?;
        let folders = self.folders();
        tokio::task::spawn_blocking(move || folders.renew()).await.map_err(|e| e.to_string())?
    }

    /// Waits for the command to exit, and kills it if the job is cancelled.
    async fn wait(&self, id: JobId, child: &mut Child) -> PortResult<(JobState, i32)> {
        let mut cancelled = false;
        loop {
            match tokio::time::timeout(POLL, child.wait()).await {
                Ok(Ok(_)) if cancelled => return Ok((JobState::Cancelled, TERMINATED)),
                Ok(Ok(status)) => return Ok((JobState::Done, output::exit_code(status))),
                Ok(Err(error)) => {
                    let reason = format!("cannot wait for job {id}: {error}");
                    return Err(PortError::Unavailable { service: "runner", reason });
                }
                Err(_) if cancelled => {}
                // The job goes on if the file is unavailable for a while.
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
        tracing::info!(job = %id, state = state.as_str(), exit_code, "job finished");
        Ok(())
    }

    /// Kills the job that a dropped call of `work` left running, and records it as failed.
    async fn abandon(&self) -> PortResult<()> {
        if let Some(leader) = self.state().group.take() {
            kill_group(leader);
        }
        let (instance, now) = (self.instance.clone(), self.clock.now());
        self.db
            .call(move |connection| {
                // The write lock is taken only if there is something to write.
                if !jobs::has_jobs(connection, &instance)? {
                    return Ok(());
                }
                in_transaction(connection, |tx| jobs::fail_jobs_of(tx, &instance, now))
            })
            .await
    }

    async fn kill_processes(&self) -> Result<(), String> {
        let killed = groups::kill_others(&self.db, &self.instance).await;
        killed.map_err(|e| format!("leftover processes: {e}"))
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

    /// A machine has one runner at a time, so this removes one that was never deregistered.
    async fn register(&self, label: &Label) -> Result<(), String> {
        self.state().own_label = None;
        self.enlist(label.to_string()).await.map(drop)
    }

    async fn listen_as(&self, label: &MachineLabel) -> Result<u32, String> {
        let present = {
            let mut now = self.state();
            now.draining = false;
            (now.own_label.as_ref() == Some(label)).then_some(now.registrations)
        };
        if let Some(number) = present
            && self.is_listed().await?
        {
            return Ok(number);
        }
        {
            let mut now = self.state();
            (now.own_label, now.owner) = (Some(label.clone()), None);
        }
        self.enlist(label.to_string()).await
    }

    /// Jobs wait in the queue until then.
    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        self.state().owner = Some(run.clone());
        Ok(())
    }

    async fn lapse(&self) -> String {
        loop {
            if self.state().draining {
                return "the runner takes no further job".to_owned();
            }
            match self.is_listed().await {
                Ok(false) => return "the runner was removed from the list".to_owned(),
                // The file may be unavailable for a while.
                Ok(true) | Err(_) => self.clock.sleep(SLOWEST_POLL).await,
            }
        }
    }

    /// Lists a runner again that was removed from the list.
    async fn revive(&self, _label: &Label) -> Result<(), String> {
        let Some(own) = self.state().own_label.clone() else { return Ok(()) };
        match self.is_listed().await? {
            true => Ok(()),
            false => self.enlist(own.to_string()).await.map(drop),
        }
    }

    fn is_busy(&self) -> bool {
        self.state().group.is_some()
    }

    fn has_worked(&self) -> bool {
        self.state().has_worked
    }

    async fn work(&self, label: &Label) -> String {
        let runner = {
            let mut now = self.state();
            (now.draining, now.has_job) = (false, false);
            now.name.clone()
        };
        if let Err(error) = self.abandon().await {
            return error.to_string();
        }
        let why = loop {
            let worked = match self.next_job(&runner).await {
                Ok(job) => self.run_job(&label.run, &job).await,
                Err(why) => break why,
            };
            self.state().has_job = false;
            if let Err(error) = worked {
                break error.to_string();
            }
        };
        self.state().has_job = false;
        why
    }

    async fn drain(&self, _why: &str) {
        self.state().draining = true;
        while self.state().has_job {
            self.clock.sleep(POLL).await;
        }
    }

    async fn stop(&self) -> Result<(), String> {
        self.state().has_job = false;
        self.kill_processes().await?;
        if self.db.is_disk_full() {
            // What follows is written.
            self.make_room().await?;
        }
        self.abandon().await.map_err(|e| e.to_string())
    }

    async fn deregister(&self) -> Result<(), String> {
        let instance = self.instance.to_string();
        let sql = "DELETE FROM runners WHERE instance = ?1";
        self.db
            .write(move |transaction| transaction.execute(sql, [instance]).map(drop))
            .await
            .map_err(|e| e.to_string())?;
        let mut now = self.state();
        (now.own_label, now.owner) = (None, None);
        Ok(())
    }

    async fn clean(&self) -> Result<(), String> {
        self.make_room().await?;
        groups::forget_all(&self.db, &self.instance).await.map_err(|e| e.to_string())?;
        let erased = jobs::erase(&self.db, Finished::On(self.instance.clone())).await;
        erased.map_err(|e| format!("commands and output of the run: {e}"))
    }
}
