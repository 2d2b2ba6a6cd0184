//! Which scenarios can be played, on which machines.

use super::audit::Look;
use super::{Options, Scenario};
use crate::model::departure::Departure;
use crate::model::ids::ResourceClass;
use crate::model::record::{Record, State};
use crate::model::requirements::UsageClass;
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Pulse};
use crate::model::timestamp::Timestamp;

/// One scenario, and what would be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub scenario: Scenario,
    /// The reason if it cannot be played.
    pub target: Result<Target, String>,
}

/// The kind of machine that a scenario asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub class: ResourceClass,
    pub usage: UsageClass,
    /// `None` for a launch, which accepts what provision accepts by itself.
    pub instance_type: Option<String>,
}

/// Says which of the scenarios that were asked for can be played now, in the order of
/// [`Scenario::ALL`].
pub fn plan(look: &Look, settings: &Settings, options: &Options) -> Vec<Planned> {
    let asked = Scenario::ALL.into_iter().filter(|it| options.scenarios.contains(it));
    asked.map(|it| Planned { scenario: it, target: target(it, look, settings, options) }).collect()
}

pub(super) fn target(
    scenario: Scenario,
    look: &Look,
    settings: &Settings,
    options: &Options,
) -> Result<Target, String> {
    if let (Scenario::InterruptSpot, Some(reason)) = (scenario, &options.no_interruption) {
        return Err(reason.clone());
    }
    if scenario.launches() {
        return launched(settings, options);
    }
    let usage = (scenario == Scenario::InterruptSpot).then_some(UsageClass::Spot);
    let fits = |(record, status): &&(Record, AgentStatus)| {
        is_free(record, status, look.now)
            && usage.is_none_or(|usage| record.spec.usage_class == usage)
            && options.class.as_ref().is_none_or(|class| record.spec.resource_class == *class)
    };
    let free = look.live.iter().filter(fits);
    // The one that has the most time left, so that it does not expire in the middle.
    let best = free.max_by_key(|(record, _)| (record.threshold, &record.id));
    let what = if usage.is_some() { "idle spot machine" } else { "idle machine" };
    let of_class = options.class.as_ref().map(|class| format!(" of class {class}"));
    let Some((record, _)) = best else {
        return Err(format!("there is no {what}{}", of_class.unwrap_or_default()));
    };
    Ok(Target {
        class: record.spec.resource_class.clone(),
        usage: record.spec.usage_class,
        instance_type: Some(record.spec.instance_type.clone()),
    })
}

fn launched(settings: &Settings, options: &Options) -> Result<Target, String> {
    if !options.may_launch {
        return Err("it launches a machine; give --launch".to_owned());
    }
    let size = |class: &&ResourceClass| settings.classes.get(class).map(|it| (it.cpu, it.mem));
    // Without a wish, the cheapest.
    let smallest = || settings.classes.names().min_by_key(size);
    let class = options.class.as_ref().or_else(smallest);
    let class = class.ok_or_else(|| "no resource class is configured".to_owned())?;
    Ok(Target { class: class.clone(), usage: UsageClass::OnDemand, instance_type: None })
}

/// Whether a run that asks for this machine should get it.
pub(super) fn is_free(record: &Record, status: &AgentStatus, now: Timestamp) -> bool {
    record.state == State::Idle
        && !record.is_expired(now)
        && record.ticketed_at.is_some()
        && record.departure == Departure::None
        && status.pulse(now) == Pulse::Healthy
        && !status.is_interrupted()
}
