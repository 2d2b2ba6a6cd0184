//! Runners that the forge lists in vain: their machine is gone, or has registered again since.
//!
//! A runner may still be online after its machine has left the pool. One that has a job is left to the
//! next refresh, because the forge refuses to remove it. An online runner of a machine that this pool has
//! no record of stays: the names of runners tell pools apart by their names only, so it may belong to a
//! pool of the same name in another account or region.

use std::collections::BTreeMap;

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::signal::AgentStatus;
use crate::modes::plane::Plane;
use crate::ports::{ListedRunner, PortError, PortResult};

/// Removes runners whose machine is gone; one that is online only if a record says that it is gone. Also
/// removes earlier registrations of live machines that have registered again while they were idle, also if
/// machines have the label of their run by now. If the forge refuses to remove a runner, that is a warning.
pub(super) async fn remove(
    plane: &Plane,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let is_gone = |runner: &&ListedRunner| match runner.online {
        true => survey.has_left(&runner.instance),
        false => !survey.knows(&runner.instance),
    };
    for runner in survey.runners.iter().filter(is_gone) {
        if remove_one(plane, runner, outcome).await? {
            tracing::info!(runner = runner.name, "runner removed: its machine is gone");
            outcome.offline_runners.push(runner.name.clone());
        }
    }
    for runner in superseded(plane, survey).await? {
        if remove_one(plane, runner, outcome).await? {
            tracing::info!(
                runner = runner.name,
                "runner removed: its machine has registered again"
            );
            outcome.offline_runners.push(runner.name.clone());
        }
    }
    Ok(())
}

/// Returns whether the runner is no longer on the list.
async fn remove_one(
    plane: &Plane,
    runner: &ListedRunner,
    outcome: &mut Outcome,
) -> Result<bool, Failure> {
    match plane.retried(|| plane.forge.remove_runner(&runner.name)).await {
        Ok(()) => Ok(true),
        // GitHub refuses, for example, while it still waits for the job of a machine that was
        // taken away. The other runners are removed nevertheless; the next refresh retries.
        Err(PortError::Forge { reason, .. } | PortError::Limited { reason, .. }) => {
            outcome.warnings.push(reason);
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The runners of live machines with a lower number than the registration that the machine's agent has
/// named. Agents are asked after the runners were listed: a machine has one registration at a time, so a
/// lower one is over. One with a higher number may have registered since the agent has written.
async fn superseded<'a>(
    plane: &Plane,
    survey: &'a Survey,
) -> PortResult<impl Iterator<Item = &'a ListedRunner>> {
    let mut by_machine: BTreeMap<&InstanceId, Vec<&ListedRunner>> = BTreeMap::new();
    for runner in survey.runners.iter().filter(|runner| survey.knows(&runner.instance)) {
        by_machine.entry(&runner.instance).or_default().push(runner);
    }
    // A machine that has a run and one runner has no other registration.
    let is_unknown = |(id, listed): &(&&InstanceId, &Vec<_>)| {
        listed.len() > 1 && !survey.idle_status.contains_key(**id)
    };
    let unknown: Vec<InstanceId> =
        by_machine.iter().filter(is_unknown).map(|(id, _)| (*id).clone()).collect();
    let status = match unknown.as_slice() {
        [] => Vec::new(),
        ids => plane.retried(|| plane.store.agent_status(ids)).await?,
    };
    let idle = survey.idle_status.iter().filter_map(|(id, status)| Some((id, number(status)?)));
    let owned = unknown.iter().zip(&status).filter_map(|(id, status)| Some((id, number(status)?)));
    let numbers: BTreeMap<InstanceId, u32> =
        idle.chain(owned).map(|(id, number)| (id.clone(), number)).collect();
    let is_earlier = move |runner: &&ListedRunner| {
        numbers.get(&runner.instance).is_some_and(|number| runner.number < *number)
    };
    Ok(by_machine.into_values().flatten().filter(is_earlier))
}

/// The number of the registration that the agent has named.
fn number(status: &AgentStatus) -> Option<u32> {
    use crate::model::readiness::Readiness;
    match &status.readiness.as_ref()?.readiness {
        Readiness::Ready(idle) => Some(idle.number),
        Readiness::NotReady { .. } => None,
    }
}
