//! Validation: every new machine must signal and interval in time. The first that is known to fail
//! ends the wait for all.

use futures_util::future::try_join_all;

use crate::lifecycle::{Created, Instance};
use crate::model::failure::{Failure, FailureKind};
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::agent_watch::{AgentWatch, Watched};
use crate::modes::provision::Attempt;
use crate::runtime::poll::PollInterval;

/// Waits for all of them.
pub(in crate::modes::provision) async fn validate(attempt: &Attempt<'_>) -> Result<(), Failure> {
    // A machine takes seconds on this computer and half a minute in a cloud; an eighth of that is
    // not noticed by anybody, and twenty looks a second are.
    let interval = PollInterval::backing_off(attempt.times.signal_poll, 8);
    let watch = AgentWatch::new(attempt.plane, interval);
    let deadline = attempt.plane.now() + attempt.times.validation_timeout;
    let created = attempt.holdings.created();
    let waits = created.iter().map(|held| ready(attempt, &watch, &held.instance, deadline));
    try_join_all(waits).await?;
    Ok(())
}

async fn ready(
    attempt: &Attempt<'_>,
    watch: &AgentWatch<'_>,
    created: &Instance<Created>,
    deadline: Timestamp,
) -> Result<(), Failure> {
    let judge = |status: &AgentStatus, now: Timestamp| judge(attempt, status, now);
    let why = match watch.wait(created.id(), deadline, judge).await? {
        Watched::Judged(Ok(registered)) => {
            attempt.holdings.validated(created.id(), registered, attempt.plane.now());
            return Ok(());
        }
        Watched::Judged(Err(why)) => why,
        Watched::TimedOut(status) => {
            let waited = attempt.times.validation_timeout.as_secs_f64();
            format!("not ready within {waited} s: {status}")
        }
    };
    let message = format!("machine {} did not become ready: {why}", created.id());
    Err(Failure::new(FailureKind::NotReady, message)
        .hint("read the machine's log and check the pre-runner script"))
}

/// Unlike a claimed machine, a new one may take its time until the first heartbeat; but one that
/// has beaten and stopped is dead. Gives when it registered.
fn judge(
    attempt: &Attempt<'_>,
    status: &AgentStatus,
    now: Timestamp,
) -> Option<Result<Timestamp, String>> {
    let pulse = status.pulse(now, attempt.times.healthy_within());
    if let Some(why) = status.report.as_ref().and_then(|r| r.failure_for(&attempt.request.run)) {
        return Some(Err(why));
    }
    match pulse {
        Pulse::Never => None,
        Pulse::Stale(age) => {
            Some(Err(format!("its heartbeat stopped {:.1} s ago", age.as_secs_f64())))
        }
        Pulse::Healthy => {
            let report = status.report.as_ref()?;
            report.says(Signal::Registered, &attempt.request.run).then_some(Ok(report.at))
        }
    }
}
