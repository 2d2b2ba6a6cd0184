//! Dump, after an unexpected failure or a signal to stop: terminates every machine that this attempt
//! touched and deletes the records. It does not depend on how far the attempt came: it reads from
//! the store and the provider which machines belong to it.

use std::collections::BTreeSet;

use crate::lifecycle::{Created, Instance, Live};
use crate::model::ids::InstanceId;
use crate::model::intent::Intent;
use crate::modes::plane::{NotCommitted, readable};
use crate::modes::provision::Attempt;
use crate::ports::{Machine, PortError};

use super::CleanUp;

/// Terminates what the attempt touched. Never fails: what could not be done is among the failures
/// of the result.
pub(in crate::modes::provision) async fn dump(attempt: &Attempt<'_>) -> CleanUp {
    let (touched, intents) = (attempt.holdings.touched(), attempt.holdings.intents());
    drop_spent_tickets(attempt).await;
    if touched.is_empty() && intents.is_empty() {
        return CleanUp::default();
    }
    let mut clean_up = CleanUp::default();
    if let Err(error) = end_everything(attempt, touched, intents, &mut clean_up).await {
        let cut =
            format!("the clean-up is incomplete and left to the machines' deadlines: {error}");
        clean_up.failures.push(cut);
    }
    clean_up
}

/// Deletes the tickets of the machines that were claimed last. A ticket that stays is harmless, so a
/// failure is only logged.
async fn drop_spent_tickets(attempt: &Attempt<'_>) {
    let spent = attempt.holdings.spent();
    if spent.is_empty() {
        return;
    }
    let (plane, class) = (attempt.plane, &attempt.requirements.class);
    if let Err(error) = plane.retried(|| plane.pool.delete(class, &spent)).await {
        tracing::warn!("tickets of claimed machines not deleted: {error}");
    }
}

async fn end_everything(
    attempt: &Attempt<'_>,
    touched: BTreeSet<InstanceId>,
    intents: Vec<Intent>,
    clean_up: &mut CleanUp,
) -> Result<(), PortError> {
    let plane = attempt.plane;
    let failures = &mut clean_up.failures;
    // Even if the provider does not list its machines, those with a record are terminated.
    let launched = launched_under(attempt, &intents).await.unwrap_or_else(|error| {
        failures.push(format!("machines of the last launch may run until their deadline: {error}"));
        Vec::new()
    });
    let mut ours = recorded(attempt, &touched, &launched).await?;
    let registered: BTreeSet<InstanceId> = ours.iter().map(|ours| ours.id().clone()).collect();
    for machine in launched.iter().filter(|machine| !registered.contains(&machine.id)) {
        match adopt_unrecorded(attempt, machine).await {
            Ok(adopted) => ours.extend(adopted.map(Instance::into_live)),
            Err(error) => failures.push(format!("{} was not terminated: {error}", machine.id)),
        }
    }
    let failed = plane.retire_all(&ours, "dumped").await;
    failures.extend(failed.iter().map(|(id, error)| format!("{id} was not terminated: {error}")));

    let kept: BTreeSet<&InstanceId> = failed.iter().map(|(id, _)| id).collect();
    let dumped: Vec<InstanceId> =
        ours.iter().map(Instance::id).filter(|id| !kept.contains(id)).cloned().collect();
    if let Err(error) = plane.retried(|| plane.store.remove(&dumped)).await {
        failures.push(format!("records of terminated machines were not deleted: {error}"));
    }
    clean_up.terminated = dumped;
    // After a failure the intents stay open, and refresh settles them. So do the intents of launches
    // that were never answered: their machines may not be in the provider's list yet.
    if clean_up.failures.is_empty() {
        for mut intent in intents.into_iter().filter(|i| attempt.holdings.is_answered(i)) {
            "dumped".clone_into(&mut intent.outcome);
            plane.retried(|| plane.store.put_intent(&intent)).await?;
        }
    }
    Ok(())
}

/// The run's instances that this attempt touched. The run may own others, by another attempt.
async fn recorded(
    attempt: &Attempt<'_>,
    touched: &BTreeSet<InstanceId>,
    launched: &[Machine],
) -> Result<Vec<Instance<Live>>, PortError> {
    let plane = attempt.plane;
    let listing = plane.retried(|| plane.store.of_run(&attempt.request.run)).await?;
    let ours = |id: &InstanceId| touched.contains(id) || launched.iter().any(|m| m.id == *id);
    let records = readable(listing);
    Ok(records.iter().filter(|r| ours(&r.id)).filter_map(Instance::believe).collect())
}

/// Registers a machine that was launched and has no record yet, so that it is terminated like any
/// other: store first. If it has a record, it may belong to another run by now; the store refuses
/// and the machine is left alone.
async fn adopt_unrecorded(
    attempt: &Attempt<'_>,
    machine: &Machine,
) -> Result<Option<Instance<Created>>, PortError> {
    let (plane, request) = (attempt.plane, attempt.request);
    let timeout = attempt.times.created_timeout;
    let change = Instance::register(&machine.id, &machine.spec, &request.run, plane.now(), timeout);
    match plane.apply(change.because("launched, but never registered")).await {
        Ok(created) => Ok(Some(created)),
        Err(NotCommitted::Refused(_)) => Ok(None),
        Err(NotCommitted::Unreachable(error)) => Err(error),
    }
}

/// The machines that carry one of these intents, with or without a record.
async fn launched_under(
    attempt: &Attempt<'_>,
    intents: &[Intent],
) -> Result<Vec<Machine>, PortError> {
    if intents.is_empty() {
        return Ok(Vec::new());
    }
    let machines = attempt.plane.retried(|| attempt.plane.compute.machines()).await?;
    let ours = |machine: &Machine| intents.iter().any(|intent| intent.id == machine.intent);
    Ok(machines.into_iter().filter(ours).collect())
}
