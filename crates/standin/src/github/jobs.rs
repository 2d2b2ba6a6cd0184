//! Workflow runs and their jobs.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::http::Answer;
use crate::timestamps::iso;

use super::answers;
use super::repository;
use super::request::ApiRequest;
use super::state::{State, Work};

/// The number of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// No runner has taken it yet.
    Queued,
    /// A runner is executing it.
    InProgress,
    Completed,
}

/// The conclusion of a job or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    Success,
    Failure,
    Cancelled,
    /// It was not executed at all.
    Skipped,
}

impl Conclusion {
    /// The name that GitHub's API uses.
    pub fn name(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Failure => "failure",
            Conclusion::Cancelled => "cancelled",
            Conclusion::Skipped => "skipped",
        }
    }

    pub(super) fn of(name: &str) -> Option<Conclusion> {
        use Conclusion::{Cancelled, Failure, Skipped, Success};
        [Success, Failure, Cancelled, Skipped].into_iter().find(|it| it.name() == name)
    }
}

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Its jobs wait for runners.
    Queued,
    InProgress,
    /// It waits for an approval.
    Waiting,
    /// It waits for another run to finish.
    Pending,
    Completed(Conclusion),
}

impl RunState {
    fn status(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::InProgress => "in_progress",
            RunState::Waiting => "waiting",
            RunState::Pending => "pending",
            RunState::Completed(_) => "completed",
        }
    }

    fn conclusion(self) -> Option<&'static str> {
        if let RunState::Completed(conclusion) = self { Some(conclusion.name()) } else { None }
    }
}

/// A job and its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    /// The repository, such as `acme/web`.
    pub repository: String,
    pub run_id: String,
    /// The attempt of the run that the job belongs to.
    pub run_attempt: u32,
    pub name: String,
    /// The labels that its runner must have.
    pub labels: Vec<String>,
    pub state: JobState,
    /// The result; `None` until the job is completed.
    pub conclusion: Option<Conclusion>,
    /// The runner that has taken it.
    pub runner_name: Option<String>,
    /// The number of that runner.
    pub runner_id: Option<u64>,
    /// The output so far. Empty if its worker was killed.
    pub log: String,
    /// The annotations that the listener made.
    pub annotations: Vec<String>,
    pub created: SystemTime,
    /// When a runner has taken it.
    pub started: Option<SystemTime>,
    pub completed: Option<SystemTime>,
}

#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) repository: String,
    pub(super) id: String,
    pub(super) number: u64,
    pub(super) attempt: u32,
    pub(super) created: SystemTime,
    /// A state that a test has set, which takes precedence over that of the jobs.
    pub(super) pinned: Option<RunState>,
}

impl Run {
    pub(super) fn is(&self, repository: &str, id: &str) -> bool {
        self.repository.eq_ignore_ascii_case(repository) && self.id == id
    }

    fn works<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Work> {
        state.jobs.values().filter(|work| self.is(&work.job.repository, &work.job.run_id))
    }

    /// The run's state: the one that a test has set, or else derived from its jobs.
    fn state(&self, state: &State) -> RunState {
        if let Some(pinned) = self.pinned {
            return pinned;
        }
        let latest: Vec<&Job> = latest(self.works(state).map(|work| &work.job));
        let is = |wanted: JobState| move |job: &&&Job| job.state == wanted;
        let queued = latest.iter().filter(is(JobState::Queued)).count();
        let running = latest.iter().filter(is(JobState::InProgress)).count();
        if running > 0 {
            return RunState::InProgress;
        }
        if queued > 0 {
            // Jobs of an earlier attempt do not count as a start of this one.
            let begun = latest
                .iter()
                .any(|job| job.state == JobState::Completed && job.run_attempt == self.attempt);
            return if begun { RunState::InProgress } else { RunState::Queued };
        }
        let ended = |how: Conclusion| latest.iter().any(|job| job.conclusion == Some(how));
        RunState::Completed(if ended(Conclusion::Failure) {
            Conclusion::Failure
        } else if ended(Conclusion::Cancelled) {
            Conclusion::Cancelled
        } else {
            Conclusion::Success
        })
    }
}

