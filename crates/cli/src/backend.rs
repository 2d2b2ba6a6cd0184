//! The one place where adapters are chosen and put together.

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "control")]
mod forge;
mod local;
#[cfg(all(feature = "aws", feature = "control"))]
mod no_forge;
mod runner;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;

use crate::inputs::{Backend, Common, rows};

#[cfg(feature = "control")]
pub(crate) use self::local::Local;

/// The setting by which agents know where jobs come from.
pub(crate) const FORGE: &str = rows::FORGE.name;
/// Its value for GitHub.
const GITHUB: &str = rows::GITHUB;

/// The control plane's ports on the chosen backend. Only refresh creates what is missing, and only
/// refresh gets a forge to call.
#[cfg(feature = "control")]
pub(crate) async fn plane(
    common: &Common,
    refresh: bool,
    progress: std::sync::Arc<dyn ondeck_core::ports::Progress>,
) -> Result<ondeck_core::modes::plane::Plane, Failure> {
    let plane = match common.backend {
        Backend::Local => local::plane(common, refresh, progress).await?,
        #[cfg(feature = "aws")]
        Backend::Aws => aws::plane(common, refresh, progress).await?,
        #[cfg(not(feature = "aws"))]
        Backend::Aws => return Err(not_built()),
    };
    #[cfg(feature = "holds")]
    let plane = crate::control::holds::wrap(plane);
    Ok(plane)
}

/// What an agent works with on the chosen backend.
pub(crate) async fn agent(common: &Common) -> Result<ondeck_agent::Agent, Failure> {
    match common.backend {
        Backend::Local => match instance_id(common)? {
            Some(id) => local::agent(common, id).await,
            None => Err(Failure::invalid("no instance id given")
                .hint("give --instance-id; the local backend does so when it starts a machine")),
        },
        #[cfg(feature = "aws")]
        Backend::Aws => aws::agent(common).await,
        #[cfg(not(feature = "aws"))]
        Backend::Aws => Err(not_built()),
    }
}

/// The machine that the agent was told it is.
fn instance_id(common: &Common) -> Result<Option<InstanceId>, Failure> {
    let id = common.given.text(&rows::INSTANCE_ID).map(InstanceId::new).transpose();
    id.map_err(|error| Failure::invalid(error.to_string()))
}

#[cfg(not(feature = "aws"))]
fn not_built() -> Failure {
    Failure::invalid("this build of ondeck has no aws backend")
        .hint("build it with cargo build --release --features aws,github")
}
