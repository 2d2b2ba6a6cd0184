//! The policies for teardown, for the function and for the address of notices, against the requests of
//! `policies/checks/optional.json`. Each is attached beside the policy of refresh, as its guide says.

use ondeck_standin::{Denial, Role};
use serde_json::{Value, json};

use super::account::Account;
use super::{cases, weaker};

const ROWS: &str = include_str!("../../../../../policies/checks/optional.json");

/// The policies that the rows are about.
const POLICIES: [&str; 3] = ["teardown", "function", "notice-webhook"];

fn optional(account: &Account, name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/optional");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    let text = text
        .replace("KEY-ARN", "arn:aws:ssm:REGION:ACCOUNT:parameter/ondeck/key")
        .replace("WEBHOOK-ARN", "arn:aws:ssm:REGION:ACCOUNT:parameter/ondeck/webhook");
    serde_json::from_str(&account.replaced(&text.replace("FUNCTION", "ondeck-function"))).unwrap()
}

/// Lets the access key of refresh have this policy as well, and no other.
fn attach(account: &Account, policy: &Value) {
    let mut both = account.policy_of(Role::Refresh);
    let statements = policy["Statement"].as_array().unwrap();
    both["Statement"].as_array_mut().unwrap().extend(statements.iter().cloned());
    account.gateway.replace_policy(Role::Refresh.name(), &both.to_string());
}

/// The rows of a policy, as requests of refresh.
fn rows(policy: &str) -> Vec<Value> {
    let mut rows = cases(ROWS);
    rows.retain(|row| row["policy"] == policy);
    assert!(rows.len() > 8, "{policy}");
    rows.iter_mut().for_each(|row| row["role"] = json!(Role::Refresh.name()));
    rows
}

async fn denials(account: &Account, row: &Value) -> Vec<Denial> {
    let before = account.gateway.denials().len();
    let answered = account.perform(row).await;
    let denials = account.gateway.denials().split_off(before);
    assert_eq!(
        denials.is_empty(),
        !answered.code.contains("Denied") && answered.code != "UnauthorizedOperation",
        "{row}\n{answered:?}"
    );
    denials
}

#[tokio::test]
async fn each_optional_policy_allows_and_denies_what_its_rows_say() {
    for name in POLICIES {
        let account = Account::new().await;
        attach(&account, &optional(&account, name));
        for row in rows(name) {
            let denied: Vec<String> =
                denials(&account, &row).await.into_iter().map(|denial| denial.action).collect();
            let expected: Vec<&str> = row["denied"].as_str().into_iter().collect();
            assert_eq!(denied, expected, "{row}");
        }
    }
}

#[tokio::test]
async fn refresh_is_denied_what_only_an_optional_policy_allows() {
    let account = Account::new().await;
    let mut denied = 0;
    for row in POLICIES.into_iter().flat_map(rows).filter(|row| row["denied"].is_null()) {
        denied += denials(&account, &row).await.len();
    }
    // Of the rows that are allowed, the settings and the queues of machines are refresh's own.
    let allowed = cases(ROWS).iter().filter(|row| row["denied"].is_null()).count();
    assert_eq!(denied, allowed - 2);
}

#[tokio::test]
async fn each_restriction_of_an_optional_policy_is_needed_to_deny_something() {
    let mut unneeded = Vec::new();
    for name in POLICIES {
        let account = Account::new().await;
        for (restriction, policy) in weaker(&optional(&account, name)) {
            attach(&account, &policy);
            let mut is_needed = false;
            for row in rows(name).iter().filter(|row| !row["denied"].is_null()) {
                is_needed |= denials(&account, row).await.is_empty();
            }
            if !is_needed {
                unneeded.push(format!("{name}: {restriction}"));
            }
        }
    }
    assert!(unneeded.is_empty(), "no row notices if these are left out:\n{}", unneeded.join("\n"));
}
