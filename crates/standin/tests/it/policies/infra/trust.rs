//! Which workflows may assume the roles of a stack.

use serde_json::Value;

use super::super::account::Account;
use super::super::trust::is_admitted;
use super::stack::Stack;

const AUD: &str = "sts.amazonaws.com";
const MAIN: &str = "refs/heads/main";
const TOPIC: &str = "refs/heads/topic";
const PULL: &str = "refs/pull/7/merge";

/// The roles of workflows.
const WORKFLOWS: [&str; 2] = ["provision", "release"];
/// The roles of the default branch.
const MAINTENANCE: [&str; 3] = ["refresh", "operator", "steward"];
const NONE: [&str; 0] = [];

/// A job of GitHub: subject, ref and repository id of its token, and the roles that it gets.
type Job = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// A repository whose ids the stack does not know.
const CLASSIC: [Job; 17] = [
    ("repo:acme/web:ref:refs/heads/main", MAIN, "2", &WORKFLOWS),
    ("repo:acme/web:ref:refs/heads/topic", TOPIC, "2", &WORKFLOWS),
    ("repo:acme/web:ref:refs/tags/v1", "refs/tags/v1", "2", &NONE),
    ("repo:acme/web:pull_request", PULL, "2", &WORKFLOWS),
    ("repo:acme/web:environment:ondeck-refresh", MAIN, "2", &MAINTENANCE),
    // A branch and a pull request can name the environment; the ref gives them away.
    ("repo:acme/web:environment:ondeck-refresh", TOPIC, "2", &NONE),
    ("repo:acme/web:environment:ondeck-refresh", PULL, "2", &NONE),
    ("repo:acme/web:environment:staging", MAIN, "2", &NONE),
    // An environment whose name looks like another subject.
    ("repo:acme/web:environment:x:ref:refs/heads/main", MAIN, "2", &NONE),
    // A fork, at its own branch, in its own pull request and with the same environment.
    ("repo:mallory/web:ref:refs/heads/main", MAIN, "9", &NONE),
    ("repo:mallory/web:pull_request", PULL, "9", &NONE),
    ("repo:mallory/web:environment:ondeck-refresh", MAIN, "9", &NONE),
    // Other repositories of the owner.
    ("repo:acme/website:ref:refs/heads/main", MAIN, "5", &NONE),
    ("repo:acme/website:environment:ondeck-refresh", MAIN, "5", &NONE),
    ("repo:acme/other:pull_request", PULL, "5", &NONE),
    // The same repository once its subjects have ids, which the stack does not know.
    ("repo:acme@1/web@2:ref:refs/heads/main", MAIN, "2", &NONE),
    ("repo:acme@1/web@2:environment:ondeck-refresh", MAIN, "2", &NONE),
];

/// A repository whose ids the stack knows.
const WITH_IDS: [Job; 13] = [
    ("repo:acme@1/web@2:ref:refs/heads/main", MAIN, "2", &WORKFLOWS),
    ("repo:acme@1/web@2:ref:refs/heads/topic", TOPIC, "2", &WORKFLOWS),
    ("repo:acme@1/web@2:pull_request", PULL, "2", &WORKFLOWS),
    ("repo:acme@1/web@2:environment:ondeck-refresh", MAIN, "2", &MAINTENANCE),
    ("repo:acme@1/web@2:environment:ondeck-refresh", PULL, "2", &NONE),
    // Before the repository's subjects have ids, its tokens have the id in a claim of their own.
    ("repo:acme/web:ref:refs/heads/main", MAIN, "2", &WORKFLOWS),
    ("repo:acme/web:pull_request", PULL, "2", &WORKFLOWS),
    ("repo:acme/web:environment:ondeck-refresh", MAIN, "2", &MAINTENANCE),
    // Another repository under the same name, in both forms.
    ("repo:acme@1/web@3:ref:refs/heads/main", MAIN, "3", &NONE),
    ("repo:acme@4/web@3:environment:ondeck-refresh", MAIN, "3", &NONE),
    ("repo:acme/web:ref:refs/heads/main", MAIN, "3", &NONE),
    ("repo:acme/web:pull_request", PULL, "3", &NONE),
    ("repo:acme/web:environment:ondeck-refresh", MAIN, "3", &NONE),
];