/// The latest attempt of each job, by job name.
pub(super) fn latest<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<&'a Job> {
    let mut latest: Vec<&Job> = Vec::new();
    for job in jobs {
        match latest.iter_mut().find(|known| known.name == job.name) {
            Some(known) if known.run_attempt < job.run_attempt => *known = job,
            Some(_) => {}
            None => latest.push(job),
        }
    }
    latest
}

/// How many runs a search returns at most: one with a status or a time.
const REACHABLE: usize = 1_000;

/// Answers `GET /repos/{owner}/{repo}/actions/runs`, newest first.
pub(super) fn list_runs(state: &State, ask: &ApiRequest, repository: &str) -> Answer {
    let wanted = ask.parameter("status");
    let created = match ask.parameter("created").map(Created::parse) {
        Some(None) => return answers::refusal(422, "Validation Failed"),
        created => created.flatten(),
    };
    let mut runs: Vec<&Run> =
        state.runs.iter().filter(|run| run.repository.eq_ignore_ascii_case(repository)).collect();
    runs.sort_by_key(|run| std::cmp::Reverse((run.created, run.number)));
    let entries = runs.into_iter().filter_map(|run| {
        let now = run.state(state);
        let suits =
            wanted.is_none_or(|wanted| now.status() == wanted || now.conclusion() == Some(wanted));
        let is_in = created.as_ref().is_none_or(|created| created.contains(run.created));
        (suits && is_in).then(|| run_entry(run, now, ask))
    });
    let reachable = if wanted.is_some() || created.is_some() { REACHABLE } else { usize::MAX };
    let entries = entries.collect();
    answers::page_of_search(ask, "workflow_runs", entries, state.options.page, reachable)
}

/// The parameter `created`: a span of whole seconds, both ends included. GitHub knows more forms, of
/// which ondeck uses none.
struct Created(SystemTime, SystemTime);

impl Created {
    fn parse(text: &str) -> Option<Created> {
        let (from, to) = text.split_once("..")?;
        let time = |text: &str| humantime::parse_rfc3339(text).ok();
        Some(Created(time(from)?, time(to)? + Duration::from_secs(1)))
    }

    fn contains(&self, at: SystemTime) -> bool {
        (self.0..self.1).contains(&at)
    }
}

