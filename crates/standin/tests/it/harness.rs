//! A gateway, clients for its services, and unique names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Endpoint, Gateway, GatewayOptions};

/// A limit for every wait in these tests, long enough for a busy computer.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Options without policies: any caller may do everything.
pub(crate) fn options() -> GatewayOptions {
    GatewayOptions { policies: None, ..GatewayOptions::on(&Emulators::running()) }
}

pub(crate) fn gateway() -> Gateway {
    Gateway::start(options())
}

/// A name that is unique among all tests, in any process.
pub(crate) fn unique(kind: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    format!("standin-{kind}-{}-{number}-{:x}", std::process::id(), fastrand::u32(..))
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(5)).build()
}

pub(crate) fn credentials(key: &str) -> Credentials {
    Credentials::new(key, "test", None, None, "test")
}

pub(crate) fn dynamodb(endpoint: &Endpoint) -> aws_sdk_dynamodb::Client {
    dynamodb_as(endpoint, "test")
}

pub(crate) fn dynamodb_as(endpoint: &Endpoint, key: &str) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials(key))
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts())
        .endpoint_url(endpoint.url());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

pub(crate) fn sqs(endpoint: &Endpoint) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials("test"))
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts())
        .endpoint_url(endpoint.url());
    aws_sdk_sqs::Client::from_conf(config.build())
}

/// Creates a table with the key `PK`, and returns its name.
pub(crate) async fn table(client: &aws_sdk_dynamodb::Client) -> String {
    let name = unique("table");
    let key = KeySchemaElement::builder().attribute_name("PK").key_type(KeyType::Hash);
    let attribute =
        AttributeDefinition::builder().attribute_name("PK").attribute_type(ScalarAttributeType::S);
    client
        .create_table()
        .table_name(&name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key.build().unwrap())
        .attribute_definitions(attribute.build().unwrap())
        .send()
        .await
        .unwrap();
    name
}

pub(crate) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// Creates a queue, and returns its URL.
pub(crate) async fn queue(client: &aws_sdk_sqs::Client) -> String {
    let made = client.create_queue().queue_name(unique("queue")).send().await.unwrap();
    made.queue_url.unwrap()
}

/// EC2's answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct Xml {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Xml {
    /// The text of the first element of this name.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// The text of every element of this name that does not contain another of that name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let parts = self.text.split(&*open).skip(1);
        parts.filter_map(|part| Some(part.split_once(&*close)?.0)).collect()
    }

    /// The ids of launched machines.
    pub(crate) fn launched(&self) -> Vec<String> {
        let sets = self.all("instanceIds");
        let ids = sets.iter().flat_map(|set| set.split("<item>").skip(1));
        ids.map(|part| part.split_once('<').unwrap().0.to_owned()).collect()
    }

    pub(crate) fn code(&self) -> Option<&str> {
        self.first("Code")
    }
}

/// A client of EC2 that sends requests as they are given.
pub(crate) struct Ec2 {
    http: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Ec2 {
    pub(crate) fn at(endpoint: &Endpoint) -> Ec2 {
        Ec2::to(endpoint.url())
    }

    pub(crate) fn to(url: &str) -> Ec2 {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Ec2 { http, url: url.to_owned() }
    }

    pub(crate) async fn ask(&self, query: &str) -> Xml {
        self.try_ask(query).await.unwrap()
    }

    pub(crate) async fn try_ask(
        &self,
        query: &str,
    ) -> Result<Xml, Box<dyn std::error::Error + Send + Sync>> {
        self.signed_at(query, SystemTime::now()).await.map(|(xml, _)| xml)
    }

    /// Sends a request signed at some time. Returns the answer and its date.
    pub(crate) async fn signed_at(
        &self,
        query: &str,
        time: SystemTime,
    ) -> Result<(Xml, String), Box<dyn std::error::Error + Send + Sync>> {
        let time = humantime::format_rfc3339_seconds(time).to_string().replace(['-', ':'], "");
        let scope = format!("{}/us-east-1/ec2/aws4_request", &time[..8]);
        let body = format!("{query}&Version=2016-11-15");
        let request = Request::post(&self.url)
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .header("x-amz-date", time)
            .header(
                "authorization",
                format!(
                    "AWS4-HMAC-SHA256 Credential=test/{scope}, SignedHeaders=host, Signature=0"
                ),
            )
            .body(Full::new(Bytes::from(body)))?;
        let (head, body) = self.http.request(request).await?.into_parts();
        let date = head.headers.get("date").map_or("", |date| date.to_str().unwrap()).to_owned();
        let text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        Ok((Xml { status: head.status.as_u16(), text }, date))
    }

    /// Creates a launch template like those that ondeck creates.
    pub(crate) async fn template(&self, name: &str) {
        let answer = self
            .ask(&format!(
                "Action=CreateLaunchTemplate&LaunchTemplateName={name}&VersionDescription=one\
                 &LaunchTemplateData.ImageId=ami-12345678\
                 &LaunchTemplateData.InstanceInitiatedShutdownBehavior=terminate\
                 &LaunchTemplateData.MetadataOptions.HttpTokens=required\
                 &LaunchTemplateData.MetadataOptions.InstanceMetadataTags=enabled\
                 &LaunchTemplateData.IamInstanceProfile.Name=runner\
                 &LaunchTemplateData.SecurityGroupId.1=sg-1\
                 &LaunchTemplateData.UserData=IyEvYmluL3NoCg%3D%3D\
                 &LaunchTemplateData.TagSpecification.1.ResourceType=instance\
                 &LaunchTemplateData.TagSpecification.1.Tag.1.Key=managed-by\
                 &LaunchTemplateData.TagSpecification.1.Tag.1.Value=ondeck"
            ))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// A CreateFleet request for `count` machines in two subnets.
pub(crate) fn fleet(template: &str, count: usize, kind: &str) -> String {
    let overrides: String = ["subnet-0a", "subnet-0b"]
        .iter()
        .enumerate()
        .map(|(index, subnet)| {
            let place = format!("LaunchTemplateConfigs.1.Overrides.{}", index + 1);
            let requirements = format!("{place}.InstanceRequirements");
            format!(
                "&{place}.SubnetId={subnet}\
                 &{requirements}.VCpuCount.Min=4&{requirements}.VCpuCount.Max=4\
                 &{requirements}.MemoryMiB.Min=8192\
                 &{requirements}.AllowedInstanceType.1=c6i.*\
                 &{requirements}.BurstablePerformance=excluded"
            )
        })
        .collect();
    format!(
        "Action=CreateFleet&Type=instant\
         &LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName={template}\
         &LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=%24Default{overrides}\
         &TargetCapacitySpecification.TotalTargetCapacity={count}\
         &TargetCapacitySpecification.DefaultTargetCapacityType={kind}\
         &TagSpecification.1.ResourceType=instance\
         &TagSpecification.1.Tag.1.Key=ondeck:pool&TagSpecification.1.Tag.1.Value=p1"
    )
}