/// The pool of releases: an environment on the default branch, and nothing else.
const RELEASE: [Job; 9] = [
    ("repo:acme/web:environment:release", MAIN, "2", &WORKFLOWS),
    ("repo:acme@1/web@2:environment:release", MAIN, "2", &WORKFLOWS),
    ("repo:acme/web:environment:release", TOPIC, "2", &NONE),
    ("repo:acme@1/web@2:environment:release", PULL, "2", &NONE),
    ("repo:acme/web:environment:Release", MAIN, "2", &NONE),
    ("repo:acme/web:ref:refs/heads/main", MAIN, "2", &NONE),
    ("repo:acme@1/web@2:ref:refs/heads/main", MAIN, "2", &NONE),
    ("repo:acme/web:pull_request", PULL, "2", &NONE),
    ("repo:acme/web:environment:maintenance", "refs/heads/trunk", "2", &MAINTENANCE),
];

/// The subjects of a role that pull requests may not assume.
const NO_PULL_REQUESTS: [Job; 4] = [
    ("repo:acme/web:ref:refs/heads/main", MAIN, "2", &WORKFLOWS),
    ("repo:acme/web:ref:refs/heads/release/1", "refs/heads/release/1", "2", &WORKFLOWS),
    ("repo:acme/web:ref:refs/heads/topic", TOPIC, "2", &NONE),
    ("repo:acme/web:pull_request", PULL, "2", &NONE),
];

const IDS: (&str, &str) = ("RepositoryWithIds", "acme@1/web@2");

/// Parameters of a stack, and the jobs that are tried with its roles.
type Case = (&'static [(&'static str, &'static str)], &'static [Job]);

const CASES: [Case; 4] = [
    (&[], &CLASSIC),
    (&[IDS], &WITH_IDS),
    (
        &[
            IDS,
            ("WorkflowEnvironment", "release"),
            ("WorkflowRefs", MAIN),
            ("MaintenanceEnvironment", "maintenance"),
            ("DefaultBranch", "trunk"),
        ],
        &RELEASE,
    ),
    (
        &[("PullRequests", "false"), ("WorkflowRefs", "refs/heads/main,refs/heads/release/*")],
        &NO_PULL_REQUESTS,
    ),
];

async fn admits(account: &Account, trust: &Value, job: Job, aud: &str) -> bool {
    let (sub, git_ref, repository_id, _) = job;
    let claims = [("sub", sub), ("ref", git_ref), ("repository_id", repository_id), ("aud", aud)];
    is_admitted(account, &trust.to_string(), &claims).await
}

#[tokio::test]
async fn a_workflow_gets_the_roles_that_its_ref_and_environment_allow() {
    let account = Account::new().await;
    for (parameters, jobs) in CASES {
        let stack = Stack::deployed(parameters).await;
        for role in WORKFLOWS.iter().chain(&MAINTENANCE) {
            let trust = stack.trust_of(role).await;
            for job in jobs {
                let may = admits(&account, &trust, *job, AUD).await;
                assert_eq!(may, job.3.contains(role), "{parameters:?} {role}: {job:?}");
                let other = admits(&account, &trust, *job, "https://github.com/acme").await;
                assert!(!other, "a token for another audience: {role}: {job:?}");
            }
        }
        stack.delete().await;
    }
}

/// A row of the tables shows that a condition works only if the job is admitted without it.
#[tokio::test]
async fn each_condition_of_the_trust_policies_is_needed() {
    let account = Account::new().await;
    let stack = Stack::deployed(&[IDS]).await;
    let jobs = [&CLASSIC[..], &WITH_IDS[..]].concat();
    for role in WORKFLOWS.iter().chain(&MAINTENANCE) {
        let trust = stack.trust_of(role).await;
        for (at, statement) in trust["Statement"].as_array().unwrap().iter().enumerate() {
            for (operator, keys) in statement["Condition"].as_object().unwrap() {
                for key in keys.as_object().unwrap().keys() {
                    let mut without = trust.clone();
                    let keys = &mut without["Statement"][at]["Condition"][operator];
                    keys.as_object_mut().unwrap().remove(key);
                    let mut is_needed = false;
                    for job in &jobs {
                        for aud in [AUD, "another"] {
                            is_needed |= admits(&account, &without, *job, aud).await
                                && !admits(&account, &trust, *job, aud).await;
                        }
                    }
                    assert!(is_needed, "{role}: {operator} {key}");
                }
            }
        }
    }
    stack.delete().await;
}

/// The roles of machines are for EC2 alone.
#[tokio::test]
async fn only_ec2_gets_the_role_of_the_machines() {
    let stack = Stack::deployed(&[]).await;
    let trust = stack.trust_of("machine").await;
    let expected = serde_json::json!([{
        "Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
    }]);
    assert_eq!(trust["Statement"], expected);
    stack.delete().await;
}
