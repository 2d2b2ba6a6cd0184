//! `ondeck doctor`: checks everything that a pool needs, and changes nothing.

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::doctor::{self as mode, Finding, Findings};
use ondeck_core::ports::Clock as _;

use crate::control::backend::{ToExamine, to_examine};
use crate::control::report::doctor::DoctorReport;
use crate::control::report::{Report, deliver};
use crate::control::screen::screen;
use crate::inputs::Common;
use crate::logging;
use crate::surroundings::WallClock;

/// Runs the command and returns its exit code.
pub(crate) async fn doctor(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let found = examine(common).await.map(|findings| DoctorReport::on(findings, screen()));
    let told = found.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("doctor", told, common)
}

/// Examines the pool that the inputs name. Fails only if they name none, or contradict each other.
pub(crate) async fn examine(common: &Common) -> Result<Findings, Failure> {
    let pool: ToExamine = match to_examine(common).await {
        Ok(pool) => pool,
        Err(failure) => return unreachable(failure),
    };
    let wall_clock = || WallClock.now();
    Ok(mode::examine(&pool.plane, &*pool.diagnosis, pool.forge(), wall_clock).await)
}

/// What a pool that cannot be connected to means.
fn unreachable(failure: Failure) -> Result<Findings, Failure> {
    let finding = match failure.kind {
        FailureKind::NotSetUp => Finding::not_set_up(failure.message),
        FailureKind::Unavailable => Finding::store_unreachable(failure.message, failure.hint),
        _ => return Err(failure),
    };
    Ok(Findings::only(finding))
}
