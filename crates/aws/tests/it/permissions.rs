//! The policies in `policies/` against the documentation and the source. What they allow and deny is
//! tested by the stand-in, which evaluates them for each call.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ondeck_aws::PoolName;
use ondeck_standin::Role;
use ondeck_standin::emulators::Emulators;
use serde_json::Value;

const PAGE: &str = "docs/aws-permissions.md";
const END: &str = "<!-- End of the generated part -->\n";

/// What IAM accepts as one managed policy, blanks apart.
const LONGEST: usize = 6_144;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join(PAGE)).unwrap()
}

/// The policies that an operator attaches beside those of the roles.
const OPTIONAL: [&str; 6] = [
    "optional/machine-logs",
    "optional/machine-connect",
    "optional/operator-connect",
    "optional/volume-key",
    "optional/image-parameter",
    TEARDOWN,
];

/// The policy that teardown needs beside that of refresh.
const TEARDOWN: &str = "optional/teardown";

/// The names of all policies below the folder.
fn names() -> impl Iterator<Item = &'static str> {
    Role::ALL.into_iter().map(Role::name).chain(OPTIONAL)
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join(format!("policies/{name}.json"))).unwrap()
}

fn statements_in(name: &str) -> Vec<Value> {
    let policy: Value = serde_json::from_str(&text(name)).unwrap();
    policy["Statement"].as_array().unwrap().clone()
}

fn statements(role: Role) -> Vec<Value> {
    statements_in(role.name())
}

/// A text, or a list of them.
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        value => value.as_str().into_iter().collect(),
    }
}

/// The actions that a role is allowed.
fn actions(role: Role) -> BTreeSet<String> {
    actions_in(role.name())
}

fn actions_in(policy: &str) -> BTreeSet<String> {
    let statements = statements_in(policy);
    let allowing = statements.iter().filter(|statement| statement["Effect"] == "Allow");
    allowing.flat_map(|statement| words(&statement["Action"])).map(str::to_owned).collect()
}

/// The permissions that an operation needs, where they are not called like it.
fn permissions(service: &str, operation: &str) -> Vec<String> {
    let needed: &[&str] = match operation {
        "TransactWriteItems" => &["dynamodb:PutItem", "dynamodb:DeleteItem"],
        "BatchExecuteStatement" => &["dynamodb:PartiQLUpdate", "dynamodb:PartiQLDelete"],
        "CreateTable" => &["dynamodb:CreateTable", "dynamodb:TagResource"],
        "CreateQueue" => &["sqs:CreateQueue", "sqs:TagQueue"],
        "CreateLaunchTemplate" => &["ec2:CreateLaunchTemplate", "ec2:CreateTags"],
        "CreateFleet" => &["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"],
        // A role that may send one message may send a batch.
        _ if service == "sqs" => {
            return vec![format!("sqs:{}", operation.trim_end_matches("Batch"))];
        }
        _ => return vec![format!("{service}:{operation}")],
    };
    needed.iter().map(|permission| (*permission).to_owned()).collect()
}

/// The program's own lines of all sources under a path, without those of tests.
fn sources(path: &Path, found: &mut String) {
    if path.is_dir() {
        if path.ends_with("tests") {
            return;
        }
        for entry in fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), found);
        }
        return;
    }
    let name = path.file_name().unwrap().to_str().unwrap();
    if name.ends_with(".rs") && !["tests.rs", "loopback.rs", "models.rs"].contains(&name) {
        let text = fs::read_to_string(path).unwrap();
        found.push_str(text.split("#[cfg(test)]\nmod tests {").next().unwrap());
    }
}

/// The operations of a service's model that the sources make use of: the SDK has a method for
/// each, which takes nothing, and the client of our own takes its name.
fn used(service: &str, places: &[&str]) -> BTreeSet<String> {
    let model = Emulators::running().models.join(format!("{service}.json"));
    let model: Value = serde_json::from_str(&fs::read_to_string(model).unwrap()).unwrap();
    let mut text = String::new();
    for place in places {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(place), &mut text);
    }
    let is_used = |operation: &&String| match service {
        "ec2" => text.contains(&format!("\"{operation}\"")),
        _ => text.contains(&format!(".{}()", snake_case(operation))),
    };
    model["operations"].as_object().unwrap().keys().filter(is_used).cloned().collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// Refresh's policy covers all modes but teardown, which has the rest in a policy of its own. So the
