//! The tokens that runners register and deregister with.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, Forge};
use ondeck_github::{GitHubOptions, RunnerScope};

use super::harness::{ForgeHarness, options};
use super::scripted::{Scripted, answer};

#[tokio::test]
async fn both_tokens_are_made_and_announced_before_they_are_used() {
    let harness = ForgeHarness::new();
    for (forge, place) in
        [(harness.forge(), "/repos/acme/web"), (harness.forge_of_organisation(), "/orgs/acme")]
    {
        let known = harness.secrets().len();
        let credentials = forge.mint().await.unwrap().unwrap();
        for kind in ["registration-token", "remove-token"] {
            let path = format!("{place}/actions/runners/{kind}");
            assert_eq!(harness.github.count("POST", &path), 1, "{path}");
        }
        assert_ne!(credentials.registration, credentials.removal);
        let announced = harness.secrets()[known..].to_vec();
        assert_eq!(announced, [credentials.registration, credentials.removal]);
        let lifetime = credentials.expires_at.since(harness.clock.now());
        let hour = Duration::from_secs(3_600);
        assert!(lifetime <= hour && lifetime > hour - Duration::from_secs(120), "{lifetime:?}");
    }
}

#[tokio::test]
async fn the_earlier_expiry_counts_in_any_time_zone() {
    let token = |token: &str, at: &str| {
        answer(201, &[], &format!(r#"{{"token":"{token}","expires_at":"{at}"}}"#))
    };
    let server = Scripted::with(vec![
        token("one", "2026-01-22T12:30:00.000-08:00"),
        token("two", "2026-01-22T20:15:00Z"),
    ])
    .await;
    let forge = ForgeHarness::new().forge_with(options(&server.url));
    let credentials = forge.mint().await.unwrap().unwrap();
    assert_eq!(credentials.expires_at, Timestamp::parse("2026-01-22T20:15:00Z").unwrap());
    assert_eq!(credentials.registration.expose(), "one");
}

#[tokio::test]
async fn requests_carry_user_agent_token_and_api_version() {
    let server = Scripted::with(vec![answer(404, &[], "{}")]).await;
    let forge = ForgeHarness::new().forge_with(options(&server.url));
    forge.runners().await.unwrap_err();
    let head = server.seen().remove(0).to_ascii_lowercase();
    assert!(head.starts_with("get /api/v3/repos/acme/web/actions/runners?per_page=100&page=1 "));
    for header in [
        concat!("user-agent: ondeck/", env!("CARGO_PKG_VERSION")),
        "accept: application/vnd.github+json",
        "x-github-api-version: 2022-11-28",
        "authorization: bearer ghp_sitetoken0123456789",
    ] {
        assert!(head.contains(&format!("\r\n{header}\r\n")), "{header} is not in {head}");
    }
}

#[test]
fn the_registration_address_follows_from_server_and_scope() {
    let harness = ForgeHarness::new();
    let organisation = RunnerScope::Organisation { owner: "acme".to_owned() };
    let repository = harness.options().scope;
    for (server, scope, target) in [
        ("https://github.com", &repository, "https://github.com/acme/web"),
        ("https://github.com/", &organisation, "https://github.com/acme"),
        ("https://octo.ghe.com", &repository, "https://octo.ghe.com/acme/web"),
        ("https://ghe.example.com", &organisation, "https://ghe.example.com/acme"),
    ] {
        let options = GitHubOptions { scope: scope.clone(), ..options(server) };
        assert_eq!(harness.forge_with(options).target().unwrap(), target);
    }
}

#[test]
fn invalid_options_are_named() {
    let harness = ForgeHarness::new();
    let repository = |owner: &str, name: &str| GitHubOptions {
        scope: RunnerScope::Repository { owner: owner.to_owned(), name: name.to_owned() },
        ..harness.options()
    };
    let jobs =
        |name: &str| GitHubOptions { jobs_repository: Some(name.to_owned()), ..harness.options() };
    for (options, problem) in [
        (repository("acme", "web/../x"), "not the name of a repository: acme/web/../x"),
        (repository("acme", ".."), "not the name of a repository: acme/.."),
        (repository("", "web"), "not the name of a repository: /web"),
        (jobs("acme"), "not the name of a repository: acme"),
        (jobs("acme/web/x"), "not the name of a repository: acme/web/x"),
        (
            GitHubOptions { pool_tag: "a-b-c-".to_owned(), ..harness.options() },
            "letters or digits: a-b-c-",
        ),
        (
            GitHubOptions { pool_tag: "abc".to_owned(), ..harness.options() },
            "six letters or digits: abc",
        ),
        (options("http://github.com"), "neither https nor on this computer"),
    ] {
        let failure = harness.try_forge(options).unwrap_err();
        assert_eq!(failure.kind.exit_code(), 2);
        assert!(failure.message.contains(problem), "{failure}");
    }
}
