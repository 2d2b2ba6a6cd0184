//! What a run requires of its machines, and whether a machine fits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;
use crate::model::ids::ResourceClass;
use crate::model::record::MachineSpec;

/// The purchase option of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageClass {
    /// Cheaper; the provider may reclaim the machine.
    Spot,
    /// Runs until it is terminated.
    OnDemand,
}

impl UsageClass {
    /// The word in inputs, records and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageClass::Spot => "spot",
            UsageClass::OnDemand => "on-demand",
        }
    }
}

impl fmt::Display for UsageClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is neither `spot` nor `on-demand`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("usage class is neither spot nor on-demand: {}", quoted(.0))]
pub struct InvalidUsageClass(String);

impl FromStr for UsageClass {
    type Err = InvalidUsageClass;
    fn from_str(word: &str) -> Result<Self, InvalidUsageClass> {
        [UsageClass::Spot, UsageClass::OnDemand]
            .into_iter()
            .find(|class| class.as_str() == word)
            .ok_or_else(|| InvalidUsageClass(word.to_owned()))
    }
}

/// The instance types a run accepts: patterns in which `*` matches any text, separated by blanks
/// or commas (`c* m6i.* r5.large`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TypePatterns(Vec<String>);

/// Why a text is not a list of type patterns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPatterns {
    /// The list has no pattern, so no type would match.
    #[error("no instance type pattern given")]
    Empty,
    /// EC2 takes at most 400 patterns in one request.
    #[error("too many instance type patterns, at most {MAX_PATTERNS} are allowed: {0}")]
    TooMany(usize),
    /// EC2 would refuse this pattern.
    #[error(
        "malformed instance type pattern, only letters, digits, '.', '-' and '*' may stand in one: {}",
        quoted(.0)
    )]
    Malformed(String),
}

/// EC2's limits for allowed instance types.
const MAX_PATTERNS: usize = 400;
const MAX_PATTERN_LEN: usize = 30;

impl TypePatterns {
    /// The pattern that covers every type.
    pub fn any() -> TypePatterns {
        TypePatterns(vec!["*".to_owned()])
    }

    /// The patterns, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether any pattern covers the type.
    pub fn admit(&self, instance_type: &str) -> bool {
        self.covering(instance_type).is_some()
    }

    /// The first pattern that covers the type.
    pub fn covering(&self, instance_type: &str) -> Option<&str> {
        self.iter().find(|pattern| wildcard_match(pattern.as_bytes(), instance_type.as_bytes()))
    }
}

impl fmt::Display for TypePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl From<TypePatterns> for String {
    fn from(patterns: TypePatterns) -> String {
        patterns.to_string()
    }
}

impl TryFrom<String> for TypePatterns {
    type Error = InvalidPatterns;

    fn try_from(text: String) -> Result<Self, InvalidPatterns> {
        text.parse()
    }
}

impl FromStr for TypePatterns {
    type Err = InvalidPatterns;

    fn from_str(text: &str) -> Result<Self, InvalidPatterns> {
        let words = text.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty());
        let patterns: Vec<String> = words.map(str::to_owned).collect();
        if patterns.is_empty() {
            return Err(InvalidPatterns::Empty);
        }
        if patterns.len() > MAX_PATTERNS {
            return Err(InvalidPatterns::TooMany(patterns.len()));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '*');
        let malformed = |word: &&String| word.len() > MAX_PATTERN_LEN || !word.chars().all(allowed);
        match patterns.iter().find(malformed) {
            Some(word) => Err(InvalidPatterns::Malformed(word.clone())),
            None => Ok(TypePatterns(patterns)),
        }
    }
}

