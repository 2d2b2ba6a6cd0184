//! What a launch asks EC2 for.

use ondeck_core::model::ids::IntentId;
use ondeck_core::model::requirements::{Requirements, UsageClass};
use ondeck_core::ports::Order;
use sha2::{Digest, Sha256};

use super::super::options::LaunchOptions;
use super::super::{MEM_TAG, managed_by, pool_tag, tagged};
use crate::ec2::Params;
use crate::names::{CLASS_TAG, INTENT_TAG, Names, RUN_TAG};

/// The most subnets that one launch can name. Each is an override with requirements, and EC2 answers
/// "Your request contains more than the maximum allowed number of InstanceRequirements (4)" to a
/// fifth, as quoted in osbuild/osbuild-composer#3946. Its documentation does not name the limit.
pub(super) const MAX_OVERRIDES: usize = 4;

pub(super) fn params(
    names: &Names,
    version: Option<u64>,
    options: &LaunchOptions,
    order: &Order,
) -> Params {
    let requirements = &order.requirements;
    let class = requirements.class.to_string();
    let shared =
        [pool_tag(names), (INTENT_TAG, order.intent.to_string()), (RUN_TAG, order.run.to_string())];
    let with = |more: Vec<(&'static str, String)>| [shared.to_vec(), more].concat();
    let mem = requirements.size.mem.to_string();
    // Name and managed-by of machine and volume come from the launch template, that of the fleet
    // from nowhere else.
    let tags = [
        tagged("fleet", &with(vec![managed_by()])),
        tagged("instance", &with(vec![(CLASS_TAG, class), (MEM_TAG, mem)])),
        tagged("volume", &shared),
    ];
    let version = version.map_or_else(|| "$Default".to_owned(), |number| number.to_string());
    let template =
        Params::new().set("LaunchTemplateName", names.launch_template()).set("Version", version);
    let wanted = wanted(requirements, options);
    let overrides = chosen_subnets(&options.subnets, &order.intent).map(|subnet| {
        Params::new().set("SubnetId", subnet).within("InstanceRequirements", wanted.clone())
    });
    let config =
        Params::new().within("LaunchTemplateSpecification", template).each("Overrides", overrides);
    let (kind, options, strategy) = match requirements.usage {
        UsageClass::Spot => ("spot", "SpotOptions", "price-capacity-optimized"),
        UsageClass::OnDemand => ("on-demand", "OnDemandOptions", "lowest-price"),
    };
    let target = Params::new()
        .set("TotalTargetCapacity", order.count)
        .set("DefaultTargetCapacityType", kind);
    Params::new()
        .set("Type", "instant")
        .set("ClientToken", &order.intent)
        .each("LaunchTemplateConfigs", [config])
        .within("TargetCapacitySpecification", target)
        .within(options, Params::new().set("AllocationStrategy", strategy))
        .each("TagSpecification", tags)
}

/// The subnets of one launch: all of them up to EC2's limit. Of more, the intent decides where to
/// start, so that launches take turns and a repeated request is the same request.
pub(super) fn chosen_subnets<'a>(
    subnets: &'a [String],
    intent: &IntentId,
) -> impl Iterator<Item = &'a String> {
    let start = if subnets.len() <= MAX_OVERRIDES {
        0
    } else {
        let digest = Sha256::digest(intent.as_str());
        digest.iter().fold(0, |rest, byte| (rest * 256 + usize::from(*byte)) % subnets.len())
    };
    subnets.iter().cycle().skip(start).take(subnets.len().min(MAX_OVERRIDES))
}

/// The instance types that EC2 may choose from. The processor's architecture is not among the
/// requirements, because EC2 only launches types that can run the image of the launch template:
/// API reference, InstanceRequirementsRequest, CpuManufacturers.
///
/// On-demand types are limited by their price. For spot there is no parameter: without one, EC2
/// applies a limit of its own that keeps a wide range of types (MaxSpotPriceAsPercentageOfOptimal-
/// OnDemandPrice, ibid.), and `price-capacity-optimized` prefers cheap ones among these.
fn wanted(requirements: &Requirements, options: &LaunchOptions) -> Params {
    let cpu = requirements.size.cpu;
    let included = |names_them: fn(&str) -> bool| match requirements.types.iter().any(names_them) {
        true => "included",
        false => "excluded",
    };
    let wanted = Params::new()
        .within("VCpuCount", Params::new().set("Min", cpu).set("Max", cpu))
        .within("MemoryMiB", Params::new().set("Min", requirements.size.mem))
        .list("AllowedInstanceType", requirements.types.iter())
        .set("BurstablePerformance", included(is_burstable))
        .set("BareMetal", included(is_bare_metal));
    let wanted = if options.previous_generations {
        wanted
    } else {
        wanted.list("InstanceGeneration", ["current"])
    };
    match requirements.usage {
        UsageClass::Spot => wanted,
        UsageClass::OnDemand => {
            wanted.set("OnDemandMaxPricePercentageOverLowestPrice", options.price_protection)
        }
    }
}

/// Whether a pattern names burstable types, which are those of the families T1, T2, T3 and so on. A
/// pattern that happens to match them, such as `*`, does not name them.
pub(super) fn is_burstable(pattern: &str) -> bool {
    let mut letters = pattern.chars();
    letters.next() == Some('t')
        && letters.next().is_some_and(|second| second.is_ascii_digit() || second == '*')
}

/// Whether a pattern names bare metal, such as `c6i.metal` and `m7i.metal-24xl`. One that happens to
/// match it, such as `c6i.*`, does not: these machines take many minutes to start.
pub(super) fn is_bare_metal(pattern: &str) -> bool {
    pattern.split_once('.').is_some_and(|(_, size)| size.starts_with("metal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_metal_is_named_explicitly() {
        for pattern in ["c6i.metal", "m7i.metal-24xl", "*.metal", "c*.metal*"] {
            assert!(is_bare_metal(pattern), "{pattern}");
        }
        for pattern in ["*", "c6i.*", "c6i.large", "metal"] {
            assert!(!is_bare_metal(pattern), "{pattern}");
        }
    }

    #[test]
    fn burstable_types_are_named_explicitly() {
        for pattern in ["t3*", "t3.large", "t4g.*", "t*", "t2.micro"] {
            assert!(is_burstable(pattern), "{pattern}");
        }
        for pattern in ["*", "trn1*", "c*", "m6i.*", "*.large", "t"] {
            assert!(!is_burstable(pattern), "{pattern}");
        }
    }

    #[test]
    fn more_subnets_than_fit_take_turns() {
        let subnets = |count: usize| (0..count).map(|n| format!("subnet-{n}")).collect::<Vec<_>>();
        let intent = |n: u32| IntentId::new(format!("{n:016x}")).unwrap();
        for count in 1..=MAX_OVERRIDES {
            let all = subnets(count);
            let chosen: Vec<_> = chosen_subnets(&all, &intent(7)).cloned().collect();
            assert_eq!(chosen, all, "in their order");
        }
        let six = subnets(6);
        let mut first = std::collections::BTreeSet::new();
        for n in 0..100 {
            let chosen: Vec<_> = chosen_subnets(&six, &intent(n)).collect();
            let again: Vec<_> = chosen_subnets(&six, &intent(n)).collect();
            assert_eq!(chosen, again, "or the client token would not hold");
            let different: std::collections::BTreeSet<_> = chosen.iter().collect();
            assert_eq!(different.len(), MAX_OVERRIDES);
            first.insert(chosen[0].clone());
        }
        assert_eq!(first.len(), 6, "each is the first of some launch");
    }
}
