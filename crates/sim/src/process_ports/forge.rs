//! The forge, as a simulated process reaches it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::settings::Settings;
use ondeck_core::ports::{
    FailedJob, Forge, ListedRunner, OpenRun, OpenRuns, PortError, PortResult, RequestBudget, Rerun,
    RunStatus, WaitingJobs,
};

use super::{ProcessPorts, SetUpService};
use crate::faults::Fault;
use crate::world::{TARGET, credentials};

/// Why a forge that limits requests does not answer.
pub(crate) const TOO_MANY_REQUESTS: &str = "too many requests";

/// Why the forge does not remove a runner.
pub(crate) fn has_a_job(runner: &str) -> String {
    format!("{runner} has a job")
}

impl ProcessPorts {
    /// The error of a forge that limits requests. If it limits those of this process, it does so from one
    /// of the first on.
    fn limit(&self) -> Option<PortError> {
        const MOST_ADMITTED: u32 = 4;
        let mut random = self.policy.random_for(&format!("limits {}", self.name));
        let now = self.world.kernel.now();
        let admitted = random.u32(0..=MOST_ADMITTED);
        let is_limited = self.policy.injects(Fault::ForgeLimits, now, &mut random);
        if !is_limited || self.requests.fetch_add(1, Ordering::Relaxed) < admitted {
            return None;
        }
        self.world.kernel.count(Fault::ForgeLimits);
        self.world.audit().limits_requests(self.pid);
        let (reason, hint) = (TOO_MANY_REQUESTS.to_owned(), "wait".to_owned());
        Some(PortError::Limited { reason, hint, is_over: false })
    }
}

#[async_trait]
impl Forge for ProcessPorts {
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        let refuses = self.refuses_set_up(SetUpService::Forge);
        let set_up = move || match refuses {
            true => {
                let (reason, hint) = ("the token is not valid", "give another token");
                Err(PortError::Forge { reason: reason.to_owned(), hint: hint.to_owned() })
            }
            false => Ok(BTreeMap::new()),
        };
        self.call("forge", "set up forge", String::new, set_up).await
    }

    fn target(&self) -> Option<String> {
        // It is asked for even if the settings are refused before the forge is set up.
        let is_another = self.has_another_forge();
        if is_another {
            self.world.audit().has_another_forge(self.pid);
        }
        let target = if is_another { "another" } else { TARGET };
        Some(target.to_owned())
    }

    async fn mint(&self) -> PortResult<Option<Credentials>> {
        let (world, life) = (self.world.clone(), self.policy.token_life);
        let by = self.pid;
        let mint = move || {
            let now = world.kernel.true_time();
            world.audit().mints(by, now);
            Ok(Some(credentials(now + life)))
        };
        self.call("forge", "mint", String::new, mint).await
    }

    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        let (world, is_another) = (self.world.clone(), self.has_another_forge());
        let list = move || match is_another {
            true => Ok(Vec::new()),
            false => Ok(world.machines().runners(world.kernel.now())),
        };
        self.call("forge", "runners", String::new, list).await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        let (name, shown, world) = (name.to_owned(), name.to_owned(), self.world.clone());
        let (by, limit) = (self.pid, self.limit());
        let remove = move || {
            if let Some(limit) = &limit {
                return Err(limit.clone());
            }
            if !world.machines().remove_runner(&name, world.kernel.now()) {
                let (reason, hint) = (has_a_job(&name), "wait".to_owned());
                return Err(PortError::Forge { reason, hint });
            }
            world.audit().note_removed_runner(by, &name);
            Ok(())
        };
        self.call("forge", "remove runner", move || shown, remove).await
    }

    async fn open_runs(&self, _turn: u64, budget: &RequestBudget) -> PortResult<OpenRuns> {
        if !budget.spend() {
            return Ok(OpenRuns::default());
        }
        let (world, lists_waiting_jobs) = (self.world.clone(), self.policy.lists_waiting_jobs);
        let (limit, is_another, by) = (self.limit(), self.has_another_forge(), self.pid);
        let ask = move || match &limit {
            Some(limit) => Err(limit.clone()),
            None if is_another => Ok(OpenRuns::default()),
            None => {
                let open = world.machines().open_runs(lists_waiting_jobs);
                for OpenRun { run, waiting } in &open.runs {
                    let waiting = waiting.iter();
                    waiting.for_each(|waiting| world.audit().sees_waiting(by, run, waiting));
                }
                Ok(open)
            }
        };
        self.call("forge", "open runs", String::new, ask).await
    }

    async fn waiting_jobs(&self, run: &RunId, budget: &RequestBudget) -> PortResult<WaitingJobs> {
        if !budget.spend() {
            return Ok(WaitingJobs::new());
        }
        let (run, shown, world) = (run.clone(), run.clone(), self.world.clone());
        let (limit, by) = (self.limit(), self.pid);
        let ask = move || match &limit {
            Some(limit) => Err(limit.clone()),
            None => {
                let waiting = world.machines().waiting_jobs(&run);
                world.audit().sees_waiting(by, &run, &waiting);
                Ok(waiting)
            }
        };
        self.call("forge", "waiting jobs", move || shown.to_string(), ask).await
    }

    async fn run_status(&self, run: &RunId, budget: &RequestBudget) -> PortResult<RunStatus> {
        if !budget.spend() {
            return Ok(RunStatus::Untold);
        }
        let (run, shown, world) = (run.clone(), run.clone(), self.world.clone());
        let (limit, is_another) = (self.limit(), self.has_another_forge());
        let ask = move || match (&limit, world.machines().has_completed(&run)) {
            (Some(limit), _) => Err(limit.clone()),
            (None, _) if is_another => Ok(RunStatus::Unknown),
            (None, true) => Ok(RunStatus::Completed),
            (None, false) => Ok(RunStatus::Open),
        };
        self.call("forge", "run status", move || shown.to_string(), ask).await
    }

    async fn failed_jobs(
        &self,
        run: &RunId,
        budget: &RequestBudget,
    ) -> PortResult<Option<Vec<FailedJob>>> {
        if !budget.spend() {
            return Ok(None);
        }
        let (run, shown, world) = (run.clone(), run.clone(), self.world.clone());
        let limit = self.limit();
        let ask = move || match &limit {
            Some(limit) => Err(limit.clone()),
            None => Ok(Some(world.machines().failed_jobs(&run))),
        };
        self.call("forge", "failed jobs", move || shown.to_string(), ask).await
    }

    async fn rerun(&self, run: &RunId, what: Rerun) -> PortResult<()> {
        let (run, shown, world) = (run.clone(), run.clone(), self.world.clone());
        let by = self.pid;
        let mut has_arrived = false;
        let rerun = move || {
            let now = world.kernel.now();
            let mut machines = world.machines();
            if !std::mem::replace(&mut has_arrived, true) {
                world.audit().reruns(by, &run, what, &machines);
            }
            match machines.rerun(&run, what, now) {
                true => Ok(()),
                false => {
                    let reason = "the run has not completed".to_owned();
                    Err(PortError::Forge { reason, hint: String::new() })
                }
            }
        };
        self.call("forge", "rerun", move || format!("{shown} {what:?}"), rerun).await
    }
}
