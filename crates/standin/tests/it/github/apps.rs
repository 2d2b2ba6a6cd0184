//! Apps: their JWTs, installations and installation tokens.

use std::time::{Duration, SystemTime};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use ondeck_standin::{APP_PRIVATE_KEY, APP_PUBLIC_KEY, GitHub, GitHubOptions, Permission};
use serde_json::json;

use super::{Caller, RUNNERS};

const OTHER_KEY: &str = include_str!("other.pem");
const INSTALLATION: &str = "GET /repos/acme/web/installation";

/// A JWT of an App, issued and expiring at these offsets from now in seconds.
fn jwt(key: &str, app: &str, from: i64, to: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let now = i64::try_from(now).unwrap();
    let claims = json!({ "iss": app, "iat": now + from, "exp": now + to });
    let key = EncodingKey::from_rsa_pem(key.as_bytes()).unwrap();
    jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &key).unwrap()
}

/// A JWT that GitHub accepts.
pub(super) fn valid_jwt() -> String {
    jwt(APP_PRIVATE_KEY, "12345", -60, 540)
}

fn github() -> GitHub {
    let github = GitHub::start(GitHubOptions::default());
    github.add_app("12345", APP_PUBLIC_KEY, "acme", &[Permission::Administration]);
    github
}

#[tokio::test]
async fn a_jwt_is_accepted_if_it_is_signed_and_in_time() {
    let github = github();
    let cases = [
        (jwt(APP_PRIVATE_KEY, "12345", -60, 540), 200, ""),
        (jwt(OTHER_KEY, "12345", -60, 540), 401, "A JSON web token could not be decoded"),
        (jwt(APP_PRIVATE_KEY, "999", -60, 540), 404, "Integration not found"),
        (jwt(APP_PRIVATE_KEY, "12345", 300, 540), 401, "'Issued at' claim"),
        (jwt(APP_PRIVATE_KEY, "12345", -600, -5), 401, "'Expiration time' claim"),
        (jwt(APP_PRIVATE_KEY, "12345", -60, 900), 401, "too far in the future"),
        ("ghp_something".to_owned(), 401, "A JSON web token could not be decoded"),
    ];
    for (word, status, message) in cases {
        let answer = Caller::new(&github, &word).ask(INSTALLATION).await;
        assert_eq!(answer.status, status, "{message}");
        if status != 200 {
            assert!(answer.message().contains(message), "{}", answer.message());
        }
    }
    let known: Vec<_> = github.requests().into_iter().map(|request| request.token).collect();
    assert_eq!(known[0].as_deref(), Some("app 12345"));
    assert!(known[1..].iter().all(Option::is_none), "{known:?}");
}

#[tokio::test]
async fn an_installation_gives_tokens_that_end() {
    let github = github();
    let app = Caller::new(&github, &jwt(APP_PRIVATE_KEY, "12345", -60, 540));
    let elsewhere = app.ask("GET /repos/other/web/installation").await;
    assert_eq!(elsewhere.status, 404);
    let id = app.ask("GET /orgs/acme/installation").await.json()["id"].as_u64().unwrap();
    let made = app.ask(&format!("POST /app/installations/{id}/access_tokens")).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json()["permissions"], json!({ "administration": "write" }));
    let token = made.json()["token"].as_str().unwrap().to_owned();
    let caller = Caller::new(&github, &token);
    assert_eq!(caller.ask(&format!("GET {RUNNERS}")).await.status, 200);
    let refused = caller.ask("GET /repos/acme/web/actions/runs").await;
    assert_eq!(refused.message(), "Resource not accessible by integration");
    assert_eq!(refused.header("x-accepted-github-permissions"), "actions=read");
    github.advance(Duration::from_secs(3_601));
    let expired = caller.ask(&format!("GET {RUNNERS}")).await;
    assert_eq!((expired.status, expired.message().as_str()), (401, "Bad credentials"));
}

#[tokio::test]
async fn a_token_can_be_made_for_less_and_not_for_more() {
    let github = github();
    let app = Caller::new(&github, &jwt(APP_PRIVATE_KEY, "12345", -60, 540));
    let id = app.ask("GET /orgs/acme/installation").await.json()["id"].clone();
    let path = format!("POST /app/installations/{id}/access_tokens");
    let only = r#"{"repositories":["web"],"permissions":{"administration":"read"}}"#;
    let made = app.try_ask(&path, only).await.unwrap();
    assert_eq!(made.json()["repository_selection"], "selected");
    let token = made.json()["token"].as_str().unwrap().to_owned();
    let caller = Caller::new(&github, &token);
    assert_eq!(caller.ask(&format!("GET {RUNNERS}")).await.status, 200);
    assert_eq!(caller.ask("GET /repos/acme/api/actions/runners").await.status, 404);
    let more = r#"{"permissions":{"actions":"read"}}"#;
    assert_eq!(app.try_ask(&path, more).await.unwrap().status, 422);
    let unknown = "POST /app/installations/999/access_tokens";
    assert_eq!(app.ask(unknown).await.status, 404);
}
