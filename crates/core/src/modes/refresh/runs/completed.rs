//! Completed runs: releases the machines of those that never called release.
//!
//! A completed run may be re-run at any time, and its machines are then used again. So each release
//! follows the forge's answer at once, and is left out if the run has called provision meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tokio::sync::Mutex;

use super::{about_run, not_all, not_examined};
use crate::model::demand::Demand;
use crate::model::failure::Failure;
use crate::model::ids::RunId;
use crate::modes::plane::Plane;
use crate::modes::refresh::limit::{self, Limit};
use crate::modes::refresh::{Outcome, keep_first};
use crate::modes::release;
use crate::ports::{PortError, PortResult, RequestBudget, RunStatus};

/// What the forge says about runs. One that it did not tell about, because it limits requests, is not
/// among them; nor is one that it failed to tell about.
#[derive(Default)]
pub(super) struct Attended {
    pub(super) status: BTreeMap<RunId, RunStatus>,
    /// The runs that it failed to tell about.
    pub(super) failed: Vec<RunId>,
    pub(super) limited: bool,
    /// The first failure of a release.
    pub(super) failure: Option<Failure>,
}

/// Asks the forge about these runs, one after the other, and releases each that has completed, all at
/// once. A run about which the forge fails is a warning. Fails if the store does not answer.
pub(super) async fn attend(
    plane: &Plane,
    runs: &[&RunId],
    budget: &RequestBudget,
    limit: Option<Limit>,
    outcome: &mut Outcome,
) -> Result<Attended, Failure> {
    let mut attended = Attended::default();
    if runs.is_empty() {
        return Ok(attended);
    }
    let asking = Asking {
        plane,
        budget,
        limit,
        turn: Mutex::new(()),
        limited: AtomicBool::new(false),
        before: demands(plane, runs).await?,
    };
    let answers = join_all(runs.iter().map(|run| asking.attend(run))).await;
    for (run, answer) in runs.iter().map(|run| (*run).clone()).zip(answers) {
        match answer {
            Answer::NotAsked => {}
            Answer::Limited(reason) => {
                outcome.warnings.push(not_all(&reason));
                attended.limited = true;
            }
            Answer::Failed(error) => {
                outcome.warnings.push(not_examined(&run, &error));
                attended.failed.push(run);
            }
            Answer::Status(status) => drop(attended.status.insert(run, status)),
            Answer::Released(released) => {
                let reported = released.map(|released| report(&run, released, outcome));
                keep_first(&mut attended.failure, reported);
                attended.status.insert(run, RunStatus::Completed);
            }
        }
    }
    Ok(attended)
}

fn report(run: &RunId, released: Option<release::Outcome>, outcome: &mut Outcome) {
    let Some(released) = released.filter(|released| !released.instances.is_empty()) else { return };
    tracing::warn!(%run, "the run has completed without a release; its machines were released");
    if let Some(failure) = released.failure() {
        outcome.warnings.push(format!("run {run} has completed without a release: {failure}"));
    }
    outcome.completed.push(run.clone());
}

enum Answer {
    /// The forge limits requests.
    NotAsked,
    Limited(String),
    Failed(PortError),
    Status(RunStatus),
    /// It has completed. Carries `None` if it has called provision since.
    Released(Result<Option<release::Outcome>, Failure>),
}

struct Asking<'a> {
    plane: &'a Plane,
    budget: &'a RequestBudget,
    limit: Option<Limit>,
    /// Held while the forge is asked.
    turn: Mutex<()>,
    limited: AtomicBool,
    /// What the runs had asked for before the forge was asked.
    before: Vec<Demand>,
}

impl Asking<'_> {
    async fn attend(&self, run: &RunId) -> Answer {
        match self.ask(run).await {
            None => Answer::NotAsked,
            Some(Ok(RunStatus::Completed)) => Answer::Released(self.release(run).await),
            Some(Ok(status)) => Answer::Status(status),
            Some(Err(PortError::Limited { reason, .. })) => Answer::Limited(reason),
            Some(Err(error)) => Answer::Failed(error),
        }
    }

    /// Asks the forge, unless it has limited requests before.
    async fn ask(&self, run: &RunId) -> Option<PortResult<RunStatus>> {
        let _turn = self.turn.lock().await;
        if self.limited.load(Ordering::Relaxed) {
            return None;
        }
        let status = about_run(self.plane, || self.plane.forge.run_status(run, self.budget)).await;
        let limited = matches!(status, Err(PortError::Limited { .. }));
        self.limited.store(limited, Ordering::Relaxed);
        Some(status)
    }

    /// Releases a run, unless it has called provision since before the forge was asked. The machines are
    /// read first: what a later call of the run adopts is not as it was then.
    async fn release(&self, run: &RunId) -> Result<Option<release::Outcome>, Failure> {
        let listing = self.plane.retried(|| self.plane.store.of_run(run)).await?;
        let now = demands(self.plane, &[run]).await?;
        let before = self.before.iter().filter(|demand| demand.run == *run);
        if !before.eq(now.iter()) {
            tracing::info!(%run, "the run has called provision meanwhile, so it is not released");
            return Ok(None);
        }
        let released = release::release_completed(self.plane, run, listing);
        // What its agents have not answered by then, the next refresh announces.
        limit::handshakes(self.plane, self.limit, released).await.transpose()
    }
}

async fn demands(plane: &Plane, runs: &[&RunId]) -> PortResult<Vec<Demand>> {
    let runs: Vec<RunId> = runs.iter().map(|run| (*run).clone()).collect();
    plane.retried(|| plane.store.demands(&runs)).await
}
