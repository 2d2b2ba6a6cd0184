//! One launch: one `CreateFleet` of type instant, which tries once and reports the outcome.

mod cause;
mod launchable;
mod request;

use ondeck_core::model::ids::{InstanceId, ProviderName};
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Launched, Machine, Order, PortError, PortResult};

use self::cause::{CAPACITY, for_a_person, is_for_a_person, is_unmatched, remedy};
pub(super) use self::launchable::launchable;
use super::identity;
use super::options::LaunchOptions;
use crate::ec2::{Ec2, Failed, FleetAnswer, FleetError, FleetInstances, Query, Refusal};
use crate::error::{EC2, is_passing};
use crate::names::Names;

const ACTION: &str = "CreateFleet";

/// The most reasons that are listed for one answer.
const REASONS: usize = 8;

pub(super) async fn launch(
    ec2: &Ec2,
    names: &Names,
    version: Option<u64>,
    options: &LaunchOptions,
    order: &Order,
) -> PortResult<Launched> {
    let query = Query::new(ACTION, request::params(names, version, options, order));
    match ec2.call::<FleetAnswer>(&query).await {
        Ok(answer) => {
            let now = Timestamp::try_from(ec2.now()).unwrap_or(Timestamp::from_millis(0));
            reading(names, order, &answer, now)
        }
        Err(Failed::Refused(refusal)) => refused(names, refusal),
        Err(failed) => Err(failed.into()),
    }
}

/// The machines and the errors of an answer. Errors of single launches do not make it an error: under
/// this client token there will be no other answer.
fn reading(
    names: &Names,
    order: &Order,
    answer: &FleetAnswer,
    now: Timestamp,
) -> PortResult<Launched> {
    let mut launched = Launched::default();
    for group in &answer.instances.item {
        for id in &group.instance_ids.item {
            match ProviderName::new(id.as_str()).and_then(|name| identity(&name)) {
                Ok(id) => launched.machines.push(machine(order, group, id, now)),
                // It has the pool's tag, so refresh finds and terminates it as an orphan.
                Err(error) => launched.shortfalls.push(format!("{ACTION}: {error}")),
            }
        }
    }
    let errors = &answer.errors.item;
    if launched.machines.is_empty()
        && let Some(first) = errors.first()
        && errors.iter().all(|error| is_for_a_person(&error.error_code, &error.error_message))
    {
        return Err(for_a_person(names, &first.error_code, &first.error_message));
    }
    let (passing, lasting): (Vec<_>, Vec<_>) =
        errors.iter().partition(|error| is_passing(&error.error_code));
    launched.passing = reasons(&passing);
    launched.shortfalls.extend(reasons(&lasting));
    let (got, count) = (launched.machines.len(), order.count);
    let silent = launched.shortfalls.is_empty() && launched.passing.is_empty();
    if silent && got < count as usize {
        launched.shortfalls.push(format!("{ACTION}: launched {got} of {count} and gave no reason"));
    }
    Ok(launched)
}

fn machine(order: &Order, group: &FleetInstances, id: InstanceId, now: Timestamp) -> Machine {
    let requirements = &order.requirements;
    let usage_class = match group.lifecycle.as_str() {
        "spot" => UsageClass::Spot,
        _ => UsageClass::OnDemand,
    };
    tracing::debug!(instance = %id, kind = group.instance_type, zone = group.zone(), "launched");
    Machine {
        id,
        spec: MachineSpec {
            resource_class: requirements.class.clone(),
            instance_type: group.instance_type.clone(),
            usage_class,
            cpu: requirements.size.cpu,
            mem: requirements.size.mem,
        },
        intent: order.intent.clone(),
        launched_at: now,
        image: None,
    }
}

/// Why machines are missing: each reason once, with an example. There is an error for each type in
/// each subnet, which may be hundreds.
fn reasons(errors: &[&FleetError]) -> Vec<String> {
    let mut groups: Vec<(&FleetError, usize)> = Vec::new();
    for &error in errors {
        let same = |other: &FleetError| {
            other.error_code == error.error_code && other.error_message == error.error_message
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, count)) => *count += 1,
            None => groups.push((error, 1)),
        }
    }
    let told = |(first, count): &(&FleetError, usize)| {
        let what = format!("{}: {}", first.error_code, first.error_message);
        let what = match (first.place().as_str(), count) {
            ("", 1) => what,
            ("", count) => format!("{what} ({count} times)"),
            (place, 1) => format!("{what} ({place})"),
            (place, count) => format!("{what} ({place}, and {} more)", count - 1),
        };
        with_remedy(what, &first.error_code, &first.error_message)
    };
    let mut lines: Vec<String> = groups.iter().take(REASONS).map(told).collect();
    if groups.len() > REASONS {
        lines.push(format!("other reasons that are not shown: {}", groups.len() - REASONS));
    }
    lines
}

/// A reason, followed by what helps if that is known.
fn with_remedy(what: String, code: &str, message: &str) -> String {
    match remedy(code, message) {
        Some(remedy) => format!("{what}: {remedy}"),
        None => what,
    }
}

/// The outcome of a request that was refused as a whole.
fn refused(names: &Names, refusal: Refusal) -> PortResult<Launched> {
    let Refusal { code, message, .. } = &refusal;
    if CAPACITY.contains(&code.as_str()) || is_unmatched(code, message) {
        let shortfalls = vec![with_remedy(format!("{code}: {message}"), code, message)];
        return Ok(Launched { shortfalls, ..Launched::default() });
    }
    if code == "IdempotentParameterMismatch" {
        return Err(PortError::Unusable {
            service: EC2,
            reason: refusal.said(),
            hint:
                "the same launch was ordered before with other settings; its machines expire on their \
                   own: run the step again"
                    .to_owned(),
        });
    }
    if is_for_a_person(code, message) {
        return Err(for_a_person(names, code, message));
    }
    Err(refusal.into_error())
}

#[cfg(test)]
mod tests;
