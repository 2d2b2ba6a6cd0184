//! What machines cost under `max-spend-per-day`: which types a launch may get, at which price, and for
//! how long.
//!
//! Prices are the list prices on demand of the table that the program has, also for spot machines. A
//! launch asks only for types that have a price there.

use std::time::Duration;

use crate::inputs::times::Times;
use crate::model::failure::Failure;
use crate::model::money::Money;
use crate::model::prices::Prices;
use crate::model::record::{MachineSpec, Record, State};
use crate::model::requirements::{ClassSize, Requirements, TypePatterns, UsageClass};
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;
use crate::modes::refresh::keep_warm;
use crate::ports::Compute;

/// The most types that an order can name.
const MOST_TYPES: usize = 400;

/// The prices that a cap goes by.
#[derive(Debug)]
pub(crate) struct Tariff(Prices);

/// What a launch under a cap may get.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    /// The types that are allowed and have a price, each by its name.
    pub(crate) types: TypePatterns,
    /// What an hour of the cheapest of them costs.
    pub(crate) cheapest: Money,
    /// What an hour of the dearest of them costs.
    pub(crate) dearest: Money,
}

impl Tariff {
    /// The table of the program.
    pub(crate) fn new() -> Tariff {
        Tariff(Prices::built_in())
    }

    /// Narrows what a launch asks for to the types that have a price. `None` if there is none.
    pub(crate) fn priced(
        &self,
        compute: &dyn Compute,
        requirements: &Requirements,
        settings: &Settings,
    ) -> Option<Priced> {
        let known: Vec<&str> = self.0.types().collect();
        let allowed = compute.launchable(requirements, settings, &known);
        let price = |name: String| self.0.on_demand(&name).map(|price| (price, name));
        let mut allowed: Vec<(Money, String)> = allowed.into_iter().filter_map(price).collect();
        allowed.sort();
        allowed.truncate(MOST_TYPES);
        let ((cheapest, _), (dearest, _)) = (allowed.first()?, allowed.last()?);
        let names: Vec<&str> = allowed.iter().map(|(_, name)| name.as_str()).collect();
        let types = names.join(" ").parse().ok()?;
        Some(Priced { types, cheapest: *cheapest, dearest: *dearest })
    }

    /// What an hour of a machine costs. One whose type has no price costs as much as the dearest of its
    /// class.
    pub(crate) fn of(
        &self,
        compute: &dyn Compute,
        settings: &Settings,
        spec: &MachineSpec,
    ) -> Money {
        self.list_price(spec).unwrap_or_else(|| {
            let size = settings.classes.get(&spec.resource_class);
            let requirements = Requirements {
                class: spec.resource_class.clone(),
                size: size.unwrap_or(ClassSize { cpu: spec.cpu, mem: spec.mem }),
                usage: UsageClass::OnDemand,
                types: TypePatterns::any(),
            };
            let priced = self.priced(compute, &requirements, settings);
            priced.map_or(Money::ZERO, |priced| priced.dearest)
        })
    }

    /// The list price on demand of an hour. `None` if the table does not have the type.
    pub(crate) fn list_price(&self, spec: &MachineSpec) -> Option<Money> {
        self.0.on_demand(&spec.instance_type)
    }
}

/// Why a launch under a cap is refused.
pub(crate) fn no_price(subject: &str, types: &TypePatterns) -> Failure {
    let message = format!(
        "max-spend-per-day cannot be kept for {subject}: no allowed instance type has a price: {types}"
    );
    Failure::invalid(message).hint(
        "ondeck cost --print-prices shows the types that have one; or --reset max-spend-per-day",
    )
}

