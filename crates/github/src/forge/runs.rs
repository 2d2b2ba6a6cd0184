//! Runs that wait for machines: those with queued jobs that ask for the run's own id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{PortResult, WaitingRun};
use serde::Deserialize;

use super::list::PAGE;
use crate::auth::Identity;
use crate::client::{Purpose, Request};

/// How many runs are looked at, the newest first.
const RUNS: usize = 200;
/// GitHub gives a thousand runs of a status, and no more.
const PAGES: usize = 10;
/// How many pages of jobs are read: a run may have 256 jobs of each matrix.
const JOB_PAGES: usize = 50;
/// How many runs are looked at at the same time.
const AT_ONCE: usize = 8;

#[derive(Deserialize)]
pub(super) struct Runs {
    workflow_runs: Vec<Run>,
}

#[derive(Deserialize)]
pub(super) struct Run {
    id: u64,
}

#[derive(Deserialize)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
pub(super) struct Job {
    status: String,
    labels: Vec<String>,
}

/// Finds them. Where the token may not read runs, none are found, and it is said once.
pub(super) async fn waiting(
    reader: &Identity,
    repository: &str,
    served: &BTreeSet<RunId>,
    said: &AtomicBool,
) -> PortResult<Vec<WaitingRun>> {
    let mut open = BTreeMap::new();
    for status in ["queued", "in_progress"] {
        let Some(found) = of_status(reader, repository, status, served).await? else {
            say_once(said, repository);
            return Ok(Vec::new());
        };
        open.extend(found);
    }
    if open.len() > RUNS {
        tracing::warn!(repository, "only the newest {RUNS} open runs are looked at");
    }
    let newest = open.into_iter().rev().take(RUNS);
    let looks = stream::iter(newest.map(|(id, run)| async move {
        let jobs = queued_jobs(reader, repository, id, &run).await?;
        let jobs = jobs.unwrap_or_else(|| {
            say_once(said, repository);
            0
        });
        Ok(WaitingRun { run, jobs })
    }));
    let looked: Vec<WaitingRun> = looks.buffered(AT_ONCE).try_collect().await?;
    Ok(looked.into_iter().filter(|waiting| waiting.jobs > 0).collect())
}

/// The runs of a status that nobody serves, by number: newer ones have higher ones. Nothing if
/// they may not be read.
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
            return Err(reader.complaint(&request, &answer));
        }
        let page: Runs = answer.read(&request)?;
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

/// How many jobs of a run's latest attempt wait under its own label. Nothing if they may not be
/// read.
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
        // It was deleted since it was listed.
        if answer.status == 404 {
            return Ok(Some(0));
        }
        if answer.status == 403 {
            return Ok(None);
        }
        if !answer.is_success() {
            return Err(reader.complaint(&request, &answer));
        }
        let page: Jobs = answer.read(&request)?;
        let waits = |job: &&Job| {
            job.status == "queued" && job.labels.iter().any(|label| label == run.as_str())
        };
        count += u32::try_from(page.jobs.iter().filter(waits).count()).unwrap_or(u32::MAX);
        if !answer.has_next() {
            break;
        }
    }
    Ok(Some(count))
}

fn say_once(said: &AtomicBool, repository: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        tracing::info!(
            repository,
            "runs cannot be read, so none are rescued; that needs actions: read"
        );
    }
}
