//! Refresh, and a GitHub that refuses, is slow, or does not answer.

use std::time::Duration;

use ondeck_standin::{
    APP_PRIVATE_KEY, APP_PUBLIC_KEY, GitHubFault, GitHubFaultRule, Occurrence, Permission,
};

use super::harness::{GitHubHarness, REPOSITORY, TOKEN};
use crate::harness::{Driven, Home};

/// Refresh with this in place of the token.
fn refresh_with<'a>(
    harness: &GitHubHarness<Home>,
    variables: &[(&'a str, &'a str)],
) -> crate::harness::Done {
    let mut command = harness.command(&["refresh", "--json"]);
    command.envs(variables.iter().copied());
    crate::harness::Background::start(&mut command).finish()
}

#[test]
fn a_bad_token_is_told_and_keeps_nothing_from_being_cleared_up() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=0"]).succeeded();
    harness.provision("2", 1).succeeded();
    harness
        .pool
        .file()
        .execute(
            "UPDATE instances SET threshold = '2025-01-01T00:00:00.000Z' WHERE state = 'running'",
            [],
        )
        .unwrap();
    // Its tokens are old enough to be renewed.
    harness.renew();
    let done = refresh_with(&harness, &[("ONDECK_GITHUB_TOKEN", "ghp_revoked")]).exited(7);
    assert!(done.stderr.contains("GitHub does not accept the token"), "{}", done.stderr);
    assert!(!done.stderr.contains("ghp_revoked"), "{}", done.stderr);
    assert_eq!(
        harness.standings(),
        Vec::<String>::new(),
        "what had expired was reaped all the same"
    );
}

#[test]
fn a_token_without_the_permission_is_told_which_one() {
    let harness = GitHubHarness::local(&[]);
    harness.github.allow("github_pat_metadata", REPOSITORY, &[Permission::Metadata]);
    harness.renew();
    let done = refresh_with(&harness, &[("ONDECK_GITHUB_TOKEN", "github_pat_metadata")]).exited(7);
    assert!(done.stderr.contains("Administration"), "{}", done.stderr);
    assert!(done.stderr.contains(REPOSITORY), "{}", done.stderr);
}

#[test]
fn without_credentials_refresh_says_what_to_give() {
    let harness = GitHubHarness::local(&[]);
    harness.renew();
    let done = refresh_with(&harness, &[("ONDECK_GITHUB_TOKEN", "")]).exited(7);
    assert!(
        done.stderr.contains("hint: ") && done.stderr.contains("--github-token"),
        "{}",
        done.stderr
    );
}

#[test]
fn an_app_serves_as_well_as_a_token() {
    let harness = GitHubHarness::local(&[]);
    harness.github.add_app(
        "12345",
        APP_PUBLIC_KEY,
        "acme",
        &[Permission::Administration, Permission::ActionsRead],
    );
    harness.renew();
    let app = [
        ("ONDECK_GITHUB_TOKEN", ""),
        ("ONDECK_JOBS_TOKEN", ""),
        ("ONDECK_GITHUB_APP_ID", "12345"),
        ("ONDECK_GITHUB_APP_PRIVATE_KEY", APP_PRIVATE_KEY),
    ];
    harness.github.revoke(TOKEN);
    refresh_with(&harness, &app).succeeded();
    harness.provision("1", 1).succeeded();
    harness.done(harness.queue("1", "true"));
    harness.release("1").succeeded();
    let wrong = [app[0], app[1], ("ONDECK_GITHUB_APP_ID", "99999"), app[3]];
    harness.renew();
    let done = refresh_with(&harness, &wrong).exited(7);
    assert!(!done.stderr.contains("PRIVATE KEY"), "{}", done.stderr);
}

#[test]
fn an_organisation_has_runners_of_its_own() {
    let harness = GitHubHarness::local(&[]);
    harness.github.allow("ghp_org", "acme", &[Permission::OrganisationRunners]);
    let organisation =
        [("ONDECK_GITHUB_TOKEN", "ghp_org"), ("ONDECK_RUNNER_SCOPE", "organisation")];
    refresh_with(&harness, &organisation).succeeded();
    harness.provision("1", 1).succeeded();
    assert_eq!(harness.github.runners()[0].scope, "acme");
    harness.done(harness.queue("1", "true"));
    harness.release("1").succeeded();
    assert!(harness.github.runners().is_empty());
    harness.github.assert_requests_valid();
}

#[test]
fn what_passes_is_waited_for() {
    let second = Duration::from_secs(1);
    for fault in [
        GitHubFault::Status(502),
        GitHubFault::Reset,
        GitHubFault::LostAnswer,
        GitHubFault::CutBody,
        GitHubFault::NotJson,
        GitHubFault::TooManyRequests { retry_after: second },
        GitHubFault::SecondaryLimit { retry_after: second },
    ] {
        let harness = GitHubHarness::local(&[]);
        harness.renew();
        let injected =
            harness.github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::Every(3)));
        let before = harness.github.requests().len();
        refresh_with(&harness, &[]).succeeded();
        assert!(injected.fired() > 0, "{fault:?}");
        assert!(harness.github.requests().len() - before < 30, "{fault:?}");
        harness.github.assert_requests_valid();
    }
}

#[test]
fn a_limit_that_lasts_is_told_and_not_waited_for() {
    let harness = GitHubHarness::local(&[]);
    harness.renew();
    let reset_in = Duration::from_secs(1_800);
    harness.github.inject(GitHubFaultRule::new(GitHubFault::PrimaryLimit { reset_in }));
    let before = harness.github.requests().len();
    let done = refresh_with(&harness, &[]).exited(7);
    assert!(done.stderr.contains("limits requests until"), "{}", done.stderr);
    assert!(harness.github.requests().len() - before <= 2, "{:?}", harness.github.requests());
}

#[test]
fn runs_that_may_not_be_read_are_no_failure() {
    let harness = GitHubHarness::local(&[]);
    let done = refresh_with(&harness, &[("ONDECK_JOBS_TOKEN", TOKEN)]).succeeded();
    assert_eq!(done.json()["rescued"], serde_json::json!([]));
}
