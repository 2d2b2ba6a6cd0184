//! Some of EC2's instance types, with the attributes that attribute-based selection uses.

use crate::aws::params::Params;

use super::refusal::Refusal;
use super::state::Lifecycle;

/// How far above the cheapest type on-demand machines may cost, in percent, if a request says
/// nothing. Documented in the API reference, InstanceRequirementsRequest:
/// OnDemandMaxPricePercentageOverLowestPrice.
const ON_DEMAND_PROTECTION: usize = 20;

/// An instance type and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeSpec {
    pub(crate) name: String,
    pub(crate) vcpus: usize,
    pub(crate) memory_mib: usize,
    pub(crate) threads_per_core: usize,
    family: &'static Family,
}

impl TypeSpec {
    /// The on-demand price of an hour, in millionths of a dollar.
    fn price(&self) -> usize {
        self.vcpus * self.family.price_per_vcpu
    }

    /// The architecture of the images that it can run.
    pub(crate) fn architecture(&self) -> Architecture {
        self.family.architecture
    }
}

/// The architecture of a processor or an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    Arm64,
}

impl Architecture {
    /// The name in answers of DescribeImages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Arm64 => "arm64",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Family {
    name: &'static str,
    gib_per_vcpu: usize,
    /// In millionths of a dollar.
    price_per_vcpu: usize,
    manufacturer: &'static str,
    architecture: Architecture,
    burstable: bool,
    current: bool,
}

const fn intel(name: &'static str, gib_per_vcpu: usize, price_per_vcpu: usize) -> Family {
    Family {
        name,
        gib_per_vcpu,
        price_per_vcpu,
        manufacturer: "intel",
        architecture: Architecture::X86_64,
        burstable: false,
        current: true,
    }
}

const fn amd(name: &'static str, gib_per_vcpu: usize, price_per_vcpu: usize) -> Family {
    Family { manufacturer: "amd", ..intel(name, gib_per_vcpu, price_per_vcpu) }
}

const fn graviton(name: &'static str, gib_per_vcpu: usize, price_per_vcpu: usize) -> Family {
    Family {
        manufacturer: "amazon-web-services",
        architecture: Architecture::Arm64,
        ..intel(name, gib_per_vcpu, price_per_vcpu)
    }
}

/// Some families, with their on-demand prices for Linux in us-east-1.
static FAMILIES: [Family; 14] = [
    Family { burstable: true, ..intel("t3", 4, 41_600) },
    Family { burstable: true, ..graviton("t4g", 4, 33_600) },
    amd("c6a", 2, 38_250),
    intel("c6i", 2, 42_500),
    intel("c5", 2, 42_500),
    graviton("c7g", 2, 36_250),
    amd("m6a", 4, 43_200),
    intel("m6i", 4, 48_000),
    intel("m5", 4, 48_000),
    Family { current: false, ..intel("m4", 4, 50_000) },
    graviton("m7g", 4, 40_800),
    intel("r6i", 8, 63_000),
    graviton("r7g", 8, 53_550),
    intel("r7iz", 8, 93_000),
];

const SIZES: [(&str, usize); 6] = [
    ("large", 2),
    ("xlarge", 4),
    ("2xlarge", 8),
    ("4xlarge", 16),
    ("8xlarge", 32),
    ("16xlarge", 64),
];

pub(crate) fn all() -> impl Iterator<Item = TypeSpec> {
    FAMILIES.iter().flat_map(|family| {
        SIZES.iter().map(|(size, vcpus)| TypeSpec {
            name: format!("{}.{size}", family.name),
            vcpus: *vcpus,
            memory_mib: vcpus * family.gib_per_vcpu * 1_024,
            threads_per_core: if family.architecture == Architecture::Arm64 { 1 } else { 2 },
            family,
        })
    })
}

/// The instance type of this name, if it is in the catalogue.
pub(crate) fn named(name: &str) -> Option<TypeSpec> {
    all().find(|spec| spec.name == name)
}