/// How long after its launch a machine is gone at the latest: at the age at which it leaves the pool it
/// may still be idle, and then be claimed, used and preserved once. `times` are those of the call that
/// launches it; later calls have those of the settings.
pub(crate) fn longest(settings: &Settings, times: &Times) -> Duration {
    let longer = |of: fn(&Times) -> Duration| of(times).max(of(&settings.times));
    let age = settings.max_machine_age.unwrap_or(Duration::from_secs(24 * 3_600));
    let idle = match settings.min_idle.iter().next() {
        None => Duration::ZERO,
        Some(_) => keep_warm::hold(settings),
    };
    age.max(longer(|times| times.created_timeout))
        + idle.max(longer(|times| times.idle_time))
        + longer(|times| times.claim_timeout)
        + after_claim(settings, times).max(after_claim(settings, &settings.times))
}

/// How long after its claim or its launch for a run a machine may be there.
fn after_claim(settings: &Settings, times: &Times) -> Duration {
    times.max_runtime
        + settings.debug_on_failure.unwrap_or_default()
        + settings.times.self_termination_grace
}

/// When a machine is gone at the latest, as far as its record says.
pub(crate) fn gone_by(settings: &Settings, launched_at: Timestamp, record: &Record) -> Timestamp {
    let times = &settings.times;
    let grace = times.self_termination_grace;
    let threshold = record.threshold.unwrap_or(record.updated_at);
    let of_state = match record.state {
        State::Created | State::Claimed => threshold + after_claim(settings, times),
        State::Running if !record.is_preserved() => {
            threshold + settings.debug_on_failure.unwrap_or_default() + grace
        }
        State::Running | State::Idle | State::Terminated => threshold + grace,
    };
    match record.departure.is_drained() {
        true => of_state,
        false => of_state.max(launched_at + longest(settings, times)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{MemoryCompute, VirtualClock};

    #[test]
    fn a_launch_is_narrowed_to_types_that_have_a_price() {
        let compute = MemoryCompute::new(std::sync::Arc::new(VirtualClock::new()));
        let settings = Settings::default();
        let of = |types: &str| {
            let class = "large".parse().unwrap();
            let size = settings.classes.get(&class).unwrap();
            let types = types.parse().unwrap();
            let usage = UsageClass::Spot;
            let requirements = Requirements { class, size, usage, types };
            Tariff::new().priced(&compute, &requirements, &settings)
        };
        let priced = of("c6i* r6i.* z99*").unwrap();
        assert_eq!(priced.types.to_string(), "c6i.large c6id.large c6in.large r6i.large");
        assert_eq!(Some(priced.dearest), Money::from_dollars(0.126));
        assert_eq!(Some(priced.cheapest), Money::from_dollars(0.085));
        assert!(of("z99.*").is_none());
        let refused = no_price("class large", &"z99.*".parse().unwrap());
        assert!(refused.message.contains("class large") && refused.message.contains("z99.*"));
    }

    #[test]
    fn a_machine_without_a_price_costs_as_much_as_the_dearest_of_its_class() {
        let compute = MemoryCompute::new(std::sync::Arc::new(VirtualClock::new()));
        let spec = MachineSpec {
            resource_class: "large".parse().unwrap(),
            instance_type: "z99.large".to_owned(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4096,
        };
        let (tariff, settings) = (Tariff::new(), Settings::default());
        assert_eq!(tariff.list_price(&spec), None);
        let price = tariff.of(&compute, &settings, &spec);
        let known = MachineSpec { instance_type: "c6i.large".to_owned(), ..spec };
        assert!(price >= tariff.of(&compute, &settings, &known));
        assert_eq!(tariff.list_price(&known), Money::from_dollars(0.085));
    }

    #[test]
    fn a_machine_may_be_used_once_more_at_its_age() {
        let minute = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut settings = Settings { max_machine_age: Some(minute(120)), ..Settings::default() };
        assert_eq!(longest(&settings, &settings.times), minute(120 + 5 + 5 + 30 + 1));
        settings.min_idle = "large=1".parse().unwrap();
        assert_eq!(longest(&settings, &settings.times), minute(120 + 30 + 5 + 30 + 1));
        settings.debug_on_failure = Some(minute(60));
        assert_eq!(longest(&settings, &settings.times), minute(120 + 30 + 5 + 30 + 1 + 60));
    }
}
