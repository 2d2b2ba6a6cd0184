//! A rough estimate of what machines cost, to tell a cent from a dollar and to compare.
//!
//! Prices are per vCPU and hour, by family, as EC2 lists Linux machines on demand in
//! us-east-1 (aws.amazon.com/ec2/pricing/on-demand: c6i.large 0.085, m6i.large 0.096, r6i.large
//! 0.126 USD an hour; c7g.large 0.0725, m7g.large 0.0816, r7g.large 0.1071). Within a family all
//! sizes cost the same per vCPU, and the generations in use differ by less than a tenth. Prices of
//! GitHub-hosted runners are those since January 2026
//! (docs.github.com/billing/reference/actions-runner-pricing).

use std::time::Duration;

use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::UsageClass;

use crate::inputs::Backend;

/// US dollars per vCPU and hour: families c, m and r.
const COMPUTE: f64 = 0.0425;
const GENERAL: f64 = 0.048;
const MEMORY: f64 = 0.063;

/// The price of an Arm machine, as a share of the x86 price of its family.
const ARM: f64 = 0.85;

/// The price of spot, as a share of the on-demand price. It changes with time and zone: AWS
/// advertises discounts of up to 90 %; 50 to 70 % is common.
const SPOT: f64 = 0.4;

/// US dollars per minute of a GitHub-hosted Linux runner, by cores.
const HOSTED_X64: [(u32, f64); 7] =
    [(2, 0.006), (4, 0.012), (8, 0.022), (16, 0.042), (32, 0.082), (64, 0.162), (96, 0.252)];
const HOSTED_ARM: [(u32, f64); 6] =
    [(2, 0.005), (4, 0.008), (8, 0.014), (16, 0.026), (32, 0.050), (64, 0.098)];

/// The small print below every estimate.
pub(super) fn assumption(backend: Backend) -> String {
    let local = match backend {
        Backend::Local => {
            "Local machines are processes and cost nothing; the figures are for the EC2 types that \
             they are named after. "
        }
        Backend::Aws => "",
    };
    format!(
        "<sub>{local}Estimated from list prices: EC2 Linux on-demand in us-east-1, spot at 40 % of \
         that, GitHub-hosted Linux runners as of January 2026. Disks, traffic and idle time in the \
         pool are not included.</sub>\n"
    )
}

/// An amount in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) struct Dollars(f64);

impl std::ops::Add for Dollars {
    type Output = Dollars;
    fn add(self, other: Dollars) -> Dollars {
        Dollars(self.0 + other.0)
    }
}

impl std::iter::Sum for Dollars {
    fn sum<I: Iterator<Item = Dollars>>(amounts: I) -> Dollars {
        amounts.fold(Dollars::default(), std::ops::Add::add)
    }
}

impl std::fmt::Display for Dollars {
    /// Two significant digits, because the estimate is no better. No dollar sign, because GitHub
    /// may read it as mathematics.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            none if none <= 0.0 => f.write_str("nothing"),
            little if little < 0.0095 => f.write_str("less than a cent"),
            some if some < 9.95 => write!(f, "about USD {some:.2}"),
            much => write!(f, "about USD {much:.0}"),
        }
    }
}

/// What a machine costs on EC2 if it runs for this long. `None` for machines with accelerators,
/// whose price depends little on their vCPUs.
pub(super) fn on_ec2(spec: &MachineSpec, span: Duration) -> Option<Dollars> {
    let kind = PriceClass::of(spec)?;
    let usage = match spec.usage_class {
        UsageClass::Spot => SPOT,
        UsageClass::OnDemand => 1.0,
    };
    let arm = if kind.arm { ARM } else { 1.0 };
    let per_hour = kind.per_cpu * f64::from(spec.cpu) * usage * arm;
    Some(Dollars(per_hour * span.as_secs_f64() / 3600.0))
}

/// What a GitHub-hosted runner of at least this size costs for one job of this length, which
/// GitHub rounds up to minutes. `None` if GitHub has no runner of that size.
pub(super) fn on_github(spec: &MachineSpec, span: Duration) -> Option<Dollars> {
    let kind = PriceClass::of(spec)?;
    let prices = if kind.arm { &HOSTED_ARM[..] } else { &HOSTED_X64[..] };
    let (_, per_minute) = prices.iter().find(|(cores, _)| *cores >= spec.cpu)?;
    let minutes = span.as_secs().div_ceil(60).max(1);
    Some(Dollars(per_minute * f64::from(u32::try_from(minutes).unwrap_or(u32::MAX))))
}

