//! What machines and GitHub-hosted runners cost, at list prices: one table with its date and source,
//! which is part of the program and can be replaced.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::model::excerpt::{one_line, quoted};
use crate::model::money::Money;
use crate::model::record::MachineSpec;
use crate::model::requirements::UsageClass;

/// The table that the program has.
const BUILT_IN: &str = include_str!("prices/us-east-1.json");

/// A table of prices. A type that is not in it has no price.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    /// The day that the prices are of (`2026-07-20`).
    pub as_of: String,
    /// Where they are from, in words.
    pub source: String,
    pub region: String,
    /// What spot costs, as a share of the on-demand price, for types without a spot price of their own.
    pub spot_share: f64,
    on_demand: BTreeMap<String, Money>,
    spot: BTreeMap<String, Money>,
    hosted: Hosted,
}

/// The price of a minute of a GitHub-hosted Linux runner, by its number of cores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hosted {
    x64: BTreeMap<u32, Money>,
    arm64: BTreeMap<u32, Money>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    as_of: String,
    source: String,
    region: String,
    spot_share: f64,
    on_demand: BTreeMap<String, f64>,
    #[serde(default)]
    spot: BTreeMap<String, f64>,
    #[serde(default)]
    github_hosted: WrittenHosted,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHosted {
    #[serde(default)]
    x64: BTreeMap<u32, f64>,
    #[serde(default)]
    arm64: BTreeMap<u32, f64>,
}

impl Prices {
    /// The table of the program.
    pub fn built_in() -> Prices {
        Prices::from_json(BUILT_IN).expect("the table is part of the program and tested")
    }

    /// The text of that table, as a file can have it.
    pub fn built_in_text() -> &'static str {
        BUILT_IN
    }

    /// Reads a table. Fails with what is wrong with it.
    pub fn from_json(text: &str) -> Result<Prices, String> {
        let written: Written = serde_json::from_str(text).map_err(|error| one_line(&error))?;
        let as_of: Option<jiff::civil::Date> = written.as_of.parse().ok();
        if as_of.is_none() {
            return Err(format!("asOf is no date such as 2026-07-20: {}", quoted(&written.as_of)));
        }
        if !(written.spot_share > 0.0 && written.spot_share <= 1.0) {
            return Err(format!("spotShare is not above 0 and at most 1: {}", written.spot_share));
        }
        Ok(Prices {
            as_of: written.as_of,
            source: written.source,
            region: written.region,
            spot_share: written.spot_share,
            on_demand: priced(written.on_demand)?,
            spot: priced(written.spot)?,
            hosted: Hosted {
                x64: priced(written.github_hosted.x64)?,
                arm64: priced(written.github_hosted.arm64)?,
            },
        })
    }

    /// The types that have a price on demand, in alphabetical order.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.on_demand.keys().map(String::as_str)
    }

    /// What an hour of a machine of this type costs on demand. `None` if the table does not have it.
    pub fn on_demand(&self, instance_type: &str) -> Option<Money> {
        self.on_demand.get(instance_type).copied()
    }

    /// Whether both tables have the same types on demand, at the same prices.
    pub fn agrees_on_demand(&self, other: &Prices) -> bool {
        self.on_demand == other.on_demand
    }

    /// What an hour of this machine costs. `None` if the table has no price for it.
    pub fn per_hour(&self, spec: &MachineSpec) -> Option<Money> {
        let on_demand = || self.on_demand(&spec.instance_type);
        match spec.usage_class {
            UsageClass::OnDemand => on_demand(),
            UsageClass::Spot => self.spot.get(&spec.instance_type).copied().or_else(|| {
                on_demand().and_then(|price| Money::from_dollars(price.dollars() * self.spot_share))
            }),
        }
    }

    /// What GitHub charges for one job of this length on the smallest of its runners that has at least
    /// the cores of this machine, and the minutes that it charges for. `None` if the table has no such
    /// runner.
    pub fn hosted_job(&self, spec: &MachineSpec, length: Duration) -> Option<(u64, Money)> {
        let runners =
            if is_arm(&spec.instance_type) { &self.hosted.arm64 } else { &self.hosted.x64 };
        let (_, per_minute) = runners.range(spec.cpu..).next()?;
        let minutes = u64::try_from(length.as_millis().div_ceil(60_000)).unwrap_or(u64::MAX).max(1);
        Some((minutes, per_minute.times(minutes)))
    }

    /// What GitHub charges for one short job on its smallest runner for x86-64.
    pub fn smallest_hosted_job(&self) -> Option<Money> {
        self.hosted.x64.values().next().copied()
    }
}

