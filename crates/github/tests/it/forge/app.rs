//! Authentication as a GitHub App.

use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::Forge;
use ondeck_github::{Auth, GitHubForge, GitHubOptions, RunnerScope};
use ondeck_standin::Permission;

use super::harness::{ForgeHarness, refusal, transient};
use super::keys::Keys;

const ISSUED: &str = "/app/installations/*/access_tokens";
const MINUTE: Duration = Duration::from_secs(60);

fn auth(id: &str, key: &Secret) -> Auth {
    Auth::App { id: id.to_owned(), private_key: key.clone() }
}

fn forge(harness: &ForgeHarness, id: &str, key: &Secret) -> GitHubForge {
    harness.forge_with(GitHubOptions { auth: auth(id, key), ..harness.options() })
}

fn installed(permissions: &[Permission]) -> (ForgeHarness, Keys) {
    let (harness, keys) = (ForgeHarness::new(), Keys::generate());
    harness.github.add_app("12345", &keys.public, "acme", permissions);
    (harness, keys)
}

#[tokio::test]
async fn a_token_is_used_until_five_minutes_before_its_expiry() {
    let (harness, keys) = installed(&[Permission::Administration]);
    let forge = forge(&harness, "12345", &keys.private);
    let (minted, listed) = tokio::join!(forge.mint(), forge.runners());
    let credentials = minted.unwrap().unwrap();
    assert!(listed.unwrap().is_empty());
    assert_eq!(
        harness.github.count("POST", ISSUED),
        1,
        "the second caller waits for the first one's token"
    );

    let secrets = harness.secrets();
    let [jwt, token, ..] = &secrets[..] else { panic!("{}", secrets.len()) };
    assert!(jwt.expose().starts_with("ey") && token.expose().starts_with("ghs_"));
    assert!(secrets.contains(&credentials.registration) && secrets.contains(&credentials.removal));

    harness.advance(54 * MINUTE);
    forge.runners().await.unwrap();
    assert_eq!(harness.github.count("POST", ISSUED), 1);
    harness.advance(2 * MINUTE);
    forge.runners().await.unwrap();
    assert_eq!(harness.github.count("POST", ISSUED), 2);
    harness.advance(60 * MINUTE);
    forge.runners().await.unwrap();
    assert_eq!(harness.github.count("POST", ISSUED), 3, "an expired token is replaced");
}

#[tokio::test]
async fn a_revoked_token_is_replaced() {
    let (harness, keys) = installed(&[Permission::Administration]);
    let forge = forge(&harness, "12345", &keys.pkcs8);
    forge.runners().await.unwrap();
    harness.github.revoke(harness.secrets().last().unwrap().expose());
    assert!(transient(forge.runners().await).contains("revoked"));
    forge.runners().await.unwrap();
    assert_eq!(harness.github.count("POST", ISSUED), 2);
}

#[tokio::test]
async fn the_installation_is_looked_up_where_runners_register() {
    let (harness, keys) = installed(&[Permission::OrganisationRunners]);
    let scope = RunnerScope::Organisation { owner: "acme".to_owned() };
    let options = GitHubOptions { auth: auth("12345", &keys.private), scope, ..harness.options() };
    harness.forge_with(options).mint().await.unwrap();
    assert_eq!(harness.github.count("GET", "/orgs/acme/installation"), 1);
}

#[tokio::test]
async fn each_problem_with_an_app_has_its_message() {
    let (harness, keys) = installed(&[]);
    let (reason, hint) = refusal(forge(&harness, "12345", &keys.private).mint().await);
    assert_eq!(
        reason,
        "the GitHub App may not manage the runners of acme/web: Resource not accessible by \
         integration"
    );
    assert_eq!(hint, "the GitHub App needs Administration: write on acme/web");

    let other = Keys::generate();
    for (id, key) in [("12345", &other.private), ("99999", &keys.private)] {
        let (reason, hint) = refusal(forge(&harness, id, key).mint().await);
        assert!(reason.starts_with("GitHub does not accept the id and the key of"), "{reason}");
        assert!(hint.contains("clock"), "{hint}");
    }

    let elsewhere =
        RunnerScope::Repository { owner: "umbrella".to_owned(), name: "web".to_owned() };
    let auth = auth("12345", &keys.private);
    let forge = harness.forge_with(GitHubOptions { auth, scope: elsewhere, ..harness.options() });
    let (reason, hint) = refusal(forge.mint().await);
    assert_eq!(reason, "the GitHub App is not installed on umbrella/web");
    assert!(hint.contains("Administration: write on umbrella/web"), "{hint}");
}

#[test]
fn an_invalid_key_is_rejected_and_not_shown() {
    let (harness, keys) = installed(&[]);
    let body: String = keys.private.expose().lines().nth(1).unwrap().to_owned();
    let cut: String = keys.private.expose().chars().take(400).collect();
    let escaped = keys.private.expose().replace("\r\n", "\\n");
    for text in ["", "hunter2", &body, &cut, &escaped, &keys.public] {
        let auth = auth("12345", &Secret::new(text));
        let failure = harness.try_forge(GitHubOptions { auth, ..harness.options() }).unwrap_err();
        let said = format!("{failure:?}");
        assert!(failure.message.contains("not an RSA key in PEM"), "{text}: {said}");
        assert!(!said.contains(&body[..20]) && !said.contains("hunter2"), "{said}");
        assert_eq!(failure.kind.exit_code(), 2);
    }
    let one_line = Secret::new(keys.private.expose().replace("\r\n", " "));
    forge(&harness, "12345", &one_line);
    let auth = auth(" ", &keys.private);
    let failure = harness.try_forge(GitHubOptions { auth, ..harness.options() }).unwrap_err();
    assert_eq!(failure.message, "github-app-id is empty");
}
