//! Keeps jobs from the instance metadata service, which hands the machine's role to every process
//! that can reach it.
//!
//! A rule of nftables rejects the service's addresses for all processes outside of the agent's own
//! cgroup. A rule by user would not do: a container that shares the machine's network runs as root.
//! Where operators connect to machines by Session Manager, the SSM agent is admitted as well: without
//! credentials it cannot open a session.
//! Jobs are started in a cgroup beside the agent's, because otherwise they would inherit the agent's.

mod cgroup;
mod nft;
mod probe;
mod runner;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use self::cgroup::Cgroup;
use self::nft::{ListError, Nft, without};
use crate::inputs::METADATA_FIREWALL;

pub use self::probe::reachable as reachable_metadata;
pub use self::runner::FirewalledRunner;

/// The cgroup of the agent, below the one that it is started in.
const AGENT: &str = "agent";
/// The cgroup of the runner and its jobs, beside the agent's.
const JOBS: &str = "jobs";

/// The cgroups of the SSM agent, as a package and as a snap.
const SSM_AGENT: [&str; 2] = [
    "system.slice/amazon-ssm-agent.service",
    "system.slice/snap.amazon-ssm-agent.amazon-ssm-agent.service",
];

/// The rule that keeps jobs from the metadata service, and the cgroups that it tells apart.
pub struct MetadataFirewall {
    agent: Cgroup,
    jobs: Cgroup,
    nft: Nft,
    probe: Vec<OsString>,
    /// The cgroups of services that are admitted as well, whenever they exist.
    services: Vec<Cgroup>,
    /// The rule as nft lists it, once it is loaded.
    loaded: Mutex<Option<String>>,
}

impl MetadataFirewall {
    /// Moves the calling process into a cgroup of its own, and creates one for jobs beside it. The
    /// rule goes by the cgroup in which a socket was created, so the caller must not have opened any
    /// connection that it goes on using. `probe` is a command that exits with 0 if
    /// [`reachable_metadata`] returns nothing, and else prints what it returns. Fails without cgroup
    /// v2, and without root's rights.
    pub fn enter(probe: Vec<OsString>) -> Result<MetadataFirewall, String> {
        let own = Cgroup::of_this_process().map_err(unprotected)?;
        let make = |name| own.child(name).map_err(unprotected);
        let (agent, jobs) = (make(AGENT)?, make(JOBS)?);
        agent.enter().map_err(unprotected)?;
        let nft = Nft { program: "nft".into() };
        let (services, loaded) = (Vec::new(), Mutex::default());
        Ok(MetadataFirewall { agent, jobs, nft, probe, services, loaded })
    }

    /// The same, which also admits the SSM agent.
    #[must_use]
    pub fn admitting_ssm(self) -> MetadataFirewall {
        MetadataFirewall { services: SSM_AGENT.map(Cgroup::at).to_vec(), ..self }
    }

    /// The words that, in front of a command, start it in the cgroup of jobs.
    pub fn job_wrapper(&self) -> Vec<OsString> {
        self.jobs.wrapper()
    }

    /// The folder of the cgroup of jobs.
    pub fn job_cgroup(&self) -> PathBuf {
        self.jobs.folder()
    }

    /// Loads the rule, in place of one that an earlier agent loaded for its own cgroup. Fails if nft
    /// does, or if the rule does not work as it should; then no rule is left.
    pub async fn load(&self) -> Result<(), String> {
        let services = self.services.iter().filter(|service| service.exists()).cloned();
        let admitted: Vec<Cgroup> = [self.agent.clone()].into_iter().chain(services).collect();
        self.nft.load(&admitted).await.map_err(unprotected)?;
        match self.try_out().await {
            Ok(listed) => {
                *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
                Ok(())
            }
            Err(why) => {
                if let Err(error) = self.nft.unload().await {
                    tracing::error!("the rule of the metadata service cannot be removed: {error}");
                }
                Err(unprotected(why))
            }
        }
    }

    /// Returns the rule as nft lists it, unless it refuses the agent or admits a job.
    async fn try_out(&self) -> Result<String, String> {
        let listed = self.nft.list().await.map_err(|error| error.to_string())?;
        if probe::is_refused().await {
            return Err("the rule refuses the agent itself".to_owned());
        }
        probe::run(self.jobs.wrapper(), &self.probe).await?;
        Ok(listed)
    }

    /// Fails if the rule is gone, was changed since it was loaded, or lets a process in the cgroup of
    /// jobs reach the metadata service. If a service that is admitted was started or stopped meanwhile,
    /// which is no change, the rule is loaded again, because it names the service's earlier cgroup.
    pub async fn check(&self) -> Result<(), String> {
        const RULE: &str = "the rule that keeps jobs from the metadata service";
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let loaded = loaded.ok_or_else(|| format!("{RULE} was not loaded"))?;
        match self.nft.list().await {
            Ok(listed) if without(&listed, &self.services) == without(&loaded, &self.services) => {
                if !self.services.is_empty() {
                    self.load().await?;
                }
            }
            Ok(_) => return Err(format!("{RULE} was changed")),
            Err(ListError::Gone) => return Err(format!("{RULE} was removed")),
            Err(ListError::Failed(why)) => return Err(format!("{RULE} cannot be read: {why}")),
        }
        probe::run(self.jobs.wrapper(), &self.probe).await
    }
}

/// Why jobs would not be kept from the metadata service, with the setting that permits that.
fn unprotected(why: impl fmt::Display) -> String {
    let name = METADATA_FIREWALL.name;
    format!("jobs cannot be kept from the metadata service: {why}; {name}=off permits that")
}

impl fmt::Debug for MetadataFirewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetadataFirewall({})", self.agent.path())
    }
}
