//! GitHub's limits.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::Forge;
use ondeck_github::GitHubOptions;
use ondeck_standin::{GitHubFault, GitHubFaultRule, Occurrence, Permission};

use super::site::{Site, passing, refusal};

const SECOND: Duration = Duration::from_secs(1);

fn limits(span: Duration) -> [GitHubFault; 3] {
    [
        GitHubFault::TooManyRequests { retry_after: span },
        GitHubFault::SecondaryLimit { retry_after: span },
        GitHubFault::PrimaryLimit { reset_in: span },
    ]
}

#[tokio::test]
async fn a_short_wait_is_waited_for_and_then_it_is_asked_again() {
    for fault in limits(15 * SECOND) {
        let site = Site::new();
        let forge = site.forge();
        site.github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::First(2)));
        let reason = passing(forge.mint().await);
        assert!(reason.starts_with("it limits requests until "), "{fault:?}: {reason}");
        assert_eq!(site.github.requests().len(), 1, "{fault:?}: the client repeats nothing");
        let slept = site.clock.slept();
        // The limit's end is given in whole seconds, and some time has passed since.
        let expected = 5 * SECOND..=16 * SECOND;
        assert!(slept.len() == 1 && expected.contains(&slept[0]), "{fault:?}: {slept:?}");

        site.retried(|| forge.mint()).await.unwrap();
        assert_eq!(
            site.github.requests().len(),
            4,
            "{fault:?}: once more in vain, then two tokens"
        );
    }
}

#[tokio::test]
async fn a_long_wait_is_a_refusal_and_nobody_asks_until_then() {
    for fault in limits(600 * SECOND) {
        let site = Site::new();
        let forge = site.forge();
        site.github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::First(1)));
        let first = refusal(site.retried(|| forge.mint()).await);
        assert!(first.0.starts_with("GitHub limits requests until 2"), "{fault:?}: {first:?}");
        assert!(first.1.contains("the next refresh"), "{first:?}");
        assert!(site.clock.slept().is_empty(), "{fault:?}");
        assert_eq!(refusal(forge.runners().await), first);
        assert_eq!(site.github.requests().len(), 1, "{fault:?}: the second was not sent");

        site.clock.advance(500 * SECOND);
        refusal(forge.runners().await);
        site.clock.advance(101 * SECOND);
        forge.runners().await.unwrap();
    }
}

#[tokio::test]
async fn each_token_has_limits_of_its_own() {
    let site = Site::new();
    site.github.allow("ghs_workflow", "acme/web", &[Permission::ActionsRead]);
    let jobs_token = Some(Secret::new("ghs_workflow"));
    let forge = site.forge_with(GitHubOptions { jobs_token, ..site.options() });
    let [fault, ..] = limits(600 * SECOND);
    site.github.inject(GitHubFaultRule::new(fault).on("GET", "/repos/acme/web/actions/runs"));
    let none = BTreeSet::new();
    refusal(forge.waiting_runs(&none).await);
    forge.mint().await.unwrap();
    refusal(forge.waiting_runs(&none).await);
}
