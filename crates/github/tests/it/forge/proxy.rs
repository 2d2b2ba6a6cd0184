//! Proxies, as the usual variables name them.

use std::process::Stdio;
use std::time::Duration;

use ondeck_core::ports::Forge;
use tokio::process::Command;

use super::harness::{ForgeHarness, options, passing};
use super::scripted::{Scripted, answer};

/// Says that this is the process for which the variables were set.
const INNER: &str = "ONDECK_TEST_BEHIND_PROXY";

#[tokio::test]
async fn they_are_used_but_for_what_is_on_this_computer() {
    if std::env::var_os(INNER).is_some() {
        return behind_proxy().await;
    }
    let proxy = Scripted::with(vec![answer(403, &[], "")]).await;
    let url = proxy.url.replace("http://", "http://somebody:hunter2@");
    let this = "forge::proxy::they_are_used_but_for_what_is_on_this_computer";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(INNER, "1")
        .envs(["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"].map(|name| (name, &url)))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), child).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let seen = proxy.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].starts_with("CONNECT ghe.invalid:443 "), "{seen:?}");
    assert!(!seen[0].contains("ghp_"), "{seen:?}");
}

async fn behind_proxy() {
    let reason =
        passing(ForgeHarness::new().forge_with(options("https://ghe.invalid")).runners().await);
    assert!(!reason.contains("hunter2"), "{reason}");
    let harness = ForgeHarness::new();
    harness.forge().runners().await.unwrap();
}
