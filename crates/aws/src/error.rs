//! Translates errors of AWS into port errors: retry, set up, or ask the operator.

mod credentials;

use std::time::SystemTime;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::ports::PortError;

use crate::skew;

pub(crate) use credentials::not_sent;

/// A service, by the name that messages use.
pub(crate) type Service = &'static str;

pub(crate) const DYNAMODB: Service = "DynamoDB";
pub(crate) const SQS: Service = "SQS";
pub(crate) const EC2: Service = "EC2";
pub(crate) const LOGS: Service = "CloudWatch Logs";
pub(crate) const SYSTEMS_MANAGER: Service = "SSM";
pub(crate) const SECRETS_MANAGER: Service = "Secrets Manager";
pub(crate) const SERVICE_QUOTAS: Service = "Service Quotas";
pub(crate) const IAM: Service = "IAM";
pub(crate) const STS: Service = "STS";

/// An error answer, in the service's own words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorResponse<'a> {
    pub(crate) status: u16,
    pub(crate) code: &'a str,
    pub(crate) message: &'a str,
}

/// Throttling: the same call will succeed later.
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

/// Errors of the service itself, or of a concurrent change: the same call will succeed later.
const PASSING: [&str; 15] = [
    "AWS.SimpleQueueService.QueueDeletedRecently",
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "KMS.ThrottlingException",
    "KmsThrottled",
    // Too many messages are in flight, and will not be for long.
    "OverLimit",
    "QueueDeletedRecently",
    "ReplicatedWriteConflictException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ResourceInUseException",
    "ServiceUnavailable",
    "TransactionConflictException",
    "Unavailable",
];

/// Whether what a service says under this code will pass by itself.
pub(crate) fn is_passing(code: &str) -> bool {
    THROTTLING.contains(&code) || PASSING.contains(&code)
}

/// The clock is wrong, which the answer's own date puts right for the next call.
const SKEWED: [&str; 2] = ["RequestTimeTooSkewed", "RequestInTheFuture"];

/// What else a wrong clock is answered with. EC2 says the same of wrong or expired credentials,
/// so only the answer's date tells.
const PERHAPS_SKEWED: [&str; 4] =
    ["AuthFailure", "InvalidSignatureException", "RequestExpired", "SignatureDoesNotMatch"];

const EXPIRED: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"];

const REFUSED: [&str; 13] = [
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
];

/// What an answer means that gives its `Date`: a refusal may be for our wrong clock alone.
pub(crate) fn error_of_dated_response(
    service: Service,
    action: &str,
    said: ErrorResponse<'_>,
    date: Option<&str>,
) -> PortError {
    let skewed = date.is_some_and(|date| skew::is_refused_for(date, SystemTime::now()));
    if skewed && PERHAPS_SKEWED.contains(&said.code) {
        let reason = in_words(action, said);
        return PortError::Unavailable { service, reason };
    }
    error_of_response(service, action, said)
}

/// What an answer of the service means.
pub(crate) fn error_of_response(
    service: Service,
    action: &str,
    complaint: ErrorResponse<'_>,
) -> PortError {
    let ErrorResponse { status, code, message } = complaint;
    let said = in_words(action, complaint);
    // A signature that is out of date is reported as a wrong one, and told apart by its text.
    let skewed = SKEWED.contains(&code)
        || (REFUSED.contains(&code)
            && (message.contains("Signature expired") || message.contains("Signature not yet")));
    if skewed || status >= 500 || status == 429 || is_passing(code) {
        return PortError::Unavailable { service, reason: said };
    }
    let hint = if EXPIRED.contains(&code) {
        "the AWS credentials have expired: sign in again, or repeat the step that gets them"
            .to_owned()
    } else if REFUSED.contains(&code) {
        let permissions = permissions(service, action);
        format!("check the AWS credentials, and that they allow {permissions}")
    } else {
        "this is not expected to pass by itself; see what AWS says".to_owned()
    };
    PortError::Unusable { service, reason: said, hint }
}

/// What one must be allowed for an action. Some have no permission of their name.
fn permissions(service: Service, action: &str) -> String {
    let named: &[&str] = match action {
        "BatchExecuteStatement" => &["PartiQLUpdate", "PartiQLDelete"],
        "TransactWriteItems" => &["PutItem", "DeleteItem"],
        // The permission for one message covers a batch.
        _ => &[action.trim_end_matches("Batch")],
    };
    let prefix = service.to_ascii_lowercase();
    named.iter().map(|name| format!("{prefix}:{name}")).collect::<Vec<_>>().join(" and ")
}

