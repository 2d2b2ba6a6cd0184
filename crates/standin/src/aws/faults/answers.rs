//! Error answers in each service's own format, made without asking the service.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderValue};

use crate::aws::call::{Call, Service};
use crate::aws::sqs;
use crate::aws::xml::{Xml, request_id};
use crate::http::Answer;
use crate::timestamps;

/// How far AWS lets a signature's time be off.
const TOLERATED_SECS: u64 = 300;

/// An internal error of the service, with the code that it uses for this status.
pub(crate) fn server_error(service: Service, status: u16) -> Answer {
    let code = match (service, status) {
        (Service::DynamoDb, 500) => "InternalServerError",
        (Service::Ec2, 503) => "Unavailable",
        (_, 503) => "ServiceUnavailable",
        (Service::Sts | Service::Iam, _) => "InternalFailure",
        _ => "InternalError",
    };
    refusal(service, status, code, "An internal error has occurred. Retry your request.")
}

/// The service's answer to a caller that it throttles.
pub(crate) fn throttled(service: Service) -> Answer {
    match service {
        Service::DynamoDb => refusal(
            service,
            400,
            "ProvisionedThroughputExceededException",
            "The level of configured provisioned throughput for the table was exceeded.",
        ),
        Service::Sqs => refusal(service, 400, "RequestThrottled", "Request is throttled."),
        Service::Ec2 => refusal(service, 503, "RequestLimitExceeded", "Request limit exceeded."),
        Service::Logs | Service::Secrets | Service::Quotas => {
            refusal(service, 400, "ThrottlingException", "Rate exceeded")
        }
        Service::Sts | Service::Iam | Service::Unknown => {
            refusal(service, 400, "Throttling", "Rate exceeded")
        }
    }
}

/// The service's answer to expired credentials. EC2 gives the same one for a clock that is off.
pub(crate) fn expired(service: Service) -> Answer {
    const MESSAGE: &str = "The security token included in the request is expired";
    match service {
        Service::DynamoDb | Service::Logs | Service::Secrets | Service::Quotas => {
            refusal(service, 400, "ExpiredTokenException", MESSAGE)
        }
        Service::Sqs => refusal(service, 403, "ExpiredTokenException", MESSAGE),
        Service::Ec2 => refusal(service, 400, "RequestExpired", "Request has expired."),
        Service::Sts | Service::Iam | Service::Unknown => {
            refusal(service, 403, "ExpiredToken", MESSAGE)
        }
    }
}

/// The service's answer to an access key that it does not know.
pub(crate) fn unknown_key(service: Service) -> Answer {
    const MESSAGE: &str = "The security token included in the request is invalid.";
    match service {
        Service::DynamoDb | Service::Logs | Service::Secrets | Service::Quotas => {
            refusal(service, 400, "UnrecognizedClientException", MESSAGE)
        }
        Service::Ec2 => {
            let message = "AWS was not able to validate the provided access credentials";
            refusal(service, 401, "AuthFailure", message)
        }
        Service::Sqs | Service::Sts | Service::Iam | Service::Unknown => {
            refusal(service, 403, "InvalidClientTokenId", MESSAGE)
        }
    }
}

/// The service's answer to a caller whose policies do not allow the call.
pub(crate) fn denied(service: Service, message: &str) -> Answer {
    match service {
        Service::DynamoDb | Service::Logs | Service::Secrets | Service::Quotas => {
            refusal(service, 400, "AccessDeniedException", message)
        }
        Service::Ec2 => {
            let message = format!("You are not authorized to perform this operation. {message}");
            refusal(service, 403, "UnauthorizedOperation", &message)
        }
        Service::Sqs | Service::Sts | Service::Iam | Service::Unknown => {
            refusal(service, 403, "AccessDenied", message)
        }
    }
}

/// The service's refusal if the request's signature is more than five minutes
/// off `now`, else `None`.
pub(crate) fn out_of_time(call: &Call, now: SystemTime) -> Option<Answer> {
    let signed = call.headers.get("x-amz-date").and_then(|date| date.to_str().ok())?;
    let time = timestamps::parse_compact(signed)?;
    let off = time.duration_since(now).unwrap_or_else(|error| error.duration());
    if off.as_secs() <= TOLERATED_SECS {
        return None;
    }
    let now = timestamps::compact(now);
    let message = if *signed < *now {
        format!("Signature expired: {signed} is now earlier than {now} - 5 min.")
    } else {
        format!("Signature not yet current: {signed} is still later than {now} + 5 min.")
    };
    Some(match call.service {
        Service::Ec2 => refusal(Service::Ec2, 400, "RequestExpired", "Request has expired."),
        service @ (Service::Sts | Service::Iam) => {
            refusal(service, 403, "SignatureDoesNotMatch", &message)
        }
        Service::Sqs => refusal(Service::Sqs, 403, "InvalidSignatureException", &message),
        service => refusal(service, 400, "InvalidSignatureException", &message),
    })
}

/// Sets an answer's `Date` header to the service's time.
pub(crate) fn date(answer: &mut Answer, now: SystemTime) {
    let date = HeaderValue::from_str(&timestamps::http_date(now)).expect("a date is plain text");
    answer.headers.insert(DATE, date);
}

/// The answer of STS to a caller that assumes a role by a token.
pub(crate) fn assumed(access_key: &str, session_arn: &str, subject: &str) -> Answer {
    let expires = timestamps::iso(SystemTime::now() + Duration::from_secs(3_600));
    let body = Xml::assumed(access_key, session_arn, subject, &expires);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    Answer { status: StatusCode::OK, headers, body: body.into() }
}

/// A successful answer in the JSON protocol.
pub(crate) fn done(body: String) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
    Answer { status: StatusCode::OK, headers, body: body.into() }
}

/// An error answer with this code and message, in the service's own format.
pub(crate) fn refusal(service: Service, status: u16, code: &str, message: &str) -> Answer {
    let mut headers = HeaderMap::new();
    let (kind, body) = match service {
        Service::Ec2 => ("text/xml;charset=UTF-8", Xml::error(code, message)),
        Service::Sts | Service::Iam | Service::Unknown => {
            ("text/xml", Xml::query_error(code, message))
        }
        Service::Logs | Service::Secrets | Service::Quotas => {
            let body = serde_json::json!({ "__type": code, "message": message });
            ("application/x-amz-json-1.1", body.to_string())
        }
        Service::DynamoDb | Service::Sqs => {
            let space = if service == Service::Sqs {
                // SQS has spoken XML once, and still gives the code of that time beside.
                let side = if status >= 500 { "Receiver" } else { "Sender" };
                let legacy = format!("{};{side}", sqs::legacy_code(code));
                let legacy = HeaderValue::from_str(&legacy).expect("codes are plain text");
                headers.insert("x-amzn-query-error", legacy);
                "com.amazonaws.sqs"
            } else {
                "com.amazonaws.dynamodb.v20120810"
            };
            let kind = format!("{space}#{code}");
            let body = serde_json::json!({ "__type": kind, "message": message });
            ("application/x-amz-json-1.0", body.to_string())
        }
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let id = HeaderValue::from_str(&request_id()).expect("an id is plain text");
    headers.insert("x-amzn-requestid", id);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Answer { status, headers, body: body.into() }
}
