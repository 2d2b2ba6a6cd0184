//! Proxies from the environment.

use std::process::Stdio;
use std::time::Duration;

use ondeck_core::ports::Forge;
use tokio::process::Command;

use super::harness::{ForgeHarness, options, transient};
use super::scripted::{Scripted, answer};

/// Marks the child process that runs the test with the proxy variables set.
const INNER: &str = "ONDECK_TEST_BEHIND_PROXY";

#[tokio::test]
async fn a_proxy_is_used_except_for_loopback() {
    if std::env::var_os(INNER).is_some() {
        return behind_proxy().await;
    }
    let proxy = Scripted::with(vec![answer(403, &[], "")]).await;
    let url = proxy.url.replace("http://", "http://user:hunter2@");
    let this = "forge::proxy::a_proxy_is_used_except_for_loopback";
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
        transient(ForgeHarness::new().forge_with(options("https://ghe.invalid")).runners().await);
    assert!(!reason.contains("hunter2"), "{reason}");
    let harness = ForgeHarness::new();
    harness.forge().runners().await.unwrap();
}
