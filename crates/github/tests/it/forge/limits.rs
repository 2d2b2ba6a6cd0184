//! Waiting for GitHub's rate limits, and failing on long ones.

use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{Forge, RequestBudget};
use ondeck_github::GitHubOptions;
use ondeck_standin::{GitHubFault, GitHubFaultRule, Occurrence, Permission, RequestLimits};

use super::harness::{ForgeHarness, limit};

const SECOND: Duration = Duration::from_secs(1);

fn limits(span: Duration) -> [GitHubFault; 3] {
    [
        GitHubFault::TooManyRequests { retry_after: span },
        GitHubFault::SecondaryLimit { retry_after: span },
        GitHubFault::PrimaryLimit { reset_in: span },
    ]
}

#[tokio::test]
async fn a_short_limit_is_waited_for_and_the_request_retried() {
    for fault in limits(15 * SECOND) {
        let harness = ForgeHarness::new();
        let forge = harness.forge();
        harness.github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::First(2)));
        let reason = limit(forge.mint().await, true).0;
        assert!(reason.starts_with("GitHub limits requests until "), "{fault:?}: {reason}");
        assert_eq!(harness.github.requests().len(), 1, "{fault:?}: the client repeats nothing");
        let slept = harness.clock.slept();
        // The limit ends at a whole second, and some time has passed since it was read.
        let expected = 5 * SECOND..=16 * SECOND;
        assert!(slept.len() == 1 && expected.contains(&slept[0]), "{fault:?}: {slept:?}");

        harness.retried(|| forge.mint()).await.unwrap();
        assert_eq!(
            harness.github.requests().len(),
            4,
            "{fault:?}: once more in vain, then two tokens"
        );
    }
}

#[tokio::test]
async fn a_long_limit_fails_and_blocks_requests_until_then() {
    for fault in limits(600 * SECOND) {
        let harness = ForgeHarness::new();
        let forge = harness.forge();
        harness.github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::First(1)));
        let first = limit(harness.retried(|| forge.mint()).await, false);
        assert!(first.0.starts_with("GitHub limits requests until 2"), "{fault:?}: {first:?}");
        assert!(first.1.contains("run refresh again"), "{first:?}");
        assert!(harness.clock.slept().is_empty(), "{fault:?}");
        assert_eq!(limit(forge.runners().await, false), first);
        assert_eq!(harness.github.requests().len(), 1, "{fault:?}: the second was not sent");

        harness.clock.advance(500 * SECOND);
        limit(forge.runners().await, false);
        harness.clock.advance(101 * SECOND);
        forge.runners().await.unwrap();
    }
}

#[tokio::test]
async fn each_token_has_its_own_limits() {
    let harness = ForgeHarness::new();
    harness.github.allow("ghs_workflow", "acme/web", &[Permission::ActionsRead]);
    let jobs_token = Some(Secret::new("ghs_workflow"));
    let forge = harness.forge_with(GitHubOptions { jobs_token, ..harness.options() });
    let [fault, ..] = limits(600 * SECOND);
    harness.github.inject(GitHubFaultRule::new(fault).on("GET", "/repos/acme/web/actions/runs"));
    let budget = RequestBudget::new(9);
    limit(forge.open_runs(0, &budget).await, false);
    forge.mint().await.unwrap();
    limit(forge.open_runs(0, &budget).await, false);
}

/// After the first refusal no request is sent until the limit ends, because GitHub may block clients
/// that go on.
#[tokio::test]
async fn an_exhausted_budget_is_not_exceeded() {
    for (limits, wait) in [
        (RequestLimits { requests: 5, ..RequestLimits::default() }, 3_600 * SECOND),
        (RequestLimits { points: 5, ..RequestLimits::default() }, 60 * SECOND),
    ] {
        let harness = ForgeHarness::with(ondeck_standin::GitHubOptions {
            limits,
            ..ondeck_standin::GitHubOptions::default()
        });
        let forge = harness.forge();
        for _ in 0..5 {
            forge.runners().await.unwrap();
        }
        let refused = limit(harness.retried(|| forge.runners()).await, false);
        assert!(refused.0.starts_with("GitHub limits requests until 2"), "{refused:?}");
        assert_eq!(limit(harness.retried(|| forge.mint()).await, false), refused);
        assert_eq!(harness.github.requests().len(), 6, "{limits:?}: one was refused");
        harness.advance(wait + SECOND);
        forge.runners().await.unwrap();
    }
}
