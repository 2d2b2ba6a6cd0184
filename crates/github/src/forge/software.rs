//! Chooses the version of actions/runner for the machines, and looks up its packages and digests.

use std::collections::BTreeMap;

use ondeck_core::model::excerpt::{one_line, quoted};
use ondeck_core::model::settings::{InvalidSetting, Settings};
use ondeck_core::ports::{PortError, PortResult};
use serde::Deserialize;

use super::{GitHubForge, deprecation};
use crate::client::{Purpose, Request};
use crate::http;
use crate::packages::{PACKAGES_SETTING, Package, Packages, VERSION_SETTING};
use crate::version::Version;

/// The oldest version that GitHub lets register. Enterprise Servers have minimums of their own.
const OLDEST: Version = Version(2, 329, 0);

/// The architectures that machines can have. actions/runner exists for others too.
const ARCHITECTURES: [&str; 2] = ["x64", "arm64"];

#[derive(Deserialize)]
pub(super) struct Download {
    os: String,
    architecture: String,
    download_url: String,
    filename: String,
    sha256_checksum: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Release {
    assets: Vec<Asset>,
}

#[derive(Deserialize)]
pub(super) struct Asset {
    name: String,
    browser_download_url: String,
    digest: Option<String>,
}

/// A package that may lack a digest.
pub(super) struct OfferedPackage {
    platform: String,
    file: String,
    url: String,
    sha256: Option<String>,
}

/// Returns the packages of the version that the settings ask for. If the settings name a version and
/// already contain its packages, GitHub is not asked for them, because published packages do not
/// change. Fails if GitHub does not let a version that the settings name register any more.
pub(super) async fn look_up(forge: &GitHubForge, settings: &Settings) -> PortResult<Packages> {
    let wanted = match settings.backend.get(VERSION_SETTING).map(|text| text.trim()) {
        None | Some("latest") => None,
        Some(text) => Some(wanted_version(text, forge.hosted)?),
    };
    forge.note(match wanted {
        Some(version) => deprecation::check(forge, version).await?,
        None => None,
    });
    if let (Some(version), Some(kept)) = (wanted, settings.backend.get(PACKAGES_SETTING))
        && let Ok(kept) = serde_json::from_str::<Packages>(kept)
        && kept.version == version.to_string()
        && !kept.packages.is_empty()
    {
        return Ok(kept);
    }
    let (offered, offers) = downloads(forge).await?;
    let version = wanted.unwrap_or(offered);
    let complete = offers.iter().all(|offer| offer.sha256.is_some());
    let offers =
        if version == offered && complete { offers } else { release(forge, version).await? };
    let packages =
        offers.into_iter().map(OfferedPackage::checked).collect::<PortResult<BTreeMap<_, _>>>()?;
    Ok(Packages { version: version.to_string(), packages })
}

/// Returns the version that GitHub recommends for this scope, with its packages.
async fn downloads(forge: &GitHubForge) -> PortResult<(Version, Vec<OfferedPackage>)> {
    let path = format!("{}/actions/runners/downloads", forge.scope.path());
    let request = Request::get(Purpose::Runners(&forge.scope), path);
    offered(forge.manager.get(&request).await?)
}

pub(super) fn offered(downloads: Vec<Download>) -> PortResult<(Version, Vec<OfferedPackage>)> {
    let mut version = None;
    let mut offers = Vec::new();
    for download in downloads {
        let Download { os, architecture, download_url, filename, sha256_checksum } = download;
        if os != "linux" || !ARCHITECTURES.contains(&architecture.as_str()) {
            continue;
        }
        let platform = format!("linux-{architecture}");
        let found = version_in(&filename, &platform);
        let Some(found) = found.filter(|found| version.is_none_or(|v| v == *found)) else {
            return Err(unclear(&filename));
        };
        version = Some(found);
        let sha256 = sha256_checksum.filter(|digest| !digest.is_empty());
        offers.push(OfferedPackage { platform, file: filename, url: download_url, sha256 });
    }
    let version = version.ok_or_else(|| unclear("none for linux"))?;
    Ok((version, offers))
}

/// Looks up a release by version. Fails if it does not exist or has no packages for Linux.
async fn release(forge: &GitHubForge, version: Version) -> PortResult<Vec<OfferedPackage>> {
    let name = version.to_string();
    let path = format!("repos/actions/runner/releases/tags/v{name}");
    let request = Request::get(Purpose::Release(&name), path);
    let answer = forge.releases.ask(&request).await?;
    if answer.status == 404 {
        return Err(setting(format!("names a version that does not exist: {name}")));
    }
    if !answer.is_success() {
        return Err(forge.releases.error_for(&request, &answer));
    }
    released(version, &answer.read(&request)?)
}

pub(super) fn released(
    version: Version,
    Release { assets }: &Release,
) -> PortResult<Vec<OfferedPackage>> {
    let name = version.to_string();
    let mut offers = Vec::new();
    for architecture in ARCHITECTURES {
        let platform = format!("linux-{architecture}");
        let file = format!("actions-runner-{platform}-{name}.tar.gz");
        let Some(asset) = assets.iter().find(|asset| asset.name == file) else { continue };
        let sha256 = asset.digest.as_deref().and_then(|digest| digest.strip_prefix("sha256:"));
        let (url, sha256) = (asset.browser_download_url.clone(), sha256.map(str::to_owned));
        offers.push(OfferedPackage { platform, file, url, sha256 });
    }
    if offers.is_empty() {
        return Err(setting(format!("names a version without packages for linux: {name}")));
    }
    Ok(offers)
}

impl OfferedPackage {
    /// Returns the platform and the package. Fails unless it has a SHA-256 digest and a safe address.
    pub(super) fn checked(self) -> PortResult<(String, Package)> {
        let OfferedPackage { platform, file, url, sha256 } = self;
        let sha256 = sha256.unwrap_or_default().to_ascii_lowercase();
        if sha256.len() != 64 || !sha256.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(PortError::Forge {
                reason: format!("no digest is published for the package: {file}"),
                hint: format!("set {VERSION_SETTING} to a version that has digests"),
            });
        }
        if let Err(problem) = http::address(&url) {
            return Err(PortError::Forge {
                reason: format!("the address of the package {file} {problem}"),
                hint: format!("set {VERSION_SETTING} to another version"),
            });
        }
        Ok((platform, Package { url, sha256 }))
    }
}

