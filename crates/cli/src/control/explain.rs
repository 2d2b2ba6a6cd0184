//! `ondeck explain`: tells what happened to a run or a machine.

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::explain as mode;

use crate::control::backend;
use crate::control::report::explain::ExplainReport;
use crate::control::report::{Report, deliver};
use crate::inputs::Common;
use crate::logging;

/// Runs the command and returns its exit code.
pub(crate) async fn explain(common: &Common, arguments: &[String]) -> u8 {
    logging::start(common, std::io::stderr);
    let subject = arguments.first().map_or("", String::as_str);
    let result = tell(common, subject).await;
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("explain", told, common)
}

async fn tell(common: &Common, subject: &str) -> Result<ExplainReport, Failure> {
    let (plane, history) = backend::plane_and_history(common).await?;
    Ok(ExplainReport::of(mode::explain(&plane, &*history, subject).await?))
}
