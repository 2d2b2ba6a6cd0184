//! The machines of a minimum that a refresh with a time limit launches. It does not wait for them:
//! they stay `created` for one run of refresh's own, and a later refresh with a limit makes those idle
//! that have become ready. Those that do not become ready count until their threshold, so that a
//! broken image costs one launch in that time and not one at each refresh.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::census::Census;
use super::{RUN_PREFIX, hold};
use crate::lifecycle::{Created, Idle, Instance, Running};
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::record::Record;
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, INTERRUPTED};
use crate::modes::handshake::{Handshake, Returned};
use crate::modes::plane::{NotCommitted, Plane, readable};
use crate::modes::provision::{ProvisionOptions, readiness};
use crate::modes::refresh::Outcome;
use crate::modes::refresh::limit::Limit;
use crate::ports::{PortResult, RecordScope};

/// How much longer than its refresh a lease holds, in case that was killed.
const BEYOND_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// The run that owns the machines until they are idle.
pub(super) fn run() -> Result<RunId, Failure> {
    RunId::new(format!("{RUN_PREFIX}later"))
        .map_err(|error| Failure::new(FailureKind::Unexpected, error.to_string()))
}

/// The machines that are not idle yet, read consistently.
async fn starting(plane: &Plane) -> Result<Vec<Record>, Failure> {
    let run = run()?;
    Ok(readable(plane.retried(|| plane.store.of_run(&run)).await?))
}

/// The live records, and those that the lagging list may lack.
pub(super) async fn live(plane: &Plane) -> Result<Vec<Record>, Failure> {
    let mut live = readable(plane.retried(|| plane.store.list(RecordScope::Live)).await?);
    let starting = starting(plane).await?;
    let ids: BTreeSet<&InstanceId> = starting.iter().map(|record| &record.id).collect();
    live.retain(|record| !ids.contains(&record.id));
    live.extend(starting);
    Ok(live)
}

/// The census, and how many machines are starting.
pub(super) async fn census(plane: &Plane, settings: &Settings) -> Result<Census, Failure> {
    Ok(Census::take(plane, settings, &live(plane).await?).await?)
}

/// Makes the machines idle whose agents have registered. They have no ticket yet. A machine that
/// cannot become ready is a warning.
pub(super) async fn hand_over(
    plane: &Plane,
    settings: &Settings,
    outcome: &mut Outcome,
) -> Result<Vec<Instance<Idle>>, Failure> {
    let (run, now) = (run()?, plane.now());
    let mut starting = starting(plane).await?;
    starting.retain(|record| !record.is_expired(now));
    if starting.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<InstanceId> = starting.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let label = Label::from(&run);
    let steps = starting.iter().zip(&status).map(|(it, status)| {
        let label = &label;
        async move { (it, hand_over_one(plane, settings, it, status, label).await) }
    });
    let mut idle = Vec::new();
    for (record, step) in join_all(steps).await {
        match step? {
            Step::Idle(instance) => idle.push(instance),
            Step::Starting => outcome.starting += 1,
            Step::Failed(why) => {
                let (class, id) = (&record.spec.resource_class, &record.id);
                outcome.warnings.push(format!(
                    "class {class} is below its minimum: machine {id} did not become ready: {why}"
                ));
            }
            Step::Changed => {}
        }
    }
    Ok(idle)
}

/// What became of one machine.
enum Step {
    Idle(Instance<Idle>),
    Starting,
    /// It stays until its threshold, or was expired because its provider takes it away.
    Failed(String),
    /// Another refresh was faster, or its threshold has passed.
    Changed,
}

async fn hand_over_one(
    plane: &Plane,
    settings: &Settings,
    record: &Record,
    status: &AgentStatus,
    label: &Label,
) -> PortResult<Step> {
    let stepped = async {
        let running = match (Instance::<Created>::believe(record), Instance::believe(record)) {
            (Some(created), _) => match readiness(label, &record.requested, status, plane.now()) {
                None => return Ok(Step::Starting),
                Some(Err(_)) if status.is_interrupted() => {
                    plane.apply(created.expire(plane.now()).because(INTERRUPTED)).await?;
                    return Ok(Step::Failed(INTERRUPTED.to_owned()));
                }
                Some(Err((why, _))) => return Ok(Step::Failed(why)),
                // Long enough to be released, and short enough to expire soon if this process dies
                // first and no refresh follows.
                Some(Ok(_)) => {
                    let span = settings.times.release_timeout * 2;
                    plane.apply(created.activate(plane.now(), span)).await?
                }
            },
            // A refresh has died before it released the machine.
            (None, Some(running)) => running,
            (None, None) => return Ok(Step::Changed),
        };
        let running: Instance<Running> = running;
        let release = running.release_unused(plane.now(), hold(settings));
        Ok(Step::Idle(plane.apply(release).await?))
    };
    match stepped.await {
        Ok(step) => Ok(step),
        Err(NotCommitted::Refused(_)) => Ok(Step::Changed),
        Err(NotCommitted::Unreachable(error)) => Err(error),
    }
}

/// Waits until the agents have left the run, and announces their machines.
pub(super) async fn announce(
    plane: &Plane,
    settings: &Settings,
    idle: &[Instance<Idle>],
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let run = run()?;
    let handshake = Handshake::new(plane, &settings.times, idle.len());
    let returns = join_all(idle.iter().map(|idle| handshake.take_back(idle, &run))).await;
    for (idle, returned) in idle.iter().zip(returns) {
        if let Returned::Expired(why) = returned? {
            let (class, id) = (&idle.spec().resource_class, idle.id());
            outcome
                .warnings
                .push(format!("class {class} is below its minimum: machine {id}: {why}"));
        }
    }
    Ok(())
}

/// Takes the right to launch machines for minimums. `None` if another refresh has it.
///
/// It is the lease of a demand that refresh stores for its own run, and ends by itself.
pub(super) async fn take_lease(plane: &Plane, limit: Limit) -> Result<Option<Demand>, Failure> {
    let (run, now) = (run()?, plane.now());
    let runs = std::slice::from_ref(&run);
    let found = plane.retried(|| plane.store.demands(runs)).await?.pop();
    if found.as_ref().is_some_and(|found| found.is_being_rescued(now)) {
        return Ok(None);
    }
    let unleased = found.clone().unwrap_or_else(|| Demand {
        run,
        options: ProvisionOptions::default(),
        times: std::collections::BTreeMap::new(),
        at: now,
        failed_rescues: None,
        lease: None,
        rerun: None,
        labels: Vec::new(),
    });
    let until = now + limit.left(plane) + BEYOND_LIMIT;
    let leased = unleased.leased(plane.random.number(), until);
    let taken = plane.replace_demand(found.as_ref(), &leased).await?;
    Ok(taken.then_some(leased))
}

/// Gives the right back. If that fails, it ends by itself.
pub(super) async fn give_back(plane: &Plane, leased: &Demand) {
    let next = Demand { lease: None, ..leased.clone() };
    if let Err(error) = plane.replace_demand(Some(leased), &next).await {
        tracing::warn!("the right to launch for the minimum was not given back: {error}");
    }
}