/// two have each permission that the program needs, and no other. The other roles have a part of
/// refresh's.
#[test]
fn refresh_may_do_what_the_program_does_and_nothing_else() {
    let services = [
        ("dynamodb", used("dynamodb", &["store.rs", "store"])),
        ("sqs", used("sqs", &["pool.rs", "pool", "wake_ups.rs", "wake_ups", "teardown.rs"])),
        ("ec2", used("ec2", &["compute.rs", "compute", "ec2.rs", "ec2"])),
    ];
    let known = ["BatchExecuteStatement", "ReceiveMessage", "ModifyLaunchTemplate"];
    for ((service, operations), known) in services.iter().zip(known) {
        assert!(operations.contains(known), "{service}: {operations:?}");
    }
    let needed: BTreeSet<String> = services
        .iter()
        .flat_map(|(service, operations)| operations.iter().map(move |name| (*service, name)))
        .flat_map(|(service, operation)| permissions(service, operation))
        .collect();
    let refresh = actions(Role::Refresh);
    let granted: BTreeSet<String> = refresh.union(&actions_in(TEARDOWN)).cloned().collect();
    assert_eq!(granted, needed, "left: the policies; right: the sources");
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Operator) {
        assert!(actions(role).is_subset(&refresh), "{role}: {:?}", actions(role));
    }
}

/// The operator reads for doctor what no mode needs.
#[test]
fn an_operator_may_ask_what_doctor_asks_and_nothing_else_of_ec2() {
    let asked = used("ec2", &["diagnosis.rs", "diagnosis"]);
    assert!(asked.contains("DescribeRouteTables"), "{asked:?}");
    let mut doctor: BTreeSet<String> = asked.iter().map(|it| format!("ec2:{it}")).collect();
    // The list of machines is that of refresh, the others are not EC2's.
    let others =
        ["ec2:DescribeInstances", "iam:GetInstanceProfile", "servicequotas:GetServiceQuota"];
    doctor.extend(others.map(str::to_owned));
    let mut operator = actions(Role::Operator);
    operator.retain(|action| !action.starts_with("dynamodb:") && !action.starts_with("sqs:"));
    assert_eq!(operator, doctor);
    let (all, refresh) = (actions(Role::Operator), actions(Role::Refresh));
    let records = all.difference(&doctor).cloned().collect::<BTreeSet<String>>();
    assert!(records.is_subset(&refresh), "{records:?}");
}

#[test]
fn each_policy_fits_with_long_names() {
    let longest_name =
        PoolName::resource_name(&format!("{0}/{0}", "o".repeat(50)).parse().unwrap());
    for name in names() {
        let text: String = text(name).chars().filter(|c| !c.is_whitespace()).collect();
        let full = text
            .replace("MACHINE-ROLE", &"r".repeat(64))
            .replace("REGION", "ap-southeast-1")
            .replace("ACCOUNT", "123456789012")
            .replace("NAME", &longest_name)
            .replace("POOL", &"p".repeat(100));
        assert!(full.len() <= LONGEST, "{name}: {}", full.len());
    }
}

/// Each statement on the table names the partition keys that it covers, and excludes requests that
/// name none. A statement about the table as a whole, or about an index of events, has none.
#[test]
fn each_statement_on_records_names_their_keys() {
    const WITHOUT_KEYS: [&str; 2] = ["MakeTable", "ReadEventsOfRuns"];
    for role in Role::ALL {
        for statement in statements(role) {
            let name = statement["Sid"].as_str().unwrap();
            let on_table = words(&statement["Action"]).iter().all(|it| it.starts_with("dynamodb:"));
            if !on_table || statement["Effect"] == "Deny" || WITHOUT_KEYS.contains(&name) {
                continue;
            }
            let condition = &statement["Condition"];
            let named = ["StringLike", "StringEquals"].iter().any(|operator| {
                !condition[format!("ForAllValues:{operator}")]["dynamodb:LeadingKeys"].is_null()
            });
            let excluded = condition["Null"]["dynamodb:LeadingKeys"] == "false";
            assert!(named && excluded, "{role}: {name}");
        }
    }
}

#[test]
fn the_documented_policies_are_those_in_the_files() {
    let page = page();
    let mut expected = page.clone();
    for name in names() {
        let begin = format!(
            "<!-- Generated from policies/{name}.json by UPDATE=1 cargo test -p ondeck-aws --test \
             it documented -->\n"
        );
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(END).unwrap();
        expected = format!("{before}{begin}```json\n{}```\n{END}{after}", text(name));
    }
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        fs::write(root().join(PAGE), &expected).unwrap();
    } else {
        assert!(
            page == expected,
            "{PAGE} is out of date\nhint: UPDATE=1 cargo test -p ondeck-aws --test it documented"
        );
    }
}

#[test]
fn each_documented_statement_has_a_reason() {
    let page = page();
    for name in names() {
        let begin = format!("<!-- Generated from policies/{name}.json");
        let section = page.split_once(&begin).unwrap().1.split_once(END).unwrap().1;
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with('|'));
        let named: Vec<&str> = rows.filter_map(|line| line.split('|').nth(1)).collect();
        for statement in statements_in(name) {
            let sid = format!("`{}`", statement["Sid"].as_str().unwrap());
            assert!(named.iter().any(|cell| cell.contains(&sid)), "{name}: no reason for {sid}");
        }
    }
}

#[test]
fn the_example_is_what_the_pool_is_called() {
    let name = "acme/web".parse::<PoolName>().unwrap().resource_name();
    assert!(page().contains(&format!("`{name}`")), "{name}");
}
