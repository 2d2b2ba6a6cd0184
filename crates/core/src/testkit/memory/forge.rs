use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use async_trait::async_trait;

use super::{lock, turn};
use crate::model::credentials::Credentials;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::settings::Settings;
use crate::ports::{
    FailedJob, Forge, ListedRunner, OpenRun, OpenRuns, PortError, PortResult, RequestBudget, Rerun,
    RunStatus, WaitingJobs,
};

/// A list of runners in memory.
#[derive(Debug, Default)]
pub struct MemoryForge {
    runners: Mutex<Vec<ListedRunner>>,
    waiting: Mutex<Vec<Label>>,
    waiting_for_machines: Mutex<Vec<(RunId, MachineLabel)>>,
    /// Runs in progress whose jobs do not wait.
    open: Mutex<BTreeSet<RunId>>,
    completed: Mutex<BTreeSet<RunId>>,
    deleted: Mutex<BTreeSet<RunId>>,
    answers_held: Mutex<bool>,
    /// Runs about which each request fails.
    unreadable: Mutex<BTreeSet<RunId>>,
    /// The jobs of completed runs that did not succeed.
    failed: Mutex<BTreeMap<RunId, Vec<FailedJob>>>,
    reruns: Mutex<Vec<(RunId, Rerun)>>,
    /// Whether waiting jobs are listed for one run at a time only.
    asked_by_run: Mutex<bool>,
    /// What was asked about runs.
    requests: Mutex<Vec<String>>,
    /// After how many further requests about runs there is a rate limit.
    limited_after: Mutex<Option<u32>>,
    minted: Mutex<Vec<Credentials>>,
    busy: Mutex<BTreeSet<String>>,
    set_up_refused: Mutex<bool>,
    mint_refused: Mutex<bool>,
    target: Mutex<Option<String>>,
    notice: Mutex<Option<String>>,
}

impl MemoryForge {
    /// Sets what it has to say to the operator.
    pub fn give_notice(&self, notice: &str) {
        *lock(&self.notice) = Some(notice.to_owned());
    }

    pub fn list(&self, runner: ListedRunner) {
        lock(&self.runners).push(runner);
    }

    /// Refuses to remove this runner from now on, because it is busy.
    pub fn keep_busy(&self, name: &str) {
        lock(&self.busy).insert(name.to_owned());
    }

    /// Queues a job for a label of a run.
    pub fn queue_job(&self, label: impl Into<Label>) {
        lock(&self.waiting).push(label.into());
    }

    /// Queues a job of a run for the label of a machine.
    pub fn queue_job_for_machine(&self, run: RunId, label: MachineLabel) {
        lock(&self.open).insert(run.clone());
        lock(&self.waiting_for_machines).push((run, label));
    }

    /// Forgets the waiting jobs: they were taken or cancelled.
    pub fn clear_jobs(&self) {
        lock(&self.waiting_for_machines).clear();
        lock(&self.waiting).clear();
    }

    /// The run is in progress, also while none of its jobs wait.
    pub fn open(&self, run: RunId) {
        lock(&self.completed).remove(&run);
        lock(&self.open).insert(run);
    }

    /// The run has completed.
    pub fn complete(&self, run: RunId) {
        lock(&self.open).remove(&run);
        lock(&self.waiting).retain(|label| label.run != run);
        lock(&self.completed).insert(run);
    }

    /// The run is deleted.
    pub fn delete(&self, run: RunId) {
        lock(&self.open).remove(&run);
        lock(&self.completed).remove(&run);
        lock(&self.waiting).retain(|label| label.run != run);
        lock(&self.deleted).insert(run);
    }

    /// Keeps answers about how far runs are from arriving, from now on or no longer.
    pub fn hold_answers(&self, hold: bool) {
        *lock(&self.answers_held) = hold;
    }

    /// Fails every request about this run from now on, as a server with an error does.
    pub fn fail_requests_of(&self, run: RunId) {
        lock(&self.unreadable).insert(run);
    }

    /// A job of the run has failed on a machine.
    pub fn fail_job(&self, run: RunId, id: u64, instance: InstanceId) {
        let job = FailedJob { id, instance: Some(instance) };
        lock(&self.failed).entry(run).or_default().push(job);
    }

    pub fn reruns(&self) -> Vec<(RunId, Rerun)> {
        lock(&self.reruns).clone()
    }

    /// From now on, each run's waiting jobs have to be asked for, as at GitHub.
    pub fn ask_by_run(&self) {
        *lock(&self.asked_by_run) = true;
    }

    /// Limits requests about runs, after this many of them.
    pub fn limit_after(&self, requests: Option<u32>) {
        *lock(&self.limited_after) = requests;
    }

