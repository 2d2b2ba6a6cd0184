//! An AWS request, parsed: its service, its operation and its content.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use hyper::{Method, Uri};
use serde_json::Value;

use crate::aws::params::Params;

/// A service of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    DynamoDb,
    Sqs,
    Ec2,
    Sts,
    Logs,
    /// SSM and Secrets Manager.
    Secrets,
    Quotas,
    Iam,
    /// A service that has no stand-in here.
    Unknown,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Service::DynamoDb => "DynamoDB",
            Service::Sqs => "SQS",
            Service::Ec2 => "EC2",
            Service::Sts => "STS",
            Service::Logs => "CloudWatch Logs",
            Service::Secrets => "SSM and Secrets Manager",
            Service::Quotas => "Service Quotas",
            Service::Iam => "IAM",
            Service::Unknown => "unknown service",
        })
    }
}

/// The parsed body of a request.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// The JSON protocol of all other services.
    Json(Value),
    /// The Query protocol of EC2, IAM and STS.
    Query(Params),
    /// A body that neither protocol can parse.
    Unreadable,
}

/// A request that an endpoint has received.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) operation: String,
    /// Its body in the JSON protocol is parsed when it is asked for: what is only forwarded is not.
    content: OnceLock<Content>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// Parses a request. An unknown service or body is recorded as such and is not an error.
    pub(crate) fn of(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Call {
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
        let of = |service| (service, OnceLock::new());
        let Some((target, operation)) = target.and_then(|target| target.split_once('.')) else {
            let (service, operation, content) = query(&headers, &body);
            let content = OnceLock::from(content);
            return Call { service, operation, content, method, uri, headers, body };
        };
        let operation = operation.to_owned();
        let (service, content) = match target {
            "DynamoDB_20120810" => of(Service::DynamoDb),
            "AmazonSQS" => of(Service::Sqs),
            "Logs_20140328" => of(Service::Logs),
            "AmazonSSM" | "secretsmanager" => of(Service::Secrets),
            "ServiceQuotasV20190624" => of(Service::Quotas),
            _ => (Service::Unknown, OnceLock::from(Content::Unreadable)),
        };
        Call { service, operation, content, method, uri, headers, body }
    }

    /// Another request to DynamoDB with the credentials of this one.
    pub(crate) fn to_dynamodb(&self, operation: &str, content: Value) -> Call {
        self.to("DynamoDB_20120810", operation, content)
    }

    /// Another request to SQS with the credentials of this one.
    pub(crate) fn to_sqs(&self, operation: &str, content: Value) -> Call {
        self.to("AmazonSQS", operation, content)
    }

    fn to(&self, service: &str, operation: &str, content: Value) -> Call {
        let mut call = self.with_json(content);
        let target = format!("{service}.{operation}");
        let target = HeaderValue::from_str(&target).expect("operations are plain text");
        call.headers.insert("x-amz-target", target);
        call.operation = operation.to_owned();
        call
    }

    /// This request with another JSON body.
    pub(crate) fn with_json(&self, content: Value) -> Call {
        let body = Bytes::from(content.to_string());
        Call { body, content: OnceLock::from(Content::Json(content)), ..self.clone() }
    }

    /// The access key that has signed the request; `None` if it is not signed.
    pub(crate) fn access_key(&self) -> Option<&str> {
        credential(&self.headers)?.split('/').next().filter(|key| !key.is_empty())
    }

    pub(crate) fn content(&self) -> &Content {
        self.content.get_or_init(|| json(&self.body))
    }

    /// The request's JSON body; `None` in the Query protocol.
    pub(crate) fn json(&self) -> Option<&Value> {
        if let Content::Json(value) = self.content() { Some(value) } else { None }
    }

    /// The request's parameters; `None` in the JSON protocol.
    pub(crate) fn params(&self) -> Option<&Params> {
        if let Content::Query(params) = self.content() { Some(params) } else { None }
    }
}

/// The operation of STS that is not signed.
pub(crate) const WEB_IDENTITY: &str = "AssumeRoleWithWebIdentity";

fn json(body: &[u8]) -> Content {
    serde_json::from_slice(body).map_or(Content::Unreadable, Content::Json)
}

