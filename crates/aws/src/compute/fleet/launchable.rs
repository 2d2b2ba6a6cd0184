//! Which types a request can launch, by their names.

use ondeck_core::model::requirements::Requirements;

use super::request::{is_bare_metal, is_burstable};

/// Those of `types` that EC2 may choose for these requirements, and perhaps others: a name tells the
/// number of virtual processors only by its size, and no memory. A type whose size does not follow the
/// rule is left out: `c4.8xlarge` has 36.
///
/// A request with these names asks for what a request with the patterns does: burstable types and bare
/// metal are among them only if a pattern names these.
pub(in super::super) fn launchable(requirements: &Requirements, types: &[&str]) -> Vec<String> {
    let names = |is_named: fn(&str) -> bool| requirements.types.iter().any(is_named);
    let (burstable, bare_metal) = (names(is_burstable), names(is_bare_metal));
    let fits = |name: &&&str| {
        requirements.types.admit(name)
            && (burstable || !is_burstable(name))
            && (bare_metal || !is_bare_metal(name))
            && may_have(name, requirements.size.cpu)
    };
    types.iter().filter(fits).map(|name| (*name).to_owned()).collect()
}

/// Whether a type of this name may have so many virtual processors.
fn may_have(name: &str, cpu: u32) -> bool {
    let Some((_, size)) = name.split_once('.') else { return false };
    match size {
        "nano" | "micro" | "small" | "medium" => cpu <= 2,
        "large" => cpu == 2,
        "xlarge" => cpu == 4,
        _ if is_bare_metal(name) => true,
        _ => {
            let times = size.strip_suffix("xlarge").and_then(|times| times.parse::<u32>().ok());
            times.and_then(|times| times.checked_mul(4)) == Some(cpu)
        }
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::prices::Prices;
    use ondeck_core::model::requirements::{ClassSize, UsageClass};

    use super::*;

    fn requirements(cpu: u32, types: &str) -> Requirements {
        Requirements {
            class: "any".parse().unwrap(),
            size: ClassSize { cpu, mem: 1 },
            usage: UsageClass::OnDemand,
            types: types.parse().unwrap(),
        }
    }

    #[test]
    fn a_name_tells_the_number_of_processors() {
        let all = [
            "c6i.large",
            "m6i.xlarge",
            "c7g.medium",
            "t3.large",
            "t3.nano",
            "c6i.12xlarge",
            "c6i.metal",
            "m7i.metal-24xl",
            "odd",
            "c6i.huge",
        ];
        for (cpu, types, expected) in [
            (2, "*", &["c6i.large", "c7g.medium"][..]),
            (2, "t3* c6i*", &["c6i.large", "t3.large", "t3.nano"]),
            (1, "*", &["c7g.medium"]),
            (4, "m*", &["m6i.xlarge"]),
            (48, "c6i.*", &["c6i.12xlarge"]),
            (48, "c6i.metal c6i.12xlarge", &["c6i.12xlarge", "c6i.metal"]),
            (3, "*", &[]),
        ] {
            let found = launchable(&requirements(cpu, types), &all);
            assert_eq!(found, expected, "{cpu} of {types}");
        }
    }

    #[test]
    fn each_size_of_the_default_classes_has_types_with_a_price_that_one_request_can_name() {
        let prices = Prices::built_in();
        let all: Vec<&str> = prices.types().collect();
        for cpu in [2, 4, 8, 16, 32, 48, 64] {
            for types in ["c* m* r*", "*"] {
                let count = launchable(&requirements(cpu, types), &all).len();
                assert!((50..=400).contains(&count), "{count} with {cpu} of {types}");
            }
        }
    }
}
