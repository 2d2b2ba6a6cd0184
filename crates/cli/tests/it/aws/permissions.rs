//! `ondeck permissions check` against the gateway, which enforces the policies.

use std::collections::BTreeSet;
use std::path::Path;

use ondeck_standin::Role;
use serde_json::{Value, json};

use super::direct_requests;
use super::harness::{AwsHarness, LAUNCH};
use crate::harness::{Background, Done, Driven};
use crate::json::assert_valid;

const ROLES: [&str; 6] = ["refresh", "provision", "release", "operator", "steward", "machine"];

/// The calls that have no form without effect.
const WITHOUT_HARMLESS_FORM: [&str; 5] = [
    "dynamodb:CreateTable",
    "dynamodb:DeleteTable",
    "dynamodb:ExecuteStatement",
    "dynamodb:UpdateTimeToLive",
    "sqs:CreateQueue",
];

/// A copy of the project's policies, changed by `edit`, which gets the name and the text of each.
pub(crate) fn policies(folder: &Path, edit: impl Fn(&str, Value) -> Value) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    for role in Role::ALL {
        let file = format!("{role}.json");
        let text = std::fs::read_to_string(source.join(&file)).unwrap();
        let policy = edit(role.name(), serde_json::from_str(&text).unwrap());
        std::fs::write(folder.join(file), policy.to_string()).unwrap();
    }
}

/// The statement of a policy by its name.
pub(crate) fn statement<'a>(policy: &'a mut Value, name: &str) -> &'a mut Value {
    let statements = policy["Statement"].as_array_mut().unwrap();
    statements.iter_mut().find(|statement| statement["Sid"] == name).unwrap()
}

pub(crate) fn remove_statement(policy: &mut Value, name: &str) {
    let statements = policy["Statement"].as_array_mut().unwrap();
    let count = statements.len();
    statements.retain(|statement| statement["Sid"] != name);
    assert_eq!(statements.len(), count - 1, "{name}");
}

/// Runs the check as `role` with the access key `key`.
fn check(harness: &AwsHarness, key: &str, role: &str, inputs: &[&str]) -> Done {
    let arguments = [&["permissions", "check", "--role", role], inputs].concat();
    let mut command = harness.command(&arguments);
    command.env("AWS_ACCESS_KEY_ID", key);
    Background::start(&mut command).finish()
}

/// Runs the check on a machine, with what the machine's metadata service gives it.
fn check_on_machine(harness: &AwsHarness, machine: &str) -> Done {
    let metadata = harness.gateway.ec2().machine(machine).unwrap().metadata.unwrap();
    let keys = direct_requests::machine_keys(&metadata, "ondeck-machine");
    let mut command = harness.command(&["permissions", "check", "--role=machine", "--json"]);
    command
        .env("AWS_ACCESS_KEY_ID", keys["AccessKeyId"].as_str().unwrap())
        .env("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"].as_str().unwrap())
        .env("AWS_SESSION_TOKEN", keys["Token"].as_str().unwrap())
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata)
        .env_remove("AWS_EC2_METADATA_DISABLED");
    Background::start(&mut command).finish()
}

/// How many rows the tables have for a role.
fn rows_of(role: &str) -> usize {
    let tables = [
        include_str!("../../../../../policies/checks/denied.json"),
        include_str!("../../../../../policies/checks/allowed.json"),
    ];
    let rows = tables.map(|table| serde_json::from_str::<Vec<Value>>(table).unwrap()).concat();
    rows.iter().filter(|row| row["role"] == role).count()
}

fn checks<'a>(answer: &'a Value, result: &str) -> Vec<&'a Value> {
    let checks = answer["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["result"] == result).collect()
}

/// All that the pools of the account have. Heartbeats are left out, which agents go on writing, and
/// so are what receiving a message changes and the messages that wake agents.
fn inventory(harness: &AwsHarness) -> Value {
    let table = harness.table();
    let mut items = direct_requests::items(&table);
    for item in &mut items {
        if item["PK"]["S"].as_str().unwrap().starts_with("AGENT#") {
            let attributes = item.as_object_mut().unwrap();
            for changing in
                ["heartbeatAt", "heartbeatPeriodMs", "registrationMs", "readyClaimMs", "busy"]
            {
                attributes.remove(changing);
            }
            attributes.remove("ttl");
        }
    }
    let messages = direct_requests::messages(&table);
    let messages: BTreeSet<String> = messages
        .iter()
        .map(|message| format!("{} {}", message["MessageId"], message["Body"]))
        .collect();
    let machines: Vec<String> = harness
        .gateway
        .ec2()
        .machines()
        .iter()
        .map(|machine| format!("{} {:?} {:?}", machine.id, machine.state, machine.tags))
        .collect();
    let queues = direct_requests::queues(&table).into_iter().map(|(url, attributes)| {
        let is_of_machine = direct_requests::is_of_machine(&url);
        (url, if is_of_machine { Value::Null } else { attributes })
    });
    let queues: Vec<(String, Value)> = queues.collect();
    json!({
        "tables": direct_requests::tables(&table),
        "items": items,
        "queues": queues,
        "messages": messages,
        "machines": machines,
        "templates": harness.gateway.ec2().launch_templates(),
    })
}

