//! Idle machines that are not registered, in a pool whose machines register while they are idle.
//!
//! Such a machine can still be claimed, and registers then. One that has not been ready for
//! [`TOO_LONG`] is terminated if others of its class have registered meanwhile. If they have not either,
//! GitHub is the reason, and a new machine would fare no better.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Outcome;
use super::survey::Survey;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::machine_label::RunnerLabel;
use crate::model::readiness::Readiness;
use crate::model::record::{Record, State};
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Pulse};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;

/// How long a machine may not be ready before another one takes its place.
const TOO_LONG: Duration = Duration::from_secs(10 * 60);

/// A machine that has just become idle is not ready for some seconds, which is not worth a warning.
const USUAL: Duration = Duration::from_secs(60);

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
    /// It registered within the last [`TOO_LONG`].
    Registered,
    /// It registered before that.
    Ready,
    /// It has not been ready for so long, for this reason.
    NotReady(Duration, &'a str),
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
        .filter_map(|record| look(record, survey.idle_status.get(&record.id)?, now))
        .collect();
    outcome.warnings.extend(warning(&looks));
    let hopeless = hopeless(&looks);
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

/// What the agent has said last. `None` if its heartbeat has stopped or it has said nothing, which says
/// nothing about its registration.
fn look<'a>(record: &'a Record, status: &'a AgentStatus, now: Timestamp) -> Option<Look<'a>> {
    let note = status.readiness.as_ref().filter(|_| status.pulse(now) == Pulse::Healthy)?;
    let seen = match &note.readiness {
        Readiness::Ready(_) if now.since(note.at) < TOO_LONG => Seen::Registered,
        Readiness::Ready(_) => Seen::Ready,
        Readiness::NotReady { since, why } => Seen::NotReady(now.since(*since), why),
    };
    Some(Look { record, class: &record.spec.resource_class, seen })
}

/// How many machines are not ready, and why the one that has waited longest is not.
fn warning(looks: &[Look<'_>]) -> Option<String> {
    let unready: Vec<(&Record, Duration, &str)> = looks
        .iter()
        .filter_map(|look| match look.seen {
            Seen::NotReady(span, why) if span >= USUAL => Some((look.record, span, why)),
            _ => None,
        })
        .collect();
    let (record, span, why) = unready.iter().max_by_key(|(_, span, _)| *span)?;
    let (idle, minutes) = (looks.len(), span.as_secs() / 60);
    let count = unready.len();
    let which = format!("{} for {minutes} min: {why}", record.id);
    Some(format!("{count} of {idle} idle machines are not registered, {which}"))
}

/// The machines that have not been ready for too long although at least half of those of their class that
/// have tried to register in that time could.
fn hopeless<'a>(looks: &[Look<'a>]) -> Vec<&'a Record> {
    let mut classes: BTreeMap<&ResourceClass, (usize, Vec<&Record>)> = BTreeMap::new();
    for look in looks {
        let (registered, failing) = classes.entry(look.class).or_default();
        match look.seen {
            Seen::Registered => *registered += 1,
            Seen::NotReady(span, _) if span >= TOO_LONG => failing.push(look.record),
            Seen::Ready | Seen::NotReady(..) => {}
        }
    }
    let is_their_own = |(registered, failing): &(usize, Vec<&Record>)| *registered >= failing.len();
    let theirs = classes.into_values().filter(is_their_own);
    theirs.flat_map(|(_, failing)| failing).collect()
}
