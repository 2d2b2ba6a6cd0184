//! The policies in `policies/` against requests that each role may and may not make, as tables in
//! `policies/checks`. Each request is sent to the gateway as the role.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Denial, Gateway, GatewayOptions, IamDecision, PolicyPool, Role};
use serde_json::{Value, json};

use crate::harness::unique;

const DENIED: &str = include_str!("../../../../policies/checks/denied.json");
const ALLOWED: &str = include_str!("../../../../policies/checks/allowed.json");

/// An account with two pools. The first has two machines, the second one.
struct Account {
    gateway: Gateway,
    url: String,
    http: Client<HttpConnector, Full<Bytes>>,
    /// What the placeholders of the tables stand for, the longer ones first.
    placeholders: Vec<(&'static str, String)>,
}

/// The status and the error code of an answer, with its text.
#[derive(Debug)]
struct Answered {
    status: u16,
    code: String,
    text: String,
}

impl Account {
    async fn new() -> Account {
        let options = GatewayOptions::on(&Emulators::running());
        let gateway = Gateway::start(GatewayOptions { record_decisions: true, ..options });
        let url = gateway.endpoint("control").url().to_owned();
        let http = Client::builder(TokioExecutor::new()).build_http();
        let mut account = Account { gateway, url, http, placeholders: Vec::new() };
        let [own, other] = ["own", "other"].map(unique);
        account.grant(&own, "");
        account.grant(&other, "other-");
        for name in [&own, &other] {
            account.create_table(name).await;
        }
        let template = account.template(&own, "refresh").await;
        let other_template = account.template(&other, "other-refresh").await;
        let machines = account.launch(&own, "provision", &template, 2).await;
        let foreign = account.launch(&other, "other-provision", &other_template, 1).await;
        account.placeholders = vec![
            ("OTHER-TEMPLATE", other_template),
            ("OTHER-NAME", other.clone()),
            ("OTHER-POOL", format!("acme/{other}")),
            ("TEMPLATE", template),
            ("REGION", "us-east-1".to_owned()),
            ("ACCOUNT", "000000000000".to_owned()),
            ("NAME", own.clone()),
            ("POOL", format!("acme/{own}")),
            ("SELF", machines[0].clone()),
            ("NEIGHBOUR", machines[1].clone()),
            ("FOREIGN", foreign[0].clone()),
        ];
        account.gateway.assert_nothing_denied();
        account
    }

    /// Gives each role of a pool an access key.
    fn grant(&self, name: &str, prefix: &str) {
        let pool = PolicyPool {
            pool: format!("acme/{name}"),
            name: name.to_owned(),
            machine_role: "ondeck-machine".to_owned(),
        };
        for role in Role::ALL {
            self.gateway.grant(&format!("{prefix}{role}"), &pool, &[role]);
        }
    }

    /// Creates a table with the keys of ondeck's, without the gateway.
    async fn create_table(&self, name: &str) {
        let keys = |hash: &str, range: &str| {
            json!([
                { "AttributeName": hash, "KeyType": "HASH" },
                { "AttributeName": range, "KeyType": "RANGE" },
            ])
        };
        let index = |name: &str, hash: &str, range: &str| {
            json!({
                "IndexName": name, "KeySchema": keys(hash, range),
                "Projection": { "ProjectionType": "KEYS_ONLY" },
            })
        };
        let attributes = ["PK", "SK", "listKey", "listSort", "eventRun", "at"];
        let request = json!({
            "TableName": name,
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": keys("PK", "SK"),
            "AttributeDefinitions": attributes
                .map(|name| json!({ "AttributeName": name, "AttributeType": "S" })),
            "GlobalSecondaryIndexes": [
                index("lists", "listKey", "listSort"), index("events-by-run", "eventRun", "at"),
            ],
        });
        let emulator = Emulators::running().dynamodb;
        let made = self.post(&emulator, "test", "dynamodb:CreateTable", &request).await;
        assert_eq!(made.status, 200, "{made:?}");
    }

    async fn template(&self, name: &str, key: &str) -> String {
        let request = json!({
            "LaunchTemplateName": name,
            "LaunchTemplateData.ImageId": "ami-0123456789abcdef0",
            "LaunchTemplateData.SecurityGroupId.1": "sg-0123456789abcdef0",
            "LaunchTemplateData.IamInstanceProfile.Name": "ondeck-machine",
            "TagSpecification.1.ResourceType": "launch-template",
            "TagSpecification.1.Tag.1.Key": "ondeck:pool",
            "TagSpecification.1.Tag.1.Value": format!("acme/{name}"),
        });
        let made = self.send(key, "ec2:CreateLaunchTemplate", &request).await;
        let id = made.text.split_once("<launchTemplateId>").expect(&made.text).1;
        id.split_once('<').unwrap().0.to_owned()
    }

