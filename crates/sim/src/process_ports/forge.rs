//! The forge, as a simulated process reaches it.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{Forge, ListedRunner, PortResult, WaitingRun};

use super::ProcessPorts;

#[async_trait]
impl Forge for ProcessPorts {
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

    async fn waiting_runs(&self, served: &BTreeSet<RunId>) -> PortResult<Vec<WaitingRun>> {
        let (served, world) = (served.clone(), self.world.clone());
        let ask = move || Ok(world.machines().waiting(&served));
        self.call("forge", "waiting runs", String::new, ask).await
    }
}
