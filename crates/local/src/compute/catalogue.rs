//! The instance types of the local backend. They differ in name and in the size they report; every
//! machine is a process of this computer.

use ondeck_core::model::excerpt::{one_line, quoted};
use ondeck_core::model::requirements::{Requirements, UsageClass};
use serde::Deserialize;

/// An instance type that machines can have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MachineType {
    #[serde(rename = "type")]
    pub(crate) name: String,
    pub(crate) cpu: u32,
    /// The memory, in MiB.
    pub(crate) mem: u32,
    /// The simulated boot time, if it differs from `local-boot-ms`.
    pub(crate) boot_ms: Option<u32>,
    /// The most machines of this type that may run at once.
    pub(crate) capacity: Option<usize>,
    /// Whether it is available as spot.
    #[serde(default = "yes")]
    pub(crate) spot: bool,
}

fn yes() -> bool {
    true
}

/// All instance types that can be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Catalogue(Vec<MachineType>);

impl Default for Catalogue {
    /// Some of EC2's families and sizes, with their real vCPUs and memory.
    fn default() -> Catalogue {
        const FAMILIES: [(&str, u32); 6] = [
            ("c6i", 2_048),
            ("c7g", 2_048),
            ("m6i", 4_096),
            ("m7g", 4_096),
            ("r6i", 8_192),
            ("r7g", 8_192),
        ];
        const SIZES: [(&str, u32); 7] = [
            ("large", 2),
            ("xlarge", 4),
            ("2xlarge", 8),
            ("4xlarge", 16),
            ("8xlarge", 32),
            ("12xlarge", 48),
            ("16xlarge", 64),
        ];
        let of_family = |(family, mem_per_cpu): (&'static str, u32)| {
            SIZES.map(|(size, cpu)| MachineType {
                name: format!("{family}.{size}"),
                cpu,
                mem: cpu * mem_per_cpu,
                boot_ms: None,
                capacity: None,
                spot: true,
            })
        };
        Catalogue(FAMILIES.into_iter().flat_map(of_family).collect())
    }
}

impl Catalogue {
    /// Parses `[{"type":"c6i.large","cpu":2,"mem":4096}, …]`. Fails if a type is incomplete or
    /// occurs twice.
    pub(crate) fn from_json(text: &str) -> Result<Catalogue, String> {
        let types: Vec<MachineType> = serde_json::from_str(text)
            .map_err(|e| format!("is not a list of types: {}", one_line(&e)))?;
        if types.is_empty() {
            return Err("names no type".to_owned());
        }
        for (n, this) in types.iter().enumerate() {
            if this.name.is_empty() || this.cpu == 0 || this.mem == 0 {
                return Err(format!(
                    "has a type without name, cpu or memory: {}",
                    quoted(&this.name)
                ));
            }
            if types[..n].iter().any(|other| other.name == this.name) {
                return Err(format!("names a type twice: {}", one_line(&this.name)));
            }
        }
        Ok(Catalogue(types))
    }

    /// Returns the types that meet the requirements, ordered by memory and then by name.
    pub(crate) fn fitting(&self, requirements: &Requirements) -> Vec<&MachineType> {
        let size = requirements.size;
        let mut types: Vec<&MachineType> = self
            .0
            .iter()
            .filter(|this| this.cpu == size.cpu && this.mem >= size.mem)
            .filter(|this| this.spot || requirements.usage != UsageClass::Spot)
            .filter(|this| requirements.types.admit(&this.name))
            .collect();
        types.sort_by_key(|this| (this.mem, &this.name));
        types
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondeck_core::model::ids::ResourceClass;
    use ondeck_core::model::requirements::ClassSize;
    use ondeck_core::model::settings::Classes;

    fn wanted(cpu: u32, mem: u32, usage: UsageClass, types: &str) -> Requirements {
        Requirements {
            class: ResourceClass::new("any").unwrap(),
            size: ClassSize { cpu, mem },
            usage,
            types: types.parse().unwrap(),
        }
    }

    #[test]
    fn the_smallest_memory_comes_first_and_cpus_are_exact() {
        let names = |cpu, mem, types| -> Vec<String> {
            let catalogue = Catalogue::default();
            let wanted = wanted(cpu, mem, UsageClass::Spot, types);
            catalogue.fitting(&wanted).iter().map(|this| this.name.clone()).collect()
        };
        assert_eq!(names(2, 4_096, "*6i*"), ["c6i.large", "m6i.large", "r6i.large"]);
        assert_eq!(names(2, 4_097, "*6i*"), ["m6i.large", "r6i.large"]);
        assert_eq!(names(4, 4_096, "c*"), ["c6i.xlarge", "c7g.xlarge"]);
        assert!(names(3, 1, "*").is_empty());
        assert!(names(2, 1, "t3.*").is_empty());
    }

    #[test]
    fn every_default_class_can_be_launched() {
        let classes = Classes::default();
        for class in classes.names() {
            let size = classes.get(class).unwrap();
            let wanted = wanted(size.cpu, size.mem, UsageClass::OnDemand, "c*");
            assert!(!Catalogue::default().fitting(&wanted).is_empty(), "{class}");
        }
    }

    #[test]
    fn a_custom_catalogue_is_parsed() {
        let text = r#"[{"type":"a.one","cpu":1,"mem":512,"spot":false,"capacity":2,"bootMs":7}]"#;
        let catalogue = Catalogue::from_json(text).unwrap();
        assert!(catalogue.fitting(&wanted(1, 512, UsageClass::Spot, "*")).is_empty());
        let wanted = wanted(1, 512, UsageClass::OnDemand, "*");
        let one = catalogue.fitting(&wanted)[0];
        assert_eq!((one.capacity, one.boot_ms), (Some(2), Some(7)));
        for (text, problem) in [
            ("{", "is not a list"),
            ("[]", "names no type"),
            (r#"[{"type":"a","cpu":0,"mem":1}]"#, "without name, cpu or memory"),
            (r#"[{"type":"a","cpu":1,"mem":1,"boot":3}]"#, "unknown field"),
            (r#"[{"type":"a","cpu":1,"mem":1},{"type":"a","cpu":2,"mem":1}]"#, "twice: a"),
        ] {
            let error = Catalogue::from_json(text).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
