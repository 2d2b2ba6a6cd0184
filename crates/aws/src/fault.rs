//! What AWS's errors mean to a caller: try again, set up, or call a person.

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::display::DisplayErrorContext;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use ondeck_core::ports::PortError;

/// A service, by the name that messages use.
pub(crate) type Service = &'static str;

pub(crate) const DYNAMODB: Service = "DynamoDB";
pub(crate) const SQS: Service = "SQS";
pub(crate) const EC2: Service = "EC2";

/// An answer that was an error, in the service's own words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Complaint<'a> {
    pub(crate) status: u16,
    pub(crate) code: &'a str,
    pub(crate) message: &'a str,
}

/// Too many calls, or too much at once: the same call will pass later.
const THROTTLING: [&str; 14] = [
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
];

/// Their trouble, not ours.
const PASSING: [&str; 11] = [
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "RequestTimeout",
    "RequestTimeoutException",
    "ResourceInUseException",
    "ServiceUnavailable",
    "TransactionConflictException",
    "Unavailable",
    "AWS.SimpleQueueService.QueueDeletedRecently",
    "KMS.ThrottlingException",
];

/// The clock is wrong, which the answer's own date puts right for the next call.
const SKEWED: [&str; 2] = ["RequestTimeTooSkewed", "RequestInTheFuture"];

const EXPIRED: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"];

const REFUSED: [&str; 11] = [
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
];

/// What an answer of the service means.
pub(crate) fn complaint(service: Service, action: &str, complaint: Complaint<'_>) -> PortError {
    let Complaint { status, code, message } = complaint;
    let said = match (code, message) {
        ("", "") => format!("{action}: status {status}"),
        (code, "") => format!("{action}: {code}"),
        (code, message) => format!("{action}: {code}: {message}"),
    };
    // A signature that is out of date is reported as a wrong one, and told apart by its text.
    let skewed = SKEWED.contains(&code)
        || (REFUSED.contains(&code)
            && (message.contains("Signature expired") || message.contains("Signature not yet")));
    if skewed
        || status >= 500
        || status == 429
        || THROTTLING.contains(&code)
        || PASSING.contains(&code)
    {
        return PortError::Unavailable { service, reason: said };
    }
    let hint = if EXPIRED.contains(&code) {
        "the AWS credentials have expired: sign in again, or repeat the step that gets them"
            .to_owned()
    } else if REFUSED.contains(&code) {
        let prefix = service.to_ascii_lowercase();
        format!("check the AWS credentials, and that they allow {prefix}:{action}")
    } else {
        "this is not expected to pass by itself; see what AWS says".to_owned()
    };
    PortError::Unusable { service, reason: said, hint }
}

/// What an error of the SDK means, whatever the operation.
pub(crate) fn fault<E>(service: Service, action: &str, error: &SdkError<E, Response>) -> PortError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match error {
        SdkError::ServiceError(answer) => {
            let meta = answer.err().meta();
            complaint(
                service,
                action,
                Complaint {
                    status: answer.raw().status().as_u16(),
                    code: meta.code().unwrap_or_default(),
                    message: meta.message().unwrap_or_default(),
                },
            )
        }
        SdkError::ConstructionFailure(_) => not_sent(service, action, error),
        // A connection that broke off half-way is "other" as well, but known to be passing.
        SdkError::DispatchFailure(failure)
            if failure.is_other() && failure.as_other().is_none() =>
        {
            not_sent(service, action, error)
        }
        other => unavailable(service, action, &DisplayErrorContext(other)),
    }
}

/// Out of reach, or cut off.
pub(crate) fn unavailable(
    service: Service,
    action: &str,
    error: &dyn std::fmt::Display,
) -> PortError {
    PortError::Unavailable { service, reason: format!("{action}: {error}") }
}

/// Nothing left this computer: as a rule for want of credentials.
fn not_sent<E>(service: Service, action: &str, error: &SdkError<E, Response>) -> PortError
where
    E: std::error::Error + 'static,
{
    PortError::Unusable {
        service,
        reason: format!("{action}: {}", DisplayErrorContext(error)),
        hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run \
               aws-actions/configure-aws-credentials before"
            .to_owned(),
    }
}
