//! Open runs, their waiting jobs, and completed runs. Each request is taken from a budget, because a
//! workflow's own token has few of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{
    FailedJob, OpenRun, OpenRuns, PortResult, RequestBudget, Rerun, RunStatus, WaitingJobs,
};
use serde::Deserialize;

use super::runner_list::PAGE;
use crate::auth::Identity;
use crate::client::{Answer, Purpose, Request};
use crate::names::instance_of;

/// GitHub returns at most a thousand runs of a status.
const PAGES: u64 = 10;
/// The statuses of open runs. Those that wait for an approval or for another run have no jobs yet.
const OPEN: [&str; 2] = ["queued", "in_progress"];

#[derive(Deserialize)]
pub(super) struct RunsPage {
    #[serde(default)]
    total_count: u64,
    workflow_runs: Vec<RunEntry>,
}

#[derive(Deserialize)]
pub(super) struct RunEntry {
    id: u64,
}

#[derive(Deserialize)]
pub(super) struct JobsPage {
    jobs: Vec<JobEntry>,
}

#[derive(Deserialize)]
pub(super) struct JobEntry {
    #[serde(default)]
    id: u64,
    status: String,
    #[serde(default)]
    conclusion: Option<String>,
    labels: Vec<String>,
    #[serde(default)]
    runner_name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct StatusEntry {
    status: Option<String>,
}

/// Reads the runs of one repository.
pub(super) struct RunReader<'a> {
    pub(super) reader: &'a Identity,
    pub(super) repository: &'a str,
    pub(super) budget: &'a RequestBudget,
    /// Set, and logged, when a request shows that the token may not read runs.
    pub(super) cannot_read: &'a AtomicBool,
}

