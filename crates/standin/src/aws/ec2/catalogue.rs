//! Some of EC2's instance types, with the attributes that attribute-based selection uses.

use crate::aws::params::Params;

use super::refusal::Refusal;

/// An instance type and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeSpec {
    pub(crate) name: String,
    pub(crate) vcpus: usize,
    pub(crate) memory_mib: usize,
    pub(crate) threads_per_core: usize,
    family: &'static Family,
}

#[derive(Debug, PartialEq, Eq)]
struct Family {
    name: &'static str,
    gib_per_vcpu: usize,
    threads_per_core: usize,
    manufacturer: &'static str,
    burstable: bool,
    current: bool,
}

const fn family(
    name: &'static str,
    gib_per_vcpu: usize,
    manufacturer: &'static str,
    current: bool,
) -> Family {
    let threads_per_core = if manufacturer.len() == "amazon-web-services".len() { 1 } else { 2 };
    Family { name, gib_per_vcpu, threads_per_core, manufacturer, burstable: false, current }
}

/// The families in order of price, which is the order in which they are chosen.
static FAMILIES: [Family; 12] = [
    Family {
        name: "t3",
        gib_per_vcpu: 4,
        threads_per_core: 2,
        manufacturer: "intel",
        burstable: true,
        current: true,
    },
    family("c6a", 2, "amd", true),
    family("c6i", 2, "intel", true),
    family("c5", 2, "intel", true),
    family("c7g", 2, "amazon-web-services", true),
    family("m6a", 4, "amd", true),
    family("m6i", 4, "intel", true),
    family("m5", 4, "intel", true),
    family("m4", 4, "intel", false),
    family("m7g", 4, "amazon-web-services", true),
    family("r6i", 8, "intel", true),
    family("r7g", 8, "amazon-web-services", true),
];

const SIZES: [(&str, usize); 6] = [
    ("large", 2),
    ("xlarge", 4),
    ("2xlarge", 8),
    ("4xlarge", 16),
    ("8xlarge", 32),
    ("16xlarge", 64),
];

/// All instance types, the cheapest first.
pub(crate) fn all() -> impl Iterator<Item = TypeSpec> {
    FAMILIES.iter().flat_map(|family| {
        SIZES.iter().map(|(size, vcpus)| TypeSpec {
            name: format!("{}.{size}", family.name),
            vcpus: *vcpus,
            memory_mib: vcpus * family.gib_per_vcpu * 1_024,
            threads_per_core: family.threads_per_core,
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
        };
        if !requirements.allowed.is_empty() && !requirements.excluded.is_empty() {
            return Err(Refusal::new(
                "InvalidParameterCombination",
                "You can't specify both AllowedInstanceTypes and ExcludedInstanceTypes",
            ));
        }
        Ok(requirements)
    }

    /// The instance types that meet the requirements, the cheapest first.
    pub(crate) fn matching(&self) -> Vec<TypeSpec> {
        let mut specs: Vec<TypeSpec> = all().filter(|spec| self.admits(spec)).collect();
        specs.sort_by_key(|spec| (spec.vcpus, spec.memory_mib));
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

    fn names(query: &str) -> Vec<String> {
        let requirements = Requirements::read(&Params::parse(query.as_bytes())).unwrap();
        requirements.matching().into_iter().map(|spec| spec.name).collect()
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