/// The first line says all that a person can use. A refused signature is explained by repeating
/// what was signed, the session token included, in those that follow.
fn in_words(action: &str, complaint: ErrorResponse<'_>) -> String {
    let message = one_line(&complaint.message.lines().next().unwrap_or_default());
    let code = one_line(&complaint.code);
    match (ErrorResponse { message: &message, code: &code, ..complaint }) {
        ErrorResponse { status, code: "", message: "" } => format!("{action}: status {status}"),
        ErrorResponse { status, code: "", message } => {
            format!("{action}: status {status}: {message}")
        }
        ErrorResponse { code, message: "", .. } => format!("{action}: {code}"),
        ErrorResponse { code, message, .. } => format!("{action}: {code}: {message}"),
    }
}

/// Translates an error of the SDK, for any operation.
pub(crate) fn port_error<E>(
    service: Service,
    action: &str,
    error: &SdkError<E, Response>,
) -> PortError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match error {
        // It was carried out, and only what it came to is not known.
        SdkError::ServiceError(answer) if answer.raw().status().is_success() => {
            unavailable(service, action, &"the answer cannot be read")
        }
        SdkError::ServiceError(answer) => {
            let meta = answer.err().meta();
            let said = ErrorResponse {
                status: answer.raw().status().as_u16(),
                code: meta.code().unwrap_or_default(),
                message: meta.message().unwrap_or_default(),
            };
            error_of_dated_response(service, action, said, answer.raw().headers().get("date"))
        }
        SdkError::ConstructionFailure(_) => not_sent(service, action, error),
        // A connection that broke off half-way is "other" as well, but known to be passing.
        SdkError::DispatchFailure(failure)
            if failure.is_other() && failure.as_other().is_none() =>
        {
            not_sent(service, action, error)
        }
        other => unavailable(service, action, &Chain(other)),
    }
}

