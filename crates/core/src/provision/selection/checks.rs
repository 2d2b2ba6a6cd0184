//! The checks after a claim: does the machine live, and has it registered for this run?

use crate::failure::Failure;
use crate::lifecycle::{Claimed, Instance};
use crate::provision::Attempt;
use crate::signal::{Pulse, Signal, Signs};
use crate::signs::{Lookout, Seen};
use crate::time::Timestamp;

/// Waits until the machine has registered, and gives up as soon as it is known that it will not.
/// Gives when it did, by its own clock.
pub(super) async fn pass(
    attempt: &Attempt<'_>,
    lookout: &Lookout<'_>,
    claimed: &Instance<Claimed>,
) -> Result<Result<Timestamp, String>, Failure> {
    let timeout = attempt.times.claim_registration_timeout;
    let deadline = attempt.plane.now() + timeout;
    let judge = |signs: &Signs, now: Timestamp| judge(attempt, signs, now);
    Ok(match lookout.wait(claimed.id(), deadline, judge).await? {
        Seen::Judged(judgement) => judgement,
        Seen::TimedOut(signs) => {
            Err(format!("not registered within {} s: {signs}", timeout.as_secs_f64()))
        }
    })
}

/// Heartbeat and registration, side by side.
fn judge(
    attempt: &Attempt<'_>,
    signs: &Signs,
    now: Timestamp,
) -> Option<Result<Timestamp, String>> {
    match signs.pulse(now, attempt.times.healthy_within()) {
        Pulse::Never => return Some(Err("it has never sent a heartbeat".to_owned())),
        Pulse::Stale(age) => {
            return Some(Err(format!("its last heartbeat is {:.1} s old", age.as_secs_f64())));
        }
        Pulse::Healthy => {}
    }
    let report = signs.report.as_ref()?;
    if let Some(why) = report.failure_for(&attempt.request.run) {
        return Some(Err(why));
    }
    report.says(Signal::Registered, &attempt.request.run).then_some(Ok(report.at))
}
