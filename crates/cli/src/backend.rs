//! The one place where adapters are chosen and put together.

#[cfg(feature = "aws")]
mod aws;
mod local;

use ondeck_core::failure::Failure;

use crate::inputs::{self, Backend, Common};

#[cfg(feature = "control")]
pub(crate) use self::local::Local;

/// The control plane's ports on the chosen backend; refresh may create what is missing.
#[cfg(feature = "control")]
pub(crate) async fn plane(
    common: &Common,
    create: bool,
    progress: std::sync::Arc<dyn ondeck_core::ports::Progress>,
) -> Result<ondeck_core::plane::Plane, Failure> {
    let plane = match common.backend {
        Backend::Local => local::plane(common, create, progress)?,
        #[cfg(feature = "aws")]
        Backend::Aws => aws::plane(common, progress).await?,
        #[cfg(not(feature = "aws"))]
        Backend::Aws => return Err(not_built()),
    };
    #[cfg(feature = "holds")]
    let plane = crate::holds::wrap(plane);
    Ok(plane)
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
        .hint("build it with cargo build --release --features aws")
}
