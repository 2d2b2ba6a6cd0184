//! Sends requests that are given as data: JSON for DynamoDB, SQS, CloudWatch Logs, SSM, Secrets Manager
//! and Service Quotas, parameters for EC2, IAM and STS. The SDK's clients cannot send such a request, and
//! most of these services have no client here.

use std::time::{Duration, Instant, SystemTime};

use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::http::Request;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use ondeck_core::ports::{PortError, PortResult};
use serde_json::Value;

use crate::cloud::Cloud;
use crate::ec2::{self, Keys};
use crate::error::{
    Chain, DYNAMODB, EC2, IAM, LOGS, SECRETS_MANAGER, SERVICE_QUOTAS, SQS, STS, SYSTEMS_MANAGER,
    is_passing, unavailable,
};

/// How long a request may take, its answer included.
const LIMIT: Duration = Duration::from_secs(8);

/// A connection to the services, with the credentials of one role.
pub(crate) struct RawClient {
    cloud: Cloud,
    keys: Keys,
}

/// What a service answered. It may hold a secret, so it has no `Debug` form.
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// The code of the error; empty for a success.
    pub(crate) code: String,
    /// The answer, if it is JSON.
    pub(crate) body: Value,
    pub(crate) text: String,
}

/// How a service is called.
struct Protocol {
    /// Its name in messages, and its id in the configuration of the SDK.
    id: &'static str,
    /// Its name in signatures and in host names.
    name: &'static str,
    form: Form,
}

/// How an operation and its parameters are written.
enum Form {
    /// As JSON, with what precedes the operation in the header `x-amz-target`.
    Json { target: &'static str, content_type: &'static str },
    /// As a form, with the version of the API.
    Query(&'static str),
}

const JSON_1_0: &str = "application/x-amz-json-1.0";
const JSON_1_1: &str = "application/x-amz-json-1.1";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

impl RawClient {
    pub(crate) fn new(cloud: &Cloud) -> RawClient {
        RawClient { cloud: cloud.clone(), keys: Keys::of(&cloud.config) }
    }

    /// The address of SQS, with which the addresses of queues begin. Empty if there is none.
    pub(crate) fn sqs_url(&self) -> String {
        ec2::endpoint_of(&self.cloud.config, SQS, "sqs").unwrap_or_default()
    }

    /// Sends a request and retries it while the service is busy or does not answer.
    pub(crate) async fn send(&self, call: &str, request: &Value) -> PortResult<RawAnswer> {
        let (service, operation) = call.split_once(':').unwrap_or((call, ""));
        let protocol = Protocol::of(service);
        let once = || async {
            let answer = self.send_within_limit(&protocol, operation, request).await?;
            if answer.status >= 500 || is_passing(&answer.code) {
                return Err(unavailable(protocol.id, operation, &answer.code));
            }
            Ok(answer)
        };
        self.cloud.patience.retried(once).await
    }

    /// Sends a request once. Fails if there is no answer in time.
    pub(crate) async fn send_once(&self, call: &str, request: &Value) -> PortResult<RawAnswer> {
        let (service, operation) = call.split_once(':').unwrap_or((call, ""));
        self.send_within_limit(&Protocol::of(service), operation, request).await
    }

    async fn send_within_limit(
        &self,
        protocol: &Protocol,
        operation: &str,
        request: &Value,
    ) -> PortResult<RawAnswer> {
        let sent = tokio::time::timeout(LIMIT, self.exchange(protocol, operation, request));
        let late = || unavailable(protocol.id, operation, &"no answer in time");
        sent.await.map_err(|_| late())?
    }

    async fn exchange(
        &self,
        protocol: &Protocol,
        operation: &str,
        request: &Value,
    ) -> PortResult<RawAnswer> {
        let now = TimeSource::now(&self.cloud.skew.clock());
        let request = self.signed(protocol, operation, request, now).await?;
        let failed = |error: &dyn std::fmt::Display| unavailable(protocol.id, operation, error);
        let sent = Instant::now();
        let answer = self.cloud.wire.connector().call(request).await;
        let answer = answer.map_err(|error| failed(&Chain(&error)))?;
        if let Some(date) = answer.headers().get("date") {
            self.cloud.skew.observe(date, sent.elapsed());
        }
        let status = answer.status().as_u16();
        let body = ByteStream::new(answer.into_body()).collect().await;
        let body = body.map_err(|error| failed(&Chain(&error)))?.to_vec();
        Ok(read(status, &String::from_utf8_lossy(&body)))
    }

    async fn signed(
        &self,
        protocol: &Protocol,
        operation: &str,
        request: &Value,
        now: SystemTime,
    ) -> PortResult<Request> {
        let (url, region) = self.place(protocol)?;
        let keys = self.keys.get(operation, now).await?;
        let body = match protocol.form {
            Form::Json { .. } => request.to_string(),
            Form::Query(version) => form(version, operation, request),
        };
        let unusable = |error: &dyn std::fmt::Display| PortError::Unusable {
            service: protocol.id,
            reason: format!("{operation}: the request cannot be made: {error}"),
            hint: format!("check the endpoint: {url}"),
        };
        let mut http = Request::new(SdkBody::from(body.as_str()));
        http.set_method("POST").map_err(|error| unusable(&error))?;
        http.set_uri(url.as_str()).map_err(|error| unusable(&error))?;
        let headers = http.headers_mut();
        headers.insert("user-agent", concat!("ondeck/", env!("CARGO_PKG_VERSION")));
        match protocol.form {
            Form::Json { target, content_type } => {
                headers.insert("content-type", content_type);
                headers.insert("x-amz-target", format!("{target}.{operation}"));
            }
            Form::Query(_) => {
                headers.insert("content-type", FORM);
            }
        }
        let signature = ec2::signature(&http, &body, &keys, (protocol.name, &region), now);
        for (name, value) in signature.map_err(|error| unusable(&error))? {
            http.headers_mut().insert(name, value);
        }
        Ok(http)
    }

