//! Listing and removing runners.

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{Forge, ListedRunner};
use ondeck_github::runner_name;
use ondeck_standin::{GitHubOptions, GitHubRunner, Permission};

use super::harness::{ForgeHarness, POOL_TAG, TOKEN, refusal};

const ONE: &str = "/repos/acme/web/actions/runners/*";
const ALL: &str = "/repos/acme/web/actions/runners";

fn name(instance: &str, count: u32) -> String {
    runner_name(&InstanceId::new(instance).unwrap(), count, POOL_TAG)
}

fn list_runner(harness: &ForgeHarness, name: &str, online: bool, busy: bool) {
    harness.github.add_runner(GitHubRunner { online, busy, ..GitHubRunner::new("acme/web", name) });
}

#[tokio::test]
async fn all_pages_are_read_and_only_this_pools_runners_returned() {
    let harness = ForgeHarness::with(GitHubOptions { page: 2, ..GitHubOptions::default() });
    for (name, online) in [
        (name("i-1", 1), true),
        ("i-2-1-zzzzzz".to_owned(), true),
        ("foreign".to_owned(), true),
        (name("i-2", 7), false),
        (name("i-3", 1), true),
    ] {
        list_runner(&harness, &name, online, false);
    }
    let ours = |instance: &str, number, online| ListedRunner {
        name: name(instance, number),
        instance: InstanceId::new(instance).unwrap(),
        number,
        online,
    };
    let mut listed = harness.forge().runners().await.unwrap();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(listed, [ours("i-1", 1, true), ours("i-2", 7, false), ours("i-3", 1, true)]);
    assert_eq!(harness.github.count("GET", ALL), 3, "three pages of two");
}

#[tokio::test]
async fn an_organisation_has_its_own_list() {
    let harness = ForgeHarness::new();
    harness.github.add_runner(GitHubRunner::new("acme", &name("i-1", 1)));
    list_runner(&harness, &name("i-2", 1), true, false);
    let forge = harness.forge_of_organisation();
    let listed = forge.runners().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].instance.as_str(), "i-1");
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!(harness.github.count("DELETE", "/orgs/acme/actions/runners/*"), 1);
    assert_eq!(harness.github.runners().len(), 1);
}

#[tokio::test]
async fn a_runner_is_removed_by_its_cached_id_or_by_name() {
    let harness = ForgeHarness::new();
    for count in 1..=3 {
        list_runner(&harness, &name("i-1", count), false, false);
    }
    let forge = harness.forge();
    forge.remove_runner(&name("i-1", 2)).await.unwrap();
    assert_eq!(harness.github.count("GET", ALL), 1, "asked for by name");
    forge.runners().await.unwrap();
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!((harness.github.count("GET", ALL), harness.github.count("DELETE", ONE)), (2, 2));
    let left: Vec<_> = harness.github.runners().into_iter().map(|runner| runner.name).collect();
    assert_eq!(left, [name("i-1", 3)]);
}

#[tokio::test]
async fn removing_an_unknown_runner_succeeds() {
    let harness = ForgeHarness::new();
    list_runner(&harness, &name("i-1", 1), false, false);
    let forge = harness.forge();
    forge.runners().await.unwrap();
    harness.github.remove_runner(&name("i-1", 1));
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!(harness.github.count("DELETE", ONE), 1);
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!(harness.github.count("DELETE", ONE), 1, "it is known by no number any more");
}

#[tokio::test]
async fn removing_a_busy_runner_fails() {
    let harness = ForgeHarness::new();
    list_runner(&harness, &name("i-1", 1), true, true);
    let (reason, hint) = refusal(harness.forge().remove_runner(&name("i-1", 1)).await);
    assert!(reason.contains("is busy") && reason.contains(&name("i-1", 1)), "{reason}");
    assert!(hint.contains("next refresh"), "{hint}");
    assert_eq!(harness.github.runners().len(), 1);
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let harness = ForgeHarness::new();
    harness.github.revoke(TOKEN);
    harness.github.allow(TOKEN, "acme/web", &[Permission::Metadata]);
    let (reason, hint) = refusal(harness.forge().runners().await);
    assert_eq!(
        reason,
        "the token may not manage the runners of acme/web: Resource not accessible by personal \
         access token"
    );
    assert!(hint.contains("the scope repo"), "{hint}");
    let (_, hint) = refusal(harness.forge_of_organisation().runners().await);
    assert!(hint.contains("the scope admin:org"), "{hint}");
}
