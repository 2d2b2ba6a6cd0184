//! `ondeck agent`: the program on a machine.

use ondeck_core::model::failure::FailureKind;

use crate::inputs::Common;
use crate::logging::LogCopy;
use crate::{backend, logging};

/// Runs until the machine terminates. Returns the exit code.
pub(crate) async fn live(common: &Common) -> u8 {
    let copy = LogCopy::wanted(common);
    logging::start_for_agent(common, copy.clone());
    match backend::agent(common, &copy).await {
        Ok(agent) => tokio::select! {
            _ = agent.live() => 0,
            () = copy.sent_when_stopped() => FailureKind::Stopped.exit_code(),
        },
        Err(failure) => logging::fail(&failure),
    }
}
