//! One launch: intent, machines, records, in this order. If the process is killed after the intent,
//! refresh settles the intent. If it is killed after the launch, the machines terminate themselves
//! because they have no record, or refresh terminates them by their intent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::lifecycle::{Instance, Running};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::IntentId;
use crate::model::intent::Intent;
use crate::model::requirements::{Requirements, UsageClass};
use crate::modes::plane::NotCommitted;
use crate::modes::provision::{Attempt, ceiling};
use crate::modes::refresh::orphans::is_abandoned;
use crate::ports::{Launched, Machine, Order, PortError, PortResult};

/// The result of one launch: how many machines, and why there are not more.
pub(super) struct Fleet {
    pub(super) count: u32,
    pub(super) shortfalls: Vec<String>,
    pub(super) passing: Vec<String>,
}

/// Launches up to `count` machines and registers all of them concurrently. Fewer machines are no
/// error. Fails if the store or the provider does not answer, if the provider refuses the order, or
/// if the store refuses to register a machine.
pub(super) async fn launch(
    attempt: &Attempt<'_>,
    usage: UsageClass,
    count: u32,
) -> Result<Fleet, Failure> {
    let id = new_id(attempt)?;
    let mut requirements = Requirements { usage, ..attempt.requirements.clone() };
    let places = ceiling::reserve(attempt, &id, &requirements, count).await?;
    let (count, claimed) = (places.count, places.claimed);
    if let Some(priced) = &places.priced {
        requirements.types = priced.types.clone();
    }
    if count == 0 {
        return Ok(Fleet { count: claimed, shortfalls: Vec::new(), passing: Vec::new() });
    }
    let mut intent = match intend(attempt, id, usage, count).await {
        Ok(intent) => intent,
        Err(failure) => {
            ceiling::settle(attempt, &places, &[]).await;
            return Err(failure);
        }
    };
    let order =
        Order { intent: intent.id.clone(), run: attempt.request.run.clone(), count, requirements };
    let from = attempt.plane.clock.steady();
    let answer = answer(attempt, &order).await;
    note(attempt, &order, from, &answer);
    let launched = match answer {
        Ok(launched) => launched,
        Err(NotLaunched::Unknown(error)) => return Err(error.into()),
        Err(NotLaunched::Refused(error)) => {
            attempt.holdings.launch_answered(&intent);
            let outcome = format!("refused: {error}");
            let closed = settle(attempt, &mut intent, outcome);
            let (closed, ()) = join(closed, ceiling::settle(attempt, &places, &[])).await;
            if let Err(error) = closed {
                tracing::warn!("the intent of a refused launch is left open: {error}");
            }
            return Err(error.into());
        }
    };
    attempt.holdings.launch_answered(&intent);
    for reason in launched.shortfalls.iter().chain(&launched.passing) {
        tracing::warn!("{reason}");
    }
    let registers = join_all(launched.machines.iter().map(|m| register(attempt, m)));
    let settled = ceiling::settle(attempt, &places, &launched.machines);
    let (registered, ()) = join(registers, settled).await;
    registered.into_iter().collect::<Result<(), Failure>>()?;
    let outcome = format!("launched {} of {count}", launched.machines.len());
    settle(attempt, &mut intent, outcome).await?;
    let count = u32::try_from(launched.machines.len()).unwrap_or(u32::MAX);
    let count = count.saturating_add(claimed);
    Ok(Fleet { count, shortfalls: launched.shortfalls, passing: launched.passing })
}

/// Why a launch has no answer with machines.
enum NotLaunched {
    /// The provider has refused every attempt, so there is no machine.
    Refused(PortError),
    /// The answer to at least one attempt is missing: there may be machines.
    Unknown(PortError),
}

