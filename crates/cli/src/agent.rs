//! `ondeck agent`: the program on a machine.

use crate::inputs::Common;
use crate::{backend, logging};

/// Runs until the machine terminates. Returns the exit code.
pub(crate) async fn live(common: &Common) -> u8 {
    logging::start_for_agent(common);
    match backend::agent(common).await {
        Ok(agent) => {
            agent.live().await;
            0
        }
        Err(failure) => logging::fail(&failure),
    }
}
