//! The checks after a claim: is the heartbeat fresh, and has the runner registered for this run?

use crate::lifecycle::{Claimed, Instance};
use crate::model::failure::Failure;
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::agent_watch::{AgentWatch, Watched};
use crate::modes::provision::Attempt;

/// Waits until the machine has registered. Returns the time by the agent's clock, or the reason as
/// soon as it is known that the machine will not register. Fails if the store does not answer.
pub(super) async fn pass(
    attempt: &Attempt<'_>,
    watch: &AgentWatch<'_>,
    claimed: &Instance<Claimed>,
) -> Result<Result<Timestamp, String>, Failure> {
    let timeout = attempt.times.claim_registration_timeout;
    let judge = |status: &AgentStatus, now: Timestamp| judge(attempt, status, now);
    Ok(match watch.wait(claimed.id(), timeout, judge).await? {
        Watched::Judged(judgement) => judgement,
        Watched::TimedOut(status) => {
            Err(format!("not registered within {} s: {status}", timeout.as_secs_f64()))
        }
    })
}

/// Returns when the machine registered, or why it failed; `None` while neither is known.
fn judge(
    attempt: &Attempt<'_>,
    status: &AgentStatus,
    now: Timestamp,
) -> Option<Result<Timestamp, String>> {
    match status.pulse(now) {
        Pulse::Never => return Some(Err("it has never sent a heartbeat".to_owned())),
        Pulse::Stale(age) => {
            return Some(Err(format!("its last heartbeat is {:.1} s old", age.as_secs_f64())));
        }
        Pulse::Healthy => {}
    }
    let report = status.report.as_ref()?;
    if let Some(why) = report.failure_for(&attempt.request.run) {
        return Some(Err(why));
    }
    report.says(Signal::Registered, &attempt.request.run).then_some(Ok(report.at))
}