/// In the Query protocol the body names the action, and only the signature names the service.
fn query(headers: &HeaderMap, body: &[u8]) -> (Service, String, Content) {
    let params = Params::parse(body);
    let Some(action) = params.text("Action").map(str::to_owned) else {
        return (Service::Unknown, "unknown operation".to_owned(), Content::Unreadable);
    };
    let service = match scope(headers) {
        Some("ec2") => Service::Ec2,
        Some("sts") => Service::Sts,
        Some("iam") => Service::Iam,
        // The token takes the place of a signature.
        None if action == WEB_IDENTITY => Service::Sts,
        _ => Service::Unknown,
    };
    (service, action, Content::Query(params))
}

/// The service in a signature, the fourth of five parts:
/// `Credential=KEY/20261115/us-east-1/ec2/aws4_request`.
fn scope(headers: &HeaderMap) -> Option<&str> {
    credential(headers)?.rsplit('/').nth(1)
}

fn credential(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (_, credential) = authorization.split_once("Credential=")?;
    credential.split(',').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(headers: &[(&'static str, &str)], body: &'static [u8]) -> Call {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).try_into().unwrap(), value.parse().unwrap()))
            .collect();
        Call::of(Method::POST, Uri::from_static("/"), headers, Bytes::from_static(body))
    }

    #[test]
    fn a_json_body_is_parsed_when_it_is_asked_for() {
        let target = [("x-amz-target", "DynamoDB_20120810.PutItem")];
        let put = call(&target, br#"{"TableName":"t"}"#);
        assert!(put.content.get().is_none(), "it may be forwarded only");
        assert_eq!(put.json().unwrap()["TableName"], "t");
        let other = put.with_json(serde_json::json!({"TableName": "u"}));
        assert_eq!(
            (other.json().unwrap()["TableName"].as_str(), other.params().is_none()),
            (Some("u"), true)
        );
        assert_eq!(&other.body[..], br#"{"TableName":"u"}"#);
        assert!(call(&target, b"?").json().is_none());
    }

    #[test]
    fn services_are_told_apart() {
        let signed = |service: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=K/20261115/us-east-1/{service}/aws4_request, Signature=0"
            )
        };
        let cases = [
            (
                call(&[("x-amz-target", "DynamoDB_20120810.PutItem")], b"{}"),
                Service::DynamoDb,
                "PutItem",
            ),
            (
                call(&[("x-amz-target", "AmazonSQS.SendMessage")], b"{}"),
                Service::Sqs,
                "SendMessage",
            ),
            (
                call(&[("x-amz-target", "Logs_20140328.PutLogEvents")], b"{}"),
                Service::Logs,
                "PutLogEvents",
            ),
            (
                call(&[("authorization", &signed("ec2"))], b"Action=CreateFleet"),
                Service::Ec2,
                "CreateFleet",
            ),
            (
                call(&[("authorization", &signed("sts"))], b"Action=GetCallerIdentity"),
                Service::Sts,
                "GetCallerIdentity",
            ),
            (
                call(&[("authorization", &signed("iam"))], b"Action=GetInstanceProfile"),
                Service::Iam,
                "GetInstanceProfile",
            ),
            (
                call(&[("authorization", &signed("sns"))], b"Action=Publish"),
                Service::Unknown,
                "Publish",
            ),
            (
                call(&[("x-amz-target", "ServiceQuotasV20190624.GetServiceQuota")], b"{}"),
                Service::Quotas,
                "GetServiceQuota",
            ),
            (call(&[("x-amz-target", "AWSKMS.Decrypt")], b"{}"), Service::Unknown, "Decrypt"),
            (
                call(&[("x-amz-target", "AmazonSSM.GetParameter")], b"{}"),
                Service::Secrets,
                "GetParameter",
            ),
            (
                call(&[], b"Action=AssumeRoleWithWebIdentity"),
                Service::Sts,
                "AssumeRoleWithWebIdentity",
            ),
            (call(&[], b"Action=CreateFleet"), Service::Unknown, "CreateFleet"),
            (call(&[], b""), Service::Unknown, "unknown operation"),
        ];
        for (call, service, operation) in cases {
            assert_eq!((call.service, call.operation.as_str()), (service, operation));
        }
    }
}
