//! `ondeck agent`: the program on a machine.

use crate::inputs::{Agent, Common};
use crate::{backend, logging};

/// Lives until the machine ends.
pub(crate) async fn live(common: &Common, inputs: &Agent) -> u8 {
    logging::start_for_agent(common);
    match backend::agent(common, inputs).await {
        Ok(agent) => {
            agent.live().await;
            0
        }
        Err(failure) => {
            logging::error(&failure.message, &failure.hint);
            failure.kind.exit_code()
        }
    }
}
