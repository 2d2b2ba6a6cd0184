//! Choosing the packages of actions/runner.

use std::time::{Duration, SystemTime};

use ondeck_core::model::settings::Settings;
use ondeck_core::ports::{Forge, PortError, PortResult};
use ondeck_github::{
    GitHubForge, GitHubOptions, PACKAGES_SETTING, Packages, URL_SETTING, VERSION_SETTING,
};
use ondeck_standin::{GitHubFault, GitHubFaultRule};

use super::harness::{ForgeHarness, options, refusal, settings};
use super::scripted::{Scripted, answer};

const RELEASES: &str = "/repos/actions/runner/releases/tags/*";
const DEADLINES: &str = "/repos/acme/web/actions/runners/deprecations/*";
const DOWNLOADS: &str = "/repos/acme/web/actions/runners/downloads";

async fn packages(forge: &GitHubForge, settings: &Settings) -> PortResult<Packages> {
    let kept = forge.set_up(settings).await?;
    assert_eq!(kept.get(URL_SETTING), forge.target().as_ref());
    Ok(serde_json::from_str(&kept[PACKAGES_SETTING]).unwrap())
}

#[tokio::test]
async fn the_latest_version_is_the_one_github_offers() {
    let harness = ForgeHarness::new();
    let old = harness.github.publish_runner("2.335.0", "old");
    let new = harness.github.publish_runner("2.336.0", "new");
    assert_ne!(old, new);
    for (forge, settings) in [
        (harness.forge(), settings(&[])),
        (harness.forge_of_organisation(), settings(&[(VERSION_SETTING, "latest")])),
        (harness.forge(), settings(&[(VERSION_SETTING, "2.336.0")])),
    ] {
        let packages = packages(&forge, &settings).await.unwrap();
        assert_eq!(packages.version, "2.336.0");
        let package = &packages.packages["linux-x64"];
        assert_eq!(package.sha256, new);
        assert!(package.url.ends_with("/actions-runner-linux-x64-2.336.0.tar.gz"), "{package:?}");
    }
    assert_eq!(harness.github.count("GET", RELEASES), 0, "the releases are not needed");
}

#[tokio::test]
async fn another_version_is_looked_up_in_the_releases_once() {
    let harness = ForgeHarness::new();
    let old = harness.github.publish_runner("2.335.0", "old");
    harness.github.publish_runner("2.336.0", "new");
    let (forge, wanted) = (harness.forge(), (VERSION_SETTING, "2.335.0"));
    let found = packages(&forge, &settings(&[wanted])).await.unwrap();
    assert_eq!((found.version.as_str(), &found.packages["linux-x64"].sha256), ("2.335.0", &old));
    let asked = harness.github.requests().len();
    assert_eq!((asked, harness.github.count("GET", RELEASES)), (3, 1));

    let text = serde_json::to_string(&found).unwrap();
    let kept = settings(&[wanted, (PACKAGES_SETTING, &text)]);
    assert_eq!(packages(&forge, &kept).await.unwrap(), found);
    assert_eq!(harness.github.count("GET", DEADLINES), 2, "deadlines do change");
    assert_eq!(harness.github.requests().len(), asked + 1, "published packages do not");

    for other in [
        settings(&[(PACKAGES_SETTING, &text)]),
        settings(&[(VERSION_SETTING, "2.336.0"), (PACKAGES_SETTING, &text)]),
        settings(&[(VERSION_SETTING, "2.336.0"), (PACKAGES_SETTING, "{")]),
    ] {
        assert_eq!(packages(&forge, &other).await.unwrap().version, "2.336.0");
    }
    assert_eq!(harness.github.count("GET", DOWNLOADS), 4);
}

/// The packages are known already.
#[tokio::test]
async fn the_deadline_of_a_version_is_told_in_time() {
    let harness = ForgeHarness::new();
    harness.github.publish_runner("2.335.0", "old");
    harness.github.publish_runner("2.336.0", "new");
    let wanted = (VERSION_SETTING, "2.335.0");
    let found = packages(&harness.forge(), &settings(&[wanted])).await.unwrap();
    let text = serde_json::to_string(&found).unwrap();
    let kept = settings(&[wanted, (PACKAGES_SETTING, &text)]);
    let day = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    let forge = harness.forge();
    for (registration, jobs, said) in [
        (None, None, None),
        (None, Some(now + 20 * day), None),
        (None, Some(now + 13 * day), Some("serves until ")),
        (Some(now + 13 * day), None, Some("serves until ")),
        (Some(now + day), Some(now - day), Some("gives no jobs since ")),
    ] {
        harness.github.announce_end("2.335.0", registration, jobs);
        packages(&forge, &kept).await.unwrap();
        let notice = forge.notice();
        assert_eq!(notice.is_some(), said.is_some(), "{notice:?}");
        assert!(notice.unwrap_or_default().contains(said.unwrap_or_default()));
    }
    harness.github.announce_end("2.335.0", Some(now - day), None);
    let error = forge.set_up(&kept).await.unwrap_err();
    assert!(matches!(error, PortError::Setting(_)), "{error:?}");
    let said = "actions-runner-version names a version that GitHub has not let register since ";
    assert!(error.to_string().starts_with(said), "{error}");

    let latest = settings(&[(PACKAGES_SETTING, &text)]);
    packages(&forge, &latest).await.unwrap();
    assert_eq!(forge.notice(), None, "the newest version has no deadline");
}

