//! The runner software that refresh has looked up for the machines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The setting that says which version of actions/runner to use: `latest`, or one by number.
pub const VERSION_SETTING: &str = crate::inputs::RUNNER_VERSION.name;
/// The setting under which refresh keeps [`Packages`].
pub const PACKAGES_SETTING: &str = "actions-runner-packages";
/// The setting under which refresh keeps where runners register.
pub const URL_SETTING: &str = "github-runner-url";

/// One version of actions/runner, for each platform that it was found for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packages {
    /// As in `2.336.0`.
    pub version: String,
    /// By platform, as in `linux-x64`.
    #[serde(flatten)]
    pub packages: BTreeMap<String, Package>,
}

/// Where a package is, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Whence to download it.
    pub url: String,
    /// The digest of its content: 64 hexadecimal digits, in lower case.
    pub sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_kept_as_one_flat_object() {
        let text = r#"{"version":"2.336.0","linux-arm64":{"url":"https://a","sha256":"01"},"linux-x64":{"url":"https://b","sha256":"02"}}"#;
        let packages: Packages = serde_json::from_str(text).unwrap();
        assert_eq!(packages.version, "2.336.0");
        assert_eq!(packages.packages["linux-x64"].sha256, "02");
        assert_eq!(serde_json::to_string(&packages).unwrap(), text);
    }
}
