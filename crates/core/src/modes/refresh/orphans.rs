//! Orphans: machines of this pool without a live record. They remain when a control plane dies
//! between launch and register, or between reap and terminate.

use std::time::Duration;

use futures_util::future::join_all;

use super::Outcome;
use super::survey::Survey;
use crate::lifecycle::{Created, Instance};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{Record, State};
use crate::model::settings::Settings;
use crate::modes::plane::{NotCommitted, Plane, Reaped};
use crate::ports::{Machine, PortResult};

/// The owner of an orphan in the record that refresh gives it.
const OWNER: &str = "orphan";

/// Terminates the orphans that were launched longer ago than the grace.
pub(super) async fn terminate(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let now = plane.now();
    let found = survey.orphans().filter(|machine| !outcome.reaped.contains(&machine.id));
    outcome.oldest_orphan = found.map(|machine| now.since(machine.launched_at)).max();
    let grace = settings.times.self_termination_grace;
    let is_old = |machine: &&Machine| machine.launched_at + grace <= now;
    let orphans: Vec<&Machine> = survey.orphans().filter(is_old).collect();
    outcome.orphans.extend(terminate_all(plane, &orphans).await?);
    Ok(())
}

/// Whether refresh has taken the machine for an orphan. Its provision was held up for longer than the
/// grace.
pub(crate) fn is_abandoned(record: &Record) -> bool {
    let is_owner = |run: &RunId| run.as_str() == OWNER;
    record.state == State::Terminated || record.run.as_ref().is_some_and(is_owner)
}

/// Terminates machines without a live record. Each of them gets an expired one first, so that its
/// provision cannot register it at the same time. Returns those that are terminated.
pub(crate) async fn terminate_all(
    plane: &Plane,
    machines: &[&Machine],
) -> Result<Vec<InstanceId>, Failure> {
    let owner = RunId::new(OWNER)
        .map_err(|error| Failure::new(FailureKind::Unexpected, error.to_string()))?;
    let expired = join_all(machines.iter().map(|machine| expire(plane, machine, &owner))).await;
    let mut orphans = Vec::new();
    for (machine, expired) in machines.iter().zip(expired) {
        orphans.extend(expired?.then(|| machine.id.clone()));
    }
    plane.terminate(&orphans).await?;
    Ok(orphans)
}

/// Gives an orphan a record that is terminated. Returns whether it is; if not, its provision has just
/// registered it.
async fn expire(plane: &Plane, machine: &Machine, owner: &RunId) -> PortResult<bool> {
    let why = "launched, but never registered";
    let change = Instance::register(&machine.id, &machine.spec, owner, plane.now(), Duration::ZERO);
    let expired = match plane.apply(change.because(format!("{why}: {}", machine.spec.told()))).await
    {
        Ok(expired) => expired,
        Err(NotCommitted::Refused(refused)) => {
            let Some(found) = refused.found.filter(is_abandoned) else { return Ok(false) };
            // An earlier refresh has given it its record and not reaped it.
            match Instance::<Created>::believe(&found) {
                Some(expired) => expired,
                None => return Ok(true),
            }
        }
        Err(NotCommitted::Unreachable(error)) => return Err(error),
    };
    match plane.reap(&expired, why).await? {
        // If it was not reaped here, a refresh at the same time was faster.
        Reaped::Here | Reaped::NotHere(None) => Ok(true),
        // It belongs to a run of this name.
        Reaped::NotHere(Some(_)) => Ok(false),
    }
}
