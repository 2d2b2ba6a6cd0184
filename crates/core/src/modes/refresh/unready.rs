//! Idle machines that are not registered, in a pool whose machines register while they are idle.
//!
//! Such a machine can still be claimed, and registers then. One that has not been ready for
//! [`TOO_LONG`] is terminated if at least half of those of its class that have tried to register since then
//! could, those that runs have by now included. If they could not either, GitHub is the reason, and a new machine would fare no better.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Outcome;
use super::survey::Survey;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::machine_label::RunnerLabel;
use crate::model::readiness::{NOTHING_SAID, Readiness, ReadinessNote, USUALLY_READY};
use crate::model::record::{Record, State};
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::PortResult;

/// How long a machine may not be ready before another one takes its place.
const TOO_LONG: Duration = Duration::from_secs(10 * 60);

/// Why the machines are terminated.
const WHY: &str = "it could not register for ten minutes, and others of its class could";

/// An idle machine, as far as its registration is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look<'a> {
    record: &'a Record,
    class: &'a ResourceClass,
    seen: Seen<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen<'a> {
    /// It is registered, since then.
    Ready(Timestamp),
    /// It has not been ready since then, for this reason.
    NotReady(Timestamp, &'a str),
    /// Its agent has said nothing about this idle state yet, which began then.
    Untold(Timestamp),
}

/// The last registration of a machine that a run has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Try {
    class: ResourceClass,
    at: Timestamp,
    /// Whether it has succeeded.
    registered: bool,
}

/// Warns of idle machines that are not ready, and terminates those that have not been for too long, unless
/// most of their class fare no better. Does nothing in a pool whose machines have the label of the run.
pub(super) async fn attend(
    plane: &Plane,
    settings: &Settings,
    survey: &mut Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    if settings.runner_label == RunnerLabel::Run {
        return Ok(());
    }
    let now = plane.now();
    let looks: Vec<Look<'_>> = survey
        .live
        .iter()
        .filter(|record| record.state == State::Idle && !record.is_expired(now))
        // Until then, what its agent has said may be about the time before.
        .filter(|record| record.ticketed_at.is_some())
        .filter_map(|record| look(record, survey.idle_status.get(&record.id)?, settings, now))
        .collect();
    outcome.warnings.extend(warning(&looks, now));
    let tries = tries_of_runs(plane, &survey.live, &looks, now).await?;
    let hopeless = hopeless(&looks, &tries, now);
    let hopeless: Vec<Instance<Idle>> =
        hopeless.into_iter().filter_map(Instance::believe).collect();
    let retired = plane.retire_all(&hopeless, WHY).await;
    let ended = hopeless.iter().map(|idle| idle.id().clone()).filter(|id| retired.ended(id));
    let gone: Vec<InstanceId> = ended.collect();
    survey.live.retain(|record| !gone.contains(&record.id));
    outcome.rotated.extend(gone.into_iter().filter(|id| retired.reaped.contains(id)));
    match retired.failed.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }
}

/// What the agent has said last. `None` if its heartbeat has stopped, which says nothing about its
/// registration, or if it has said nothing and may not know these settings yet.
fn look<'a>(
    record: &'a Record,
    status: &'a AgentStatus,
    settings: &Settings,
    now: Timestamp,
) -> Option<Look<'a>> {
    if status.pulse(now) != Pulse::Healthy {
        return None;
    }
    let seen = match status.readiness.as_ref() {
        Some(ReadinessNote { readiness: Readiness::NotReady { since, why }, .. }) => {
            Seen::NotReady(*since, why)
        }
        Some(note) if note.registration(record.counts.generation).is_some() => Seen::Ready(note.at),
        Some(_) | None if record.settings_version != settings.version => return None,
        Some(_) | None => Seen::Untold(record.updated_at),
    };
    Some(Look { record, class: &record.spec.resource_class, seen })
}

