use async_trait::async_trait;
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{
    FailedJob, Forge, ListedRunner, OpenRuns, PortError, PortResult, RequestBudget, Rerun,
    RunStatus, WaitingJobs,
};

/// The forge of every mode but refresh. Each call fails.
#[derive(Debug)]
pub(super) struct NoForge;

fn refused<T>() -> PortResult<T> {
    Err(PortError::Forge { reason: "only refresh calls the forge".to_owned(), hint: String::new() })
}

#[async_trait]
impl Forge for NoForge {
    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        refused()
    }

    async fn remove_runner(&self, _name: &str) -> PortResult<()> {
        refused()
    }

    async fn open_runs(&self, _turn: u64, _budget: &RequestBudget) -> PortResult<OpenRuns> {
        refused()
    }

    async fn waiting_jobs(&self, _run: &RunId, _budget: &RequestBudget) -> PortResult<WaitingJobs> {
        refused()
    }

    async fn failed_jobs(
        &self,
        _run: &RunId,
        _budget: &RequestBudget,
    ) -> PortResult<Option<Vec<FailedJob>>> {
        refused()
    }

    async fn rerun(&self, _run: &RunId, _what: Rerun) -> PortResult<()> {
        refused()
    }

    async fn run_status(&self, _run: &RunId, _budget: &RequestBudget) -> PortResult<RunStatus> {
        refused()
    }
}
