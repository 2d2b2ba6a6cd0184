//! The fuzzers' entry point: reads an answer in every way the forge does, and checks each error.

use std::sync::Arc;

use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{PortError, PortResult};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::runner_list::RunnersPage;
use super::runs::{JobsPage, RunsPage, StatusEntry};
use super::software::{Release, offered, released};
use super::{OnSecret, RunnerScope};
use crate::auth::IssuedToken;
use crate::client::{Answer, Purpose, Request, TokenKind, error_for, until};
use crate::names::instance_of;
use crate::version::Version;

/// The token that was sent. No error may contain it, even if the answer does.
pub const TOKEN: &str = "ghp_fuzzedToken0123456789";

/// Reads an answer. Panics if that gives an error that is longer than a line or contains the token.
pub fn answer(status: u16, headers: &[(&str, &[u8])], body: &[u8]) {
    let header = |(name, value): &(&str, &[u8])| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    };
    let headers: HeaderMap = headers.iter().filter_map(header).collect();
    let answer = Answer::new(status, headers, body, Some(&Secret::new(TOKEN)));
    let now = Timestamp::from_millis(1_750_000_000_000);
    assert!(until(&answer, now).is_none_or(|until| until >= now), "the limit ends in the past");
    assert!(!answer.aside().contains(TOKEN), "{}", answer.aside());
    let repository = RunnerScope::Repository { owner: "acme".to_owned(), name: "web".to_owned() };
    for purpose in [
        Purpose::Runners(&repository),
        Purpose::Runs("acme/web"),
        Purpose::Reruns("acme/web"),
        Purpose::Installation(&repository),
        Purpose::Release("2.336.0"),
    ] {
        for kind in [TokenKind::Classic, TokenKind::App] {
            check_error(&error_for(&Request::get(purpose, String::new()), kind, &answer));
        }
    }
    read(&Request::get(Purpose::Runners(&repository), String::new()), &answer);
}

/// Reads the answer as each request does.
fn read(request: &Request<'_>, answer: &Answer) {
    let quiet: OnSecret = Arc::new(|_| {});
    check_result(IssuedToken::read(request, answer, &quiet).map(drop));
    check_result(answer.read::<RunsPage>(request).map(drop));
    check_result(answer.read::<JobsPage>(request).map(drop));
    check_result(answer.read::<StatusEntry>(request).map(drop));
    check_result(answer.read::<RunnersPage>(request).map(|page| {
        page.runners.iter().for_each(|runner| drop(instance_of(&runner.name, "a1b2c3")));
    }));
    let offers = answer.read(request).and_then(offered).map(|(_, offers)| offers);
    let release = answer.read::<Release>(request);
    let release = release.and_then(|release| released(Version(2, 336, 0), &release));
    for offers in [offers, release] {
        check_result(
            offers.and_then(|offers| {
                offers.into_iter().try_for_each(|offer| offer.checked().map(drop))
            }),
        );
    }
}

fn check_result(result: PortResult<()>) {
    if let Err(error) = result {
        check_error(&error);
    }
}

/// Panics unless the error is one line of bounded length without the token.
fn check_error(error: &PortError) {
    let shown = error.to_string();
    assert!(!format!("{error:?} {shown}").contains(TOKEN), "{error:?}");
    assert!(!shown.contains(char::is_control), "more than a line: {shown:?}");
    assert!(shown.chars().count() < 1_500, "too long: {shown}");
}
