//! Validation: every new machine must signal and beat in time. The first that is known to fail
//! ends the wait for all.

use futures_util::future::try_join_all;

use crate::failure::{Failure, Kind};
use crate::lifecycle::{Created, Instance};
use crate::provision::Attempt;
use crate::signal::{Pulse, Signal, Signs};
use crate::signs::{Lookout, Seen};
use crate::time::Timestamp;
use crate::wait::Beat;

/// Waits for all of them.
pub(in crate::provision) async fn validate(attempt: &Attempt<'_>) -> Result<(), Failure> {
    // A machine takes seconds on this computer and half a minute in a cloud; an eighth of that is
    // not noticed by anybody, and twenty looks a second are.
    let beat = Beat::easing(attempt.times.signs_poll, 8);
    let lookout = Lookout::new(attempt.plane, beat);
    let deadline = attempt.plane.now() + attempt.times.validation_timeout;
    let created = attempt.holdings.created();
    let waits = created.iter().map(|held| ready(attempt, &lookout, &held.instance, deadline));
    try_join_all(waits).await?;
    Ok(())
}

async fn ready(
    attempt: &Attempt<'_>,
    lookout: &Lookout<'_>,
    created: &Instance<Created>,
    deadline: Timestamp,
) -> Result<(), Failure> {
    let judge = |signs: &Signs, now: Timestamp| judge(attempt, signs, now);
    let why = match lookout.wait(created.id(), deadline, judge).await? {
        Seen::Judged(Ok(registered)) => {
            attempt.holdings.validated(created.id(), registered, attempt.plane.now());
            return Ok(());
        }
        Seen::Judged(Err(why)) => why,
        Seen::TimedOut(signs) => {
            let waited = attempt.times.validation_timeout.as_secs_f64();
            format!("not ready within {waited} s: {signs}")
        }
    };
    let message = format!("machine {} did not become ready: {why}", created.id());
    Err(Failure::new(Kind::NotReady, message)
        .hint("the machine's log and the pre-runner script tell more; all new machines were ended"))
}

/// Unlike a claimed machine, a new one may take its time until the first heartbeat; but one that
/// has beaten and stopped is dead. Gives when it registered.
fn judge(
    attempt: &Attempt<'_>,
    signs: &Signs,
    now: Timestamp,
) -> Option<Result<Timestamp, String>> {
    let pulse = signs.pulse(now, attempt.times.healthy_within());
    if let Some(why) = signs.report.as_ref().and_then(|r| r.failure_for(&attempt.request.run)) {
        return Some(Err(why));
    }
    match pulse {
        Pulse::Never => None,
        Pulse::Stale(age) => {
            Some(Err(format!("its heartbeat stopped {:.1} s ago", age.as_secs_f64())))
        }
        Pulse::Healthy => {
            let report = signs.report.as_ref()?;
            report.says(Signal::Registered, &attempt.request.run).then_some(Ok(report.at))
        }
    }
}
