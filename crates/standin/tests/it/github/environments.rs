//! Environments: which refs may use them, and who gets their secrets.

use std::collections::BTreeMap;

use ondeck_standin::emulators::Emulators;
use ondeck_standin::{GitHub, GitHubOptions, Permission};

use super::{Caller, REPOSITORY, TOKEN};

const ENVIRONMENT: &str = "/repos/acme/web/environments/ondeck-refresh";
const LIMITED: &str = r#"{"deployment_branch_policy": {"protected_branches": false, "custom_branch_policies": true}}"#;

fn github() -> (GitHub, Caller) {
    let github = GitHub::start(GitHubOptions::on(&Emulators::running()));
    github.allow(TOKEN, REPOSITORY, &[Permission::Administration]);
    let caller = Caller::new(&github, TOKEN);
    (github, caller)
}

/// Sends a request and returns the status.
async fn status(caller: &Caller, request: &str, body: &str) -> u16 {
    caller.try_ask(request, body).await.unwrap().status
}

#[tokio::test]
async fn only_branches_that_a_policy_names_get_the_secrets() {
    let (github, caller) = github();
    assert_eq!(status(&caller, &format!("GET {ENVIRONMENT}"), "").await, 404);
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}"), LIMITED).await, 200);
    let secret = r#"{"encrypted_value": "c2VhbGVk", "key_id": "1"}"#;
    let key = caller.try_ask(&format!("GET {ENVIRONMENT}/secrets/public-key"), "").await.unwrap();
    assert_eq!(key.json()["key_id"], "1");
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}/secrets/TOKEN"), secret).await, 201);
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}/secrets/TOKEN"), secret).await, 204);

    let start = |reference| github.start_in_environment("Acme/Web", "ondeck-refresh", reference);
    assert!(start("refs/heads/main").is_err(), "before a branch is allowed");
    let policies = format!("POST {ENVIRONMENT}/deployment-branch-policies");
    assert_eq!(status(&caller, &policies, r#"{"name": "main"}"#).await, 200);
    assert_eq!(status(&caller, &policies, r#"{"name": "main"}"#).await, 303);
    let sealed = BTreeMap::from([("TOKEN".to_owned(), "c2VhbGVk".to_owned())]);
    assert_eq!(start("refs/heads/main"), Ok(sealed));
    for reference in
        ["refs/heads/topic", "refs/heads/feature/main", "refs/tags/main", "refs/pull/1/merge"]
    {
        let message = start(reference).unwrap_err();
        assert!(message.contains("is not allowed to deploy to ondeck-refresh"), "{message}");
    }
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}"), LIMITED).await, 200);
    assert!(start("refs/heads/main").is_ok(), "the same limit again keeps the policies");
    assert_eq!(github.violations(), []);
}

#[tokio::test]
async fn an_environment_without_a_limit_is_open_to_all_branches() {
    let (github, caller) = github();
    // A job creates the environment that it names.
    let started = github.start_in_environment(REPOSITORY, "ondeck-refresh", "refs/heads/topic");
    assert_eq!(started, Ok(BTreeMap::new()));
    let shown = caller.try_ask(&format!("GET {ENVIRONMENT}"), "").await.unwrap().json();
    assert!(shown["deployment_branch_policy"].is_null(), "{shown}");
    let policies = format!("POST {ENVIRONMENT}/deployment-branch-policies");
    assert_eq!(status(&caller, &policies, r#"{"name": "main"}"#).await, 404);
    let both = LIMITED.replace("false", "true");
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}"), &both).await, 422);

    // Limited later, it is closed for the branch.
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}"), LIMITED).await, 200);
    let started = github.start_in_environment(REPOSITORY, "ondeck-refresh", "refs/heads/topic");
    assert!(started.is_err());
    let protected = LIMITED
        .replace("\"protected_branches\": false", "\"protected_branches\": true")
        .replace("\"custom_branch_policies\": true", "\"custom_branch_policies\": false");
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}"), &protected).await, 200);
    assert!(github.start_in_environment(REPOSITORY, "ondeck-refresh", "refs/heads/main").is_err());
}

#[tokio::test]
async fn a_token_without_administration_changes_no_limit() {
    let (github, _) = github();
    github.allow("ghp_reader", REPOSITORY, &[Permission::ActionsWrite]);
    let caller = Caller::new(&github, "ghp_reader");
    assert_eq!(status(&caller, &format!("PUT {ENVIRONMENT}"), LIMITED).await, 403);
}
