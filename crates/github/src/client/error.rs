//! Explains answers that are not a success.

use ondeck_core::ports::PortError;

use super::{Answer, Purpose, Request, TokenKind};

/// Returns the error for an answer that is not a success, with a hint that fits the status and the
/// kind of token.
pub(crate) fn error_for(request: &Request<'_>, kind: TokenKind, answer: &Answer) -> PortError {
    let (purpose, aside) = (&request.purpose, answer.aside());
    let sso = answer.header("x-github-sso").is_some_and(|sso| sso.starts_with("required"));
    let (reason, hint) = match answer.status {
        // For an unknown App id GitHub answers 404, which does not mean that it is not installed.
        401 | 404 if kind == TokenKind::App && (answer.status == 401 || unknown_app(answer)) => (
            format!("GitHub does not accept the id and the key of the GitHub App{aside}"),
            "check that the key belongs to this App and has not been deleted, and that this \
             computer's clock is right"
                .to_owned(),
        ),
        401 => (
            format!("GitHub does not accept the token{aside}"),
            "create a new token: this one may have expired, been revoked, or belong to another server"
                .to_owned(),
        ),
        403 | 404 if sso => (
            format!("the token is not authorised for the organisation that holds {purpose}"),
            "the token's owner can authorise it under GitHub's settings: the token, Configure SSO"
                .to_owned(),
        ),
        403 if aside.contains("IP allow list") => (
            format!("GitHub does not let this computer {} {purpose}{aside}", purpose.verb()),
            "add its address to the organisation's IP allow list".to_owned(),
        ),
        403 => (format!("{kind} may not {} {purpose}{aside}", purpose.verb()), purpose.needs(kind)),
        404 => missing(purpose, kind),
        status @ 300..=399 => (
            format!("GitHub redirects requests for {purpose} elsewhere: status {status}"),
            "set the server's address to the one it redirects to".to_owned(),
        ),
        422 => (format!("GitHub refuses {purpose}{aside}"), UNEXPECTED.to_owned()),
        status => {
            (format!("GitHub refuses {purpose} with status {status}{aside}"), UNEXPECTED.to_owned())
        }
    };
    PortError::Forge { reason, hint }
}

const UNEXPECTED: &str = "a retry is not expected to help; see GitHub's message";

/// GitHub answers 404 both for what does not exist and for what a token may not see.
fn missing(purpose: &Purpose<'_>, kind: TokenKind) -> (String, String) {
    match purpose {
        Purpose::Installation(place) => (
            format!("the GitHub App is not installed on {place}"),
            format!("install it there, or correct the name; {}", {
                Purpose::Runners(place).needs(TokenKind::App)
            }),
        ),
        Purpose::Release(version) => (
            format!("there is no such release of actions/runner: {version}"),
            "choose a release from https://github.com/actions/runner/releases".to_owned(),
        ),
        Purpose::Runners(place) => (
            format!("{} not found, or not visible to {kind}: {place}", place.noun()),
            format!("check the name; {}", purpose.needs(kind)),
        ),
        Purpose::Runs(repository) | Purpose::Reruns(repository) => (
            format!("repository not found, or not visible to {kind}: {repository}"),
            format!("check the name; {}", purpose.needs(kind)),
        ),
    }
}

fn unknown_app(answer: &Answer) -> bool {
    answer.words.starts_with("Integration not found")
}