/// An error with its causes, each in its own words. The SDK's own way to show them adds the whole
/// in the words of its programmers.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_smithy_types::DateTime;
    use aws_smithy_types::date_time::Format;

    use super::*;

    fn said<'a>(status: u16, code: &'a str, message: &'a str) -> ErrorResponse<'a> {
        ErrorResponse { status, code, message }
    }

    #[track_caller]
    fn passes(service: Service, status: u16, code: &str, message: &str) {
        let error = error_of_response(service, "Action", said(status, code, message));
        assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    }

    #[track_caller]
    fn hint(service: Service, action: &str, status: u16, code: &str, message: &str) -> String {
        match error_of_response(service, action, said(status, code, message)) {
            PortError::Unusable { hint, .. } => hint,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for (service, status, code, message) in [
            (DYNAMODB, 400, "ProvisionedThroughputExceededException", ""),
            (DYNAMODB, 400, "ThrottlingException", ""),
            (DYNAMODB, 400, "RequestLimitExceeded", ""),
            (DYNAMODB, 400, "LimitExceededException", "Subscriber limit exceeded"),
            (DYNAMODB, 400, "TransactionInProgressException", ""),
            (DYNAMODB, 400, "TransactionConflictException", ""),
            (DYNAMODB, 409, "ReplicatedWriteConflictException", ""),
            (DYNAMODB, 500, "InternalServerError", ""),
            (DYNAMODB, 400, "InvalidSignatureException", "Signature expired: 2026 is now earlier"),
            (DYNAMODB, 400, "InvalidSignatureException", "Signature not yet current: 2026"),
            (SQS, 403, "RequestThrottled", ""),
            (SQS, 400, "KMS.ThrottlingException", ""),
            (SQS, 403, "OverLimit", ""),
            (SQS, 400, "AWS.SimpleQueueService.QueueDeletedRecently", ""),
            (SQS, 400, "QueueDeletedRecently", ""),
            (SQS, 408, "RequestTimeout", ""),
            (EC2, 503, "RequestLimitExceeded", ""),
            (EC2, 503, "EC2ThrottledException", ""),
            (EC2, 503, "Unavailable", ""),
            (EC2, 500, "InternalError", ""),
            (EC2, 403, "RequestTimeTooSkewed", ""),
            // What comes from something in between has no code at all.
            (EC2, 502, "", "<html>"),
            (EC2, 504, "", ""),
            (EC2, 509, "", ""),
            (SQS, 429, "", ""),
        ] {
            passes(service, status, code, message);
        }
    }

    #[test]
    fn what_a_person_must_see_to_says_what_to_see_to() {
        for code in ["ExpiredToken", "ExpiredTokenException", "RequestExpired"] {
            let hint = hint(EC2, "CreateFleet", 400, code, "Request has expired.");
            assert!(hint.contains("have expired"), "{code}: {hint}");
        }
        for (service, action, code, permission) in [
            (EC2, "CreateFleet", "UnauthorizedOperation", "ec2:CreateFleet"),
            (EC2, "DescribeInstances", "AuthFailure", "ec2:DescribeInstances"),
            (DYNAMODB, "BatchGetItem", "AccessDeniedException", "dynamodb:BatchGetItem"),
            (DYNAMODB, "Query", "MissingAuthenticationTokenException", "dynamodb:Query"),
            (DYNAMODB, "Query", "IncompleteSignatureException", "dynamodb:Query"),
            (
                DYNAMODB,
                "BatchExecuteStatement",
                "AccessDeniedException",
                "dynamodb:PartiQLUpdate and dynamodb:PartiQLDelete",
            ),
            (
                DYNAMODB,
                "TransactWriteItems",
                "AccessDeniedException",
                "dynamodb:PutItem and dynamodb:DeleteItem",
            ),
            (SQS, "SendMessageBatch", "AccessDenied", "sqs:SendMessage"),
            (SQS, "CreateQueue", "InvalidClientTokenId", "sqs:CreateQueue"),
        ] {
            let hint = hint(service, action, 403, code, "");
            assert!(hint.ends_with(&format!("allow {permission}")), "{code}: {hint}");
        }
        for (service, code) in [
            (EC2, "InvalidParameterValue"),
            (EC2, "Blocked"),
            (EC2, "IdempotentParameterMismatch"),
            (DYNAMODB, "ValidationException"),
            (DYNAMODB, "ItemCollectionSizeLimitExceededException"),
            (SQS, "InvalidAttributeValue"),
            (SQS, "InvalidSecurity"),
        ] {
            let hint = hint(service, "Action", 400, code, "");
            assert!(hint.contains("see what AWS says"), "{code}: {hint}");
        }
    }

    #[test]
    fn a_refusal_for_the_date_is_known_by_the_date() {
        let date = |ahead: u64| {
            let theirs = SystemTime::now() + Duration::from_secs(ahead);
            DateTime::from(theirs).fmt(Format::HttpDate).unwrap()
        };
        let passes = |code: &str, date: &str| {
            let refused = said(401, code, "not able to validate the credentials");
            let error = error_of_dated_response(EC2, "CreateFleet", refused, Some(date));
            matches!(error, PortError::Unavailable { .. })
        };
        for code in ["AuthFailure", "RequestExpired", "SignatureDoesNotMatch"] {
            assert!(passes(code, &date(3_600)), "{code}: the clock is an hour off");
            assert!(!passes(code, &date(0)), "{code}: the clock is right");
            assert!(!passes(code, "soon"), "{code}: nothing is known of the clock");
        }
        assert!(!passes("UnauthorizedOperation", &date(3_600)), "said of what was signed well");
    }

    #[test]
    fn reasons_hold_all_that_was_said() {
        for (status, code, message, words) in [
            (400, "Code", "message", "Action: Code: message"),
            (400, "Code", "", "Action: Code"),
            (502, "", "bad gateway", "Action: status 502: bad gateway"),
            (502, "", "", "Action: status 502"),
        ] {
            assert_eq!(in_words("Action", said(status, code, message)), words);
        }
    }

    #[test]
    fn what_was_signed_is_not_repeated() {
        let explained = "The signature does not match.\n\nThe Canonical String should have been\n\
                         'POST\n/\n\nx-amz-security-token:IQoJb3JpZ2lu\n'";
        let refused = said(403, "InvalidSignatureException", explained);
        let error = error_of_response(SQS, "ReceiveMessage", refused).to_string();
        assert!(error.contains("The signature does not match."), "{error}");
        assert!(!error.contains("IQoJb3JpZ2lu"), "{error}");
    }
}