/// What machines cost on EC2 in an hour.
#[cfg(feature = "dashboard")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CostOfAnHour {
    /// An estimate in words.
    pub(crate) amount: String,
    /// How many machines it does not contain, because there is no price for them.
    pub(crate) unpriced: usize,
}

#[cfg(feature = "dashboard")]
impl CostOfAnHour {
    pub(crate) fn of<'a>(specs: impl Iterator<Item = &'a MachineSpec>) -> CostOfAnHour {
        let (mut total, mut unpriced) = (Dollars::default(), 0);
        for spec in specs {
            match on_ec2(spec, Duration::from_secs(3600)) {
                Some(amount) => total = total + amount,
                None => unpriced += 1,
            }
        }
        CostOfAnHour { amount: total.to_string(), unpriced }
    }
}

struct PriceClass {
    per_cpu: f64,
    arm: bool,
}

impl PriceClass {
    /// Reads a type such as `m7gd.2xlarge`: family m, generation 7, Graviton with disks.
    fn of(spec: &MachineSpec) -> Option<PriceClass> {
        let name = spec.instance_type.split('.').next()?;
        let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
        let (family, rest) = name.split_at(digits);
        let traits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if ["dl", "f", "g", "inf", "p", "trn", "vt"].contains(&family) {
            return None;
        }
        let per_cpu = match family {
            "c" => COMPUTE,
            "m" => GENERAL,
            "r" => MEMORY,
            // MiB for each vCPU: 2, 4 and 8 GiB are what the three families come with.
            _ => match spec.mem / spec.cpu.max(1) {
                ..3072 => COMPUTE,
                3072..6144 => GENERAL,
                _ => MEMORY,
            },
        };
        Some(PriceClass { per_cpu, arm: traits.contains('g') || family == "a" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondeck_core::model::ids::ResourceClass;

    fn spec(instance_type: &str, cpu: u32, mem: u32) -> MachineSpec {
        MachineSpec {
            resource_class: ResourceClass::new("large").unwrap(),
            instance_type: instance_type.to_owned(),
            usage_class: UsageClass::OnDemand,
            cpu,
            mem,
        }
    }

    #[test]
    fn an_hour_costs_about_what_ec2_lists() {
        let hour = Duration::from_secs(3600);
        // What EC2 lists for each.
        let listed = [
            ("c6i.large", 2, 4096, 0.085),
            ("m6i.2xlarge", 8, 32768, 0.384),
            ("r6i.xlarge", 4, 32768, 0.252),
            ("c7g.large", 2, 4096, 0.0725),
            ("m7gd.large", 2, 8192, 0.1068),
            ("c5.4xlarge", 16, 32768, 0.68),
            ("t3.large", 2, 8192, 0.0832),
        ];
        for (name, cpu, mem, price) in listed {
            let Dollars(estimate) = on_ec2(&spec(name, cpu, mem), hour).unwrap();
            assert!((estimate / price - 1.0).abs() < 0.25, "{name}: {estimate} for {price}");
        }
        let on_demand = on_ec2(&spec("c6i.large", 2, 4096), hour).unwrap();
        let spot = MachineSpec { usage_class: UsageClass::Spot, ..spec("c6i.large", 2, 4096) };
        assert!(on_ec2(&spot, hour).unwrap() < on_demand);
        assert_eq!(on_ec2(&spec("g5.xlarge", 4, 16384), hour), None);
        assert_eq!(on_ec2(&spec("p5.48xlarge", 192, 2_097_152), hour), None);
    }

    #[test]
    fn a_hosted_runner_of_that_size_costs_whole_minutes() {
        let cases = [
            ("c6i.large", 2, 61, Some(0.012)),
            ("c6i.large", 2, 1, Some(0.006)),
            ("c7g.xlarge", 4, 60, Some(0.008)),
            ("c6i.12xlarge", 48, 60, Some(0.162)),
            ("c6i.32xlarge", 128, 60, None),
        ];
        for (name, cpu, seconds, dollars) in cases {
            let cost = on_github(&spec(name, cpu, cpu * 2048), Duration::from_secs(seconds));
            assert_eq!(cost, dollars.map(Dollars), "{name} for {seconds} s");
        }
    }

    #[test]
    fn amounts_do_not_pretend() {
        let cases = [
            (0.0, "nothing"),
            (0.0004, "less than a cent"),
            (0.0098, "about USD 0.01"),
            (0.4351, "about USD 0.44"),
            (12.34, "about USD 12"),
        ];
        for (amount, words) in cases {
            assert_eq!(Dollars(amount).to_string(), words);
        }
    }
}