/// The `InstanceRequirements` of a request.
#[derive(Debug)]
pub(crate) struct Requirements {
    vcpus: (usize, usize),
    memory_mib: (usize, usize),
    allowed: Vec<String>,
    excluded: Vec<String>,
    manufacturers: Vec<String>,
    generations: Vec<String>,
    burstable: String,
    /// How far above the cheapest type on-demand machines may cost, in percent.
    on_demand_protection: usize,
}

impl Requirements {
    /// Parses the requirements. Fails where EC2 would.
    pub(crate) fn read(params: &Params) -> Result<Requirements, Refusal> {
        let range = |name: &str| {
            let bound = |of: &str| params.text(&format!("{name}.{of}"));
            let min = bound("Min")
                .ok_or_else(|| Refusal::missing(&format!("InstanceRequirements.{name}.Min")))?;
            let min: usize = min.parse().map_err(|_| Refusal::invalid(name, min))?;
            let max = match bound("Max") {
                Some(max) => max.parse().map_err(|_| Refusal::invalid(name, max))?,
                None => usize::MAX,
            };
            if min > max {
                return Err(Refusal::invalid(&format!("{name}.Min"), &min.to_string()));
            }
            Ok((min, max))
        };
        let texts = |name| params.texts(name).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let requirements = Requirements {
            vcpus: range("VCpuCount")?,
            memory_mib: range("MemoryMiB")?,
            allowed: texts("AllowedInstanceType"),
            excluded: texts("ExcludedInstanceType"),
            manufacturers: texts("CpuManufacturer"),
            generations: texts("InstanceGeneration"),
            burstable: params.text("BurstablePerformance").unwrap_or("excluded").to_owned(),
            on_demand_protection: params
                .number("OnDemandMaxPricePercentageOverLowestPrice")
                .unwrap_or(ON_DEMAND_PROTECTION),
        };
        if !requirements.allowed.is_empty() && !requirements.excluded.is_empty() {
            return Err(Refusal::new(
                "InvalidParameterCombination",
                "You can't specify both AllowedInstanceTypes and ExcludedInstanceTypes",
            ));
        }
        Ok(requirements)
    }

    /// The instance types that meet the requirements and run the image, the cheapest first.
    ///
    /// The image decides about the architecture, documented in the API reference,
    /// InstanceRequirementsRequest: CpuManufacturers. For spot machines EC2 sets a limit of its own,
    /// which is wide; it is left out here.
    pub(crate) fn matching(&self, image: Architecture, lifecycle: Lifecycle) -> Vec<TypeSpec> {
        let runs_image = |spec: &TypeSpec| spec.architecture() == image && self.admits(spec);
        let mut specs: Vec<TypeSpec> = all().filter(runs_image).collect();
        specs.sort_by_key(TypeSpec::price);
        if lifecycle == Lifecycle::OnDemand
            && let Some(lowest) = reference_price(&specs)
        {
            let limit = lowest.saturating_mul(100 + self.on_demand_protection) / 100;
            specs.retain(|spec| spec.price() <= limit);
        }
        specs
    }

    fn admits(&self, spec: &TypeSpec) -> bool {
        let within = |(min, max): (usize, usize), value| min <= value && value <= max;
        let any = |patterns: &[String]| patterns.iter().any(|it| matches(it, &spec.name));
        let one_of = |choices: &[String], value: &str| {
            choices.is_empty() || choices.iter().any(|choice| choice == value)
        };
        within(self.vcpus, spec.vcpus)
            && within(self.memory_mib, spec.memory_mib)
            && (self.allowed.is_empty() || any(&self.allowed))
            && !any(&self.excluded)
            && one_of(&self.manufacturers, spec.family.manufacturer)
            && one_of(&self.generations, if spec.family.current { "current" } else { "previous" })
            && match &*self.burstable {
                "included" => true,
                "required" => spec.family.burstable,
                _ => !spec.family.burstable,
            }
    }
}

/// The price that the price of others is compared with: the lowest of a current generation of the
/// families C, M and R; without any, of a current generation; and without any, of all.
///
/// Documented in the API reference, InstanceRequirementsRequest.
fn reference_price(specs: &[TypeSpec]) -> Option<usize> {
    let main = |spec: &&TypeSpec| spec.family.current && spec.name.starts_with(['c', 'm', 'r']);
    let current = |spec: &&TypeSpec| spec.family.current;
    let found = specs.iter().find(main).or_else(|| specs.iter().find(current)).or(specs.first());
    found.map(TypeSpec::price)
}

