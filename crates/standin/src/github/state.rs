//! What GitHub knows.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::http::Connection;

use super::auth::{App, Target, Token};
use super::jobs::{Conclusion, Job, JobId, JobState, Run};
use super::runner_faults::RunnerFault;
use super::runners::GitHubRunner;
use super::{GitHubOptions, GitHubRequest};

/// All of it.
pub(super) struct State {
    pub(super) options: GitHubOptions,
    /// By how much the clock is ahead.
    pub(super) ahead: Duration,
    /// By how much the clock is behind.
    pub(super) behind: Duration,
    /// By their secret.
    pub(super) tokens: HashMap<String, Token>,
    pub(super) apps: Vec<App>,
    /// What runners register and deregister with, by their secret.
    pub(super) passes: HashMap<String, Pass>,
    pub(super) runners: BTreeMap<u64, Registered>,
    /// In the order in which they came.
    pub(super) runs: Vec<Run>,
    pub(super) jobs: BTreeMap<JobId, Work>,
    pub(super) files: HashMap<String, Served>,
    pub(super) releases: Vec<Release>,
    pub(super) runner_faults: Vec<(String, RunnerFault)>,
    /// How often a listener has asked for a session, by its runner's name.
    pub(super) attempts: HashMap<String, usize>,
    pub(super) requests: Vec<GitHubRequest>,
    /// How many requests each caller has made.
    pub(super) used: HashMap<String, u64>,
    last_id: u64,
}

/// A token that is good for one thing, for a while.
#[derive(Clone)]
pub(super) struct Pass {
    pub(super) target: Target,
    pub(super) purpose: Purpose,
    pub(super) expires: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Registration,
    Removal,
    /// What a pass is exchanged for.
    Exchanged,
}

/// A runner, with what only it and GitHub know.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) runner: GitHubRunner,
    /// What it proves itself with.
    pub(super) key: String,
    pub(super) session: Option<Session>,
    pub(super) job: Option<JobId>,
}

/// A listener's connection.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: String,
    /// The one over which it has called last. Whoever has closed it and does not call again is
    /// gone.
    pub(super) connection: Connection,
}

/// A job, and what its runner is to do.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) job: Job,
    pub(super) script: String,
    pub(super) cancelled: bool,
}

/// Something that can be downloaded.
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
    /// Name and content of each.
    pub(super) assets: Vec<(String, Bytes)>,
}

impl State {
    pub(super) fn new(options: GitHubOptions) -> State {
        State {
            options,
            ahead: Duration::ZERO,
            behind: Duration::ZERO,
            tokens: HashMap::new(),
            apps: Vec::new(),
            passes: HashMap::new(),
            runners: BTreeMap::new(),
            runs: Vec::new(),
            jobs: BTreeMap::new(),
            files: HashMap::new(),
            releases: Vec::new(),
            runner_faults: Vec::new(),
            attempts: HashMap::new(),
            requests: Vec::new(),
            used: HashMap::new(),
            last_id: 0,
        }
    }

    /// What the clock shows, as far as it was moved.
    pub(super) fn now(&self) -> SystemTime {
        SystemTime::now() + self.ahead - self.behind
    }

    /// A number that nothing else has.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Makes a pass, and gives its secret.
    pub(super) fn issue(&mut self, target: Target, purpose: Purpose) -> (String, SystemTime) {
        let secret = secret("A", 28);
        let expires = self.now() + self.options.runner_token_life;
        self.passes.insert(secret.clone(), Pass { target, purpose, expires });
        (secret, expires)
    }

    /// What goes wrong for a runner of this name at this target, if anything is to.
    pub(super) fn runner_fault(&self, runner: &str, target: &Target) -> Option<RunnerFault> {
        let meant = |name: &str| name == "*" || name == runner || target.is(name);
        self.runner_faults.iter().find(|(name, _)| meant(name)).map(|(_, fault)| *fault)
    }

    /// The next job for a runner: it has all of the job's labels, and is where the job is.
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

    /// Ends a job, and whoever worked on it is free, or gone if it was to have one job only.
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
            registered.runner.busy = false;
        }
        let runner = work.job.runner_id;
        self.runners.retain(|id, it| !(it.runner.ephemeral && Some(*id) == runner));
    }

    /// A listener has gone without a word: its runner is offline, and its job lost.
    pub(super) fn lose(&mut self, session: &str) {
        let found = self.runners.values_mut().find(|it| it.is_in(session));
        let Some(registered) = found else { return };
        registered.session = None;
        registered.runner.online = false;
        let Some(job) = registered.job else { return };
        if let Some(work) = self.jobs.get_mut(&job) {
            let name = work.job.runner_name.clone().unwrap_or_default();
            work.job.log += &format!(
                "The self-hosted runner: {name} lost communication with the server. Verify the \
                 machine is running and has a healthy network connection.\n"
            );
        }
        self.finish(job, Conclusion::Failure);
    }

    /// The run of this name, made if it is new.
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
    pub(super) fn is_in(&self, session: &str) -> bool {
        self.session.as_ref().is_some_and(|own| own.id == session)
    }
}

/// A secret that nobody else has.
pub(super) fn secret(prefix: &str, length: usize) -> String {
    let mut secret = prefix.to_owned();
    secret.extend(
        std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_uppercase()).take(length),
    );
    secret
}
