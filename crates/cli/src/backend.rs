//! The one place where adapters are chosen and put together. Records (store and pool) and compute
//! are chosen apart. This is the agent's half; the control plane's is `control::backend`.

#[cfg(feature = "aws")]
pub(crate) mod aws;
#[cfg(feature = "local")]
pub(crate) mod local;
mod runner;

#[cfg(not(any(feature = "local", feature = "aws")))]
compile_error!("records and machines need an adapter: build with the feature local, aws or both");

#[cfg(all(feature = "local", not(target_os = "linux")))]
compile_error!(
    "the local backend is for Linux: build with --no-default-features --features control,aws,github"
);

use std::path::PathBuf;
use std::sync::Arc;

use ondeck_agent::Agent;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{AgentStore, Clock};

use crate::inputs::{Backend, Common, rows};
use crate::logging::LogCopy;

/// The setting by which agents know where jobs come from.
pub(crate) const FORGE: &str = rows::FORGE.name;
/// The value of [`FORGE`] for GitHub.
pub(crate) const GITHUB: &str = rows::GITHUB;

/// The records, as an agent uses them.
struct AgentRecords {
    store: Arc<dyn AgentStore>,
    clock: Arc<dyn Clock>,
    /// Names this set of records among all those whose runners one forge lists.
    label: String,
}

/// Assembles the agent of this machine. Fails with exit code 2 if the inputs name adapters that
/// this build lacks or that cannot reach each other. What is in `copy` is sent away if the machine is
/// one of EC2.
#[cfg_attr(not(feature = "aws"), expect(unused_variables, reason = "only AWS keeps copies"))]
pub(crate) async fn agent(common: &Common, copy: &LogCopy) -> Result<Agent, Failure> {
    check_reachable(common)?;
    match common.compute {
        #[cfg(feature = "local")]
        Backend::Local => local::agent(common).await,
        #[cfg(feature = "aws")]
        Backend::Aws => aws::agent(common, copy).await,
        #[cfg(not(all(feature = "local", feature = "aws")))]
        missing => Err(not_built(missing)),
    }
}

/// Fails if the agents on the chosen machines could not reach the chosen records, or if these know no
/// trust levels and one was given.
pub(crate) fn check_reachable(common: &Common) -> Result<(), Failure> {
    // A home is a pool of its own, so a level would promise what is not kept.
    #[cfg(feature = "aws")]
    if common.records == Backend::Local
        && common.given.text(&ondeck_aws::TRUST).is_some_and(|level| !level.is_empty())
    {
        return Err(Failure::invalid("trust levels need records on AWS")
            .hint("give each level a --home of its own, or --records aws"));
    }
    match (common.records, common.compute) {
        (Backend::Local, Backend::Aws) => {
            Err(Failure::invalid("EC2 machines cannot open the records on this computer")
                .hint("give --records aws, or --compute local"))
        }
        (Backend::Local, Backend::Local) | (Backend::Aws, _) => Ok(()),
    }
}

/// The machine that the agent was told it is, if it was told.
fn instance_id(common: &Common) -> Result<Option<InstanceId>, Failure> {
    let id = common.given.text(&rows::INSTANCE_ID).map(InstanceId::new).transpose();
    id.map_err(|error| Failure::invalid(error.to_string()))
}

/// The directory for local files. Fails if none was given and the user has no home directory.
pub(crate) fn home_dir(common: &Common) -> Result<PathBuf, Failure> {
    match (&common.home, std::env::home_dir()) {
        (Some(dir), _) => std::path::absolute(dir).map_err(|error| {
            Failure::invalid(format!("home cannot be used: {}: {error}", dir.display()))
        }),
        (None, Some(user)) => Ok(user.join(".ondeck")),
        (None, None) => {
            Err(Failure::invalid("no home directory").hint("give --home or ONDECK_HOME"))
        }
    }
}

/// Says which feature a build needs for a backend.
#[cfg(not(all(feature = "local", feature = "aws")))]
pub(crate) fn not_built(backend: Backend) -> Failure {
    match backend {
        Backend::Local => Failure::invalid("this build of ondeck has no local backend")
            .hint("build it on Linux with --features local, or give --backend aws"),
        Backend::Aws => Failure::invalid("this build of ondeck has no aws backend")
            .hint("build it with cargo build --release --features aws,github"),
    }
}
