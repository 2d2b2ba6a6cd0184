//! Requests and answers are checked against GitHub's OpenAPI description.

use ondeck_standin::emulators::Emulators;
use ondeck_standin::{APP_PUBLIC_KEY, GitHub, GitHubOptions, GitHubRunner, Permission};

use super::{Caller, REPOSITORY, RUNNERS, TOKEN};

fn github() -> GitHub {
    let github = GitHub::start(GitHubOptions::on(&Emulators::running()));
    let all =
        [Permission::Administration, Permission::ActionsRead, Permission::OrganisationRunners];
    github.allow(TOKEN, "acme", &all);
    github.add_app("12345", APP_PUBLIC_KEY, "acme", &all);
    github
}

#[tokio::test]
async fn every_described_request_is_valid_and_answered_as_described() {
    let github = github();
    let runner = github.add_runner(GitHubRunner::new(REPOSITORY, "one"));
    github.queue_job(REPOSITORY, "1", &["1"], "true");
    github.publish_runner("2.336.0", "a package");
    let caller = Caller::new(&github, TOKEN);
    for request in [
        "GET /repos/acme/web/actions/runs?status=queued&per_page=100&page=1",
        "GET /repos/acme/web/actions/runs/1/jobs?filter=latest&per_page=100",
        "GET /repos/actions/runner/releases/latest",
        "GET /repos/actions/runner/releases/tags/v2.336.0",
        "GET /orgs/acme/actions/runners?name=one",
        "POST /orgs/acme/actions/runners/registration-token",
        "POST /orgs/acme/actions/runners/remove-token",
        &format!("GET {RUNNERS}?name=one&per_page=100"),
        &format!("GET {RUNNERS}/downloads"),
        &format!("GET {RUNNERS}/{runner}"),
        &format!("POST {RUNNERS}/registration-token"),
        &format!("POST {RUNNERS}/remove-token"),
        &format!("DELETE {RUNNERS}/{runner}"),
    ] {
        let answer = caller.ask(request).await;
        assert!((200..300).contains(&answer.status), "{request}: {answer:?}");
    }
    let app = Caller::new(&github, &super::apps::valid_jwt());
    let id = app.ask("GET /repos/acme/web/installation").await.json()["id"].clone();
    let body = r#"{"repositories":["web"],"permissions":{"administration":"write"}}"#;
    let path = format!("POST /app/installations/{id}/access_tokens");
    assert_eq!(app.try_ask(&path, body).await.unwrap().status, 201);
    github.assert_requests_valid();
}

#[tokio::test]
async fn undescribed_requests_are_reported() {
    let github = github();
    let caller = Caller::new(&github, TOKEN);
    let app = "POST /app/installations/1/access_tokens";
    let cases = [
        ("GET /repos/acme/web/actions/runer", "", "no such operation"),
        ("PUT /repos/acme/web/actions/runners", "", "no such operation"),
        (&format!("GET {RUNNERS}?limit=3"), "", "no such parameter: limit"),
        (&format!("GET {RUNNERS}?per_page=many"), "", "per_page: should be integer"),
        ("GET /repos/acme/web/actions/runs?status=idle", "", "status: not among the choices"),
        (&format!("POST {RUNNERS}/remove-token"), r#"{"a":1}"#, "there should be no body"),
        (app, r#"{"repos":["web"]}"#, "body.repos: no such field"),
        (app, r#"{"repositories":"web"}"#, "body.repositories: should be array"),
        (app, r#"{"permissions":{"actions":"admin"}}"#, "not among the choices"),
        (app, "{", "the body is not JSON"),
    ];
    for (number, (request, body, problem)) in cases.into_iter().enumerate() {
        caller.try_ask(request, body).await.unwrap();
        let violations = github.violations();
        assert_eq!(violations.len(), number + 1, "{request}: {violations:?}");
        assert!(violations[number].problem.contains(problem), "{violations:?}");
    }
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| github.assert_requests_valid()));
    assert!(panicked.is_err());
}
