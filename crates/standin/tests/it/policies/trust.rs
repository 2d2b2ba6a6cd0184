//! The trust policies in `policies/trust`: which workflow gets which role, and what it can do with it
//! in the pool of another trust level.

use std::path::Path;

use ondeck_standin::{PolicyPool, Role};
use serde_json::Value;

use super::account::Account;
use super::{DENIED, cases, refusal};

const AUD: &str = "sts.amazonaws.com";
const PULL_REF: &str = "refs/pull/7/merge";
const MAIN: &str = "refs/heads/main";

/// A trust policy of the project, for the repository acme/web.
fn trust(name: &str) -> String {
    trust_of(name, "acme/web")
}

fn trust_of(name: &str, repository: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/trust");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    let text = text.replace("REPOSITORY", repository).replace("ENVIRONMENT", "release");
    text.replace("BRANCH", "main")
}

/// The pool that the roles of these tests are for.
fn pool_of(account: &Account) -> PolicyPool {
    PolicyPool {
        pool: account.replaced("POOL"),
        name: account.replaced("NAME"),
        machine_role: "ondeck-machine".to_owned(),
    }
}

/// Whether a job with this subject, ref and audience may assume a role with the trust policy.
async fn admits(account: &Account, policy: &str, sub: &str, git_ref: &str, aud: &str) -> bool {
    is_admitted(account, policy, &[("sub", sub), ("ref", git_ref), ("aud", aud)]).await
}

/// Whether a job with these claims may assume a role with the trust policy.
pub(super) async fn is_admitted(account: &Account, policy: &str, claims: &[(&str, &str)]) -> bool {
    let roles = [Role::Provision, Role::Release];
    let role = account.gateway.add_role("tried", policy, &pool_of(account), &roles);
    let before = account.gateway.denials().len();
    let answered = account.assume(&role, &account.gateway.issue_token(claims)).await;
    let denials = account.gateway.denials().split_off(before);
    match answered {
        Ok(_) => {
            assert!(denials.is_empty(), "{denials:?}");
            true
        }
        Err(answered) => {
            assert_eq!((answered.status, answered.code.as_str()), (403, "AccessDenied"));
            assert_eq!(denials[0].action, "sts:AssumeRoleWithWebIdentity");
            false
        }
    }
}

/// The jobs that may assume the role of each trust policy: subject, ref, and for which policies.
const JOBS: [(&str, &str, &[&str]); 11] = [
    ("repo:acme/web:pull_request", PULL_REF, &["pull-request"]),
    // A pull request can name any environment; its ref gives it away.
    ("repo:acme/web:environment:release", PULL_REF, &[]),
    ("repo:acme/web:environment:release", "refs/heads/topic", &[]),
    ("repo:acme/web:environment:release", MAIN, &["release"]),
    ("repo:acme/web:environment:Release", MAIN, &[]),
    ("repo:acme/web:environment:staging", MAIN, &[]),
    ("repo:acme/web:ref:refs/heads/main", MAIN, &["branch"]),
    ("repo:acme/web:ref:refs/heads/topic", "refs/heads/topic", &[]),
    ("repo:acme/web:ref:refs/tags/main", "refs/tags/main", &[]),
    ("repo:acme/website:pull_request", PULL_REF, &[]),
    ("repo:mallory/web:environment:release", MAIN, &[]),
];

#[tokio::test]
async fn a_workflow_gets_the_role_of_its_trust_level_and_no_other() {
    let account = Account::new().await;
    for (sub, git_ref, admitted) in JOBS {
        for name in ["pull-request", "release", "branch"] {
            let is_admitted = admits(&account, &trust(name), sub, git_ref, AUD).await;
            assert_eq!(is_admitted, admitted.contains(&name), "{name}: {sub} at {git_ref}");
            let audience = "https://github.com/acme";
            let other = admits(&account, &trust(name), sub, git_ref, audience).await;
            assert!(!other, "a token for another audience: {name}: {sub}");
        }
    }
}

