//! Runs that wait for machines: those with queued jobs whose labels include the run's id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{PortResult, WaitingRun};
use serde::Deserialize;

use super::runner_list::PAGE;
use crate::auth::Identity;
use crate::client::{Purpose, Request};

/// How many runs are examined, newest first.
const RUNS: usize = 200;
/// GitHub returns at most a thousand runs of a status.
const PAGES: usize = 10;
/// How many pages of jobs are read: a run may have 256 jobs of each matrix.
const JOB_PAGES: usize = 50;
/// How many runs are examined concurrently.
const AT_ONCE: usize = 8;

#[derive(Deserialize)]
pub(super) struct RunsPage {
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
    status: String,
    labels: Vec<String>,
}

/// Returns the open runs of a repository that have waiting jobs and are not in `served`. If the token
/// may not read runs, returns none and logs that once.
pub(super) async fn waiting(
    reader: &Identity,
    repository: &str,
    served: &BTreeSet<RunId>,
    logged: &AtomicBool,
) -> PortResult<Vec<WaitingRun>> {
    let mut open = BTreeMap::new();
    for status in ["queued", "in_progress"] {
        let Some(found) = of_status(reader, repository, status, served).await? else {
            log_once(logged, repository);
            return Ok(Vec::new());
        };
        open.extend(found);
    }
    if open.len() > RUNS {
        tracing::warn!(repository, "only the newest {RUNS} open runs are examined");
    }
    let newest = open.into_iter().rev().take(RUNS);
    let looks = stream::iter(newest.map(|(id, run)| async move {
        let jobs = queued_jobs(reader, repository, id, &run).await?;
        let jobs = jobs.unwrap_or_else(|| {
            log_once(logged, repository);
            0
        });
        Ok(WaitingRun { run, jobs })
    }));
    let looked: Vec<WaitingRun> = looks.buffered(AT_ONCE).try_collect().await?;
    Ok(looked.into_iter().filter(|waiting| waiting.jobs > 0).collect())
}

/// Returns the runs of a status that are not in `served`, by id; newer runs have higher ids. `None`
/// if the token may not read them.
async fn of_status(
    reader: &Identity,
    repository: &str,
    status: &str,
    served: &BTreeSet<RunId>,
) -> PortResult<Option<BTreeMap<u64, RunId>>> {
    let mut found = BTreeMap::new();
    for number in 1..=PAGES {
        let request =
            Request::get(Purpose::Runs(repository), format!("repos/{repository}/actions/runs"));
        let request = request.with("status", &status).with("per_page", &PAGE).with("page", &number);
        let answer = reader.ask(&request).await?;
        if matches!(answer.status, 403 | 404) {
            return Ok(None);
        }
        if !answer.is_success() {
            return Err(reader.error_for(&request, &answer));
        }
        let page: RunsPage = answer.read(&request)?;
        let runs = page
            .workflow_runs
            .iter()
            .filter_map(|run| Some((run.id, RunId::new(run.id.to_string()).ok()?)));
        found.extend(runs.filter(|(_, run)| !served.contains(run)));
        if !answer.has_next() || found.len() > RUNS {
            break;
        }
    }
    Ok(Some(found))
}

/// Counts the queued jobs of a run's latest attempt whose labels include the run's id. `None` if the
/// token may not read them.
async fn queued_jobs(
    reader: &Identity,
    repository: &str,
    id: u64,
    run: &RunId,
) -> PortResult<Option<u32>> {
    let mut count = 0;
    for number in 1..=JOB_PAGES {
        let path = format!("repos/{repository}/actions/runs/{id}/jobs");
        let request = Request::get(Purpose::Runs(repository), path)
            .with("filter", &"latest")
            .with("per_page", &PAGE)
            .with("page", &number);
        let answer = reader.ask(&request).await?;
        // The run was deleted after it was listed.
        if answer.status == 404 {
            return Ok(Some(0));
        }
        if answer.status == 403 {
            return Ok(None);
        }
        if !answer.is_success() {
            return Err(reader.error_for(&request, &answer));
        }
        let page: JobsPage = answer.read(&request)?;
        let waits = |job: &&JobEntry| {
            job.status == "queued" && job.labels.iter().any(|label| label == run.as_str())
        };
        count += u32::try_from(page.jobs.iter().filter(waits).count()).unwrap_or(u32::MAX);
        if !answer.has_next() {
            break;
        }
    }
    Ok(Some(count))
}

fn log_once(logged: &AtomicBool, repository: &str) {
    if !logged.swap(true, Ordering::Relaxed) {
        tracing::info!(
            repository,
            "cannot read runs, so none are rescued; the token needs actions: read"
        );
    }
}
