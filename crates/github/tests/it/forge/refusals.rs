//! Messages and hints for requests that GitHub refuses.

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::Forge;
use ondeck_github::{Auth, GitHubOptions, RunnerScope};

use super::harness::{ForgeHarness, options, refusal, transient};
use super::scripted::{Scripted, answer};

fn said(message: &str) -> String {
    format!(r#"{{"message":"{message}","documentation_url":"https://docs","status":"0"}}"#)
}

#[tokio::test]
async fn each_status_has_a_meaning_and_a_hint() {
    let denied = said("Resource not accessible by personal access token");
    for (status, headers, body, reason, hint) in [
        (
            401,
            "x: y",
            said("Bad credentials"),
            "GitHub does not accept the token: Bad credentials",
            "create a new token",
        ),
        (
            403,
            "x: y",
            denied.clone(),
            "the token may not manage the runners of acme/web: Resource",
            "needs the scope repo",
        ),
        (
            403,
            "x-github-sso: required; url=https://github.com/orgs/acme/sso?authorization_request=AB",
            denied,
            "the token is not authorised for the organisation that holds the runners of acme/web",
            "Configure SSO",
        ),
        (
            403,
            "x: y",
            said("the `acme` organization has an IP allow list enabled"),
            "does not let this computer",
            "IP allow list",
        ),
        (
            404,
            "x: y",
            said("Not Found"),
            "repository not found, or not visible to the token: acme/web",
            "check the name",
        ),
        (
            422,
            "x: y",
            said("Validation Failed"),
            "GitHub refuses the runners of acme/web: Validation Failed",
            "see GitHub's message",
        ),
        (
            418,
            "x: y",
            String::new(),
            "GitHub refuses the runners of acme/web with status 418",
            "see GitHub's message",
        ),
        (
            400,
            "x-github-request-id: AB:CD",
            "<html>".to_owned(),
            "with status 400 (request AB:CD)",
            "see GitHub's message",
        ),
    ] {
        let server = Scripted::with(vec![answer(status, &[headers], &body)]).await;
        let forge = ForgeHarness::new().forge_with(options(&server.url));
        let (found, advice) = refusal(forge.mint().await);
        assert!(found.contains(reason), "{status}: {found}");
        assert!(advice.contains(hint), "{status}: {advice}");
        assert!(!found.contains("authorization_request"), "{found}");
        assert_eq!(server.seen().len(), 1, "{status}: asked once");
    }
}

#[tokio::test]
async fn transient_errors_are_unavailable() {
    for (status, headers, body, reason) in [
        (500, "x: y", String::new(), "the runners of acme/web: status 500"),
        (502, "x: y", "<html>".to_owned(), "the runners of acme/web: status 502"),
        (
            503,
            "x-github-request-id: AB",
            said("No server is currently available"),
            "503: No server",
        ),
        (408, "x: y", String::new(), "status 408"),
        (200, "x: y", "<html>".to_owned(), "not JSON (line 1, column 1)"),
        (200, "x: y", r#"{"runners":["#.to_owned(), "cut off"),
        (
            200,
            "x: y",
            r#"{"runners":[{"id":"x","name":"y"}]}"#.to_owned(),
            "does not have the expected form",
        ),
        (200, "x: y", String::new(), "cut off"),
    ] {
        let server = Scripted::with(vec![answer(status, &[headers], &body)]).await;
        let forge = ForgeHarness::new().forge_with(options(&server.url));
        let found = transient(forge.runners().await);
        assert!(found.contains(reason), "{status}: {found}");
        assert_eq!(server.seen().len(), 1, "{status}: asked once");
    }
}

#[tokio::test]
async fn the_hint_names_the_scope_and_the_kind_of_token() {
    let refused = answer(403, &[], &said("Must have admin rights to Repository."));
    let repository = options("http://127.0.0.1").scope;
    let organisation = RunnerScope::Organisation { owner: "acme".to_owned() };
    for (token, scope, hint) in [
        (
            "github_pat_1",
            &repository,
            "a fine-grained token needs Administration: write on acme/web",
        ),
        (
            "github_pat_1",
            &organisation,
            "a fine-grained token needs Self-hosted runners: write on acme",
        ),
        (
            "ghp_1",
            &repository,
            "a classic token needs the scope repo, and its owner the right to administer acme/web",
        ),
        (
            "ghp_1",
            &organisation,
            "a classic token needs the scope admin:org, and its owner the right to administer acme",
        ),
        (
            "ghs_1",
            &repository,
            "an installation token needs Administration: write on acme/web, which a workflow's own GITHUB_TOKEN never has",
        ),
        (
            "0123",
            &repository,
            "a fine-grained token needs Administration: write on acme/web; a classic one the scope repo",
        ),
        (
            "0123",
            &organisation,
            "a fine-grained token needs Self-hosted runners: write on acme; a classic one the scope admin:org",
        ),
    ] {
        let server = Scripted::with(vec![refused.clone()]).await;
        let auth = Auth::Token(Secret::new(token));
        let options = GitHubOptions { auth, scope: scope.clone(), ..options(&server.url) };
        let (_, found) = refusal(ForgeHarness::new().forge_with(options).mint().await);
        assert_eq!(found, hint);
    }
}

#[tokio::test]
async fn without_credentials_no_request_is_sent() {
    let harness = ForgeHarness::new();
    let forge = harness.forge_with(GitHubOptions { auth: Auth::Missing, ..harness.options() });
    let (reason, hint) = refusal(forge.mint().await);
    assert_eq!(reason, "no credentials to manage the runners of acme/web");
    assert!(hint.contains("--github-token"), "{hint}");
    assert!(harness.github.requests().is_empty());
}

#[tokio::test]
async fn only_a_redirect_to_the_same_server_is_followed() {
    let elsewhere = Scripted::with(vec![answer(200, &[], r#"{"runners":[]}"#)]).await;
    let away = format!("location: {}/repositories/1/actions/runners", elsewhere.url);
    let server = Scripted::with(vec![answer(301, &[&away], "{}")]).await;
    let (reason, _) = refusal(ForgeHarness::new().forge_with(options(&server.url)).runners().await);
    assert_eq!(
        reason,
        "GitHub redirects requests for the runners of acme/web elsewhere: status 301"
    );
    assert!(elsewhere.seen().is_empty(), "the other server would have received the token");

    let moved = "location: /api/v3/repositories/1/actions/runners";
    let page = answer(200, &[], r#"{"total_count":0,"runners":[]}"#);
    let server = Scripted::with(vec![answer(301, &[moved], "{}"), page]).await;
    let forge = ForgeHarness::new().forge_with(options(&server.url));
    assert_eq!(forge.runners().await, Ok(vec![]));
    let head = server.seen().remove(1).to_ascii_lowercase();
    assert!(head.contains("/repositories/1/") && head.contains("authorization: bearer"), "{head}");

    let server = Scripted::with(vec![answer(301, &["location: /again"], "{}")]).await;
    let forge = ForgeHarness::new().forge_with(options(&server.url));
    assert!(transient(forge.runners().await).contains("too many redirects"));
}
