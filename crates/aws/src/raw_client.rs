//! Sends requests that are given as data: JSON for DynamoDB, SQS, CloudWatch Logs, SSM and Secrets
//! Manager, parameters for EC2. The SDK's clients cannot send such a request, and the last three JSON
//! services have no client here.

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
    Chain, DYNAMODB, EC2, LOGS, SECRETS_MANAGER, SQS, SYSTEMS_MANAGER, is_passing, unavailable,
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
}

/// How a service is called.
struct Protocol {
    /// Its name in messages, and its id in the configuration of the SDK.
    id: &'static str,
    /// Its name in signatures and in host names.
    name: &'static str,
    /// What precedes the operation in the header `x-amz-target`; `None` for EC2.
    target: Option<&'static str>,
    content_type: &'static str,
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
        let url = ec2::endpoint_of(&self.cloud.config, protocol.id, protocol.name)?;
        let keys = self.keys.get(operation, now).await?;
        let body = match protocol.target {
            Some(_) => request.to_string(),
            None => form(operation, request),
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
        headers.insert("content-type", protocol.content_type);
        headers.insert("user-agent", concat!("ondeck/", env!("CARGO_PKG_VERSION")));
        if let Some(target) = protocol.target {
            headers.insert("x-amz-target", format!("{target}.{operation}"));
        }
        let place = (protocol.name, self.cloud.region());
        let signature = ec2::signature(&http, &body, &keys, place, now);
        for (name, value) in signature.map_err(|error| unusable(&error))? {
            http.headers_mut().insert(name, value);
        }
        Ok(http)
    }
}

impl Protocol {
    fn of(service: &str) -> Protocol {
        match service {
            "dynamodb" => Protocol {
                id: DYNAMODB,
                name: "dynamodb",
                target: Some("DynamoDB_20120810"),
                content_type: JSON_1_0,
            },
            "sqs" => {
                Protocol { id: SQS, name: "sqs", target: Some("AmazonSQS"), content_type: JSON_1_0 }
            }
            "logs" => Protocol {
                id: LOGS,
                name: "logs",
                target: Some("Logs_20140328"),
                content_type: JSON_1_1,
            },
            "ssm" => Protocol {
                id: SYSTEMS_MANAGER,
                name: "ssm",
                target: Some("AmazonSSM"),
                content_type: JSON_1_1,
            },
            "secretsmanager" => Protocol {
                id: SECRETS_MANAGER,
                name: "secretsmanager",
                target: Some("secretsmanager"),
                content_type: JSON_1_1,
            },
            _ => Protocol { id: EC2, name: "ec2", target: None, content_type: FORM },
        }
    }
}

/// The body of a request to EC2.
fn form(operation: &str, request: &Value) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", operation).append_pair("Version", ec2::VERSION);
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
    RawAnswer { status, code, body }
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
            form("CreateTags", &request),
            "Action=CreateTags&Version=2016-11-15&DryRun=true&Tag.1.Key=ondeck%3Apool"
        );
    }
}
