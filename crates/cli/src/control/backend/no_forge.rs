use std::collections::BTreeSet;

use async_trait::async_trait;
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{Forge, ListedRunner, PortError, PortResult, WaitingRun};

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

    async fn waiting_runs(&self, _served: &BTreeSet<RunId>) -> PortResult<Vec<WaitingRun>> {
        refused()
    }
}
