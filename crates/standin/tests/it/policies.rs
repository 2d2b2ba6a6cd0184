//! The policies in `policies/` against requests that each role may and may not make, as tables in
//! `policies/checks`. Each request is sent to the gateway as the role.

mod account;
mod infra;
mod optional;
mod trust;

use std::collections::{BTreeMap, BTreeSet};

use ondeck_standin::{Denial, IamDecision, Role};
use serde_json::{Value, json};

use account::Account;

const DENIED: &str = include_str!("../../../../policies/checks/denied.json");
const ALLOWED: &str = include_str!("../../../../policies/checks/allowed.json");

fn cases(table: &str) -> Vec<Value> {
    serde_json::from_str(table).unwrap()
}

/// How each service refuses.
fn refusal(call: &str) -> (u16, &'static str) {
    match call.split_once(':').unwrap().0 {
        "dynamodb" => (400, "AccessDeniedException"),
        "sqs" | "iam" => (403, "AccessDenied"),
        _ => (403, "UnauthorizedOperation"),
    }
}

#[tokio::test]
async fn each_role_is_denied_what_only_others_may_do() {
    let account = Account::new().await;
    let mut problems = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases(DENIED) {
        let before = account.gateway.denials().len();
        let answered = account.perform(&case).await;
        let denials: Vec<Denial> = account.gateway.denials().split_off(before);
        let action = case["denied"].as_str().unwrap();
        let refused = refusal(case["call"].as_str().unwrap());
        let is_denied = matches!(&denials[..], [denial] if denial.action == action);
        if !is_denied || (answered.status, answered.code.as_str()) != refused {
            problems.push(format!("{case}\n  {answered:?}\n  {denials:?}"));
        }
        *counts.entry(case["role"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(problems.is_empty(), "not denied:\n{}", problems.join("\n"));
    assert!(counts.values().sum::<usize>() >= 60 && counts.len() == 6, "{counts:?}");
}

#[tokio::test]
async fn each_role_is_allowed_what_its_mode_needs() {
    let account = Account::new().await;
    for case in cases(ALLOWED) {
        let answered = account.perform(&case).await;
        let denials = account.gateway.denials();
        assert!(denials.is_empty(), "{case}\n  {}", denials[0]);
        // The queue does not exist, and a condition may not hold; but nothing is a malformed call.
        let fits = matches!(
            answered.code.as_str(),
            "" | "DryRunOperation" | "QueueDoesNotExist" | "ValidationException"
        );
        assert!(fits || answered.code.contains("NonExistentQueue"), "{case}\n  {answered:?}");
    }
}

/// A policy with one restriction less, for each restriction. They are without statements that deny,
/// which restrict what other policies of a role may allow.
///
/// A launch is asked about for each of its resources, so several statements have the same condition
/// and one is enough to deny it. For EC2 a condition is left out of all statements at once.
fn weaker(policy: &Value) -> Vec<(String, Value)> {
    let mut policy = policy.clone();
    policy["Statement"].as_array_mut().unwrap().retain(|it| it["Effect"] == "Allow");
    let statements = policy["Statement"].as_array().unwrap();
    let conditions = |statement: &Value| -> Vec<(String, String)> {
        let condition = statement["Condition"].as_object().cloned().unwrap_or_default();
        let keys = |(operator, keys): (String, Value)| {
            let keys: Vec<String> = keys.as_object().unwrap().keys().cloned().collect();
            keys.into_iter().map(move |key| (operator.clone(), key))
        };
        let all = condition.into_iter().flat_map(keys);
        // No request of an allowed action lacks a leading key, and only EC2 is passed a role here.
        all.filter(|(operator, key)| operator != "Null" && key != "iam:PassedToService").collect()
    };
    let mut all = Vec::new();
    let mut of_ec2 = BTreeSet::new();
    for (at, statement) in statements.iter().enumerate() {
        let name = statement["Sid"].as_str().unwrap();
        if statement["Action"].to_string().contains("\"ec2:") {
            of_ec2.extend(conditions(statement));
            continue;
        }
        // Some actions know no resources.
        if statement["Resource"] != "*" {
            let mut anywhere = policy.clone();
            anywhere["Statement"][at]["Resource"] = "*".into();
            all.push((format!("{name}: Resource"), anywhere));
        }
        for (operator, key) in conditions(statement) {
            let mut without = policy.clone();
            let keys = &mut without["Statement"][at]["Condition"][&operator];
            keys.as_object_mut().unwrap().remove(&key);
            all.push((format!("{name}: {operator} {key}"), without));
        }
    }
    for (operator, key) in of_ec2 {
        let mut without = policy.clone();
        for statement in without["Statement"].as_array_mut().unwrap() {
            let Some(condition) = statement.get_mut("Condition") else { continue };
            if let Some(keys) = condition.get_mut(&operator).and_then(Value::as_object_mut) {
                keys.remove(&key);
            }
            // Nothing is the template's in a launch without one, so either key denies that.
            if key == "ec2:LaunchTemplate" {
                condition.as_object_mut().unwrap().remove("Bool");
            }
        }
        all.push((format!("EC2: {operator} {key}"), without));
    }
    all
}

/// A row of the table shows that a restriction works only if it is not denied without it.
#[tokio::test]
async fn each_restriction_is_needed_to_deny_something() {
    let account = Account::new().await;
    let mut unneeded = Vec::new();
    let of_machines = [Role::LocalMachine];
    for role in Role::ALL.into_iter().filter(|role| !of_machines.contains(role)) {
        let key = account.key_of(role.name());
        let ours = |case: &Value| case["role"] == role.name();
        let cases: Vec<Value> = cases(DENIED).into_iter().filter(ours).collect();
        for (restriction, policy) in weaker(&account.policy_of(role)) {
            account.gateway.replace_policy(&key, &policy.to_string());
            let mut is_needed = false;
            for case in &cases {
                let before = account.gateway.denials().len();
                account.perform(case).await;
                is_needed |= account.gateway.denials().len() == before;
                if is_needed {
                    break;
                }
            }
            if !is_needed {
                unneeded.push(format!("{role}: {restriction}"));
            }
        }
    }
    assert!(unneeded.is_empty(), "no row notices if these are left out:\n{}", unneeded.join("\n"));
}

/// Writes what IAM was asked for each request of the tables, and what the gateway answered, into
/// the file that `ONDECK_TEST_DECISIONS` names. `cargo xtask policies` compares the answers with
/// those of another implementation.
#[tokio::test]
async fn the_decisions_are_written_for_another_judge() {
    let account = Account::new().await;
    let mut asked = Vec::new();
    for case in cases(DENIED).into_iter().chain(cases(ALLOWED)) {
        let before = account.gateway.decisions().len();
        account.perform(&case).await;
        for it in account.gateway.decisions().split_off(before) {
            let keys: BTreeMap<String, Vec<String>> = it.keys.into_iter().collect();
            asked.push(json!({
                "role": case["role"], "why": case["why"], "action": it.action,
                "resource": it.resource, "keys": keys, "allowed": it.allowed,
            }));
        }
    }
    let is = |allowed: bool| asked.iter().filter(|it| it["allowed"] == allowed).count();
    assert_eq!(is(false), cases(DENIED).len());
    assert!(is(true) > cases(ALLOWED).len(), "most calls ask more than once");
    if let Some(file) = std::env::var_os("ONDECK_TEST_DECISIONS") {
        let policy = |role: Role| (role.name().to_owned(), account.policy_of(role));
        let policies: BTreeMap<String, Value> = Role::ALL.into_iter().map(policy).collect();
        let all = json!({ "policies": policies, "asked": asked });
        std::fs::write(file, all.to_string()).unwrap();
    }
}

/// The list is what the Service Authorization Reference has for a launch from a template with a
/// security group and an instance profile.
#[tokio::test]
async fn a_fleet_asks_about_all_that_it_creates_and_uses() {
    let account = Account::new().await;
    let is_fleet = |case: &Value| case["role"] == "provision" && case["call"] == "ec2:CreateFleet";
    let case = cases(ALLOWED).into_iter().find(is_fleet).unwrap();
    let before = account.gateway.decisions().len();
    account.perform(&case).await;
    let decisions = account.gateway.decisions().split_off(before);
    let key = |it: &IamDecision, key: &str| {
        let found = it.keys.iter().find(|(name, _)| name == key);
        found.map_or(String::new(), |(_, values)| format!(" {}", values.join("+")))
    };
    let short = |it: &IamDecision| {
        let kind = it.resource.rsplit(':').next().unwrap().split('/').next().unwrap();
        let create = key(it, "ec2:CreateAction");
        let is_templates = key(it, "ec2:IsLaunchTemplateResource");
        format!("{} {kind}{create}{is_templates}", it.action)
    };
    let mut asked: Vec<String> = decisions.iter().map(short).collect();
    asked.sort();
    assert_eq!(
        asked,
        [
            "ec2:CreateFleet fleet",
            "ec2:CreateFleet image",
            "ec2:CreateFleet instance",
            "ec2:CreateFleet launch-template",
            "ec2:CreateFleet subnet",
            "ec2:CreateFleet volume",
            "ec2:CreateTags fleet CreateFleet",
            "ec2:CreateTags instance CreateFleet",
            "ec2:CreateTags instance RunInstances",
            "ec2:CreateTags volume CreateFleet",
            "ec2:CreateTags volume RunInstances",
            "ec2:RunInstances image true",
            "ec2:RunInstances instance false",
            "ec2:RunInstances launch-template true",
            "ec2:RunInstances network-interface true",
            "ec2:RunInstances security-group true",
            "ec2:RunInstances spot-instances-request true",
            "ec2:RunInstances subnet false",
            "ec2:RunInstances volume true",
            "iam:PassRole role",
        ]
    );
    let id = account.replaced("TEMPLATE");
    let template = format!(" arn:aws:ec2:us-east-1:000000000000:launch-template/{id}");
    for it in decisions.iter().filter(|it| it.action == "ec2:RunInstances") {
        assert_eq!(key(it, "ec2:LaunchTemplate"), template, "{it:?}");
    }
}

#[tokio::test]
async fn an_unknown_access_key_is_refused_as_each_service_does() {
    let account = Account::new().await;
    for (call, request, status, code) in [
        ("dynamodb:ListTables", json!({}), 400, "UnrecognizedClientException"),
        ("sqs:ListQueues", json!({}), 403, "InvalidClientTokenId"),
        ("ec2:DescribeInstances", json!({}), 401, "AuthFailure"),
    ] {
        for key in ["stolen", "ASIAI00000000000000000"] {
            let answered = account.send(key, call, &request).await;
            assert_eq!((answered.status, answered.code.as_str()), (status, code), "{call}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_tells_whether_a_call_would_be_allowed() {
    let account = Account::new().await;
    let id = account.replaced("SELF");
    let request = json!({ "InstanceId.1": id, "DryRun": "true" });
    let release = account.send("release", "ec2:TerminateInstances", &request).await;
    assert_eq!((release.status, release.code.as_str()), (412, "DryRunOperation"));
    let operator = account.send("operator", "ec2:TerminateInstances", &request).await;
    assert_eq!((operator.status, operator.code.as_str()), (403, "UnauthorizedOperation"));
    assert!(account.gateway.ec2().machine(&id).unwrap().state.is_up(), "it was not terminated");
}
