//! New machines of runs that a refresh with a time limit has launched without waiting for them. Their
//! runners take jobs as soon as they are registered; the machines become `running` here.

use std::collections::BTreeSet;

use super::machines::Machines;
use crate::lifecycle::{Created, Instance};
use crate::model::demand::Demand;
use crate::model::failure::Failure;
use crate::model::ids::RunId;
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::settings::Settings;
use crate::modes::plane::{NotCommitted, Plane};
use crate::modes::provision::readiness;
use crate::modes::refresh::keep_warm;

/// Hands ready machines to the runs that they are `created` for, if it is known what the run asked
/// for. A provision of the run that waits for the same machine takes that for its own write. Fails if
/// the store does not answer.
pub(super) async fn hand_over(
    plane: &Plane,
    settings: &Settings,
    machines: &Machines,
) -> Result<(), Failure> {
    let now = plane.now();
    let ready = machines.created().filter_map(|(record, status)| {
        let label = record.label().filter(|label| !keep_warm::is_own_run(&label.run))?;
        let registered = readiness(&label, &record.requested, status, now)?.ok()?;
        Some((Instance::<Created>::believe(record)?, label, registered.label))
    });
    let ready: Vec<(Instance<Created>, Label, Option<MachineLabel>)> = ready.collect();
    if ready.is_empty() {
        return Ok(());
    }
    let runs: BTreeSet<&RunId> = ready.iter().map(|(_, label, _)| &label.run).collect();
    let runs: Vec<RunId> = runs.into_iter().cloned().collect();
    let demands = plane.retried(|| plane.store.demands(&runs)).await?;
    let mut served = BTreeSet::new();
    for (created, label, own) in &ready {
        let Some(demand) = demands.iter().find(|demand| demand.label() == *label) else { continue };
        let times = demand.again(1).times.over(settings.times.clone());
        let activation = created.activate(plane.now(), times.max_runtime).naming(own.clone());
        match plane.apply(activation).await {
            Ok(_) => drop(served.insert(label)),
            // The run was released, or its provision was faster.
            Err(NotCommitted::Refused(_)) => {}
            Err(NotCommitted::Unreachable(error)) => return Err(error.into()),
        }
    }
    for demand in demands.iter().filter(|demand| served.contains(&demand.label())) {
        rescued(plane, demand).await?;
    }
    Ok(())
}

/// Notes that the last rescue was no failure, unless another one is under way.
async fn rescued(plane: &Plane, demand: &Demand) -> Result<(), Failure> {
    if demand.failed_rescues.is_some() && !demand.is_being_rescued(plane.now()) {
        let next = Demand { failed_rescues: None, lease: None, ..demand.clone() };
        plane.replace_demand(Some(demand), &next).await?;
    }
    Ok(())
}