/// Whether a text matches a pattern, in which `*` matches any text and `?` one character.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            (0..=text.len()).any(|at| text.is_char_boundary(at) && matches(rest, &text[at..]))
        }
        Some(first) => text.chars().next().is_some_and(|letter| {
            (first == '?' || first == letter)
                && matches(&pattern[first.len_utf8()..], &text[letter.len_utf8()..])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_for(query: &str, image: Architecture, lifecycle: Lifecycle) -> Vec<String> {
        let requirements = Requirements::read(&Params::parse(query.as_bytes())).unwrap();
        requirements.matching(image, lifecycle).into_iter().map(|spec| spec.name).collect()
    }

    fn names(query: &str) -> Vec<String> {
        names_for(query, Architecture::X86_64, Lifecycle::Spot)
    }

    #[test]
    fn types_are_chosen_by_their_attributes() {
        let exact = "VCpuCount.Min=4&VCpuCount.Max=4&MemoryMiB.Min=8192";
        assert_eq!(
            names(&format!("{exact}&AllowedInstanceType.1=c6*&AllowedInstanceType.2=m5.*")),
            ["c6a.xlarge", "c6i.xlarge", "m5.xlarge"]
        );
        assert!(!names(exact).iter().any(|name| name.starts_with("t3")), "burstable is opted into");
        assert_eq!(names(&format!("{exact}&BurstablePerformance=required")), ["t3.xlarge"]);
        assert_eq!(names(&format!("{exact}&InstanceGeneration.1=previous")), ["m4.xlarge"]);
        assert!(names("VCpuCount.Min=3&VCpuCount.Max=3&MemoryMiB.Min=1").is_empty());
    }

    #[test]
    fn on_demand_types_are_limited_by_price_and_the_architecture_is_the_images() {
        let large = "VCpuCount.Min=2&VCpuCount.Max=2&MemoryMiB.Min=1&InstanceGeneration.1=current";
        let protected = |percent: &str| {
            let query = format!("{large}&OnDemandMaxPricePercentageOverLowestPrice={percent}");
            names_for(&query, Architecture::X86_64, Lifecycle::OnDemand)
        };
        let by_default = names_for(large, Architecture::X86_64, Lifecycle::OnDemand);
        assert_eq!(by_default, ["c6a.large", "c6i.large", "c5.large", "m6a.large"]);
        assert_eq!(protected("20"), by_default);
        assert_eq!(protected("100").last().unwrap(), "r6i.large");
        assert_eq!(protected("999999").last().unwrap(), "r7iz.large");
        assert_eq!(names(large).last().unwrap(), "r7iz.large", "spot has another limit");
        let arm = names_for(large, Architecture::Arm64, Lifecycle::Spot);
        assert_eq!(arm, ["c7g.large", "m7g.large", "r7g.large"]);
        let burstable = format!("{large}&BurstablePerformance=included&AllowedInstanceType.1=t*");
        assert_eq!(names_for(&burstable, Architecture::Arm64, Lifecycle::OnDemand), ["t4g.large"]);
    }

    #[test]
    fn what_ec2_refuses_is_refused() {
        let refused =
            |query: &str| Requirements::read(&Params::parse(query.as_bytes())).unwrap_err().code;
        assert_eq!(refused("MemoryMiB.Min=1"), "MissingParameter");
        assert_eq!(refused("VCpuCount.Min=1"), "MissingParameter");
        assert_eq!(
            refused("VCpuCount.Min=4&VCpuCount.Max=2&MemoryMiB.Min=1"),
            "InvalidParameterValue"
        );
        let both = "AllowedInstanceType.1=c*&ExcludedInstanceType.1=m*";
        assert_eq!(
            refused(&format!("VCpuCount.Min=1&MemoryMiB.Min=1&{both}")),
            "InvalidParameterCombination"
        );
    }
}
