//! What refresh writes down for everybody else: the operator's choices.

use std::collections::BTreeMap;

use crate::model::credentials::Minted;
use crate::model::excerpt::{one_line, quoted};
use crate::model::ids::ResourceClass;
use crate::model::requirements::ClassSize;
use crate::model::times::{TIMES, Times};

/// The operator's choices, as provision, release and the agents read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Every deadline and period.
    pub times: Times,
    /// The sizes of machine that can be asked for.
    pub classes: Classes,
    /// How many idle machines to keep, for the classes that are to be kept warm.
    pub min_idle: MinIdle,
    /// What every machine runs before its runner; empty for nothing.
    pub pre_runner_script: String,
    /// What is done for runs whose jobs wait without a machine.
    pub rescue: Rescue,
    /// What is known about the credentials that agents have; nothing where the forge asks for none.
    pub minted: Option<Minted>,
    /// What backend and forge keep for themselves.
    pub backend: BTreeMap<String, String>,
}

/// What refresh does for runs whose jobs wait for their own label while no machine carries it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rescue {
    /// Provisions for them again.
    #[default]
    Provision,
    /// Says so.
    Report,
    /// Does not even look.
    Off,
}

/// The sizes by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes(BTreeMap<ResourceClass, ClassSize>);

/// The minimum of idle machines by class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MinIdle(BTreeMap<ResourceClass, u32>);

/// The names under which the store keeps what is not a time.
const CLASSES: &str = "resource-class-config";
const MIN_IDLE: &str = "min-idle";
const SCRIPT: &str = "pre-runner-script";
const RESCUE: &str = "rescue";
/// Where refresh notes what credentials it had made.
pub(crate) const MINTED: &str = "credentials-minted";
/// Which version refreshed last; also tells that somebody has.
pub(crate) const SET_UP_BY: &str = "set-up-by";