/// Notes the order, and what came of it, for the summary.
fn note(
    attempt: &Attempt<'_>,
    order: &Order,
    from: Duration,
    answer: &Result<Launched, NotLaunched>,
) {
    let (launched, why) = match answer {
        Ok(launched) => {
            let count = u32::try_from(launched.machines.len()).unwrap_or(u32::MAX);
            (Some(count), [&launched.shortfalls[..], &launched.passing].concat())
        }
        Err(NotLaunched::Refused(error)) => (Some(0), vec![error.to_string()]),
        Err(NotLaunched::Unknown(error)) => (None, vec![error.to_string()]),
    };
    let span = (from, attempt.plane.clock.steady());
    let ordered = (order.requirements.usage, order.count);
    attempt.journal.launched(span, &order.intent, ordered, launched, &why);
}

/// Asks the provider, and repeats the order while the error is a passing one. Repeating is safe:
/// under the same intent the order launches once.
async fn answer(attempt: &Attempt<'_>, order: &Order) -> Result<Launched, NotLaunched> {
    let plane = attempt.plane;
    let unknown = AtomicBool::new(false);
    let ask = || async {
        let answer = plane.compute.launch(order, &attempt.settings).await;
        if matches!(answer, Err(PortError::Unavailable { .. })) {
            unknown.store(true, Ordering::Relaxed);
        }
        answer
    };
    let answer = plane.retried(ask).await;
    answer.map_err(|error| match unknown.load(Ordering::Relaxed) {
        true => NotLaunched::Unknown(error),
        false => NotLaunched::Refused(error),
    })
}

/// Stores the outcome of a launch.
async fn settle(attempt: &Attempt<'_>, intent: &mut Intent, outcome: String) -> PortResult<()> {
    let plane = attempt.plane;
    intent.outcome = outcome;
    plane.retried(|| plane.store.put_intent(intent)).await?;
    attempt.holdings.settled(intent);
    Ok(())
}

fn new_id(attempt: &Attempt<'_>) -> Result<IntentId, Failure> {
    let id = format!("{:016x}", attempt.plane.random.number());
    IntentId::new(id).map_err(|e| Failure::new(FailureKind::Unexpected, e.to_string()))
}

async fn intend(
    attempt: &Attempt<'_>,
    id: IntentId,
    usage: UsageClass,
    count: u32,
) -> Result<Intent, Failure> {
    let plane = attempt.plane;
    let intent = Intent {
        id,
        run: attempt.request.run.clone(),
        class: Some(attempt.requirements.class.clone()),
        count,
        usage,
        deadline: plane.now() + attempt.times.created_timeout,
        outcome: String::new(),
    };
    attempt.holdings.about_to_launch(&intent);
    plane.retried(|| plane.store.put_intent(&intent)).await?;
    Ok(intent)
}

const CONTRADICTION: &str = "see ondeck explain for what else has written the record; retry";
const HELD_UP: &str = "retry: refresh terminated the machine while this provision was held up";

async fn register(attempt: &Attempt<'_>, machine: &Machine) -> Result<(), Failure> {
    let plane = attempt.plane;
    attempt.holdings.about_to_touch(&machine.id);
    let change = Instance::register(
        &machine.id,
        &machine.spec,
        &attempt.label,
        plane.now(),
        attempt.times.created_timeout,
    );
    match plane.apply(change.reusing(attempt.reuse).requesting(attempt.requested_label())).await {
        Ok(created) => {
            attempt.holdings.create(created, plane.clock.steady());
            Ok(())
        }
        Err(NotCommitted::Refused(refused)) => {
            let running = refused.found.as_ref().and_then(Instance::<Running>::believe);
            if let Some(running) = running.filter(|it| it.run() == Some(&attempt.request.run)) {
                // The answer to an earlier write was lost, and a refresh has handed the machine to the
                // run since.
                tracing::info!(instance = %machine.id, "handed over by a refresh");
                attempt.holdings.adopt(running, plane.clock.steady());
                return Ok(());
            }
            if refused.found.as_ref().is_some_and(is_abandoned) {
                let message = format!("machine {} was taken for an orphan: {refused}", machine.id);
                return Err(Failure::new(FailureKind::NotReady, message).hint(HELD_UP));
            }
            Err(Failure::new(FailureKind::Unexpected, refused.to_string()).hint(CONTRADICTION))
        }
        Err(NotCommitted::Unreachable(error)) => Err(error.into()),
    }
}
