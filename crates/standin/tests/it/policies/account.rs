//! An account with two pools behind an enforcing gateway, and requests as each of its roles.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Gateway, GatewayOptions, PolicyPool, Role};
use serde_json::{Value, json};

use crate::harness::unique;

/// An account with two pools. The first has two machines, the second one.
pub(crate) struct Account {
    pub(crate) gateway: Gateway,
    url: String,
    http: Client<HttpConnector, Full<Bytes>>,
    /// What the placeholders of the tables stand for, the longer ones first.
    placeholders: Vec<(&'static str, String)>,
}

/// The status and the error code of an answer, with its text.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) text: String,
}

impl Account {
    pub(crate) async fn new() -> Account {
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
            ("MACHINE-ROLE", "ondeck-machine".to_owned()),
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
        for (queue, machine) in [
            ("NAME_SELF", "SELF"),
            ("NAME_NEIGHBOUR", "NEIGHBOUR"),
            // A queue that another pool has made by mistake.
            ("OTHER-NAME_SELF", "SELF"),
        ] {
            account.create_queue(queue, machine).await;
        }
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

    /// Creates a queue that carries the tag of a machine, without the gateway.
    async fn create_queue(&self, queue: &str, machine: &str) {
        let machine = self.replaced(&format!("arn:aws:ec2:REGION:ACCOUNT:instance/{machine}"));
        let request =
            json!({ "QueueName": self.replaced(queue), "tags": { "ondeck:machine": machine } });
        let emulator = Emulators::running().ministack;
        let made = self.post(&emulator, "test", "sqs:CreateQueue", &request).await;
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
    pub(crate) async fn perform(&self, case: &Value) -> Answered {
        let key = self.key_of(case["role"].as_str().unwrap());
        let request: Value =
            serde_json::from_str(&self.replaced(&case["request"].to_string())).unwrap();
        self.send(&key, case["call"].as_str().unwrap(), &request).await
    }

    /// The access key of a role. That of a machine comes from its metadata service.
    pub(crate) fn key_of(&self, role: &str) -> String {
        if role != "machine" {
            return role.to_owned();
        }
        let own = self.replaced("SELF").replace('-', "").to_ascii_uppercase();
        format!("ASIA{own}")
    }

    /// The policy of a role, without placeholders.
    pub(crate) fn policy_of(&self, role: Role) -> Value {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies");
        let text = std::fs::read_to_string(format!("{folder}/{role}.json")).unwrap();
        serde_json::from_str(&self.replaced(&text)).unwrap()
    }

    pub(crate) fn replaced(&self, text: &str) -> String {
        let replace = |text: String, (name, value): &(&str, String)| text.replace(name, value);
        self.placeholders.iter().fold(text.to_owned(), replace)
    }

    pub(crate) async fn send(&self, key: &str, call: &str, request: &Value) -> Answered {
        self.post(&self.url, key, call, request).await
    }

    /// Exchanges a token for an access key of a role, as a job does.
    pub(crate) async fn assume(&self, role: &str, token: &str) -> Result<String, Answered> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", "2011-06-15");
        form.append_pair("RoleArn", role).append_pair("RoleSessionName", "job");
        form.append_pair("WebIdentityToken", token);
        let body = Full::new(Bytes::from(form.finish()));
        let answer = self.http.request(Request::post(&self.url).body(body).unwrap()).await;
        let answered = Answered::of(answer.unwrap()).await;
        let key = answered.text.split_once("<AccessKeyId>").and_then(|(_, it)| it.split_once('<'));
        match key {
            Some((key, _)) => Ok(key.to_owned()),
            None => Err(answered),
        }
    }

    async fn post(&self, url: &str, key: &str, call: &str, request: &Value) -> Answered {
        let (service, operation) = call.split_once(':').unwrap();
        let credential = format!("{key}/20261116/us-east-1/{service}/aws4_request");
        let mut http = Request::post(url).header(
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"),
        );
        let version = match service {
            "ec2" => Some("2016-11-15"),
            "iam" => Some("2010-05-08"),
            _ => None,
        };
        let body = if let Some(version) = version {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("Action", operation).append_pair("Version", version);
            for (name, value) in request.as_object().unwrap() {
                form.append_pair(name, value.as_str().unwrap());
            }
            form.finish()
        } else {
            let target = match service {
                "dynamodb" => format!("DynamoDB_20120810.{operation}"),
                "logs" => format!("Logs_20140328.{operation}"),
                "secretsmanager" => format!("secretsmanager.{operation}"),
                "ssm" => format!("AmazonSSM.{operation}"),
                "servicequotas" => format!("ServiceQuotasV20190624.{operation}"),
                _ => format!("AmazonSQS.{operation}"),
            };
            http = http.header("x-amz-target", target);
            http = http.header("content-type", "application/x-amz-json-1.0");
            request.to_string()
        };
        let answer = self.http.request(http.body(Full::new(Bytes::from(body))).unwrap()).await;
        Answered::of(answer.unwrap()).await
    }
}

impl Answered {
    async fn of(answer: Response<Incoming>) -> Answered {
        let (head, body) = answer.into_parts();
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
