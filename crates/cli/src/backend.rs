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

use crate::inputs::{self, Backend, Common};

#[cfg(feature = "control")]
pub(crate) use self::local::Local;

/// The setting by which agents know where jobs come from.
pub(crate) const FORGE: &str = "forge";
/// Its value for GitHub.
const GITHUB: &str = "github";

/// The control plane's ports on the chosen backend. Refresh, whose inputs these are, may create
/// what is missing, and nobody else calls the forge.
#[cfg(feature = "control")]
pub(crate) async fn plane(
    common: &Common,
    refresh: Option<&inputs::Refresh>,
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
    let plane = crate::control::hold_points::wrap(plane);
    Ok(plane)
}

/// Where jobs come from, for agents to be told; nothing where that stays as it is. On AWS it is
/// GitHub unless somebody says otherwise each time: machines there are of no use to another forge.
#[cfg(feature = "control")]
pub(crate) fn forge_to_keep(common: &Common, inputs: &inputs::Refresh) -> Option<&'static str> {
    let usual = (common.backend == Backend::Aws).then_some(inputs::ForgeKind::Github);
    Some(match inputs.github.forge.or(usual)? {
        inputs::ForgeKind::Local => "local",
        inputs::ForgeKind::Github => GITHUB,
    })
}

/// What an agent works with on the chosen backend.
pub(crate) async fn agent(
    common: &Common,
    inputs: &inputs::Agent,
) -> Result<ondeck_agent::Agent, Failure> {
    match common.backend {
        Backend::Local => match &inputs.instance_id {
            Some(id) => local::agent(common, id.clone()).await,
            None => Err(Failure::invalid("no instance id given")
                .hint("give --instance-id; the local backend does so when it starts a machine")),
        },
        #[cfg(feature = "aws")]
        Backend::Aws => aws::agent(common, inputs).await,
        #[cfg(not(feature = "aws"))]
        Backend::Aws => Err(not_built()),
    }
}

#[cfg(not(feature = "aws"))]
fn not_built() -> Failure {
    Failure::invalid("this build of ondeck has no aws backend")
        .hint("build it with cargo build --release --features aws,github")
}