#[tokio::test]
async fn a_repository_with_immutable_subjects_is_named_with_its_ids() {
    let account = Account::new().await;
    let sub = "repo:acme@1/web@2:pull_request";
    let named = trust_of("pull-request", "acme@1/web@2");
    assert!(admits(&account, &named, sub, PULL_REF, AUD).await);
    assert!(!admits(&account, &trust("pull-request"), sub, PULL_REF, AUD).await);
    let successor = "repo:acme@1/web@3:pull_request";
    assert!(!admits(&account, &named, successor, PULL_REF, AUD).await, "of a recycled name");
}

/// A row of the table shows that a condition works only if the job is admitted without it.
#[tokio::test]
async fn each_condition_of_a_trust_policy_is_needed() {
    let account = Account::new().await;
    for name in ["pull-request", "release", "branch"] {
        let policy: Value = serde_json::from_str(&trust(name)).unwrap();
        let keys = policy["Statement"][0]["Condition"]["StringEquals"].as_object().unwrap();
        for key in keys.keys() {
            let mut without = policy.clone();
            let condition = &mut without["Statement"][0]["Condition"]["StringEquals"];
            condition.as_object_mut().unwrap().remove(key);
            let mut is_needed = false;
            for (sub, git_ref, admitted) in JOBS {
                for aud in [AUD, "another"] {
                    let may = admitted.contains(&name) && aud == AUD;
                    let text = without.to_string();
                    is_needed |= !may && admits(&account, &text, sub, git_ref, aud).await;
                }
            }
            assert!(is_needed, "{name}: {key}");
        }
    }
}

#[tokio::test]
async fn a_token_that_github_has_not_issued_is_refused() {
    let account = Account::new().await;
    let roles = [Role::Provision];
    let role = account.gateway.add_role("pr", &trust("pull-request"), &pool_of(&account), &roles);
    let answered = account.assume(&role, "forged").await.unwrap_err();
    assert_eq!((answered.status, answered.code.as_str()), (400, "InvalidIdentityToken"));
}

/// The first pool of the account is that of pull requests, the second that of releases.
#[tokio::test]
async fn with_the_role_of_pull_requests_a_job_cannot_touch_the_pool_of_releases() {
    let account = Account::new().await;
    let (policy, roles) = (trust("pull-request"), [Role::Provision, Role::Release]);
    let role = account.gateway.add_role("pr", &policy, &pool_of(&account), &roles);
    let claims = [("sub", "repo:acme/web:pull_request"), ("ref", PULL_REF), ("aud", AUD)];
    let key = account.assume(&role, &account.gateway.issue_token(&claims)).await.unwrap();
    // The role works in its own pool.
    let own = serde_json::json!({"TableName": account.replaced("NAME"),
        "Key": {"PK": {"S": "SETTING"}, "SK": {"S": "x"}}});
    assert_eq!(account.send(&key, "dynamodb:GetItem", &own).await.status, 200);
    account.gateway.assert_nothing_denied();

    let (mut problems, mut services) = (Vec::new(), std::collections::BTreeMap::new());
    for case in cases(DENIED) {
        let (text, role) = (case["request"].to_string(), case["role"].as_str().unwrap());
        let is_about_releases = text.contains("OTHER-") || text.contains("FOREIGN");
        if !is_about_releases || !["provision", "release"].contains(&role) {
            continue;
        }
        let call = case["call"].as_str().unwrap();
        let request: Value = serde_json::from_str(&account.replaced(&text)).unwrap();
        let answered = account.send(&key, call, &request).await;
        if (answered.status, answered.code.as_str()) != refusal(call) {
            problems.push(format!("{case}\n  {answered:?}"));
        }
        *services.entry(call.split_once(':').unwrap().0.to_owned()).or_insert(0) += 1;
    }
    assert!(problems.is_empty(), "not denied:\n{}", problems.join("\n"));
    let counts: Vec<i32> = ["dynamodb", "sqs", "ec2"].map(|service| services[service]).into();
    assert!(counts.iter().all(|count| *count >= 3), "{services:?}");
}
