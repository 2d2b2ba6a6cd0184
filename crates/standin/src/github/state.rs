//! The state of the stand-in's GitHub.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::http::Connection;

use super::auth::{App, Target, Token};
use super::budget::Budgets;
use super::environments::Environments;
use super::jobs::{Conclusion, Job, JobId, JobState, Run};
use super::latency::Draws;
use super::runner_faults::RunnerFault;
use super::runners::GitHubRunner;
use super::{GitHubOptions, GitHubRequest};

/// All that GitHub keeps between requests.
pub(super) struct State {
    pub(super) options: GitHubOptions,
    /// By how much a test has advanced the clock.
    pub(super) ahead: Duration,
    /// By how much a test has turned the clock back.
    pub(super) behind: Duration,
    /// Access tokens by their secret.
    pub(super) tokens: HashMap<String, Token>,
    pub(super) apps: Vec<App>,
    /// Registration, remove and exchanged tokens by their secret.
    pub(super) runner_tokens: HashMap<String, RunnerToken>,
    pub(super) runners: BTreeMap<u64, Registered>,
    /// Workflow runs in the order of their creation.
    pub(super) runs: Vec<Run>,
    pub(super) jobs: BTreeMap<JobId, Work>,
    pub(super) environments: Environments,
    pub(super) files: HashMap<String, Served>,
    pub(super) releases: Vec<Release>,
    pub(super) runner_faults: Vec<(String, RunnerFault)>,
    /// Versions of the runner that get no job.
    pub(super) deprecated: BTreeSet<String>,
    /// Until when versions of the runner may register and get jobs.
    pub(super) deadlines: HashMap<String, (Option<SystemTime>, Option<SystemTime>)>,
    /// How many sessions a listener has requested, by the name of its runner.
    pub(super) attempts: HashMap<String, usize>,
    pub(super) requests: Vec<GitHubRequest>,
    pub(super) budgets: Budgets,
    /// Chooses how long registrations and sessions take.
    pub(super) draws: Option<Draws>,
    /// The versions that listeners are to update themselves to, by the name of their runner.
    pub(super) updates: HashMap<String, String>,
    last_id: u64,
}

/// A token for one purpose at one target, until it expires.
#[derive(Clone)]
pub(super) struct RunnerToken {
    pub(super) target: Target,
    pub(super) purpose: Purpose,
    pub(super) expires: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Registration,
    Removal,
    /// To register or remove a runner, after the exchange.
    Exchanged,
}

/// A registered runner with its secret, session and job.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) runner: GitHubRunner,
    /// The secret by which the runner authenticates.
    pub(super) key: String,
    pub(super) session: Option<Session>,
    pub(super) job: Option<JobId>,
    /// When it had its last job.
    pub(super) freed: Option<Instant>,
}

/// The session of a listener.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: String,
    /// The connection of its last request. If that is closed and no other request comes,
    /// the listener is gone.
    pub(super) connection: Connection,
}

/// A job with what its runner needs to execute it.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) job: Job,
    pub(super) script: String,
    pub(super) cancelled: bool,
}

/// What is served at a path: a file or a redirect.
#[derive(Debug, Clone)]
pub(super) enum Served {
    File(Bytes),
    Elsewhere(String),
}

/// A release of the runner.
#[derive(Debug, Clone)]
pub(super) struct Release {
    pub(super) tag: String,
    pub(super) at: SystemTime,
    /// The name and content of each file.
    pub(super) assets: Vec<(String, Bytes)>,
}

impl State {
    pub(super) fn new(options: GitHubOptions) -> State {
        State {
            draws: options.registration_times.as_ref().map(Draws::of),
            options,
            ahead: Duration::ZERO,
            behind: Duration::ZERO,
            tokens: HashMap::new(),
            apps: Vec::new(),
            runner_tokens: HashMap::new(),
            runners: BTreeMap::new(),
            runs: Vec::new(),
            jobs: BTreeMap::new(),
            environments: Environments::new(),
            files: HashMap::new(),
            releases: Vec::new(),
            runner_faults: Vec::new(),
            deprecated: BTreeSet::new(),
            deadlines: HashMap::new(),
            attempts: HashMap::new(),
            requests: Vec::new(),
            budgets: Budgets::default(),
            updates: HashMap::new(),
            last_id: 0,
        }
    }

    /// The current time by the clock that tests can advance.
    pub(super) fn now(&self) -> SystemTime {
        SystemTime::now() + self.ahead - self.behind
    }

