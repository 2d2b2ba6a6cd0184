//! What goes wrong between here and GitHub.

use std::time::Duration;

use ondeck_core::ports::Forge;
use ondeck_standin::{GitHubFault, GitHubFaultRule, Occurrence};

use super::site::{Site, options, passing};

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
        let site = Site::new();
        let forge = site.forge();
        site.github
            .inject(GitHubFaultRule::new(fault).on("POST", MINTS).occurrence(Occurrence::First(2)));
        let reason = passing(forge.mint().await);
        assert!(reason.starts_with("the runners of acme/web: "), "{fault:?}: {reason}");
        assert_eq!(site.github.count("POST", MINTS), 1, "{fault:?}: the client repeats nothing");
        site.retried(|| forge.mint()).await.unwrap();
        assert_eq!(site.github.count("POST", MINTS), 3, "{fault:?}");
    }
}

#[tokio::test]
async fn slow_is_not_gone() {
    let site = Site::new();
    site.github.inject(GitHubFaultRule::new(GitHubFault::Delay(Duration::from_millis(300))));
    site.forge().mint().await.unwrap();
}

#[tokio::test]
async fn who_never_answers_is_given_up_on() {
    let site = Site::new();
    let forge = site.forge();
    forge.runners().await.unwrap();
    site.github.inject(GitHubFaultRule::new(GitHubFault::Hang));
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
    let reason = passing(Site::new().forge_with(options(&url)).runners().await);
    assert!(reason.contains("refused"), "{reason}");
}
