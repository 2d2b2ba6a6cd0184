//! A stack of MiniStack's CloudFormation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::emulators::Emulators;
use serde_json::Value;

use crate::harness::{SOON, Xml, unique};

const TEMPLATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra");

/// What every stack of these tests is given, unless it is given something else.
const PARAMETERS: [(&str, &str); 4] = [
    ("Repository", "acme/web"),
    ("Pool", "acme/web"),
    ("PoolName", "ondeck-acme-web-a7a54a76"),
    ("OidcProvider", "existing"),
];

/// A stack that has been deployed.
#[derive(Debug)]
pub(super) struct Stack {
    name: String,
    /// How the names of its roles begin.
    pub(super) prefix: String,
    outputs: BTreeMap<String, String>,
}

impl Stack {
    /// Deploys the template with these parameters.
    pub(super) async fn deployed(parameters: &[(&str, &str)]) -> Stack {
        Stack::attempted(parameters).await.unwrap_or_else(|why| panic!("not deployed: {why}"))
    }

    /// Deploys the template with these parameters. Fails with what CloudFormation answers if it
    /// refuses them.
    pub(super) async fn attempted(parameters: &[(&str, &str)]) -> Result<Stack, String> {
        let all = PARAMETERS.iter().chain(parameters).copied().collect();
        Stack::of("cloudformation.yaml", all).await
    }

    /// Deploys a template of `infra` with these parameters and a prefix of its own.
    pub(super) async fn of(file: &str, mut all: BTreeMap<&str, &str>) -> Result<Stack, String> {
        let name = unique("stack");
        let prefix = format!("s{:016x}", fastrand::u64(..));
        all.insert("Prefix", &prefix);
        let mut form = form_urlencoded::Serializer::new(String::new());
        let template = std::fs::read_to_string(format!("{TEMPLATES}/{file}")).unwrap();
        form.append_pair("StackName", &name).append_pair("TemplateBody", &template);
        form.append_pair("Capabilities.member.1", "CAPABILITY_NAMED_IAM");
        for (number, (key, value)) in all.into_iter().enumerate() {
            let place = format!("Parameters.member.{}", number + 1);
            form.append_pair(&format!("{place}.ParameterKey"), key);
            form.append_pair(&format!("{place}.ParameterValue"), value);
        }
        let made = ask("cloudformation", &format!("CreateStack&{}", form.finish())).await;
        if made.status != 200 {
            return Err(made.text);
        }
        let ended = settled(&name).await;
        assert_eq!(ended.first("StackStatus"), Some("CREATE_COMPLETE"), "{}", events(&name).await);
        let (keys, values) = (ended.all("OutputKey"), ended.all("OutputValue"));
        let outputs = keys.into_iter().zip(values);
        let outputs = outputs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Ok(Stack { name, prefix, outputs })
    }

    pub(super) fn output(&self, name: &str) -> &str {
        self.outputs.get(name).unwrap_or_else(|| panic!("no output {name}: {:?}", self.outputs))
    }

    /// Deletes the stack and waits until it is gone.
    pub(super) async fn delete(&self) {
        let asked = ask("cloudformation", &format!("DeleteStack&StackName={}", self.name)).await;
        assert_eq!(asked.status, 200, "{asked:?}");
        let ended = settled(&self.name).await;
        assert!(ended.text.contains("does not exist"), "{}", events(&self.name).await);
    }

    /// The inline policies of a role, by their names.
    pub(super) async fn policies_of(&self, role: &str) -> BTreeMap<String, Value> {
        let role = format!("{}-{role}", self.prefix);
        let listed = self.iam(&format!("ListRolePolicies&RoleName={role}")).await;
        let mut policies = BTreeMap::new();
        for name in listed.all("member") {
            let query = format!("GetRolePolicy&RoleName={role}&PolicyName={name}");
            policies.insert(name.to_owned(), document(&self.iam(&query).await, "PolicyDocument"));
        }
        policies
    }

    /// Who may assume a role.
    pub(super) async fn trust_of(&self, role: &str) -> Value {
        let found = self.iam(&format!("GetRole&RoleName={}-{role}", self.prefix)).await;
        document(&found, "AssumeRolePolicyDocument")
    }

    /// The services of the endpoints in the stack's network. MiniStack ignores filters here.
    pub(super) async fn endpoints(&self) -> Vec<String> {
        let found = self.ec2("DescribeVpcEndpoints").await;
        let all = found.all("vpcId").into_iter().zip(found.all("serviceName"));
        let ours = all.filter(|(network, _)| *network == self.output("VpcId"));
        ours.map(|(_, service)| service.to_owned()).collect()
    }

    pub(super) async fn iam(&self, query: &str) -> Xml {
        ask("iam", query).await
    }

    pub(super) async fn ec2(&self, query: &str) -> Xml {
        ask("ec2", query).await
    }
}

/// Sends an action and its parameters to MiniStack.
async fn ask(service: &str, query: &str) -> Xml {
    let version = match service {
        "cloudformation" => "2010-05-15",
        "iam" => "2010-05-08",
        _ => "2016-11-15",
    };
    let credential = format!("test/20261116/us-east-1/{service}/aws4_request");
    let signed =
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0");
    let request = Request::post(Emulators::running().ministack)
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .header("authorization", signed)
        .body(Full::new(Bytes::from(format!("Action={query}&Version={version}"))));
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let (head, body) = http.request(request.unwrap()).await.unwrap().into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Xml { status: head.status.as_u16(), text }
}

/// Creates a bucket of MiniStack's S3 with an object in it. The object is no package: nothing calls the
/// function.
pub(super) async fn put_object(bucket: &str, key: &str) {
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    for path in [bucket.to_owned(), format!("{bucket}/{key}")] {
        let url = format!("{}/{path}", Emulators::running().ministack);
        let credential = "test/20261116/us-east-1/s3/aws4_request";
        let signed =
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0");
        let body = if path == bucket { Bytes::new() } else { Bytes::from_static(b"package") };
        let request = Request::put(url).header("authorization", signed).body(Full::new(body));
        let answer = http.request(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
    }
}

/// The description of a stack that CloudFormation no longer changes.
async fn settled(name: &str) -> Xml {
    let started = Instant::now();
    loop {
        let found = ask("cloudformation", &format!("DescribeStacks&StackName={name}")).await;
        if !found.first("StackStatus").is_some_and(|status| status.ends_with("_IN_PROGRESS")) {
            return found;
        }
        assert!(started.elapsed() < SOON, "{}", events(name).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Why the resources of a stack are what they are.
async fn events(name: &str) -> String {
    let found = ask("cloudformation", &format!("DescribeStackEvents&StackName={name}")).await;
    found.all("ResourceStatusReason").join("\n")
}

/// A policy in an answer of IAM, which is encoded as in a URL.
fn document(answer: &Xml, element: &str) -> Value {
    let text = answer.first(element).unwrap_or_else(|| panic!("no {element}: {}", answer.text));
    let text = text.replace('+', "%2B");
    let (decoded, _) = form_urlencoded::parse(text.as_bytes()).next().unwrap();
    serde_json::from_str(&decoded).unwrap_or_else(|error| panic!("{error}: {decoded}"))
}