    /// A number that is unique within this GitHub.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Issues a token. Returns its secret and when it expires.
    pub(super) fn issue(&mut self, target: Target, purpose: Purpose) -> (String, SystemTime) {
        let secret = secret("A", 28);
        let expires = self.now() + self.options.runner_token_life;
        self.runner_tokens.insert(secret.clone(), RunnerToken { target, purpose, expires });
        (secret, expires)
    }

    /// The injected fault for a runner of this name at this target.
    pub(super) fn runner_fault(&self, runner: &str, target: &Target) -> Option<RunnerFault> {
        let meant = |name: &str| name == "*" || name == runner || target.is(name);
        self.runner_faults.iter().find(|(name, _)| meant(name)).map(|(_, fault)| *fault)
    }

    /// The next queued job in the runner's scope whose labels the runner has.
    pub(super) fn next_job(&self, runner: &GitHubRunner) -> Option<JobId> {
        let scope = Target::of(&runner.scope);
        let fits = |work: &&Work| {
            let job = &work.job;
            let repository = Target::of(&job.repository);
            let near = match &scope {
                Target::Repository(name) => repository.is(name),
                Target::Organisation(name) => repository.owner().eq_ignore_ascii_case(name),
            };
            let has =
                |label: &String| runner.labels.iter().any(|own| own.eq_ignore_ascii_case(label));
            job.state == JobState::Queued && near && job.labels.iter().all(has)
        };
        self.jobs.values().find(fits).map(|work| work.job.id)
    }

    /// Completes a job. Its runner becomes free, or is removed if it is ephemeral.
    pub(super) fn finish(&mut self, id: JobId, conclusion: Conclusion) {
        let now = self.now();
        let Some(work) = self.jobs.get_mut(&id) else { return };
        if work.job.state == JobState::Completed {
            return;
        }
        work.job.state = JobState::Completed;
        work.job.conclusion = Some(conclusion);
        work.job.completed = Some(now);
        for registered in self.runners.values_mut().filter(|it| it.job == Some(id)) {
            registered.job = None;
            registered.freed = Some(Instant::now());
            registered.runner.busy = false;
        }
        let runner = work.job.runner_id;
        self.runners.retain(|id, it| !(it.runner.ephemeral && Some(*id) == runner));
    }

    /// Ends the session of a listener that is gone. Its runner becomes offline. Returns the job that it
    /// had, which stays locked.
    pub(super) fn lose(&mut self, session: &str) -> Option<JobId> {
        let registered = self.runners.values_mut().find(|it| it.is_in(session))?;
        registered.session = None;
        registered.runner.online = false;
        registered.job
    }

    /// Fails a job whose listener is gone, unless it has ended meanwhile.
    pub(super) fn give_up(&mut self, job: JobId) {
        if let Some(work) = self.jobs.get_mut(&job)
            && work.job.state == JobState::InProgress
        {
            let name = work.job.runner_name.clone().unwrap_or_default();
            work.job.log += &format!(
                "The self-hosted runner: {name} lost communication with the server. Verify the \
                 machine is running and has a healthy network connection.\n"
            );
        }
        self.finish(job, Conclusion::Failure);
    }

    /// The run of this id, created if it is new.
    pub(super) fn run(&mut self, repository: &str, id: &str) -> &mut Run {
        let known = self.runs.iter().position(|run| run.is(repository, id));
        let index = known.unwrap_or_else(|| {
            let run = Run {
                repository: repository.to_owned(),
                id: id.to_owned(),
                number: self.new_id(),
                attempt: 1,
                created: self.now(),
                pinned: None,
            };
            self.runs.push(run);
            self.runs.len() - 1
        });
        &mut self.runs[index]
    }
}

impl Registered {
    /// Whether GitHub refuses to remove the runner because of a job that it has, or had lately.
    pub(super) fn is_kept(&self, busy_after_job: Duration) -> bool {
        self.runner.busy || self.freed.is_some_and(|at| at.elapsed() < busy_after_job)
    }

    pub(super) fn is_in(&self, session: &str) -> bool {
        self.session.as_ref().is_some_and(|own| own.id == session)
    }
}

/// Makes a random secret with a prefix.
pub(super) fn secret(prefix: &str, length: usize) -> String {
    let mut secret = prefix.to_owned();
    secret.extend(
        std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_uppercase()).take(length),
    );
    secret
}