/// Greedy match with one point to fall back to: linear in practice, and never worse than the
/// product of the two lengths, both of which are bounded.
fn wildcard_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut fallback: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            fallback = Some((p, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some((star, from)) = fallback {
            fallback = Some((star, from + 1));
            p = star + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// The size of the machines of a resource class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassSize {
    /// The number of virtual processors.
    pub cpu: u32,
    /// Memory in MiB, at least.
    #[serde(alias = "mmem")]
    pub mem: u32,
}

/// What every machine of a run must fulfil.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// The resource class, which also names the queue of the pool.
    pub class: ResourceClass,
    /// The size that the class has in the settings in force.
    pub size: ClassSize,
    pub usage: UsageClass,
    pub types: TypePatterns,
}

impl Requirements {
    /// The first requirement that the machine does not fulfil; `None` if it fits.
    pub fn mismatch(&self, spec: &MachineSpec) -> Option<Mismatch> {
        if spec.resource_class != self.class {
            Some(Mismatch::Class)
        } else if spec.usage_class != self.usage {
            Some(Mismatch::Usage)
        } else if !self.types.admit(&spec.instance_type) {
            Some(Mismatch::Type)
        } else if spec.cpu < self.size.cpu {
            Some(Mismatch::Cpu)
        } else if spec.mem < self.size.mem {
            Some(Mismatch::Mem)
        } else {
            None
        }
    }
}

/// The requirement that a machine does not fulfil.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    Class,
    /// The machine is spot and the run requires on-demand, or the reverse.
    Usage,
    /// No pattern admits its type.
    Type,
    Cpu,
    Mem,
    /// It may have served another run, and the run takes none that has.
    Used,
}

impl Mismatch {
    /// The requirement as a noun, for tables.
    pub fn about(self) -> &'static str {
        match self {
            Mismatch::Class => "resource class",
            Mismatch::Usage => "usage class",
            Mismatch::Type => "type",
            Mismatch::Cpu => "cpus",
            Mismatch::Mem => "memory",
            Mismatch::Used => "earlier use",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mismatch::Class => "another resource class",
            Mismatch::Usage => "another usage class",
            Mismatch::Type => "its type is not allowed",
            Mismatch::Cpu => "too few cpus",
            Mismatch::Mem => "too little memory",
            Mismatch::Used => "it may have served another run",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_ec2_does() {
        let cases = [
            ("c* m6i.* r5.large", "c6i.large", true),
            ("c* m6i.* r5.large", "m6i.4xlarge", true),
            ("c* m6i.* r5.large", "m6id.large", false),
            ("c* m6i.* r5.large", "r5.large", true),
            ("c* m6i.* r5.large", "r5.xlarge", false),
            ("*.large", "t3.large", true),
            ("*.large", "t3.xlarge", false),
            ("*6*.*large", "c6gn.2xlarge", true),
            ("*", "u-6tb1.metal", true),
            ("c", "c6i.large", false),
            ("c6i.large,m5.large", "m5.large", true),
            ("**", "x", true),
        ];
        for (patterns, instance_type, expected) in cases {
            let patterns: TypePatterns = patterns.parse().unwrap();
            assert_eq!(patterns.admit(instance_type), expected, "{patterns} on {instance_type}");
        }
    }

    #[test]
    fn malformed_patterns_are_named() {
        assert_eq!("".parse::<TypePatterns>(), Err(InvalidPatterns::Empty));
        assert_eq!(" , ".parse::<TypePatterns>(), Err(InvalidPatterns::Empty));
        for bad in ["c?", "m6i.[l]arge", "c6i/large", "ĉ*", &"c".repeat(31)] {
            let error = format!("m* {bad}").parse::<TypePatterns>().unwrap_err();
            assert_eq!(error, InvalidPatterns::Malformed(bad.to_owned()));
        }
        let many = "c* ".repeat(401);
        assert_eq!(many.parse::<TypePatterns>(), Err(InvalidPatterns::TooMany(401)));
    }

    #[test]
    fn a_machine_fits_or_the_first_misfit_is_named() {
        let requirements = Requirements {
            class: ResourceClass::new("large").unwrap(),
            size: ClassSize { cpu: 2, mem: 4096 },
            usage: UsageClass::Spot,
            types: "c*".parse().unwrap(),
        };
        let fitting = MachineSpec {
            resource_class: ResourceClass::new("large").unwrap(),
            instance_type: "c6i.large".into(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4096,
        };
        type Alteration = fn(&mut MachineSpec);
        let cases: [(Alteration, Option<Mismatch>); 7] = [
            (|_| {}, None),
            (|s| s.mem = 8192, None),
            (|s| s.resource_class = ResourceClass::new("xlarge").unwrap(), Some(Mismatch::Class)),
            (|s| s.usage_class = UsageClass::OnDemand, Some(Mismatch::Usage)),
            (|s| s.instance_type = "m6i.large".into(), Some(Mismatch::Type)),
            (|s| s.cpu = 1, Some(Mismatch::Cpu)),
            (|s| s.mem = 4095, Some(Mismatch::Mem)),
        ];
        for (alter, expected) in cases {
            let mut spec = fitting.clone();
            alter(&mut spec);
            assert_eq!(requirements.mismatch(&spec), expected, "{spec:?}");
        }
    }
}
