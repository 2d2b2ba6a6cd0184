//! The forge, as a simulated process reaches it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::settings::Settings;
use ondeck_core::ports::{
    Forge, ListedRunner, OpenRuns, PortError, PortResult, RequestBudget, RunStatus, WaitingJobs,
};

use super::{ProcessPorts, SetUpService};
use crate::world::{TARGET, credentials};

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
        Some(TARGET.to_owned())
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
        let world = self.world.clone();
        self.call("forge", "runners", String::new, move || Ok(world.machines().runners())).await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        let (name, shown, world) = (name.to_owned(), name.to_owned(), self.world.clone());
        let by = self.pid;
        let remove = move || {
            world.audit().note_removed_runner(by, &name);
            world.machines().remove_runner(&name);
            Ok(())
        };
        self.call("forge", "remove runner", move || shown, remove).await
    }

    async fn open_runs(&self, _turn: u64, budget: &RequestBudget) -> PortResult<OpenRuns> {
        if !budget.spend() {
            return Ok(OpenRuns::default());
        }
        let world = self.world.clone();
        let ask = move || Ok(world.machines().open_runs());
        self.call("forge", "open runs", String::new, ask).await
    }

    async fn waiting_jobs(&self, run: &RunId, budget: &RequestBudget) -> PortResult<WaitingJobs> {
        if !budget.spend() {
            return Ok(WaitingJobs::new());
        }
        let (run, shown, world) = (run.clone(), run.clone(), self.world.clone());
        let ask = move || Ok(world.machines().waiting_jobs(&run));
        self.call("forge", "waiting jobs", move || shown.to_string(), ask).await
    }

    async fn run_status(&self, run: &RunId, budget: &RequestBudget) -> PortResult<RunStatus> {
        if !budget.spend() {
            return Ok(RunStatus::Untold);
        }
        let (run, shown, world) = (run.clone(), run.clone(), self.world.clone());
        let ask = move || match world.machines().has_completed(&run) {
            true => Ok(RunStatus::Completed),
            false => Ok(RunStatus::Open),
        };
        self.call("forge", "run status", move || shown.to_string(), ask).await
    }
}