impl RunReader<'_> {
    /// The newest page of each status, and one further page, which `turn` chooses. None if the token
    /// may not read runs, which is logged once.
    pub(super) async fn open(&self, turn: u64) -> PortResult<OpenRuns> {
        let (mut found, mut is_partial) = (BTreeMap::new(), false);
        for status in OPEN {
            let Some(first) = self.page(status, 1).await? else { break };
            let pages = first.total_count.div_ceil(self.page_size(&first)).min(PAGES);
            let mut entries = first.workflow_runs;
            if pages > 1 {
                let further = self.page(status, 2 + turn % (pages - 1)).await?;
                entries.extend(further.into_iter().flat_map(|page| page.workflow_runs));
                is_partial |= pages > 2;
            }
            let runs = entries.iter().filter_map(|entry| RunId::new(entry.id.to_string()).ok());
            found.extend(runs.map(|run| (run.clone(), OpenRun { run, waiting: None })));
        }
        Ok(OpenRuns { runs: found.into_values().collect(), is_partial })
    }

    /// How many runs a page holds, which a server may limit further. Only meaningful for the first
    /// page of several.
    fn page_size(&self, first: &RunsPage) -> u64 {
        u64::try_from(first.workflow_runs.len()).unwrap_or(u64::MAX).max(1)
    }

    async fn page(&self, status: &str, number: u64) -> PortResult<Option<RunsPage>> {
        let request =
            self.get("").with("status", &status).with("per_page", &PAGE).with("page", &number);
        let Some(answer) = self.ask(&request).await? else { return Ok(None) };
        if answer.status == 404 {
            self.log_once();
            return Ok(None);
        }
        Ok(Some(answer.read(&request)?))
    }

    /// Counts the queued jobs of a run's latest attempt by the label that they ask for: one of the run, or
    /// of a machine.
    pub(super) async fn waiting_jobs(&self, run: &RunId) -> PortResult<WaitingJobs> {
        let mut waiting = WaitingJobs::new();
        for job in self.jobs(run).await?.0.iter().filter(|job| job.status == "queued") {
            let mut labels = job.labels.iter();
            if let Some(label) = labels.find_map(|label| Label::of_run(run, label)) {
                *waiting.labels.entry(label).or_default() += 1;
                continue;
            }
            let mut labels = job.labels.iter();
            if let Some(label) = labels.find_map(|label| MachineLabel::new(label.as_str()).ok()) {
                *waiting.machine_labels.entry(label).or_default() += 1;
            }
        }
        Ok(waiting)
    }

    /// The jobs of a run's latest attempt that failed or were cancelled. `None` if not all jobs could
    /// be read.
    pub(super) async fn failed_jobs(
        &self,
        run: &RunId,
        pool_tag: &str,
    ) -> PortResult<Option<Vec<FailedJob>>> {
        let (jobs, is_complete) = self.jobs(run).await?;
        let failed = jobs.iter().filter(|job| {
            let conclusion = job.conclusion.as_deref().unwrap_or_default();
            matches!(conclusion, "failure" | "cancelled" | "timed_out")
        });
        let failed = failed.map(|job| {
            let runner = job.runner_name.as_deref().unwrap_or_default();
            FailedJob { id: job.id, instance: instance_of(runner, pool_tag).map(|(id, _)| id) }
        });
        Ok(is_complete.then(|| failed.collect()))
    }

    /// The jobs of a run's latest attempt, and whether these are all.
    async fn jobs(&self, run: &RunId) -> PortResult<(Vec<JobEntry>, bool)> {
        let mut jobs = Vec::new();
        if !is_of_github(run) {
            return Ok((jobs, true));
        }
        for number in 1_u64.. {
            let request = self
                .get(&format!("/{run}/jobs"))
                .with("filter", &"latest")
                .with("per_page", &PAGE)
                .with("page", &number);
            let Some(answer) = self.ask(&request).await? else { return Ok((jobs, false)) };
            // The run may have been deleted after it was listed.
            if answer.status == 404 {
                break;
            }
            let page: JobsPage = answer.read(&request)?;
            jobs.extend(page.jobs);
            if !answer.has_next() {
                break;
            }
        }
        Ok((jobs, true))
    }

    /// Runs jobs of a completed run again.
    pub(super) async fn rerun(&self, run: &RunId, what: Rerun) -> PortResult<()> {
        let path = match what {
            Rerun::Job(job) => format!("jobs/{job}/rerun"),
            Rerun::FailedJobs => format!("runs/{run}/rerun-failed-jobs"),
        };
        let path = format!("repos/{}/actions/{path}", self.repository);
        let request = Request::post(Purpose::Reruns(self.repository), path);
        let answer = self.reader.ask(&request).await?;
        match answer.is_success() {
            true => Ok(()),
            false => Err(self.reader.error_for(&request, &answer)),
        }
    }

    /// How far a run is. GitHub also answers 404 if the token may not read the repository; that is no
    /// answer about the run.
    pub(super) async fn status(&self, run: &RunId) -> PortResult<RunStatus> {
        if !is_of_github(run) {
            return Ok(RunStatus::Unknown);
        }
        let request = self.get(&format!("/{run}"));
        let Some(answer) = self.ask(&request).await? else { return Ok(RunStatus::Untold) };
        if answer.status == 404 {
            return Ok(match self.cannot_read.load(Ordering::Relaxed) {
                true => RunStatus::Untold,
                false => RunStatus::Unknown,
            });
        }
        let found: StatusEntry = answer.read(&request)?;
        Ok(match found.status.as_deref() {
            Some("completed") => RunStatus::Completed,
            _ => RunStatus::Open,
        })
    }

    fn get(&self, path: &str) -> Request<'_> {
        let path = format!("repos/{}/actions/runs{path}", self.repository);
        Request::get(Purpose::Runs(self.repository), path)
    }

    /// Sends a request if the budget allows it and the token may read runs. Returns successful
    /// answers and 404.
    async fn ask(&self, request: &Request<'_>) -> PortResult<Option<Answer>> {
        if !self.budget.spend() {
            return Ok(None);
        }
        let answer = self.reader.ask(request).await?;
        match answer.status {
            403 => {
                self.log_once();
                Ok(None)
            }
            404 => Ok(Some(answer)),
            _ if answer.is_success() => Ok(Some(answer)),
            _ => Err(self.reader.error_for(request, &answer)),
        }
    }

    fn log_once(&self) {
        if !self.cannot_read.swap(true, Ordering::Relaxed) {
            tracing::info!(
                repository = self.repository,
                "cannot read runs, so none are rescued; the token needs actions: read"
            );
        }
    }
}

/// Whether this can be a run of GitHub, whose ids are numbers. It becomes part of a path.
fn is_of_github(run: &RunId) -> bool {
    run.as_str().chars().all(|c| c.is_ascii_digit())
}
