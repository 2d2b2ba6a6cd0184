//! For fuzzers: every way in which an answer of GitHub is read, and what must hold of each.

use std::sync::Arc;

use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{PortError, PortResult};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::list::Page;
use super::runs::{Jobs, Runs};
use super::software::{Release, Version, offered, released};
use super::{OnSecret, Scope};
use crate::auth::Fresh;
use crate::client::{Answer, Purpose, Request, TokenKind, complaint, until};
use crate::names::instance_of;

/// The token that was sent. Whatever the answer holds, no error may.
pub const TOKEN: &str = "ghp_fuzzedToken0123456789";

/// Reads an answer, and panics where that gives an error which is of no use or tells the token.
pub fn answer(status: u16, headers: &[(&str, &[u8])], body: &[u8]) {
    let header = |(name, value): &(&str, &[u8])| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    };
    let headers: HeaderMap = headers.iter().filter_map(header).collect();
    let answer = Answer::new(status, headers, body, Some(&Secret::new(TOKEN)));
    let now = Timestamp::from_millis(1_750_000_000_000);
    assert!(until(&answer, now).is_none_or(|until| until >= now), "a limit that is over");
    assert!(!answer.aside().contains(TOKEN), "{}", answer.aside());
    let repository = Scope::Repository { owner: "acme".to_owned(), name: "web".to_owned() };
    for purpose in [
        Purpose::Runners(&repository),
        Purpose::Runs("acme/web"),
        Purpose::Installation(&repository),
        Purpose::Release("2.336.0"),
    ] {
        for kind in [TokenKind::Classic, TokenKind::App] {
            hold(&complaint(&Request::get(purpose, String::new()), kind, &answer));
        }
    }
    read(&Request::get(Purpose::Runners(&repository), String::new()), &answer);
}

/// As each call reads what it has asked for.
fn read(request: &Request<'_>, answer: &Answer) {
    let quiet: OnSecret = Arc::new(|_| {});
    sound(Fresh::read(request, answer, &quiet).map(drop));
    sound(answer.read::<Runs>(request).map(drop));
    sound(answer.read::<Jobs>(request).map(drop));
    sound(answer.read::<Page>(request).map(|page| {
        page.runners.iter().for_each(|runner| drop(instance_of(&runner.name, "a1b2c3")));
    }));
    let offers = answer.read(request).and_then(offered).map(|(_, offers)| offers);
    let release = answer.read::<Release>(request);
    let release = release.and_then(|release| released(Version(2, 336, 0), &release));
    for offers in [offers, release] {
        sound(
            offers.and_then(|offers| {
                offers.into_iter().try_for_each(|offer| offer.checked().map(drop))
            }),
        );
    }
}

fn sound(result: PortResult<()>) {
    if let Err(error) = result {
        hold(&error);
    }
}

/// One line that somebody reads, and without the token.
fn hold(error: &PortError) {
    let shown = error.to_string();
    assert!(!format!("{error:?} {shown}").contains(TOKEN), "{error:?}");
    assert!(!shown.contains(char::is_control), "more than a line: {shown:?}");
    assert!(shown.chars().count() < 1_500, "nobody reads that much: {shown}");
}
