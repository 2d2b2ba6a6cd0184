//! The list of runners.

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{Forge, ListedRunner};
use ondeck_github::runner_name;
use ondeck_standin::{GitHubOptions, GitHubRunner, Permission};

use super::site::{MARK, Site, TOKEN, refusal};

const ONE: &str = "/repos/acme/web/actions/runners/*";
const ALL: &str = "/repos/acme/web/actions/runners";

fn name(instance: &str, count: u32) -> String {
    runner_name(&InstanceId::new(instance).unwrap(), count, MARK)
}

fn planted(site: &Site, name: &str, online: bool, busy: bool) {
    site.github.add_runner(GitHubRunner { online, busy, ..GitHubRunner::new("acme/web", name) });
}

#[tokio::test]
async fn every_page_is_read_and_only_ours_are_taken() {
    let site = Site::with(GitHubOptions { page: 2, ..GitHubOptions::default() });
    for (name, online) in [
        (name("i-1", 1), true),
        ("i-2-1-zzzzzz".to_owned(), true),
        ("somebody".to_owned(), true),
        (name("i-2", 7), false),
        (name("i-3", 1), true),
    ] {
        planted(&site, &name, online, false);
    }
    let ours = |instance: &str, count, online| ListedRunner {
        name: name(instance, count),
        instance: InstanceId::new(instance).unwrap(),
        online,
    };
    let mut listed = site.forge().runners().await.unwrap();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(listed, [ours("i-1", 1, true), ours("i-2", 7, false), ours("i-3", 1, true)]);
    assert_eq!(site.github.count("GET", ALL), 3, "three pages of two");
}

#[tokio::test]
async fn an_organisation_has_a_list_of_its_own() {
    let site = Site::new();
    site.github.add_runner(GitHubRunner::new("acme", &name("i-1", 1)));
    planted(&site, &name("i-2", 1), true, false);
    let forge = site.forge_of_organisation();
    let listed = forge.runners().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].instance.as_str(), "i-1");
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!(site.github.count("DELETE", "/orgs/acme/actions/runners/*"), 1);
    assert_eq!(site.github.runners().len(), 1);
}

#[tokio::test]
async fn one_is_struck_by_its_number_from_the_last_look_or_by_its_name() {
    let site = Site::new();
    for count in 1..=3 {
        planted(&site, &name("i-1", count), false, false);
    }
    let forge = site.forge();
    forge.remove_runner(&name("i-1", 2)).await.unwrap();
    assert_eq!(site.github.count("GET", ALL), 1, "asked for by name");
    forge.runners().await.unwrap();
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!((site.github.count("GET", ALL), site.github.count("DELETE", ONE)), (2, 2));
    let left: Vec<_> = site.github.runners().into_iter().map(|runner| runner.name).collect();
    assert_eq!(left, [name("i-1", 3)]);
}

#[tokio::test]
async fn one_that_is_gone_is_no_error() {
    let site = Site::new();
    planted(&site, &name("i-1", 1), false, false);
    let forge = site.forge();
    forge.runners().await.unwrap();
    site.github.remove_runner(&name("i-1", 1));
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!(site.github.count("DELETE", ONE), 1);
    forge.remove_runner(&name("i-1", 1)).await.unwrap();
    assert_eq!(site.github.count("DELETE", ONE), 1, "it is known by no number any more");
}

#[tokio::test]
async fn one_that_is_busy_stays_and_that_is_said() {
    let site = Site::new();
    planted(&site, &name("i-1", 1), true, true);
    let (reason, hint) = refusal(site.forge().remove_runner(&name("i-1", 1)).await);
    assert!(reason.contains("is busy") && reason.contains(&name("i-1", 1)), "{reason}");
    assert!(hint.contains("next refresh"), "{hint}");
    assert_eq!(site.github.runners().len(), 1);
}

#[tokio::test]
async fn who_may_not_manage_runners_is_told_what_is_missing() {
    let site = Site::new();
    site.github.revoke(TOKEN);
    site.github.allow(TOKEN, "acme/web", &[Permission::Metadata]);
    let (reason, hint) = refusal(site.forge().runners().await);
    assert_eq!(
        reason,
        "the token may not manage the runners of acme/web: Resource not accessible by personal \
         access token"
    );
    assert!(hint.contains("the scope repo"), "{hint}");
    let (_, hint) = refusal(site.forge_of_organisation().runners().await);
    assert!(hint.contains("the scope admin:org"), "{hint}");
}