    /// The address of a service, and the region that requests to it are signed for.
    fn place(&self, protocol: &Protocol) -> PortResult<(String, String)> {
        let region = self.cloud.region();
        let url = ec2::endpoint_of(&self.cloud.config, protocol.id, protocol.name)?;
        match global(protocol.name, region).filter(|_| url.contains(&format!("iam.{region}."))) {
            Some((url, region)) => Ok((url.to_owned(), region.to_owned())),
            None => Ok((url, region.to_owned())),
        }
    }
}

/// The address and the region of IAM, which has one for each partition: AWS General Reference, "AWS
/// Identity and Access Management endpoints and quotas". `None` for services of each region, and where
/// the address is built like theirs.
fn global(service: &str, region: &str) -> Option<(&'static str, &'static str)> {
    match region.split('-').next() {
        _ if service != "iam" => None,
        Some("cn") => Some(("https://iam.cn-north-1.amazonaws.com.cn/", "cn-north-1")),
        Some("eusc") => None,
        _ if region.starts_with("us-gov-") => {
            Some(("https://iam.us-gov.amazonaws.com/", "us-gov-west-1"))
        }
        _ if region.contains("iso") => None,
        _ => Some(("https://iam.amazonaws.com/", "us-east-1")),
    }
}

impl Protocol {
    fn of(service: &str) -> Protocol {
        let json = |id, name, target, content_type| Protocol {
            id,
            name,
            form: Form::Json { target, content_type },
        };
        let query = |id, name, version| Protocol { id, name, form: Form::Query(version) };
        match service {
            "dynamodb" => json(DYNAMODB, "dynamodb", "DynamoDB_20120810", JSON_1_0),
            "sqs" => json(SQS, "sqs", "AmazonSQS", JSON_1_0),
            "logs" => json(LOGS, "logs", "Logs_20140328", JSON_1_1),
            "ssm" => json(SYSTEMS_MANAGER, "ssm", "AmazonSSM", JSON_1_1),
            "secretsmanager" => json(SECRETS_MANAGER, "secretsmanager", "secretsmanager", JSON_1_1),
            "servicequotas" => {
                json(SERVICE_QUOTAS, "servicequotas", "ServiceQuotasV20190624", JSON_1_1)
            }
            "iam" => query(IAM, "iam", "2010-05-08"),
            "sts" => query(STS, "sts", "2011-06-15"),
            _ => query(EC2, "ec2", ec2::VERSION),
        }
    }
}

/// The body of a request that is a form.
fn form(version: &str, operation: &str, request: &Value) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", operation).append_pair("Version", version);
    for (name, value) in request.as_object().into_iter().flatten() {
        form.append_pair(name, value.as_str().unwrap_or_default());
    }
    form.finish()
}

fn read(status: u16, text: &str) -> RawAnswer {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let json_code = body["__type"].as_str().map(|kind| kind.rsplit('#').next().unwrap_or(kind));
    let code = match json_code {
        _ if status < 300 => String::new(),
        Some(code) => code.to_owned(),
        None => ec2::problem(text).map(|(code, _)| code).unwrap_or_default(),
    };
    RawAnswer { status, code, body, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_read_in_each_format() {
        let denied = r#"{"__type":"com.amazon.coral.service#AccessDeniedException"}"#;
        let xml = "<Response><Errors><Error><Code>DryRunOperation</Code><Message>m</Message>\
                   </Error></Errors><RequestID>r</RequestID></Response>";
        for (status, text, code) in [
            (400, denied, "AccessDeniedException"),
            (412, xml, "DryRunOperation"),
            (200, "{}", ""),
            (200, "<DescribeInstancesResponse/>", ""),
            (404, "not found", ""),
        ] {
            assert_eq!(read(status, text).code, code, "{text}");
        }
    }

    #[test]
    fn parameters_are_sent_as_a_form() {
        let request = serde_json::json!({ "DryRun": "true", "Tag.1.Key": "ondeck:pool" });
        assert_eq!(
            form(ec2::VERSION, "CreateTags", &request),
            "Action=CreateTags&Version=2016-11-15&DryRun=true&Tag.1.Key=ondeck%3Apool"
        );
    }

    #[test]
    fn iam_has_one_address_in_each_partition() {
        for (service, region, expected) in [
            ("iam", "eu-central-1", Some(("https://iam.amazonaws.com/", "us-east-1"))),
            ("iam", "us-gov-east-1", Some(("https://iam.us-gov.amazonaws.com/", "us-gov-west-1"))),
            (
                "iam",
                "cn-northwest-1",
                Some(("https://iam.cn-north-1.amazonaws.com.cn/", "cn-north-1")),
            ),
            ("iam", "us-iso-east-1", None),
            ("sts", "eu-central-1", None),
        ] {
            assert_eq!(global(service, region), expected, "{service} {region}");
        }
    }
}
