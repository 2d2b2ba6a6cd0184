//! Validation: every new machine must send heartbeats and register in time. The first failure ends
//! the wait for all.

use futures_util::future::try_join_all;

use crate::lifecycle::{Created, Instance};
use crate::model::failure::{Failure, FailureKind};
use crate::model::label::Label;
use crate::model::machine_label::{MachineLabel, RequestedLabel};
use crate::model::signal::{AgentStatus, INTERRUPTED, Pulse, Report, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::agent_watch::{AgentWatch, Watched};
use crate::modes::provision::Attempt;
use crate::runtime::poll::PollInterval;

/// Waits until every created machine is ready. Fails with `NotReady` as soon as one machine reports
/// a failure, stops its heartbeat or exceeds the validation timeout.
pub(in crate::modes::provision) async fn validate(attempt: &Attempt<'_>) -> Result<(), Failure> {
    // A machine boots in seconds locally and in half a minute in a cloud. Noticing it an eighth of
    // that time later does no harm, and saves reading the store twenty times a second.
    let interval = PollInterval::backing_off(attempt.times.signal_poll, 8);
    let created = attempt.holdings.created();
    let watch = AgentWatch::new(attempt.plane, interval, created.len());
    let waits = created.iter().map(|held| ready(attempt, &watch, &held.instance));
    try_join_all(waits).await?;
    Ok(())
}

async fn ready(
    attempt: &Attempt<'_>,
    watch: &AgentWatch<'_>,
    created: &Instance<Created>,
) -> Result<(), Failure> {
    let plane = attempt.plane;
    let requested = attempt.requested_label();
    let judge =
        |status: &AgentStatus, now: Timestamp| readiness(&attempt.label, &requested, status, now);
    let timeout = attempt.times.validation_timeout;
    let (why, hint) = match watch.wait(created.id(), timeout, judge).await? {
        Watched::Judged(Ok(registered)) => {
            let moments = (plane.steady_at(registered.at), plane.clock.steady());
            attempt.holdings.validated(created.id(), moments, registered.label.as_ref());
            return Ok(());
        }
        Watched::Judged(Err(problem)) => problem,
        Watched::TimedOut(status) => {
            (format!("not ready within {} s: {status}", timeout.as_secs_f64()), READ_LOG)
        }
    };
    let message = format!("machine {} did not become ready: {why}", created.id());
    Err(Failure::new(FailureKind::NotReady, message).hint(hint))
}

const READ_LOG: &str = "read the machine's log and check the pre-runner script";
const COMPARE_CLOCKS: &str =
    "read the machine's log, and compare its clock with that of this computer";

/// Why a machine failed, and what to do about it.
pub(in crate::modes) type Problem = (String, &'static str);

/// Returns how the machine registered, or why it failed; `None` while neither is known. Unlike a
/// claimed machine, a new one may take long until its first heartbeat. One whose heartbeat stopped
/// is dead.
pub(in crate::modes) fn readiness(
    label: &Label,
    requested: &RequestedLabel,
    status: &AgentStatus,
    now: Timestamp,
) -> Option<Result<Registered, Problem>> {
    let pulse = status.pulse(now);
    if let Some(why) = status.report.as_ref().and_then(|r| r.failure_for(label)) {
        return Some(Err((why, READ_LOG)));
    }
    if status.is_interrupted() {
        return Some(Err((INTERRUPTED.to_owned(), READ_LOG)));
    }
    match pulse {
        Pulse::Never => None,
        Pulse::Stale(_) => Some(Err((status.why_unhealthy(now), COMPARE_CLOCKS))),
        Pulse::Healthy => {
            let report = status.report.as_ref()?;
            if !report.says(Signal::Registered, label) {
                return None;
            }
            let registered = registered(requested, report)?;
            Some(registered.map_err(|why| (why, READ_LOG)))
        }
    }
}

/// A finished registration, as its agent reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::modes) struct Registered {
    /// When, by the agent's clock.
    pub(in crate::modes) at: Timestamp,
    /// The label of the machine, if it is not that of the run.
    pub(in crate::modes) label: Option<MachineLabel>,
}

/// What a report of a registration for the run says about the label, if it was to be this one. `None` if
/// it is about an earlier registration. An error if the agent knows no labels of machines.
pub(in crate::modes) fn registered(
    requested: &RequestedLabel,
    report: &Report,
) -> Option<Result<Registered, String>> {
    let label = report.machine_label.clone();
    let registered = Registered { at: report.at, label };
    match (requested, &registered.label) {
        (RequestedLabel::OfRun, None) | (RequestedLabel::OfMachine, Some(_)) => {
            Some(Ok(registered))
        }
        (RequestedLabel::Named(named), Some(label)) if named == label => Some(Ok(registered)),
        (RequestedLabel::OfRun | RequestedLabel::Named(_), Some(_)) => None,
        (RequestedLabel::OfMachine | RequestedLabel::Named(_), None) => {
            Some(Err("its agent registers with the label of the run only".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a claim or a launch asks for, and what the agent says that it has registered with.
    #[test]
    fn a_registration_is_finished_under_the_label_that_was_asked_for() {
        use RequestedLabel::{Named, OfMachine, OfRun};
        let label = |digit: &str| MachineLabel::new(format!("m{}", digit.repeat(32))).unwrap();
        let unknown = "its agent registers with the label of the run only";
        for (requested, reported, expected) in [
            (OfRun, None, Some(Ok(None))),
            // Of an earlier claim, whose registration the agent has to leave.
            (OfRun, Some(label("1")), None),
            (OfMachine, Some(label("1")), Some(Ok(Some(label("1"))))),
            (OfMachine, None, Some(Err(unknown))),
            (Named(label("1")), Some(label("1")), Some(Ok(Some(label("1"))))),
            (Named(label("1")), Some(label("2")), None),
            (Named(label("1")), None, Some(Err(unknown))),
        ] {
            let report = Report {
                signal: Signal::Registered,
                run: None,
                suffix: None,
                detail: String::new(),
                at: Timestamp::from_millis(5),
                generation: None,
                machine_label: reported.clone(),
            };
            let found = registered(&requested, &report);
            let expected = expected.map(|it| {
                it.map(|label| Registered { at: report.at, label }).map_err(str::to_owned)
            });
            assert_eq!(found, expected, "{requested:?} {reported:?}");
        }
    }
}
