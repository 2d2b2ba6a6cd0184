//! A GitHub App, and the tokens that it has made for itself.

use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::Forge;
use ondeck_github::{Auth, GitHubForge, GitHubOptions, Scope};
use ondeck_standin::Permission;

use super::keys::Keys;
use super::site::{Site, passing, refusal};

const MADE: &str = "/app/installations/*/access_tokens";
const MINUTE: Duration = Duration::from_secs(60);

fn auth(id: &str, key: &Secret) -> Auth {
    Auth::App { id: id.to_owned(), private_key: key.clone() }
}

fn forge(site: &Site, id: &str, key: &Secret) -> GitHubForge {
    site.forge_with(GitHubOptions { auth: auth(id, key), ..site.options() })
}

fn installed(permissions: &[Permission]) -> (Site, Keys) {
    let (site, keys) = (Site::new(), Keys::generate());
    site.github.add_app("12345", &keys.public, "acme", permissions);
    (site, keys)
}

#[tokio::test]
async fn one_token_serves_until_five_minutes_before_its_end() {
    let (site, keys) = installed(&[Permission::Administration]);
    let forge = forge(&site, "12345", &keys.private);
    let (minted, listed) = tokio::join!(forge.mint(), forge.runners());
    let credentials = minted.unwrap().unwrap();
    assert!(listed.unwrap().is_empty());
    assert_eq!(site.github.count("POST", MADE), 1, "whoever comes second waits for it");

    let secrets = site.secrets();
    let [jwt, token, ..] = &secrets[..] else { panic!("{}", secrets.len()) };
    assert!(jwt.expose().starts_with("ey") && token.expose().starts_with("ghs_"));
    assert!(secrets.contains(&credentials.registration) && secrets.contains(&credentials.removal));

    site.advance(54 * MINUTE);
    forge.runners().await.unwrap();
    assert_eq!(site.github.count("POST", MADE), 1);
    site.advance(2 * MINUTE);
    forge.runners().await.unwrap();
    assert_eq!(site.github.count("POST", MADE), 2);
    site.advance(60 * MINUTE);
    forge.runners().await.unwrap();
    assert_eq!(site.github.count("POST", MADE), 3, "long after it has expired");
}

#[tokio::test]
async fn a_token_that_was_withdrawn_is_replaced() {
    let (site, keys) = installed(&[Permission::Administration]);
    let forge = forge(&site, "12345", &keys.pkcs8);
    forge.runners().await.unwrap();
    site.github.revoke(site.secrets().last().unwrap().expose());
    assert!(passing(forge.runners().await).contains("withdrawn"));
    forge.runners().await.unwrap();
    assert_eq!(site.github.count("POST", MADE), 2);
}

#[tokio::test]
async fn it_is_looked_for_where_runners_register() {
    let (site, keys) = installed(&[Permission::OrganisationRunners]);
    let scope = Scope::Organisation { owner: "acme".to_owned() };
    let options = GitHubOptions { auth: auth("12345", &keys.private), scope, ..site.options() };
    site.forge_with(options).mint().await.unwrap();
    assert_eq!(site.github.count("GET", "/orgs/acme/installation"), 1);
}

#[tokio::test]
async fn what_is_wrong_with_an_app_is_said() {
    let (site, keys) = installed(&[]);
    let (reason, hint) = refusal(forge(&site, "12345", &keys.private).mint().await);
    assert_eq!(
        reason,
        "the GitHub App may not manage the runners of acme/web: Resource not accessible by \
         integration"
    );
    assert_eq!(hint, "the GitHub App needs Administration: write on acme/web");

    let other = Keys::generate();
    for (id, key) in [("12345", &other.private), ("99999", &keys.private)] {
        let (reason, hint) = refusal(forge(&site, id, key).mint().await);
        assert!(reason.starts_with("GitHub does not accept the id and the key of"), "{reason}");
        assert!(hint.contains("clock"), "{hint}");
    }

    let elsewhere = Scope::Repository { owner: "umbrella".to_owned(), name: "web".to_owned() };
    let auth = auth("12345", &keys.private);
    let forge = site.forge_with(GitHubOptions { auth, scope: elsewhere, ..site.options() });
    let (reason, hint) = refusal(forge.mint().await);
    assert_eq!(reason, "the GitHub App is not installed on umbrella/web");
    assert!(hint.contains("Administration: write on umbrella/web"), "{hint}");
}

#[test]
fn what_is_no_key_is_refused_and_not_shown() {
    let (site, keys) = installed(&[]);
    let body: String = keys.private.expose().lines().nth(1).unwrap().to_owned();
    let cut: String = keys.private.expose().chars().take(400).collect();
    let escaped = keys.private.expose().replace("\r\n", "\\n");
    for text in ["", "hunter2", &body, &cut, &escaped, &keys.public] {
        let auth = auth("12345", &Secret::new(text));
        let failure = site.try_forge(GitHubOptions { auth, ..site.options() }).unwrap_err();
        let said = format!("{failure:?}");
        assert!(failure.message.contains("not an RSA key in PEM"), "{text}: {said}");
        assert!(!said.contains(&body[..20]) && !said.contains("hunter2"), "{said}");
        assert_eq!(failure.kind.exit_code(), 2);
    }
    let one_line = Secret::new(keys.private.expose().replace("\r\n", " "));
    forge(&site, "12345", &one_line);
    let auth = auth(" ", &keys.private);
    let failure = site.try_forge(GitHubOptions { auth, ..site.options() }).unwrap_err();
    assert_eq!(failure.message, "github-app-id is empty");
}
