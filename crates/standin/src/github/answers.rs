//! Answers in GitHub's own format.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION, RETRY_AFTER,
};
use serde_json::{Value, json};

use crate::http::Answer;

use super::request::ApiRequest;

const REFERENCE: &str = "https://docs.github.com/rest";

/// A successful answer with a JSON body.
pub(super) fn found(status: u16, body: &Value) -> Answer {
    with_type(status, "application/json; charset=utf-8", body.to_string())
}

/// A successful answer without a body (204).
pub(super) fn done() -> Answer {
    Answer { status: StatusCode::NO_CONTENT, headers: HeaderMap::new(), body: "".into() }
}

/// An error answer with this status and message.
pub(super) fn refusal(status: u16, message: &str) -> Answer {
    let status_text = status.to_string();
    let body = json!({ "message": message, "documentation_url": REFERENCE, "status": status_text });
    found(status, &body)
}

/// GitHub's answer for what does not exist or the caller may not see.
pub(super) fn not_found() -> Answer {
    refusal(404, "Not Found")
}

/// GitHub's answer to a request without credentials or with unknown ones.
pub(super) fn unknown_caller(message: &str) -> Answer {
    refusal(401, message)
}

/// An answer whose body is a file.
pub(super) fn file(bytes: &bytes::Bytes) -> Answer {
    Answer { body: bytes.clone(), ..with_type(200, "application/octet-stream", String::new()) }
}

/// A redirect to another address.
pub(super) fn elsewhere(location: &str) -> Answer {
    header(with_type(302, "text/html; charset=utf-8", String::new()), LOCATION, location)
}

/// A server error: HTML for 503, as from GitHub's load balancer, and JSON otherwise.
pub(super) fn server_error(status: u16) -> Answer {
    match status {
        502 => refusal(502, "Server Error"),
        503 => with_type(503, "text/html; charset=utf-8", "<h1>Unicorn!</h1>".to_owned()),
        status => refusal(status, "Server Error"),
    }
}

/// An HTML page with status 200, as from a proxy in between.
pub(super) fn not_json() -> Answer {
    with_type(200, "text/html", "<html><body>please sign in</body></html>".to_owned())
}

/// The rate limit with status 429.
pub(super) fn too_many(retry_after: Duration) -> Answer {
    let message = "You have exceeded a secondary rate limit. Please wait a few minutes before \
                   you try again.";
    header(refusal(429, message), RETRY_AFTER, &retry_after.as_secs().to_string())
}

/// The secondary rate limit, with status 403.
pub(super) fn secondary_limit(retry_after: Duration) -> Answer {
    let message = "You have exceeded a secondary rate limit. Please wait a few minutes before \
                   you try again. If you reach out to GitHub Support for help, please include \
                   the request ID.";
    header(refusal(403, message), RETRY_AFTER, &retry_after.as_secs().to_string())
}

/// The primary rate limit, with status 403 and no requests remaining.
pub(super) fn primary_limit(reset: SystemTime) -> Answer {
    let reset = reset.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let answer = refusal(403, "API rate limit exceeded for user ID 1.");
    let answer = header(answer, HeaderName::from_static("x-ratelimit-remaining"), "0");
    header(answer, HeaderName::from_static("x-ratelimit-reset"), &reset.to_string())
}

/// Adds a header to an answer.
pub(super) fn header(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    let value = HeaderValue::from_str(value).expect("our own headers are plain text");
    answer.headers.insert(name, value);
    answer
}

/// One page of a list, with links to the other pages. A page has at most `at_most` entries.
pub(super) fn page(ask: &ApiRequest, name: &str, entries: Vec<Value>, at_most: usize) -> Answer {
    page_of_search(ask, name, entries, at_most, usize::MAX)
}

/// One page of a search, of which only the first `reachable` entries can be read. All are counted.
pub(super) fn page_of_search(
    ask: &ApiRequest,
    name: &str,
    mut entries: Vec<Value>,
    at_most: usize,
    reachable: usize,
) -> Answer {
    let number = |name, otherwise| {
        let given = ask.parameter(name).and_then(|text| text.parse::<usize>().ok());
        given.filter(|number| *number > 0).unwrap_or(otherwise)
    };
    let per_page = number("per_page", 30).min(100).min(at_most);
    let page = number("page", 1);
    let total = entries.len();
    entries.truncate(reachable);
    let last = entries.len().div_ceil(per_page).max(1);
    let shown: Vec<Value> = entries.drain(..).skip((page - 1) * per_page).take(per_page).collect();
    let answer = found(200, &json!({ "total_count": total, name: shown }));
    let links = links(ask, page, last);
    if links.is_empty() { answer } else { header(answer, LINK, &links) }
}

fn links(ask: &ApiRequest, page: usize, last: usize) -> String {
    let mut to = Vec::new();
    if page > 1 {
        to.push((page - 1, "prev"));
    }
    if page < last {
        to.extend([(page + 1, "next"), (last, "last")]);
    }
    if page > 1 {
        to.push((1, "first"));
    }
    let links = to.iter().map(|(page, relation)| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(ask.query.iter().filter(|(name, _)| name != "page"));
        query.append_pair("page", &page.to_string());
        format!("<{}{}?{}>; rel=\"{relation}\"", ask.api, ask.path, query.finish())
    });
    links.collect::<Vec<_>>().join(", ")
}

fn with_type(status: u16, kind: &'static str, body: String) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Answer { status, headers, body: body.into() }
}