fn priced<K: Ord + std::fmt::Display>(
    written: BTreeMap<K, f64>,
) -> Result<BTreeMap<K, Money>, String> {
    let price = |(what, dollars): (K, f64)| {
        let money = Money::from_dollars(dollars).filter(|money| *money > Money::ZERO);
        let named = quoted(&what.to_string()).to_string();
        money
            .map(|money| (what, money))
            .ok_or(format!("the price of {named} is not above 0: {dollars}"))
    };
    written.into_iter().map(price).collect()
}

/// Whether machines of this type have Arm processors: `m7gd.2xlarge` is family m, generation 7,
/// Graviton with disks.
fn is_arm(instance_type: &str) -> bool {
    let name = instance_type.split('.').next().unwrap_or_default();
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let traits = name[digits..].trim_start_matches(|c: char| c.is_ascii_digit());
    traits.starts_with('g') || name == "a1"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(instance_type: &str, usage: UsageClass, cpu: u32) -> MachineSpec {
        MachineSpec {
            resource_class: "large".parse().unwrap(),
            instance_type: instance_type.to_owned(),
            usage_class: usage,
            cpu,
            mem: 4096,
        }
    }

    fn dollars(amount: f64) -> Money {
        Money::from_dollars(amount).unwrap()
    }

    #[test]
    fn the_table_of_the_program_has_the_common_types() {
        let prices = Prices::built_in();
        for (name, price) in [
            ("c6i.large", 0.085),
            ("m6i.2xlarge", 0.384),
            ("r6i.xlarge", 0.252),
            ("c7g.large", 0.0725),
            ("t3.large", 0.0832),
            ("g5.xlarge", 1.006),
        ] {
            let found = prices.per_hour(&spec(name, UsageClass::OnDemand, 2));
            assert_eq!(found, Some(dollars(price)), "{name}");
            let spot = prices.per_hour(&spec(name, UsageClass::Spot, 2)).unwrap();
            assert_eq!(spot, dollars(price * prices.spot_share), "{name}");
        }
        assert_eq!(prices.per_hour(&spec("z99.large", UsageClass::OnDemand, 2)), None);
    }

    #[test]
    fn a_spot_price_of_its_own_goes_first() {
        let text = r#"{"asOf": "2026-01-31", "source": "us", "region": "r", "spotShare": 0.5,
            "onDemand": {"a.b": 1, "c.d": 3}, "spot": {"a.b": 0.2}}"#;
        let prices = Prices::from_json(text).unwrap();
        let of = |name| prices.per_hour(&spec(name, UsageClass::Spot, 2));
        assert_eq!((of("a.b"), of("c.d")), (Some(dollars(0.2)), Some(dollars(1.5))));
        assert_eq!(prices.hosted_job(&spec("a.b", UsageClass::Spot, 2), Duration::ZERO), None);
        assert_eq!(prices.smallest_hosted_job(), None);
    }

    #[test]
    fn a_hosted_runner_of_at_least_that_size_costs_whole_minutes() {
        let prices = Prices::built_in();
        for (name, cpu, millis, expected) in [
            ("c6i.large", 2, 60_001, Some((2, 0.012))),
            ("c6i.large", 2, 0, Some((1, 0.006))),
            ("t3.nano", 1, 1, Some((1, 0.006))),
            ("c7g.xlarge", 4, 60_000, Some((1, 0.008))),
            ("c8gd.xlarge", 4, 60_000, Some((1, 0.008))),
            ("g5.xlarge", 4, 60_000, Some((1, 0.012))),
            ("c6i.12xlarge", 48, 60_000, Some((1, 0.162))),
            ("c6i.32xlarge", 128, 60_000, None),
        ] {
            let of = spec(name, UsageClass::OnDemand, cpu);
            let found = prices.hosted_job(&of, Duration::from_millis(millis));
            let expected = expected.map(|(minutes, price)| (minutes, dollars(price)));
            assert_eq!(found, expected, "{name} for {millis} ms");
        }
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused() {
        let whole = r#"{"asOf": "2026-01-31", "source": "us", "region": "r", "spotShare": 0.5,
            "onDemand": {"a.b": 1}}"#;
        assert!(Prices::from_json(whole).is_ok());
        for (from, to, problem) in [
            ("2026-01-31", "January", "asOf is no date"),
            ("0.5", "0", "spotShare"),
            ("0.5", "1.1", "spotShare"),
            ("\"a.b\": 1", "\"a.b\": 0", "the price of \"a.b\""),
            ("\"a.b\": 1", "\"a.b\": -1", "the price of \"a.b\""),
            ("\"source\": \"us\", ", "", "source"),
            ("\"source\"", "\"origin\"", "origin"),
        ] {
            let error = Prices::from_json(&whole.replace(from, to)).unwrap_err();
            assert!(error.contains(problem), "{problem}: {error}");
        }
    }
}
