//! The checks after a claim: is the heartbeat fresh, and has the runner registered for this run?

use std::sync::OnceLock;

use crate::lifecycle::{Claimed, Instance};
use crate::model::failure::Failure;
use crate::model::heartbeat::{Compatibility, Heartbeat};
use crate::model::machine_label::RequestedLabel;
use crate::model::readiness::ClaimWay;
use crate::model::signal::{AgentStatus, INTERRUPTED, Pulse, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::agent_watch::{AgentWatch, Watched};
use crate::modes::provision::{Attempt, Registered, registered};

/// What the checks found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checked {
    /// The runner has registered.
    Ready(Registered),
    /// The machine reported a failure, or its heartbeat stopped. It must not be used again.
    Failed(String),
    /// The machine is alive and did not register within the timeout.
    Unregistered(String),
    /// The agent is newer than this program, which may misunderstand it.
    TooNew,
}

/// The way that each machine of this attempt takes, if it takes the same in any case.
pub(super) fn known_way(attempt: &Attempt<'_>) -> OnceLock<ClaimWay> {
    match attempt.requested_label() {
        RequestedLabel::OfMachine => OnceLock::new(),
        RequestedLabel::OfRun | RequestedLabel::Named(_) => OnceLock::from(ClaimWay::Registers),
    }
}

/// Waits until the machine has registered, or it is known that it will not in time. The first look at its
/// agent tells the `way`, if it is not known. Fails if the store does not answer.
pub(super) async fn pass(
    attempt: &Attempt<'_>,
    watch: &AgentWatch<'_>,
    claimed: &Instance<Claimed>,
    way: &OnceLock<ClaimWay>,
) -> Result<Checked, Failure> {
    let timeout = attempt.times.claim_registration_timeout;
    let judge = |status: &AgentStatus, now: Timestamp| {
        way.get_or_init(|| match status.is_ready_in(claimed.counts().generation, now) {
            true => ClaimWay::Ready,
            false => ClaimWay::Registers,
        });
        judge(attempt, status, now)
    };
    Ok(match watch.wait(claimed.id(), timeout, judge).await? {
        Watched::Judged(checked) => checked,
        Watched::TimedOut(status) => Checked::Unregistered(format!(
            "not registered within {} s: {status}",
            timeout.as_secs_f64()
        )),
    })
}

/// Returns `None` while nothing is decided.
fn judge(attempt: &Attempt<'_>, status: &AgentStatus, now: Timestamp) -> Option<Checked> {
    match status.pulse(now) {
        Pulse::Never | Pulse::Stale(_) => {
            return Some(Checked::Failed(status.why_unhealthy(now)));
        }
        Pulse::Healthy => {}
    }
    match status.heartbeat.as_ref().map(Heartbeat::compatibility) {
        Some(Compatibility::Newer) => return Some(Checked::TooNew),
        Some(Compatibility::Older) => {
            return Some(Checked::Failed("its agent is too old for this version".to_owned()));
        }
        Some(Compatibility::Understood) | None => {}
    }
    let report = status.report.as_ref();
    if let Some(why) = report.and_then(|report| report.failure_for(&attempt.label)) {
        return Some(Checked::Failed(why));
    }
    if status.is_interrupted() {
        return Some(Checked::Failed(INTERRUPTED.to_owned()));
    }
    let report = report?;
    if !report.says(Signal::Registered, &attempt.label) {
        return None;
    }
    Some(match registered(&attempt.requested_label(), report)? {
        Ok(registered) => Checked::Ready(registered),
        Err(why) => Checked::Failed(why),
    })
}