/// Parses a version from the settings. Fails if it is malformed, or older than [`OLDEST`] on a server
/// that GitHub operates.
fn wanted_version(text: &str, hosted: bool) -> PortResult<Version> {
    let version: Version = text.parse().map_err(|()| {
        setting(format!("is neither latest nor a version such as 2.336.0: {}", quoted(text)))
    })?;
    if hosted && version < OLDEST {
        let problem = format!("is older than GitHub lets register, which is {OLDEST}: {text}");
        return Err(setting(problem));
    }
    Ok(version)
}

/// Extracts the version from a name such as `actions-runner-linux-x64-2.336.0.tar.gz`.
fn version_in(file: &str, platform: &str) -> Option<Version> {
    let rest = file.strip_prefix("actions-runner-")?.strip_prefix(platform)?;
    rest.strip_prefix('-')?.strip_suffix(".tar.gz")?.parse().ok()
}

pub(super) fn setting(problem: String) -> PortError {
    PortError::Setting(InvalidSetting { name: VERSION_SETTING.to_owned(), problem })
}

fn unclear(found: &str) -> PortError {
    PortError::Forge {
        reason: format!(
            "cannot read the version of the packages that GitHub offers: {}",
            one_line(&found)
        ),
        hint: format!("set {VERSION_SETTING} to a version such as 2.336.0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers_that_github_accepts() {
        for good in ["2.329.0", "2.336.0", "2.1000.3", "3.0.0"] {
            assert_eq!(wanted_version(good, true).unwrap().to_string(), good);
        }
        for (bad, problem) in [
            ("2.328.9", "is older"),
            ("1.999.0", "is older"),
            ("v2.336.0", "is neither"),
            ("2.336", "is neither"),
            ("2.336.0.1", "is neither"),
            ("2.+336.0", "is neither"),
            ("2.99999999999.0", "is neither"),
            ("newest", "is neither"),
            ("2.336.0/../x", "is neither"),
        ] {
            let error = wanted_version(bad, true).unwrap_err().to_string();
            let named = error.starts_with("actions-runner-version ") && error.contains(problem);
            assert!(named, "{error}");
        }
        assert_eq!(wanted_version("2.319.1", false).unwrap(), Version(2, 319, 1));
    }

    #[test]
    fn the_version_is_read_from_the_file_name() {
        let read = |file| version_in(file, "linux-x64");
        assert_eq!(read("actions-runner-linux-x64-2.336.0.tar.gz"), Some(Version(2, 336, 0)));
        for other in [
            "actions-runner-linux-arm64-2.336.0.tar.gz",
            "actions-runner-linux-x64-2.336.0.zip",
            "actions-runner-linux-x64.tar.gz",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_package_without_a_digest_is_rejected() {
        let offer = |url: &str, sha256: Option<String>| OfferedPackage {
            platform: "linux-x64".to_owned(),
            file: "file".to_owned(),
            url: url.to_owned(),
            sha256,
        };
        let good = "https://github.com/x";
        let (_, package) = offer(good, Some("AB".repeat(32))).checked().unwrap();
        assert_eq!(package.sha256, "ab".repeat(32));
        for digest in [None, Some(String::new()), Some("ab".repeat(31)), Some("xy".repeat(32))] {
            let error = offer(good, digest.clone()).checked().unwrap_err();
            assert!(error.to_string().contains("no digest is published"), "{digest:?}: {error}");
        }
        let error = offer("http://example.com/x", Some("ab".repeat(32))).checked().unwrap_err();
        assert!(error.to_string().contains("neither https"), "{error}");
    }
}
