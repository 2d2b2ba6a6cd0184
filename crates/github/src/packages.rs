//! The packages of actions/runner, which refresh looks up and machines download.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The setting for the version of actions/runner: `latest`, or a number such as `2.336.0`.
pub const VERSION_SETTING: &str = crate::inputs::RUNNER_VERSION.name;
/// The setting in which refresh stores [`Packages`], as JSON.
pub const PACKAGES_SETTING: &str = "actions-runner-packages";
/// The setting in which refresh stores the address that runners register with.
pub const URL_SETTING: &str = "github-runner-url";

/// One version of actions/runner, with a package per platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packages {
    /// Three numbers, such as `2.336.0`.
    pub version: String,
    /// Keyed by platform, such as `linux-x64`.
    #[serde(flatten)]
    pub packages: BTreeMap<String, Package>,
}

/// A package to download.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub url: String,
    /// The digest of its content: 64 lower-case hexadecimal digits.
    pub sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_stored_as_one_flat_object() {
        let text = r#"{"version":"2.336.0","linux-arm64":{"url":"https://a","sha256":"01"},"linux-x64":{"url":"https://b","sha256":"02"}}"#;
        let packages: Packages = serde_json::from_str(text).unwrap();
        assert_eq!(packages.version, "2.336.0");
        assert_eq!(packages.packages["linux-x64"].sha256, "02");
        assert_eq!(serde_json::to_string(&packages).unwrap(), text);
    }
}
