//! What goes wrong between here and GitHub.

use std::time::Duration;

use ondeck_core::ports::Forge;
use ondeck_standin::{GitHubFault, GitHubRule, Which};

use super::harness::{ForgeHarness, options, passing};

const MINTS: &str = "/repos/acme/web/actions/runners/registration-token";

#[tokio::test]
async fn whatever_may_pass_is_asked_again_by_core_alone() {
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
        harness.github.disturb(GitHubRule::new(fault).on("POST", MINTS).which(Which::First(2)));
        let reason = passing(forge.mint().await);
        assert!(reason.starts_with("the runners of acme/web: "), "{fault:?}: {reason}");
        assert_eq!(harness.github.count("POST", MINTS), 1, "{fault:?}: the client repeats nothing");
        harness.retried(|| forge.mint()).await.unwrap();
        assert_eq!(harness.github.count("POST", MINTS), 3, "{fault:?}");
    }
}

#[tokio::test]
async fn slow_is_not_gone() {
    let harness = ForgeHarness::new();
    harness.github.disturb(GitHubRule::new(GitHubFault::Delay(Duration::from_millis(300))));
    harness.forge().mint().await.unwrap();
}

#[tokio::test]
async fn who_never_answers_is_given_up_on() {
    let harness = ForgeHarness::new();
    let forge = harness.forge();
    forge.runners().await.unwrap();
    harness.github.disturb(GitHubRule::new(GitHubFault::Hang));
    // From here on time passes whenever there is nothing to do but to wait.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let reason = passing(forge.runners().await);
    assert!(reason.contains("timed out"), "{reason}");
    assert!(start.elapsed().as_secs() <= 30, "{:?}", start.elapsed());
}

#[tokio::test]
async fn who_is_not_there_is_out_of_reach() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let reason = passing(ForgeHarness::new().forge_with(options(&url)).runners().await);
    assert!(reason.contains("refused"), "{reason}");
}
