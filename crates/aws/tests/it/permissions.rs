//! The policies in `docs/aws-permissions.md` against what the program does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ondeck_aws::DynamoStore;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, Store};
use ondeck_standin::emulators::Emulators;
use serde_json::Value;

use crate::dynamodb_proxy::{Call, DynamoDbProxy};
use crate::store_harness::{StoreHarness, claim, idle, instance, noon};

const DOCUMENT: &str = include_str!("../../../../docs/aws-permissions.md");

/// What IAM takes as one managed policy, blanks apart.
const LONGEST: usize = 6_144;

struct Policy {
    text: &'static str,
    statements: Vec<Value>,
}

impl Policy {
    /// The document's two policies: the control plane's, and the machines'.
    fn both() -> (Policy, Policy) {
        let blocks = DOCUMENT.split("```json\n").skip(1);
        let mut policies = blocks.map(|block| {
            let text = block.split("```").next().unwrap();
            let policy: Value = serde_json::from_str(text).unwrap();
            assert_eq!(policy["Version"], "2012-10-17");
            Policy { text, statements: policy["Statement"].as_array().unwrap().clone() }
        });
        (policies.next().unwrap(), policies.next().unwrap())
    }

    fn actions(&self) -> BTreeSet<String> {
        let actions = self.statements.iter().flat_map(|statement| words(&statement["Action"]));
        actions.map(str::to_owned).collect()
    }

    /// Whether a call to DynamoDB is allowed, by its action and the kinds of records it names.
    fn allows(&self, action: &str, kinds: &[String]) -> bool {
        self.statements.iter().any(|statement| {
            let keys = &statement["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"];
            let fits = |kind: &String| keys.is_null() || words(keys).contains(&kind.as_str());
            words(&statement["Action"]).contains(&action) && kinds.iter().all(fits)
        })
    }
}

/// A text, or a list of them.
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        value => value.as_str().into_iter().collect(),
    }
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
        // Who may send one message may send a batch.
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

#[test]
fn the_control_plane_is_allowed_what_it_does_and_nothing_else() {
    let services = [
        ("dynamodb", used("dynamodb", &["store.rs", "store"])),
        ("sqs", used("sqs", &["pool.rs", "pool"])),
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
    let (control, machines) = Policy::both();
    assert_eq!(control.actions(), needed, "left: the document; right: the sources");
    assert!(machines.actions().is_subset(&needed), "{:?}", machines.actions());
}

#[test]
fn each_statement_is_explained_and_fits_into_a_policy() {
    let (control, machines) = Policy::both();
    for policy in [control, machines] {
        let length = policy.text.chars().filter(|c| !c.is_whitespace()).count();
        assert!(length < LONGEST, "{length}");
        for statement in &policy.statements {
            let name = statement["Sid"].as_str().unwrap();
            let row = DOCUMENT.lines().find(|line| {
                line.starts_with('|')
                    && line.split('|').nth(1).unwrap().contains(&format!("`{name}`"))
            });
            assert!(row.is_some(), "no reason is given for {name}");
            assert_eq!(statement["Effect"], "Allow", "{name}");
        }
    }
}

#[tokio::test]
async fn the_example_is_what_the_pool_is_called() {
    let harness =
        StoreHarness { pool: "acme/web".parse().unwrap(), dynamodb: "http://nowhere".into() };
    let name = harness.store().await.table().to_owned();
    assert!(DOCUMENT.contains(&format!("`{name}`")), "{name}");
}

/// The kinds of records that a call names.
fn kinds(call: &Call) -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text.starts_with("TYPE#") => found.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&serde_json::from_str(&call.body).unwrap(), &mut found);
    assert!(!found.is_empty(), "{call:?}");
    found
}

fn denied(policy: &Policy, calls: &[Call]) -> Vec<String> {
    let denied = |call: &&Call| {
        let mut permissions = permissions("dynamodb", &call.action);
        // Of a batch of statements, those that are in it.
        permissions.retain(|name| match name.as_str() {
            "dynamodb:PartiQLUpdate" => call.body.contains("UPDATE "),
            "dynamodb:PartiQLDelete" => call.body.contains("DELETE "),
            "dynamodb:DeleteItem" => call.body.contains("\"Delete\""),
            _ => true,
        });
        !permissions.iter().all(|name| policy.allows(name, &kinds(call)))
    };
    calls.iter().filter(denied).map(|call| call.action.clone()).collect()
}

fn credentials() -> Credentials {
    Credentials {
        registration: Secret::new("registration"),
        removal: Secret::new("removal"),
        expires_at: noon(),
    }
}

async fn through_proxy(harness: &StoreHarness) -> (DynamoStore, DynamoDbProxy) {
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    (harness.store_through(&proxy.endpoint).await, proxy)
}

#[tokio::test]
async fn an_agent_gets_by_with_what_machines_are_allowed() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let (control, machines) = Policy::both();
    let settings = [("idle-time-sec", "300"), ("ami", "")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    store.put_settings(&settings).await.unwrap();
    let idle = idle(&store, "i-1").await;
    store.write(&claim(&idle, "7")).await.unwrap();
    store.put_credentials(&credentials()).await.unwrap();
    store.finish().await.unwrap();
    let calls = proxy.calls();
    assert!(denied(&control, &calls).is_empty(), "{:?}", denied(&control, &calls));
    assert_eq!(denied(&machines, &calls).len(), calls.len(), "an agent may do none of this");

    let id = instance("i-1");
    let report = Report { signal: Signal::Prepared, run: None, detail: String::new(), at: noon() };
    AgentStore::settings(&store).await.unwrap();
    store.record(&id).await.unwrap();
    assert_eq!(store.credentials().await, Ok(Some(credentials())));
    store.beat(&id, noon()).await.unwrap();
    store.report(&id, &report).await.unwrap();
    let calls = proxy.calls();
    assert_eq!(calls.len(), 5, "{calls:?}");
    assert!(denied(&machines, &calls).is_empty(), "{:?}", denied(&machines, &calls));
    let own = ["GetItem", "PutItem", "PutItem"];
    assert_eq!(denied(&control, &calls), own, "what an agent registers with, and what it says");
    harness.done().await;
}