    /// What was asked about runs since the last call: the list, or the id of a run.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.requests))
    }

    /// Sends a request about runs. Returns `false` if the budget is spent.
    fn request(&self, budget: &RequestBudget, what: &str) -> PortResult<bool> {
        if !budget.spend() {
            return Ok(false);
        }
        if let Some(left) = &mut *lock(&self.limited_after) {
            let Some(rest) = left.checked_sub(1) else {
                let reason = "the forge limits requests".to_owned();
                return Err(PortError::Limited { reason, hint: String::new(), is_over: false });
            };
            *left = rest;
        }
        lock(&self.requests).push(what.to_owned());
        if lock(&self.unreadable).iter().any(|run| run.as_str() == what) {
            let reason = "internal error".to_owned();
            return Err(PortError::Unavailable { service: "forge", reason });
        }
        Ok(true)
    }

    fn waiting_for(&self, run: &RunId) -> WaitingJobs {
        let mut jobs = WaitingJobs::new();
        for label in lock(&self.waiting).iter().filter(|label| label.run == *run) {
            *jobs.labels.entry(label.clone()).or_default() += 1;
        }
        for (_, label) in lock(&self.waiting_for_machines).iter().filter(|(of, _)| of == run) {
            *jobs.machine_labels.entry(label.clone()).or_default() += 1;
        }
        jobs
    }

    /// Refuses to be set up from now on, or no longer.
    pub fn refuse_set_up(&self, refuse: bool) {
        *lock(&self.set_up_refused) = refuse;
    }

    /// Refuses to mint credentials from now on, or no longer.
    pub fn refuse_to_mint(&self, refuse: bool) {
        *lock(&self.mint_refused) = refuse;
    }

    /// From now on, is another forge, on which runners register with this target.
    pub fn move_to(&self, target: &str) {
        *lock(&self.target) = Some(target.to_owned());
    }

    /// Requires credentials from now on, and mints these, the last one first.
    pub fn set_credentials(&self, credentials: Vec<Credentials>) {
        *lock(&self.minted) = credentials;
    }
}

fn forge_refuses<T>() -> PortResult<T> {
    let (reason, hint) = ("the forge refuses".to_owned(), "give a token".to_owned());
    Err(PortError::Forge { reason, hint })
}

#[async_trait]
impl Forge for MemoryForge {
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        turn().await;
        if *lock(&self.set_up_refused) {
            return forge_refuses();
        }
        Ok(BTreeMap::new())
    }

    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        turn().await;
        Ok(lock(&self.runners).clone())
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        turn().await;
        if lock(&self.busy).contains(name) {
            let reason = format!("the runner is busy and stays on the list: {name}");
            return Err(PortError::Forge { reason, hint: String::new() });
        }
        lock(&self.runners).retain(|runner| runner.name != name);
        Ok(())
    }

    fn notice(&self) -> Option<String> {
        lock(&self.notice).clone()
    }

    fn target(&self) -> Option<String> {
        let moved = lock(&self.target).clone();
        moved.or_else(|| lock(&self.minted).first().map(|_| "memory".to_owned()))
    }

    async fn mint(&self) -> PortResult<Option<Credentials>> {
        turn().await;
        if *lock(&self.mint_refused) {
            return forge_refuses();
        }
        let mut minted = lock(&self.minted);
        Ok(if minted.len() > 1 { minted.pop() } else { minted.first().cloned() })
    }

    async fn open_runs(&self, _turn: u64, budget: &RequestBudget) -> PortResult<OpenRuns> {
        turn().await;
        self.request(budget, "open runs")?;
        let mut runs = lock(&self.open).clone();
        runs.extend(lock(&self.waiting).iter().map(|label| label.run.clone()));
        let waiting = |run: &RunId| (!*lock(&self.asked_by_run)).then(|| self.waiting_for(run));
        let open = |run: RunId| OpenRun { waiting: waiting(&run), run };
        Ok(OpenRuns { runs: runs.into_iter().map(open).collect(), is_partial: false })
    }

    async fn waiting_jobs(&self, run: &RunId, budget: &RequestBudget) -> PortResult<WaitingJobs> {
        turn().await;
        Ok(match self.request(budget, run.as_str())? {
            true => self.waiting_for(run),
            false => WaitingJobs::new(),
        })
    }

    async fn failed_jobs(
        &self,
        run: &RunId,
        budget: &RequestBudget,
    ) -> PortResult<Option<Vec<FailedJob>>> {
        turn().await;
        let failed = || lock(&self.failed).get(run).cloned().unwrap_or_default();
        Ok(self.request(budget, run.as_str())?.then(failed))
    }

    async fn rerun(&self, run: &RunId, what: Rerun) -> PortResult<()> {
        turn().await;
        if !lock(&self.completed).contains(run) {
            return forge_refuses();
        }
        lock(&self.reruns).push((run.clone(), what));
        Ok(())
    }

    async fn run_status(&self, run: &RunId, budget: &RequestBudget) -> PortResult<RunStatus> {
        turn().await;
        let is_in = |runs: &Mutex<BTreeSet<RunId>>| lock(runs).contains(run);
        let status = match self.request(budget, run.as_str())? {
            false => RunStatus::Untold,
            true if is_in(&self.completed) => RunStatus::Completed,
            true if is_in(&self.deleted) => RunStatus::Unknown,
            true => RunStatus::Open,
        };
        while *lock(&self.answers_held) {
            turn().await;
        }
        Ok(status)
    }
}
