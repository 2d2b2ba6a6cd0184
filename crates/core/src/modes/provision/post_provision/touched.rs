//! What an attempt has left in the store and at the provider, wherever its flow was dropped.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::lifecycle::{Created, Instance};
use crate::model::ids::InstanceId;
use crate::model::intent::Intent;
use crate::model::record::Record;
use crate::modes::plane::{NotCommitted, readable};
use crate::modes::provision::Attempt;
use crate::ports::{Machine, PortResult};

use super::Progress;

/// Deletes the tickets of the machines that were claimed last. A ticket that stays is harmless, so a
/// failure is only logged.
pub(super) async fn drop_spent_tickets(attempt: &Attempt<'_>) {
    let spent = attempt.holdings.spent();
    if spent.is_empty() {
        return;
    }
    let (plane, class) = (attempt.plane, &attempt.requirements.class);
    if let Err(error) = plane.retried(|| plane.pool.delete(class, &spent)).await {
        tracing::warn!("tickets of claimed machines not deleted: {error}");
    }
}

/// The run's records that this attempt has touched, answered or not. The run may own others, by
/// another attempt.
pub(super) async fn recorded(
    attempt: &Attempt<'_>,
    touched: &BTreeSet<InstanceId>,
) -> PortResult<Vec<Record>> {
    let plane = attempt.plane;
    let listing = plane.retried(|| plane.store.of_run(&attempt.request.run)).await?;
    let ours = |id: &InstanceId| touched.contains(id);
    Ok(readable(listing).into_iter().filter(|record| ours(&record.id)).collect())
}

/// Terminates the machines of launches whose intents are still open: the provider did not answer, or
/// not every machine got its record. An intent whose launch was answered is closed with `outcome`
/// if nothing failed. The others stay open for refresh, because their machines may not be in the
/// provider's list yet. The machines in `seen` have a record and are left to the caller.
///
/// Returns the machines that the run has nevertheless, because a refresh has handed them to it just then.
pub(super) async fn undo_launches(
    attempt: &Attempt<'_>,
    outcome: &str,
    seen: &BTreeSet<InstanceId>,
    done: &Progress,
) -> Vec<Record> {
    let plane = attempt.plane;
    let open = attempt.holdings.open_intents();
    if open.is_empty() {
        return Vec::new();
    }
    let launched = match launched_under(attempt, &open).await {
        Ok(launched) => {
            let others = |id: &InstanceId| seen.contains(id) || attempt.holdings.is_left_alone(id);
            launched.into_iter().filter(|m| !others(&m.id)).collect::<Vec<_>>()
        }
        Err(error) => {
            done.failed(format!(
                "machines of the last launch may run until their deadline: {error}"
            ));
            return Vec::new();
        }
    };
    let records = join_all(launched.iter().map(|machine| with_record(attempt, machine))).await;
    let (mut created, mut handed_over, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (machine, record) in launched.iter().zip(records) {
        match record {
            Ok(Launched::New(it)) => created.push(it),
            Ok(Launched::HandedOver(record)) => handed_over.push(*record),
            Ok(Launched::NotOurs) => {}
            Err(error) => failed.push((machine.id.clone(), error)),
        }
    }
    let retired = plane.retire_all(&created, "launched for a run that could not be served").await;
    done.terminated(created.iter().map(Instance::id).filter(|id| retired.ended(id)).cloned());
    failed.extend(retired.failed);
    done.not_terminated(&failed);
    if failed.is_empty() {
        let answered = open.into_iter().filter(|intent| attempt.holdings.is_answered(intent));
        for intent in answered {
            close(attempt, intent, outcome, done).await;
        }
    }
    let is_ours = |record: &Record| record.run.as_ref() == Some(&attempt.request.run);
    handed_over.extend(retired.alive.into_iter().filter(is_ours));
    handed_over
}

async fn close(attempt: &Attempt<'_>, mut intent: Intent, outcome: &str, done: &Progress) {
    outcome.clone_into(&mut intent.outcome);
    let plane = attempt.plane;
    match plane.retried(|| plane.store.put_intent(&intent)).await {
        Ok(()) => attempt.holdings.settled(&intent),
        Err(error) => done.failed(format!("intent {} is left to refresh: {error}", intent.id)),
    }
}

/// The machines that carry one of these intents, with or without a record.
async fn launched_under(attempt: &Attempt<'_>, intents: &[Intent]) -> PortResult<Vec<Machine>> {
    let machines = attempt.plane.retried(|| attempt.plane.compute.machines()).await?;
    let ours = |machine: &Machine| intents.iter().any(|intent| intent.id == machine.intent);
    Ok(machines.into_iter().filter(ours).collect())
}

/// A machine of a launch, by its record.
enum Launched {
    /// It is `created` for the run.
    New(Instance<Created>),
    /// A refresh has handed it to the run.
    HandedOver(Box<Record>),
    /// It is of another run by now, or of none.
    NotOurs,
}

/// Registers a machine that was launched and has no record yet, so that it is terminated like any
/// other: store first.
async fn with_record(attempt: &Attempt<'_>, machine: &Machine) -> PortResult<Launched> {
    let (plane, request) = (attempt.plane, attempt.request);
    let timeout = attempt.times.created_timeout;
    let change =
        Instance::register(&machine.id, &machine.spec, &attempt.label, plane.now(), timeout);
    // If this process dies here and the machine becomes ready, refresh hands it to the run.
    let change = change.reusing(attempt.reuse).because("launched, but never registered");
    match plane.apply(change).await {
        Ok(created) => Ok(Launched::New(created)),
        Err(NotCommitted::Refused(refused)) => {
            let ours = refused.found.filter(|found| found.run.as_ref() == Some(&request.run));
            Ok(ours.map_or(Launched::NotOurs, |found| match Instance::believe(&found) {
                Some(created) => Launched::New(created),
                None => Launched::HandedOver(Box::new(found)),
            }))
        }
        Err(NotCommitted::Unreachable(error)) => Err(error),
    }
}
