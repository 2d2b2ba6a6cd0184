//! Calls that are not made, as a rule for want of credentials: whether the next one may have them.

use std::error::Error;
use std::io;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_types::error::ErrorMetadata;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::ports::PortError;

use super::{EXPIRED, REFUSED, Service, unavailable};

/// Codes of STS for callers that will not get credentials by a retry, other than what any
/// service says.
const DISOWNED: [&str; 4] = [
    "IdpRejectedClaimException",
    "InvalidIdentityTokenException",
    "RegionDisabledException",
    "ValidationError",
];

/// The SDK's own limit on fetching credentials, which has no type that others can see.
const TIMED_OUT: &str = "identity resolver timed out";

/// Nothing has left this computer. Where credentials could not be fetched just now, that passes;
/// where there are none, the operator has to provide them.
pub(crate) fn not_sent(service: Service, action: &str, error: &(dyn Error + 'static)) -> PortError {
    let said = in_words(error);
    if is_about_fetching(error) {
        return unavailable(service, action, &said);
    }
    PortError::Unusable {
        service,
        reason: format!("{action}: {said}"),
        hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run \
               aws-actions/configure-aws-credentials before"
            .to_owned(),
    }
}

/// Whether there are credentials to be had, but not at this moment. Providers hand on each other's
/// errors as their own, so what counts may be anywhere among the causes.
fn is_about_fetching(error: &(dyn Error + 'static)) -> bool {
    let mut fetching = false;
    for cause in causes(error) {
        match cause.downcast_ref::<CredentialsError>() {
            Some(
                CredentialsError::CredentialsNotLoaded(_)
                | CredentialsError::InvalidConfiguration(_),
            ) => return false,
            Some(_) => fetching = true,
            None => fetching |= cause.to_string().starts_with(TIMED_OUT),
        }
        let missing = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if is_refusal(cause) || missing == Some(io::ErrorKind::NotFound) {
            return false;
        }
    }
    fetching
}

/// Whether this is STS's no. An error that its description knows has a type of its own, and tells
/// its name before its message; any other is known by its code.
fn is_refusal(cause: &(dyn Error + 'static)) -> bool {
    let text = cause.to_string();
    let coded = cause.downcast_ref::<ErrorMetadata>().and_then(ErrorMetadata::code);
    let name = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
    let code = coded.or(name).unwrap_or_default();
    REFUSED.contains(&code) || EXPIRED.contains(&code) || DISOWNED.contains(&code)
}

/// Each cause in its own words, and of those the first line alone: STS too explains a signature
/// that it refuses by repeating what was signed.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let first_line = |text: &str| one_line(&text.lines().next().unwrap_or_default());
    let words = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<ErrorMetadata>() {
        Some(said) => first_line(said.message().unwrap_or_default()),
        None => first_line(&cause.to_string()),
    };
    let words: Vec<String> = causes(error).map(words).filter(|words| !words.is_empty()).collect();
    words.join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause| (*cause).source())
}

#[cfg(test)]
mod tests;