/// How many machines are not ready, and why the one that has waited longest is not.
fn warning(looks: &[Look<'_>], now: Timestamp) -> Option<String> {
    let unready: Vec<(&Record, Duration, &str)> = looks
        .iter()
        .filter_map(|look| match look.seen {
            Seen::NotReady(since, why) => Some((look.record, now.since(since), why)),
            Seen::Untold(since) => Some((look.record, now.since(since), NOTHING_SAID)),
            Seen::Ready(_) => None,
        })
        .filter(|(_, span, _)| *span >= USUALLY_READY)
        .collect();
    let (record, span, why) = unready.iter().max_by_key(|(_, span, _)| *span)?;
    let (idle, minutes) = (looks.len(), span.as_secs() / 60);
    let count = unready.len();
    let which = format!("{} for {minutes} min: {why}", record.id);
    Some(format!("{count} of {idle} idle machines are not registered, {which}"))
}

/// Since when the machine has not been ready, if that is too long.
fn fails_since(look: &Look<'_>, now: Timestamp) -> Option<Timestamp> {
    match look.seen {
        Seen::NotReady(since, _) if now.since(since) >= TOO_LONG => Some(since),
        Seen::NotReady(..) | Seen::Ready(_) | Seen::Untold(_) => None,
    }
}

/// The last registrations of machines that runs have, of the classes in which a machine may be given up.
/// They are read only if there is such a class.
async fn tries_of_runs(
    plane: &Plane,
    live: &[Record],
    looks: &[Look<'_>],
    now: Timestamp,
) -> PortResult<Vec<Try>> {
    let failing = looks.iter().filter(|look| fails_since(look, now).is_some());
    let classes: BTreeSet<&ResourceClass> = failing.map(|look| look.class).collect();
    let owned = live.iter().filter(|record| record.run.is_some() && !record.is_expired(now));
    let owned = owned.filter(|record| classes.contains(&record.spec.resource_class));
    let owned: Vec<&Record> = owned.collect();
    if owned.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<InstanceId> = owned.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    Ok(owned
        .into_iter()
        .zip(&status)
        .filter_map(|(it, status)| last_try(it, status, now))
        .collect())
}

/// The last registration of a machine that a run has. `None` if its heartbeat has stopped, or if there was
/// none yet.
fn last_try(record: &Record, status: &AgentStatus, now: Timestamp) -> Option<Try> {
    if status.pulse(now) != Pulse::Healthy {
        return None;
    }
    let class = record.spec.resource_class.clone();
    // It was registered before the run had it.
    if let Some(ReadinessNote { readiness: Readiness::Ready(_), at }) = status.readiness {
        return Some(Try { class, at, registered: true });
    }
    let (report, label) = (status.report.as_ref()?, record.label()?);
    let registered = report.says(Signal::Registered, &label);
    let tried = registered || report.says(Signal::RegisterFailed, &label);
    tried.then_some(Try { class, at: report.at, registered })
}

/// The machines that have not been ready for too long although at least half of those of their class that
/// have tried to register meanwhile could. A machine that registered before that and is still ready has not
/// tried.
fn hopeless<'a>(looks: &[Look<'a>], tries: &[Try], now: Timestamp) -> Vec<&'a Record> {
    let is_its_own = |look: &&Look<'a>| {
        let Some(since) = fails_since(look, now) else { return false };
        let of_class = || looks.iter().filter(|other| other.class == look.class);
        let idle = of_class().filter(|it| matches!(it.seen, Seen::Ready(at) if at >= since));
        let failing = of_class().filter(|it| fails_since(it, now).is_some());
        let of_runs = tries.iter().filter(|it| it.class == *look.class && it.at >= since);
        let (could, could_not): (Vec<&Try>, Vec<&Try>) = of_runs.partition(|it| it.registered);
        idle.count() + could.len() >= failing.count() + could_not.len()
    };
    looks.iter().filter(is_its_own).map(|look| look.record).collect()
}

#[cfg(test)]
mod tests;
