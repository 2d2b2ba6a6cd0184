//! Adoption: the machines that the run already owns under the same label count. This makes provision
//! idempotent: a second attempt of the same run gets the machines of the first.

use futures_util::future::join_all;

use super::{Attempt, Request};
use crate::lifecycle::{Instance, Running};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::InstanceId;
use crate::model::machine_label::{RequestedLabel, RunnerLabel};
use crate::model::record::Record;
use crate::model::signal::{AgentStatus, Pulse, Report, Signal};
use crate::modes::plane::{NotCommitted, Plane, readable};
use crate::ports::{Listing, PortResult};

/// Adopts the run's `running` machines that have the label of the request, match it, have a fresh
/// heartbeat and are registered, but for those that their provider takes away. Each may then be used for as long as a machine that was handed over just now: one
/// that has less time left is renewed, and is not adopted if that is refused.
///
/// Machines that are still `created` or `claimed` for the run are left alone: another provision of
/// the run may be working on them. If it was killed, their threshold or the run's release expires
/// them.
pub(super) async fn adopt(attempt: &Attempt<'_>) -> Result<(), Failure> {
    let plane = attempt.plane;
    let listing = match &attempt.owned {
        Some(listing) => listing.clone(),
        None => plane.retried(|| plane.store.of_run(&attempt.request.run)).await?,
    };
    let now = plane.now();
    let candidates: Vec<Instance<Running>> = readable(listing)
        .iter()
        .filter(|record| !record.is_expired(now))
        .filter(|record| record.label().as_ref() == Some(&attempt.label))
        .filter(|record| is_registered_as_wanted(attempt, record))
        .filter(|record| fits(attempt, record))
        .filter_map(Instance::believe)
        .collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = candidates.iter().map(|c| c.id().clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let at_work = candidates.into_iter().zip(status);
    let at_work = at_work.filter(|(instance, status)| is_at_work(attempt, instance, status));
    let mut at_work = at_work.map(|(instance, _)| instance).collect::<Vec<_>>().into_iter();
    // The run may have completed before it asks again. A refresh that still releases it has read the
    // machines before it looked for this request, and does not release those that are renewed after it.
    attempt.note_demand().await;
    // A renewal may be refused, and then another machine takes its place.
    while attempt.missing() > 0 && at_work.len() > 0 {
        let wanted = usize::try_from(attempt.missing()).unwrap_or(usize::MAX);
        let renewals = at_work.by_ref().take(wanted).map(|instance| renewed(attempt, instance));
        for instance in join_all(renewals).await {
            if let Some(instance) = instance? {
                tracing::info!(instance = %instance.id(), "adopted");
                attempt.holdings.adopt(instance, plane.clock.steady());
            }
        }
    }
    Ok(())
}

/// The run's machines, asked for before the settings are known, which costs no round trip of its own.
/// `None` if they are not needed or could not be read: [`adopt`] then asks again, and reports it.
pub(super) async fn owned(plane: &Plane, request: &Request) -> Option<Listing> {
    if !request.may_adopt() {
        return None;
    }
    plane.store.of_run(&request.run).await.ok()
}

/// Renews the adopted machines once more, after the run has waited for others. Fails if one of them
/// has expired or been released meanwhile.
pub(super) async fn prolong(attempt: &Attempt<'_>) -> Result<(), Failure> {
    let adopted = attempt.holdings.adopted();
    let renewals = adopted.iter().map(|held| renewed(attempt, held.instance.clone()));
    for (held, renewed) in adopted.iter().zip(join_all(renewals).await) {
        if renewed?.is_none() {
            let message = format!("an adopted machine was lost: {}", held.instance.id());
            return Err(Failure::new(FailureKind::Unexpected, message)
                .hint("the run was released meanwhile, or its machines passed their threshold"));
        }
    }
    Ok(())
}

/// The machine with at least the time that the request asks for; `None` if that was refused because
/// it has expired or been released meanwhile.
async fn renewed(
    attempt: &Attempt<'_>,
    instance: Instance<Running>,
) -> PortResult<Option<Instance<Running>>> {
    let plane = attempt.plane;
    let now = plane.now();
    let until = now + attempt.times.max_runtime;
    let is_stricter = attempt.reuse > instance.reuse();
    let is_long_enough = instance.threshold().filter(|threshold| *threshold >= until);
    if is_long_enough.is_some() && !is_stricter {
        return Ok(Some(instance));
    }
    let mut renewal = instance.renew(now, is_long_enough.unwrap_or(until));
    if is_stricter {
        renewal = renewal.never_reused();
    }
    match plane.apply(renewal.because("adopted")).await {
        Ok(renewed) => Ok(Some(renewed)),
        Err(NotCommitted::Refused(_)) => Ok(None),
        Err(NotCommitted::Unreachable(error)) => Err(error),
    }
}

/// Whether the machine matches the request. With the capacity fallback, any usage class does. A run
/// that asks for machines of its own adopts none that served another before: its own use counts as one.
fn fits(attempt: &Attempt<'_>, record: &Record) -> bool {
    let mut requirements = attempt.requirements.clone();
    if attempt.request.options.capacity_fallback {
        requirements.usage = record.spec.usage_class;
    }
    let served_another = attempt.reuse.is_never() && record.counts.runs > 1;
    requirements.mismatch(&record.spec).is_none() && !served_another
}

/// Whether the run gets the kind of label that it gets now, which is a setting of the pool. A machine
/// with a label of its own is told by that.
fn is_registered_as_wanted(attempt: &Attempt<'_>, record: &Record) -> bool {
    match attempt.settings.runner_label {
        RunnerLabel::Run => record.requested == RequestedLabel::OfRun,
        RunnerLabel::Machine => record.requested.named().is_some(),
    }
}

fn is_at_work(attempt: &Attempt<'_>, instance: &Instance<Running>, status: &AgentStatus) -> bool {
    let pulse = status.pulse(attempt.plane.now());
    let registered = |report: &Report| {
        report.says(Signal::Registered, &attempt.label)
            && report.machine_label.as_ref() == instance.requested().named()
    };
    pulse == Pulse::Healthy
        && !status.is_interrupted()
        && status.report.as_ref().is_some_and(registered)
}