/// What a request runs again.
#[derive(Clone, Copy)]
pub(super) enum Again<'a> {
    /// The job with this id.
    Job(&'a str),
    /// The jobs of the run with this id that did not succeed.
    Failed(&'a str),
}

/// Answers `POST /repos/{owner}/{repo}/actions/jobs/{job_id}/rerun` and
/// `POST /repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs`: queues jobs again in a new
/// attempt. Refuses a run that has not completed.
pub(super) fn rerun(state: &mut State, repository: &str, again: Again<'_>) -> Answer {
    let in_repository = |job: &Job| job.repository.eq_ignore_ascii_case(repository);
    let (run, chosen) = match again {
        Again::Failed(run) => (run.to_owned(), None),
        Again::Job(id) => {
            let id = id.parse().ok().map(JobId);
            let found = id.and_then(|id| state.jobs.get(&id)).filter(|it| in_repository(&it.job));
            let Some(work) = found else { return answers::not_found() };
            (work.job.run_id.clone(), id)
        }
    };
    let Some(known) = state.runs.iter().find(|known| known.is(repository, &run)) else {
        return answers::not_found();
    };
    if !matches!(known.state(state), RunState::Completed(_)) {
        return answers::refusal(403, "This workflow is already running");
    }
    state.run_again(repository, &run, |job| match chosen {
        Some(id) => job.id == id,
        None => matches!(job.conclusion, Some(Conclusion::Failure | Conclusion::Cancelled)),
    });
    answers::found(201, &json!({}))
}

/// Answers `GET /repos/{owner}/{repo}/actions/runs/{run_id}`.
pub(super) fn show_run(state: &State, ask: &ApiRequest, repository: &str, id: &str) -> Answer {
    match state.runs.iter().find(|run| run.is(repository, id)) {
        Some(run) => answers::found(200, &run_entry(run, run.state(state), ask)),
        None => answers::not_found(),
    }
}

/// Answers `GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs`, one page per request.
pub(super) fn list_jobs(state: &State, ask: &ApiRequest, repository: &str, id: &str) -> Answer {
    let Some(run) = state.runs.iter().find(|run| run.is(repository, id)) else {
        return answers::not_found();
    };
    let all = run.works(state).map(|work| &work.job);
    let shown = if ask.parameter("filter") == Some("all") { all.collect() } else { latest(all) };
    let entries = shown.into_iter().map(|job| job_entry(job, run, ask)).collect();
    answers::page(ask, "jobs", entries, state.options.page)
}

fn run_entry(run: &Run, state: RunState, ask: &ApiRequest) -> Value {
    let Run { repository: name, id, number, attempt, created, .. } = run;
    let api = format!("{}/repos/{name}/actions/runs/{id}", ask.api);
    let at = iso(*created);
    let mut entry = json!({
        "id": number_of(id),
        "name": "build",
        "node_id": format!("WFR_{id}"),
        "check_suite_id": number,
        "check_suite_node_id": format!("CS_{number}"),
        "head_branch": "main",
        "head_sha": repository::SHA,
        "path": ".github/workflows/build.yml",
        "display_title": "a change",
        "run_number": number,
        "run_attempt": attempt,
        "event": "push",
        "status": state.status(),
        "conclusion": state.conclusion(),
        "workflow_id": 1,
        "url": api,
        "html_url": format!("{}/{name}/actions/runs/{id}", ask.root),
        "pull_requests": [],
        "created_at": at,
        "updated_at": at,
        "run_started_at": at,
        "previous_attempt_url": null,
        "head_commit": repository::commit(&at),
        "actor": repository::user(ask, run.owner()),
        "triggering_actor": repository::user(ask, run.owner()),
        "repository": repository::entry(ask, name),
        "head_repository": repository::entry(ask, name),
        "workflow_url": format!("{}/repos/{name}/actions/workflows/1", ask.api),
        "check_suite_url": format!("{}/repos/{name}/check-suites/{number}", ask.api),
    });
    for part in ["jobs", "logs", "artifacts", "cancel", "rerun"] {
        entry[format!("{part}_url")] = format!("{api}/{part}").into();
    }
    entry
}

impl Run {
    fn owner(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }
}

fn job_entry(job: &Job, run: &Run, ask: &ApiRequest) -> Value {
    let (name, id) = (&run.repository, job.id.0);
    let status = match job.state {
        JobState::Queued => "queued",
        JobState::InProgress => "in_progress",
        JobState::Completed => "completed",
    };
    json!({
        "id": id,
        "run_id": number_of(&run.id),
        "run_url": format!("{}/repos/{name}/actions/runs/{}", ask.api, run.id),
        "run_attempt": job.run_attempt,
        "node_id": format!("CR_{id}"),
        "head_sha": repository::SHA,
        "head_branch": "main",
        "url": format!("{}/repos/{name}/actions/jobs/{id}", ask.api),
        "html_url": format!("{}/{name}/actions/runs/{}/job/{id}", ask.root, run.id),
        "check_run_url": format!("{}/repos/{name}/check-runs/{id}", ask.api),
        "status": status,
        "conclusion": job.conclusion.map(Conclusion::name),
        "created_at": iso(job.created),
        // GitHub puts the creation time here until the job starts.
        "started_at": iso(job.started.unwrap_or(job.created)),
        "completed_at": job.completed.map(iso),
        "name": job.name,
        "workflow_name": "build",
        "steps": [],
        "labels": job.labels,
        "runner_id": job.runner_id,
        "runner_name": job.runner_name,
        "runner_group_id": job.runner_id.map(|_| 1),
        "runner_group_name": job.runner_id.map(|_| "Default"),
    })
}

/// A run id in JSON. It is a number, as at GitHub, unless a test uses an id that is not numeric.
fn number_of(id: &str) -> Value {
    id.parse::<u64>().map_or_else(|_| Value::from(id), Value::from)
}
