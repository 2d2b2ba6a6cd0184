//! The settings of the local backend.

use std::collections::BTreeMap;

use ondeck_core::model::settings::InvalidSetting;

use super::catalogue::Catalogue;
use crate::inputs::{self, whole_number};

const CAPACITY: &str = inputs::CAPACITY.name;
const REGISTRATION: &str = inputs::REGISTRATION_MS.name;
const BOOT: &str = inputs::BOOT_MS.name;
const CATALOGUE: &str = inputs::CATALOGUE.name;
const LAUNCH_FAILURE: &str = inputs::LAUNCH_FAILURE.name;
const DUPLICATES: &str = inputs::DUPLICATE_TICKETS.name;

/// The parsed settings. All of them are optional.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    /// The most machines that may run at once.
    pub(crate) capacity: Option<usize>,
    /// The simulated boot time of types that set none, in milliseconds.
    pub(crate) boot_ms: u32,
    pub(crate) catalogue: Catalogue,
    /// If set, every launch fails with this message, for trials.
    pub(crate) launch_failure: Option<String>,
}

impl Options {
    /// Parses the settings. An empty value counts as unset. Fails on an invalid value or an unknown
    /// `local-` setting.
    pub(crate) fn from_map(map: &BTreeMap<String, String>) -> Result<Options, InvalidSetting> {
        let mut options = Options::default();
        for (name, value) in map {
            let invalid = |problem: String| InvalidSetting { name: name.clone(), problem };
            match name.as_str() {
                _ if value.is_empty() => {}
                CAPACITY => options.capacity = Some(whole_number(value).map_err(invalid)?),
                BOOT => options.boot_ms = whole_number(value).map_err(invalid)?,
                CATALOGUE => options.catalogue = Catalogue::from_json(value).map_err(invalid)?,
                LAUNCH_FAILURE => options.launch_failure = Some(value.clone()),
                DUPLICATES => (inputs::DUPLICATE_TICKETS.check)(value).map_err(invalid)?,
                REGISTRATION => (inputs::REGISTRATION_MS.check)(value).map_err(invalid)?,
                unknown if unknown.starts_with("local-") => {
                    return Err(invalid("is not a setting of the local backend".to_owned()));
                }
                _ => {}
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Options, InvalidSetting> {
        Options::from_map(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn each_setting_is_read_or_named() {
        assert_eq!(read(CAPACITY, "3").unwrap().capacity, Some(3));
        assert_eq!(read(BOOT, "250").unwrap().boot_ms, 250);
        assert_eq!(read(LAUNCH_FAILURE, "out").unwrap().launch_failure, Some("out".into()));
        assert_eq!(read(CAPACITY, "").unwrap(), Options::default());
        assert_eq!(read("idle-time-sec", "x").unwrap(), Options::default());
        for (name, value, problem) in [
            (CAPACITY, "many", "not a whole number"),
            (BOOT, "-1", "not a whole number"),
            (CATALOGUE, "[]", "names no type"),
            (DUPLICATES, "yes", "neither true nor false"),
            ("local-capcity", "3", "not a setting of the local backend"),
        ] {
            let error = read(name, value).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(problem), "{error}");
        }
    }
}
