//! The runner and the machine as an agent has them in its hands.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::ports::{Clock, Host, Runner};

use crate::faults::Fault;
use crate::kernel::Micros;
use crate::simulated_machines::SimulatedMachines;
use crate::wire::Wire;
use crate::world::at_once;

/// One machine, as its agent knows it.
pub(crate) struct Rig {
    pub(crate) wire: Arc<Wire>,
    pub(crate) id: InstanceId,
    /// When the provider says that it will take the machine away.
    pub(crate) notice_at: Option<Micros>,
}

impl Rig {
    /// Does something to the machine, unless that fails.
    async fn act(
        &self,
        (service, what): (&'static str, &'static str),
        may_fail: bool,
        mut effect: impl FnMut(&mut SimulatedMachines) + Send + 'static,
    ) -> Result<(), String> {
        if may_fail && self.wire.befalls(Fault::RunnerFails) {
            self.wire.world.kernel.note(&self.wire.name, || format!("{what}  ** fails"));
            return Err(format!("{what} failed"));
        }
        let world = self.wire.world.clone();
        let act = move || {
            effect(&mut world.yard());
            Ok(())
        };
        self.wire.call(service, what, String::new, act).await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Runner for Rig {
    /// Stops everything that an earlier agent has left running.
    async fn prepare(&self) -> Result<(), String> {
        let id = self.id.clone();
        self.act(("machine", "prepare"), true, move |yard| {
            yard.set_online(&id, false);
            yard.lose_job(&id);
            yard.believe(&id, None);
        })
        .await
    }

    async fn register(&self, run: &RunId) -> Result<(), String> {
        self.wire.world.yard().believe(&self.id, Some(run));
        let (id, run) = (self.id.clone(), run.clone());
        if !self.wire.world.kernel.is_by_choice() {
            let taking = self.wire.chance().u64(0..2000);
            self.wire.sleep(Duration::from_millis(taking)).await;
        }
        self.act(("forge", "register runner"), true, move |yard| yard.register(&id, &run)).await
    }

    async fn work(&self, _run: &RunId) -> String {
        self.wire.world.yard().set_online(&self.id, true);
        if self.wire.befalls(Fault::RunnerDies) {
            let lives = self.wire.chance().u64(0..60);
            self.wire.sleep(Duration::from_secs(lives)).await;
            let mut yard = self.wire.world.yard();
            yard.set_online(&self.id, false);
            yard.lose_job(&self.id);
            return "it was killed".to_owned();
        }
        std::future::pending().await
    }

    async fn stop(&self) -> Result<(), String> {
        let id = self.id.clone();
        self.act(("machine", "stop runner"), true, move |yard| {
            yard.set_online(&id, false);
            yard.lose_job(&id);
        })
        .await
    }

    async fn deregister(&self) -> Result<(), String> {
        let id = self.id.clone();
        self.act(("forge", "deregister runner"), true, move |yard| {
            yard.deregister(&id);
            yard.believe(&id, None);
        })
        .await
    }

    async fn clean(&self) -> Result<(), String> {
        self.act(("machine", "clean"), true, |_| {}).await
    }
}

#[async_trait]
impl Host for Rig {
    async fn run_script(&self, _script: &str) -> Result<(), String> {
        self.act(("machine", "script"), true, |_| {}).await
    }

    async fn interruption(&self) -> String {
        let Some(at) = self.notice_at else { return std::future::pending().await };
        let left = at.saturating_sub(self.wire.world.kernel.now());
        self.wire.sleep(Duration::from_micros(left)).await;
        "spot interruption".to_owned()
    }

    /// By the provider, and where that does not answer by shutting down, which always works.
    async fn terminate(&self, why: &str) {
        let world = self.wire.world.clone();
        world.audit().ended_itself(self.wire.pid, &self.id, (world.kernel.now(), self.wire.now()));
        world.kernel.note(&self.wire.name, || format!("ends its machine: {why}"));
        let (id, of) = (self.id.clone(), world.clone());
        let end = move || {
            of.yard().doomed(std::slice::from_ref(&id));
            at_once(ondeck_core::ports::Compute::terminate(&of.compute, std::slice::from_ref(&id)))
        };
        if self.wire.call("compute", "end itself", String::new, end).await.is_err() {
            world.compute.kill(&self.id);
            world.yard().doomed(std::slice::from_ref(&self.id));
        }
    }
}