#[tokio::test]
async fn a_github_that_does_not_tell_deadlines_is_no_failure() {
    for fault in [
        GitHubFault::Status(500),
        GitHubFault::Reset,
        GitHubFault::NotJson,
        GitHubFault::LostAnswer,
        GitHubFault::CutBody,
    ] {
        let harness = ForgeHarness::new();
        harness.github.publish_runner("2.335.0", "old");
        harness.github.publish_runner("2.336.0", "new");
        harness.github.inject(GitHubFaultRule::new(fault).on("GET", DEADLINES));
        let forge = harness.forge();
        let found = packages(&forge, &settings(&[(VERSION_SETTING, "2.335.0")])).await.unwrap();
        assert_eq!((found.version.as_str(), forge.notice()), ("2.335.0", None), "{fault:?}");
    }
}

#[tokio::test]
async fn an_impossible_version_is_an_invalid_setting() {
    let harness = ForgeHarness::new();
    harness.github.publish_runner("2.336.0", "new");
    for (version, problem) in [
        ("2.328.0", "names a version that does not exist: 2.328.0"),
        ("newest", "is neither latest nor a version such as 2.336.0: \"newest\""),
        ("2.999.0", "names a version that does not exist: 2.999.0"),
    ] {
        let error = harness.forge().set_up(&settings(&[(VERSION_SETTING, version)])).await;
        let error = error.unwrap_err();
        assert!(matches!(error, PortError::Setting(_)), "{error:?}");
        assert_eq!(error.to_string(), format!("{VERSION_SETTING} {problem}"));
    }
    let (reason, _) = refusal(ForgeHarness::new().forge().set_up(&settings(&[])).await);
    assert!(reason.contains("none for linux"), "{reason}");
}

fn download(architecture: &str, digest: &str) -> String {
    let file = format!("actions-runner-linux-{architecture}-2.336.0.tar.gz");
    format!(
        r#"{{"os":"linux","architecture":"{architecture}","filename":"{file}",
        "download_url":"https://github.com/{file}"{digest}}}"#
    )
}

#[tokio::test]
async fn all_platforms_are_stored_and_none_without_a_digest() {
    let digest = format!(r#","sha256_checksum":"{}""#, "ab".repeat(32));
    let (x64, arm64) = (download("x64", &digest), download("arm64", &digest));
    let other = download("arm", &digest).replace("\"linux\"", "\"osx\"");
    let bare = download("arm64", "");
    let complete = answer(200, &[], &format!("[{other},{x64},{arm64}]"));
    let incomplete = answer(200, &[], &format!("[{x64},{bare}]"));
    let asset = |digest: &str| {
        let file = "actions-runner-linux-x64-2.336.0.tar.gz";
        let body = format!(
            r#"{{"assets":[{{"name":"notes","browser_download_url":"https://x","digest":null}},
            {{"name":"{file}","browser_download_url":"https://x/{file}","digest":{digest}}}]}}"#
        );
        answer(200, &[], &body)
    };
    let published = asset(&format!("\"sha256:{}\"", "cd".repeat(32)));

    let server = Scripted::with(vec![complete]).await;
    let forge = ForgeHarness::new().forge_with(options(&server.url));
    let found = packages(&forge, &settings(&[])).await.unwrap();
    assert_eq!(found.packages.keys().collect::<Vec<_>>(), ["linux-arm64", "linux-x64"]);

    let server = Scripted::with(vec![incomplete.clone(), published]).await;
    let forge = ForgeHarness::new().forge_with(options(&server.url));
    let found = packages(&forge, &settings(&[])).await.unwrap();
    assert_eq!(found.packages["linux-x64"].sha256, "cd".repeat(32), "the release has digests");

    for digest in ["null", "\"md5:0\"", "\"sha256:0\""] {
        let server = Scripted::with(vec![incomplete.clone(), asset(digest)]).await;
        let forge = ForgeHarness::new().forge_with(options(&server.url));
        let (reason, _) = refusal(forge.set_up(&settings(&[])).await);
        assert!(reason.starts_with("no digest is published for the package: actions"), "{reason}");
    }
}

#[tokio::test]
async fn the_token_is_not_sent_to_another_server_for_releases() {
    let harness = ForgeHarness::new();
    harness.github.publish_runner("2.336.0", "new");
    let releases = Scripted::with(vec![answer(404, &[], "{}")]).await;
    let forge = harness
        .forge_with(GitHubOptions { runner_api_url: releases.url.clone(), ..harness.options() });
    forge.set_up(&settings(&[(VERSION_SETTING, "2.335.0")])).await.unwrap_err();
    let head = releases.seen().remove(0);
    assert!(head.starts_with("GET /repos/actions/runner/releases/tags/v2.335.0 "), "{head}");
    assert!(!head.to_ascii_lowercase().contains("authorization"), "{head}");
}