    async fn launch(&self, name: &str, key: &str, template: &str, count: usize) -> Vec<String> {
        let mut request = json!({
            "Type": "instant",
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId": template,
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version": "$Default",
            "LaunchTemplateConfigs.1.Overrides.1.SubnetId": "subnet-0a",
            "LaunchTemplateConfigs.1.Overrides.1.InstanceType": "c6i.large",
            "TargetCapacitySpecification.TotalTargetCapacity": count.to_string(),
        });
        for (number, kind) in ["fleet", "instance", "volume"].iter().enumerate() {
            let place = format!("TagSpecification.{}", number + 1);
            request[format!("{place}.ResourceType")] = (*kind).into();
            request[format!("{place}.Tag.1.Key")] = "ondeck:pool".into();
            request[format!("{place}.Tag.1.Value")] = format!("acme/{name}").into();
        }
        let made = self.send(key, "ec2:CreateFleet", &request).await;
        assert_eq!(made.status, 200, "{made:?}");
        let pool = format!("acme/{name}");
        let machines = self.gateway.ec2().machines().into_iter();
        let ours = machines.filter(|machine| machine.tags["ondeck:pool"] == pool);
        ours.map(|machine| machine.id).collect()
    }

    /// Sends a request of a table, as its role.
    async fn perform(&self, case: &Value) -> Answered {
        let role = case["role"].as_str().unwrap();
        let key = match role {
            "machine" => {
                let own = self.replaced("SELF").replace('-', "").to_ascii_uppercase();
                format!("ASIA{own}")
            }
            role => role.to_owned(),
        };
        let request: Value =
            serde_json::from_str(&self.replaced(&case["request"].to_string())).unwrap();
        self.send(&key, case["call"].as_str().unwrap(), &request).await
    }

    fn replaced(&self, text: &str) -> String {
        let replace = |text: String, (name, value): &(&str, String)| text.replace(name, value);
        self.placeholders.iter().fold(text.to_owned(), replace)
    }

    async fn send(&self, key: &str, call: &str, request: &Value) -> Answered {
        self.post(&self.url, key, call, request).await
    }

    async fn post(&self, url: &str, key: &str, call: &str, request: &Value) -> Answered {
        let (service, operation) = call.split_once(':').unwrap();
        let credential = format!("{key}/20261116/us-east-1/{service}/aws4_request");
        let mut http = Request::post(url).header(
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"),
        );
        let body = if service == "ec2" {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("Action", operation).append_pair("Version", "2016-11-15");
            for (name, value) in request.as_object().unwrap() {
                form.append_pair(name, value.as_str().unwrap());
            }
            form.finish()
        } else {
            let target = match service {
                "dynamodb" => format!("DynamoDB_20120810.{operation}"),
                _ => format!("AmazonSQS.{operation}"),
            };
            http = http.header("x-amz-target", target);
            http = http.header("content-type", "application/x-amz-json-1.0");
            request.to_string()
        };
        let answer = self.http.request(http.body(Full::new(Bytes::from(body))).unwrap()).await;
        let (head, body) = answer.unwrap().into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answered { status: head.status.as_u16(), code: code_of(&text), text }
    }
}

/// The error code of an answer in any of the formats; empty for a success.
fn code_of(text: &str) -> String {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let kind = json["__type"].as_str().map(|kind| kind.rsplit('#').next().unwrap());
    let xml = text.split_once("<Code>").and_then(|(_, rest)| Some(rest.split_once('<')?.0));
    kind.or(xml).unwrap_or_default().to_owned()
}

fn cases(table: &str) -> Vec<Value> {
    serde_json::from_str(table).unwrap()
}

/// How each service refuses.
fn refusal(call: &str) -> (u16, &'static str) {
    match call.split_once(':').unwrap().0 {
        "dynamodb" => (400, "AccessDeniedException"),
        "sqs" => (403, "AccessDenied"),
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
    assert!(counts.values().sum::<usize>() >= 60 && counts.len() == 5, "{counts:?}");
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
        let policy = |role: Role| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies");
            let text = std::fs::read_to_string(format!("{folder}/{role}.json")).unwrap();
            let text = text.replace("MACHINE-ROLE", "ondeck-machine");
            let policy: Value = serde_json::from_str(&account.replaced(&text)).unwrap();
            (role.name().to_owned(), policy)
        };
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
