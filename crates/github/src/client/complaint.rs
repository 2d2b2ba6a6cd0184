//! What it means when GitHub has decided against a request.

use ondeck_core::ports::PortError;

use super::{Answer, Purpose, Request, TokenKind};

/// In words for a person, with what that person might do. For answers that are no success.
pub(crate) fn complaint(request: &Request<'_>, kind: TokenKind, answer: &Answer) -> PortError {
    let (purpose, aside) = (&request.purpose, answer.aside());
    let sso = answer.header("x-github-sso").is_some_and(|sso| sso.starts_with("required"));
    let (reason, hint) = match answer.status {
        // An id that nobody has is not found, which says nothing about where it is installed.
        401 | 404 if kind == TokenKind::App && (answer.status == 401 || unknown_app(answer)) => (
            format!("GitHub does not accept the id and the key of the GitHub App{aside}"),
            "see that the key was made for this App and still stands there, and that this \
             computer's clock is right"
                .to_owned(),
        ),
        401 => (
            format!("GitHub does not accept the token{aside}"),
            "it may have expired or been revoked, or be for another server: make a new one"
                .to_owned(),
        ),
        403 | 404 if sso => (
            format!("the token is not authorised for the organisation that holds {purpose}"),
            "authorise it there: GitHub, settings of whoever made it, the token, Configure SSO"
                .to_owned(),
        ),
        403 if aside.contains("IP allow list") => (
            format!("GitHub does not let this computer {} {purpose}{aside}", purpose.verb()),
            "add its address to the organisation's list of allowed ones".to_owned(),
        ),
        403 => (format!("{kind} may not {} {purpose}{aside}", purpose.verb()), purpose.needs(kind)),
        404 => missing(purpose, kind),
        status @ 300..=399 => (
            format!("GitHub sends us elsewhere for {purpose}: status {status}"),
            "see that the address of the server is the one that people use".to_owned(),
        ),
        422 => (format!("GitHub refuses {purpose}{aside}"), UNEXPECTED.to_owned()),
        status => {
            (format!("GitHub refuses {purpose} with status {status}{aside}"), UNEXPECTED.to_owned())
        }
    };
    PortError::Forge { reason, hint }
}

const UNEXPECTED: &str = "this is not expected to pass by itself; see what GitHub says";

/// GitHub says the same of what does not exist and of what a token may not see.
fn missing(purpose: &Purpose<'_>, kind: TokenKind) -> (String, String) {
    match purpose {
        Purpose::Installation(place) => (
            format!("the GitHub App is not installed on {place}"),
            format!("install it there, and see that the name is right; {}", {
                Purpose::Runners(place).needs(TokenKind::App)
            }),
        ),
        Purpose::Release(version) => (
            format!("there is no such release of actions/runner: {version}"),
            "its releases are listed at https://github.com/actions/runner/releases".to_owned(),
        ),
        Purpose::Runners(place) => (
            format!("{} not found, or not visible to {kind}: {place}", place.noun()),
            format!("see that the name is right; {}", purpose.needs(kind)),
        ),
        Purpose::Runs(repository) => (
            format!("repository not found, or not visible to {kind}: {repository}"),
            format!("see that the name is right; {}", purpose.needs(kind)),
        ),
    }
}

fn unknown_app(answer: &Answer) -> bool {
    answer.words.starts_with("Integration not found")
}
