//! Faults on the way to GitHub and back.

use std::time::Duration;

use ondeck_core::ports::Forge;
use ondeck_standin::{GitHubFault, GitHubFaultRule, Occurrence};

use super::harness::{ForgeHarness, options, transient};

const MINTS: &str = "/repos/acme/web/actions/runners/registration-token";

#[tokio::test]
async fn transient_faults_are_retried_by_core_alone() {
    for fault in [
        GitHubFault::Status(500),
        GitHubFault::Status(502),
        GitHubFault::Status(503),
        GitHubFault::Reset,
        GitHubFault::LostAnswer,
        GitHubFault::CutBody,
        GitHubFault::NotJson,
    ] {
        let harness = ForgeHarness::new();
        let forge = harness.forge();
        harness
            .github
            .inject(GitHubFaultRule::new(fault).on("POST", MINTS).occurrence(Occurrence::First(2)));
        let reason = transient(forge.mint().await);
        assert!(reason.starts_with("the runners of acme/web: "), "{fault:?}: {reason}");
        assert_eq!(harness.github.count("POST", MINTS), 1, "{fault:?}: the client repeats nothing");
        harness.retried(|| forge.mint()).await.unwrap();
        assert_eq!(harness.github.count("POST", MINTS), 3, "{fault:?}");
    }
}

#[tokio::test]
async fn bursts_of_server_errors_are_outlasted() {
    let harness = ForgeHarness::new();
    let forge = harness.forge();
    let bursts = Occurrence::Bursts { probability: 0.1, length: 4, seed: 1 };
    let rule = GitHubFaultRule::new(GitHubFault::Status(502)).occurrence(bursts);
    let rule = harness.github.inject(rule);
    for _ in 0..20 {
        harness.retried(|| forge.mint()).await.unwrap();
        harness.retried(|| forge.runners()).await.unwrap();
    }
    assert!(rule.fired() >= 8, "{}", rule.fired());
}

#[tokio::test]
async fn a_slow_answer_is_waited_for() {
    let harness = ForgeHarness::new();
    harness.github.inject(GitHubFaultRule::new(GitHubFault::Delay(Duration::from_millis(300))));
    harness.forge().mint().await.unwrap();
}

#[tokio::test]
async fn a_request_without_an_answer_times_out() {
    let harness = ForgeHarness::new();
    let forge = harness.forge();
    forge.runners().await.unwrap();
    harness.github.inject(GitHubFaultRule::new(GitHubFault::Hang));
    // From here on tokio advances time whenever all tasks wait.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let reason = transient(forge.runners().await);
    assert!(reason.contains("timed out"), "{reason}");
    assert!(start.elapsed().as_secs() <= 30, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_refused_connection_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let reason = transient(ForgeHarness::new().forge_with(options(&url)).runners().await);
    assert!(reason.contains("refused"), "{reason}");
}