/// A setting that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct InvalidSetting {
    /// Which one.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Settings {
    /// Reads what the store keeps. What is missing has its default; what is not ours belongs to
    /// the backend.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Settings, InvalidSetting> {
        let mut settings = Settings::default();
        for (name, value) in map {
            let invalid = |problem| InvalidSetting { name: name.clone(), problem };
            if let Some(row) = TIMES.iter().find(|row| row.input == name) {
                settings.times.set(name, row.parse(value).map_err(invalid)?);
                continue;
            }
            match name.as_str() {
                CLASSES => settings.classes = Classes::from_json(value).map_err(invalid)?,
                MIN_IDLE => settings.min_idle = value.parse().map_err(invalid)?,
                SCRIPT => settings.pre_runner_script = value.clone(),
                RESCUE => settings.rescue = value.parse().map_err(invalid)?,
                // Not of a person's making, so nothing for a person to mend: refresh mints anew.
                MINTED => settings.minted = serde_json::from_str(value).ok(),
                SET_UP_BY => {}
                _ => {
                    settings.backend.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(settings)
    }
}

impl std::str::FromStr for Rescue {
    type Err = String;

    fn from_str(text: &str) -> Result<Rescue, String> {
        match text.trim() {
            "provision" => Ok(Rescue::Provision),
            "report" => Ok(Rescue::Report),
            "off" => Ok(Rescue::Off),
            _ => Err(format!("is none of provision, report, off: {}", quoted(text))),
        }
    }
}

impl Classes {
    /// Reads `{"large":{"cpu":2,"mem":4096}, …}`.
    pub fn from_json(text: &str) -> Result<Classes, String> {
        let classes: BTreeMap<ResourceClass, ClassSize> = serde_json::from_str(text)
            .map_err(|e| format!("is not a map of classes: {}", one_line(&e)))?;
        if classes.is_empty() {
            return Err("names no class".to_owned());
        }
        match classes.iter().find(|(_, size)| size.cpu == 0 || size.mem == 0) {
            Some((name, _)) => Err(format!("gives a class no cpu or no memory: {name}")),
            None => Ok(Classes(classes)),
        }
    }

    /// The size behind a name.
    pub fn get(&self, class: &ResourceClass) -> Option<ClassSize> {
        self.0.get(class).copied()
    }

    /// Every name.
    pub fn names(&self) -> impl Iterator<Item = &ResourceClass> {
        self.0.keys()
    }

    /// The names in one line, smallest first, for hints.
    pub fn listing(&self) -> String {
        let mut classes: Vec<_> = self.0.iter().collect();
        classes.sort_by_key(|(_, size)| (size.cpu, size.mem));
        classes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Default for Classes {
    fn default() -> Classes {
        const SIZES: [(&str, u32, u32); 7] = [
            ("large", 2, 4096),
            ("xlarge", 4, 8192),
            ("2xlarge", 8, 16384),
            ("4xlarge", 16, 32768),
            ("8xlarge", 32, 65536),
            ("12xlarge", 48, 98304),
            ("16xlarge", 64, 131_072),
        ];
        let entry = |(name, cpu, mem)| {
            let name = ResourceClass::new(name).expect("the names above are sound");
            (name, ClassSize { cpu, mem })
        };
        Classes(SIZES.into_iter().map(entry).collect())
    }
}

impl MinIdle {
    /// Class and number, one by one.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceClass, u32)> {
        self.0.iter().map(|(class, count)| (class, *count))
    }
}

impl std::str::FromStr for MinIdle {
    type Err = String;

    /// Reads `large=2 xlarge=1`.
    fn from_str(text: &str) -> Result<MinIdle, String> {
        let mut map = BTreeMap::new();
        for word in text.split([' ', ',', '\n']).filter(|word| !word.is_empty()) {
            let (class, count) = word
                .split_once('=')
                .ok_or_else(|| format!("is not of the form CLASS=COUNT: {}", quoted(word)))?;
            let class = ResourceClass::new(class).map_err(|e| e.to_string())?;
            let count: u32 =
                count.parse().map_err(|_| format!("has no count: {}", quoted(word)))?;
            if count > 1000 {
                return Err(format!("asks for more than 1000 machines: {}", quoted(word)));
            }
            map.insert(class, count);
        }
        Ok(MinIdle(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn settings_are_read_by_name_and_the_rest_is_the_backends() {
        let map = BTreeMap::from(
            [
                ("idle-time-sec", "1.234"),
                ("max-runtime-min", "0.5"),
                (CLASSES, r#"{"tiny":{"cpu":1,"mmem":512}}"#),
                (MIN_IDLE, "tiny=3"),
                (SCRIPT, "echo hello\n"),
                (RESCUE, "report"),
                (MINTED, "of another version"),
                (SET_UP_BY, "0.1.0"),
                ("local-capacity", "4"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let settings = Settings::from_map(&map).unwrap();
        assert_eq!(settings.times.idle_time, Duration::from_millis(1_234));
        assert_eq!(settings.times.max_runtime, Duration::from_secs(30));
        assert_eq!(settings.times.claim_timeout, Times::default().claim_timeout);
        assert_eq!(settings.classes.listing(), "tiny");
        let minimum: Vec<_> = settings.min_idle.iter().map(|(c, n)| (c.as_str(), n)).collect();
        assert_eq!(minimum, [("tiny", 3)]);
        assert_eq!(settings.pre_runner_script, "echo hello\n");
        assert_eq!((settings.rescue, settings.minted), (Rescue::Report, None));
        assert_eq!(settings.backend, BTreeMap::from([("local-capacity".into(), "4".into())]));
        assert_eq!(Settings::from_map(&BTreeMap::new()).unwrap(), Settings::default());
        let tiny = ResourceClass::new("tiny").unwrap();
        assert_eq!(settings.classes.get(&tiny), Some(ClassSize { cpu: 1, mem: 512 }));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (name, value, problem) in [
            ("idle-time-sec", "soon", "not a number"),
            (CLASSES, "{", "not a map of classes"),
            (CLASSES, "{}", "names no class"),
            (CLASSES, r#"{"a b":{"cpu":1,"mem":1}}"#, "resource class may hold"),
            (CLASSES, r#"{"none":{"cpu":0,"mem":1}}"#, "no cpu or no memory: none"),
            (RESCUE, "always", "none of provision, report, off"),
            (MIN_IDLE, "large", "CLASS=COUNT"),
            (MIN_IDLE, "large=many", "has no count"),
            (MIN_IDLE, "large=1001", "more than 1000"),
        ] {
            let map = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let error = Settings::from_map(&map).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn classes_are_listed_by_size() {
        let listing = Classes::default().listing();
        assert_eq!(listing, "large, xlarge, 2xlarge, 4xlarge, 8xlarge, 12xlarge, 16xlarge");
    }
}
