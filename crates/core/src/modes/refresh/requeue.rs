//! Re-queue: sends tickets for idle instances that have none, because their release died before it
//! sent one. An instance gets its ticket once its agent has signalled that it is free. If the agent
//! does not do so within the release timeout, the instance is expired. If its runner has taken a job
//! of the run that gave it back, the run gets it again.

use super::Outcome;
use super::survey::Survey;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::label::Label;
use crate::model::machine_label::RequestedLabel;
use crate::model::record::Record;
use crate::model::reuse::Reuse;
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Pulse, Report, Signal};
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::modes::handshake::{announce, keep_for_job};
use crate::modes::plane::{NotCommitted, Plane};

pub(super) async fn requeue(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    let unannounced: Vec<(&Record, Instance<Idle>)> = survey
        .live
        .iter()
        .filter(|record| record.ticketed_at.is_none() && !record.is_expired(now))
        .filter_map(|record| Some((record, Instance::<Idle>::believe(record)?)))
        .collect();
    if unannounced.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = unannounced.iter().map(|(_, idle)| idle.id().clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let mut tickets: Vec<Ticket> = Vec::new();
    for ((record, idle), status) in unannounced.iter().zip(status) {
        if let Some(label) = held_for(&status, now) {
            keep(plane, settings, idle, label).await?;
            continue;
        }
        let free = |report: &Report| report.is_free_in(record.counts.generation, None);
        let is_free = status.report.as_ref().is_some_and(free);
        let signal = status.report.map(|report| report.signal);
        let overdue = record.updated_at + settings.times.release_timeout <= now;
        match signal {
            // The next refresh terminates it.
            Some(Signal::Deregistered) if is_free && record.departure.is_drained() => {}
            Some(Signal::Deregistered) if is_free => tickets.push(idle.ticket()),
            Some(Signal::DeregisterFailed | Signal::PrepareFailed) => {
                expire(plane, idle, outcome).await?;
            }
            _ if overdue => expire(plane, idle, outcome).await?,
            _ => {}
        }
    }
    announce(plane, &tickets).await?;
    outcome.requeued = tickets.into_iter().map(|ticket| ticket.instance_id).collect();
    Ok(())
}

/// The label of the run whose job is on the machine although the run has given it back, and what its
/// runner is registered with.
fn held_for(status: &AgentStatus, now: Timestamp) -> Option<(Label, RequestedLabel)> {
    let report = status.report.as_ref()?;
    let label = report.label().filter(|label| report.is_held_for(&label.run))?;
    (status.pulse(now) == Pulse::Healthy).then(|| (label, report.registered_with()))
}

/// Gives the machine to the run again. A refusal means that another process was faster.
async fn keep(
    plane: &Plane,
    settings: &Settings,
    idle: &Instance<Idle>,
    (label, requested): (Label, RequestedLabel),
) -> Result<(), Failure> {
    let runs = std::slice::from_ref(&label.run);
    let demands = plane.retried(|| plane.store.demands(runs)).await?;
    let asked = demands.iter().find(|demand| demand.label() == label);
    let reuse = match asked {
        Some(demand) => demand.options.reuse.stricter(settings.reuse),
        // It is not known what the run asked for. If it was a machine of its own, this one was unused.
        None if idle.counts().runs == 0 => Reuse::Never,
        None => Reuse::Always,
    };
    match keep_for_job(plane, &settings.times, idle, (&label, requested), reuse).await {
        Ok(_) | Err(NotCommitted::Refused(_)) => Ok(()),
        Err(NotCommitted::Unreachable(error)) => Err(error.into()),
    }
}

async fn expire(
    plane: &Plane,
    idle: &Instance<Idle>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let change = idle.expire(plane.now()).because("its agent never signalled that it is free");
    match plane.apply(change).await {
        Ok(_) => outcome.unresponsive.push(idle.id().clone()),
        Err(NotCommitted::Refused(_)) => {}
        Err(NotCommitted::Unreachable(error)) => return Err(error.into()),
    }
    Ok(())
}
