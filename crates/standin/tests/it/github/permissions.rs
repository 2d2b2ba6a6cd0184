//! Permissions, and the answers to callers that lack them.

use std::time::{Duration, SystemTime};

use ondeck_standin::{GitHub, GitHubOptions, Permission};

use super::{Caller, RUNNERS, TOKEN, github};

#[tokio::test]
async fn a_token_is_taken_for_what_it_is_allowed() {
    let github = GitHub::start(GitHubOptions::default());
    github.allow("admin", "acme/web", &[Permission::Administration]);
    github.allow("reader", "acme/web", &[Permission::ActionsRead]);
    github.allow("organiser", "acme", &[Permission::OrganisationRunners]);
    github.allow("stranger", "other/web", &[Permission::Administration]);
    let of_acme = "/orgs/acme/actions/runners";
    let runs = "/repos/acme/web/actions/runs";
    let cases = [
        ("admin", RUNNERS, 200, ""),
        ("admin", "/repos/ACME/Web/actions/runners", 200, ""),
        ("admin", runs, 403, "Resource not accessible by personal access token"),
        ("admin", of_acme, 403, "Resource not accessible by personal access token"),
        ("reader", runs, 200, ""),
        ("reader", RUNNERS, 403, "Resource not accessible by personal access token"),
        ("organiser", of_acme, 200, ""),
        ("organiser", RUNNERS, 403, "Resource not accessible by personal access token"),
        ("stranger", RUNNERS, 404, "Not Found"),
        ("stranger", of_acme, 404, "Not Found"),
        ("unknown", RUNNERS, 401, "Bad credentials"),
    ];
    for (token, path, status, message) in cases {
        let answer = Caller::new(&github, token).ask(&format!("GET {path}")).await;
        assert_eq!(answer.status, status, "{token} {path}");
        if !message.is_empty() {
            assert_eq!(answer.message(), message, "{token} {path}");
            assert_eq!(answer.json()["status"], status.to_string());
        }
    }
    let anonymous = Caller { token: None, ..Caller::new(&github, "") };
    assert_eq!(anonymous.ask(&format!("GET {RUNNERS}")).await.status, 401);
    github.revoke("admin");
    assert_eq!(Caller::new(&github, "admin").ask(&format!("GET {RUNNERS}")).await.status, 401);
}

#[tokio::test]
async fn the_interface_is_at_both_roots_and_says_what_is_left() {
    let github = github();
    let caller = Caller::new(&github, TOKEN);
    let bare = Caller { root: github.url().to_owned(), ..Caller::new(&github, TOKEN) };
    let first = caller.ask(&format!("GET {RUNNERS}")).await;
    let second = bare.ask(&format!("GET {RUNNERS}")).await;
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(first.header("x-ratelimit-remaining"), "4999");
    assert_eq!(second.header("x-ratelimit-remaining"), "4998");
    assert!(!first.header("x-github-request-id").is_empty());
    let requests = github.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", RUNNERS));
        assert_eq!(request.status, Some(200));
        assert_eq!(request.token.as_deref(), Some("token acme/web"));
    }
    assert_eq!(github.count("GET", "/repos/*/*/actions/runners"), 2);
    assert_eq!(github.count("POST", "/repos/**"), 0);
}

#[tokio::test]
async fn tokens_for_runners_say_when_they_end() {
    let options =
        GitHubOptions { runner_token_life: Duration::from_secs(600), ..GitHubOptions::default() };
    let github = GitHub::start(options);
    github.allow(TOKEN, "acme/web", &[Permission::Administration]);
    github.advance(Duration::from_secs(7_200));
    for kind in ["registration-token", "remove-token"] {
        let answer = Caller::new(&github, TOKEN).ask(&format!("POST {RUNNERS}/{kind}")).await;
        assert_eq!(answer.status, 201);
        assert!(answer.json()["token"].as_str().unwrap().len() > 20);
        let ends = answer.json()["expires_at"].as_str().unwrap().to_owned();
        let ends = humantime::parse_rfc3339(&ends).unwrap();
        let lasts = ends.duration_since(SystemTime::now()).unwrap().as_secs();
        assert!((7_700..=7_800).contains(&lasts), "{lasts}");
    }
}
