//! The port `Runner` on a machine whose jobs are kept from the metadata service.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::Runner;

use super::MetadataFirewall;

/// A runner that is prepared only once the rule is loaded, and whose cleaning fails if the rule does
/// not hold any more.
pub struct FirewalledRunner {
    runner: Arc<dyn Runner>,
    /// Or why there is none, which makes `prepare` fail.
    firewall: Result<Arc<MetadataFirewall>, String>,
}

impl FirewalledRunner {
    /// `runner` must start its commands with [`MetadataFirewall::job_wrapper`] of the same firewall.
    pub fn new(
        runner: Arc<dyn Runner>,
        firewall: Result<Arc<MetadataFirewall>, String>,
    ) -> FirewalledRunner {
        FirewalledRunner { runner, firewall }
    }

    fn firewall(&self) -> Result<&MetadataFirewall, String> {
        self.firewall.as_deref().map_err(String::clone)
    }
}

#[async_trait]
impl Runner for FirewalledRunner {
    async fn make_user(&self) -> Result<(), String> {
        self.runner.make_user().await
    }

    /// Loads the rule even if it is loaded already: the operator's script, which has run by now, may
    /// have installed nftables or flushed all rules.
    async fn prepare(&self) -> Result<(), String> {
        self.firewall()?.load().await?;
        self.runner.prepare().await
    }

    async fn register(&self, label: &Label) -> Result<(), String> {
        self.runner.register(label).await
    }

    async fn listen_as(&self, label: &MachineLabel) -> Result<u32, String> {
        self.runner.listen_as(label).await
    }

    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        self.runner.name_owner(run).await
    }

    async fn lapse(&self) -> String {
        self.runner.lapse().await
    }

    async fn drain(&self, why: &str) {
        self.runner.drain(why).await;
    }

    fn is_busy(&self) -> bool {
        self.runner.is_busy()
    }

    fn has_worked(&self) -> bool {
        self.runner.has_worked()
    }

    async fn revive(&self, label: &Label) -> Result<(), String> {
        self.runner.revive(label).await
    }

    async fn work(&self, label: &Label) -> String {
        self.runner.work(label).await
    }

    async fn stop(&self) -> Result<(), String> {
        self.runner.stop().await
    }

    async fn deregister(&self) -> Result<(), String> {
        self.runner.deregister().await
    }

    async fn account(&self) -> String {
        self.runner.account().await
    }

    /// Checks the rule last, when no process of the run is left that could change it.
    async fn clean(&self) -> Result<(), String> {
        self.runner.clean().await?;
        self.firewall()?.check().await
    }
}

impl fmt::Debug for FirewalledRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FirewalledRunner({:?})", self.firewall)
    }
}