#[test]
fn each_role_has_the_permissions_that_its_policy_states() {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |_, policy| policy);
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&["--idle-time-sec=600"]);
    let other = format!("{}-other", harness.pool());
    harness.grant("other", &other, &[Role::Refresh]);
    let mut refresh = harness.command(&[&["refresh"], &LAUNCH[..]].concat());
    refresh.env("ONDECK_POOL", &other).env("AWS_ACCESS_KEY_ID", "other");
    Background::start(&mut refresh).finish().succeeded();
    let machines = harness.warm_up(2);
    let before = inventory(&harness);
    for role in ROLES {
        let done = match role {
            "machine" => check_on_machine(&harness, &machines[0]),
            role => check(&harness, role, role, &["--json", "--other-pool", &other]),
        };
        assert!(done.stderr.is_empty(), "{role}: {}", done.stderr);
        let done = done.succeeded();
        assert_valid("permissions", &done);
        let answer = done.json();
        assert_eq!(answer["checks"].as_array().unwrap().len(), rows_of(role), "{role}");
        for skipped in checks(&answer, "skipped") {
            let call = skipped["call"].as_str().unwrap();
            let by_tag = skipped["answer"] == "the queue of a machine decides by its tag";
            assert!(WITHOUT_HARMLESS_FORM.contains(&call) || by_tag, "{role}: {skipped}");
        }
        assert!(checks(&answer, "skipped").len() <= 7, "{role}: {answer}");
    }
    assert_eq!(inventory(&harness), before);
}

#[test]
fn nothing_changes_even_if_every_request_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, policy| match role {
        "operator" => json!({
            "Version": "2012-10-17",
            "Statement": [{ "Sid": "All", "Effect": "Allow", "Action": "*", "Resource": "*" }],
        }),
        _ => policy,
    });
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&["--idle-time-sec=600"]);
    let machines = harness.warm_up(2);
    let before = inventory(&harness);
    for (kind, count) in [("messages", 2), ("machines", 2), ("templates", 1), ("tables", 1)] {
        assert_eq!(before[kind].as_array().unwrap().len(), count, "{kind}: {before}");
    }
    for role in ROLES {
        let done = check(&harness, "operator", role, &["--json", "--instance-id", &machines[0]]);
        let answer = done.exited(9).json();
        for check in answer["checks"].as_array().unwrap() {
            let fits = match (check["expected"].as_str(), check["result"].as_str()) {
                (_, Some("skipped")) | (Some("denied"), Some("wrong")) => true,
                (expected, result) => (expected, result) == (Some("allowed"), Some("as-expected")),
            };
            assert!(fits, "{role}: {check}");
        }
        assert_eq!(inventory(&harness), before, "{role}");
    }
    assert!(harness.denials().is_empty());
}

#[test]
fn a_policy_that_allows_too_much_or_too_little_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, mut policy| {
        match role {
            "release" => {
                let keys = &mut statement(&mut policy, "ReadRecords")["Condition"]["ForAllValues:StringLike"]
                    ["dynamodb:LeadingKeys"];
                keys.as_array_mut().unwrap().push(json!("CREDENTIALS#*"));
                remove_statement(&mut policy, "NeverTokens");
            }
            "provision" => {
                remove_statement(&mut policy, "ChangeRecords");
            }
            _ => {}
        }
        policy
    });
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&[]);

    let widened = check(&harness, "release", "release", &["--json"]).exited(9);
    assert_valid("permissions", &widened);
    let answer = widened.json();
    let wrong = checks(&answer, "wrong");
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!(
        *wrong[0],
        json!({
            "call": "dynamodb:GetItem", "what": "the registration token", "expected": "denied",
            "answer": "allowed", "result": "wrong",
        })
    );
    assert!(widened.stderr.contains("dynamodb:GetItem on the registration token: allowed"));

    let narrowed = check(&harness, "provision", "provision", &[]).exited(9);
    let wrong: Vec<&str> =
        narrowed.stdout.lines().filter(|line| line.ends_with("  WRONG")).collect();
    let lost = [
        "a claim",
        "the set of a run's machines",
        "what the run asks for",
        "the places of a launch",
        "machines that it hands over",
    ];
    assert_eq!(wrong.len(), lost.len(), "{wrong:#?}");
    for (line, what) in wrong.iter().zip(lost) {
        assert!(line.contains(what) && line.contains("denied: AccessDeniedException"), "{line}");
    }
    let summary = narrowed.stdout.lines().last().unwrap();
    assert!(summary.starts_with("provision: ") && summary.contains(", 5 wrong, "), "{summary}");
}

#[test]
fn a_check_without_a_role_or_without_aws_is_refused() {
    let harness = AwsHarness::bare();
    let unnamed = harness.ondeck(&["permissions", "check"]).exited(2);
    assert!(unnamed.stderr.contains("give --role refresh|provision"), "{}", unnamed.stderr);
    let local = harness.ondeck(&["permissions", "check", "--role=release", "--backend=local"]);
    assert!(local.exited(2).stderr.contains("give --backend aws"));
    let unset = check(&harness, "release", "release", &["--json"]).exited(3);
    assert_valid("permissions", &unset);
}
