//! What GitHub has answered.

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::PortResult;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use super::{Request, unavailable};

/// How much of GitHub's own words is passed on.
const WORDS: usize = 300;
/// How much of a request's number is: GitHub's have about forty characters.
const ID: usize = 100;

/// An answer. It has no `Debug`: some hold tokens.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    body: String,
    /// What GitHub's support would ask for; empty if there is none.
    pub(crate) request_id: String,
    /// In GitHub's own words, why not; empty if it says nothing.
    pub(crate) words: String,
}

impl Answer {
    /// Takes it down. Whatever stands in between may repeat what it was sent, in any place, and
    /// people read some of them, so the token is taken out of all of them here.
    pub(crate) fn new(
        status: u16,
        headers: HeaderMap,
        body: &[u8],
        bearer: Option<&Secret>,
    ) -> Answer {
        let refused = !(200..300).contains(&status);
        let bearer = bearer.map(Secret::expose).filter(|bearer| !bearer.is_empty());
        let hidden = |text: &str| match bearer {
            Some(bearer) => text.replace(bearer, "(secret)"),
            None => text.to_owned(),
        };
        let words = if refused { hidden(&words(body)) } else { String::new() };
        let id = headers.get("x-github-request-id").and_then(|id| id.to_str().ok());
        Answer {
            status,
            body: hidden(&String::from_utf8_lossy(body)),
            request_id: hidden(id.unwrap_or_default())
                .chars()
                .filter(|c| !c.is_control())
                .take(ID)
                .collect(),
            words: words.chars().take(WORDS).collect(),
            headers,
        }
    }

    /// Whether it was done.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether there is another page.
    pub(crate) fn has_next(&self) -> bool {
        self.header("link").is_some_and(|link| link.contains("rel=\"next\""))
    }

    /// A header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What else there is to be said of it, with a mark in front.
    pub(crate) fn aside(&self) -> String {
        match (self.words.as_str(), self.request_id.as_str()) {
            ("", "") => String::new(),
            ("", id) => format!(" (request {id})"),
            (words, _) => format!(": {words}"),
        }
    }

    /// The content. It is not shown when it cannot be read, not even in part.
    pub(crate) fn read<T: DeserializeOwned>(&self, request: &Request<'_>) -> PortResult<T> {
        serde_json::from_str(&self.body).map_err(|error| {
            let problem = match error.classify() {
                Category::Eof => "the answer is cut off",
                Category::Syntax | Category::Io => "the answer is not JSON",
                Category::Data => "the answer lacks something, or means something else",
            };
            let (line, column) = (error.line(), error.column());
            unavailable(request, &format!("{problem} (line {line}, column {column})"))
        })
    }
}

/// What GitHub says of an error: the first line, and the first of its details.
fn words(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Said {
        #[serde(default)]
        message: String,
        #[serde(default)]
        errors: Vec<Value>,
    }
    let Ok(Said { message, errors }) = serde_json::from_slice(body) else {
        return String::new();
    };
    let detail = errors.first().and_then(|error| {
        error.as_str().or_else(|| error["message"].as_str()).map(|text| format!(": {text}"))
    });
    let words = format!("{message}{}", detail.unwrap_or_default());
    let line = words.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn words_are_githubs_own_and_short() {
        for (body, expected) in [
            (r#"{"message":"Bad credentials","status":"401"}"#, "Bad credentials"),
            (
                r#"{"message":"Validation Failed","errors":["too long"]}"#,
                "Validation Failed: too long",
            ),
            (r#"{"message":"No","errors":[{"code":"x","message":"why"}]}"#, "No: why"),
            (r#"{"message":"No","errors":[{"code":"x"}]}"#, "No"),
            (r#"{"message":"one\ntwo"}"#, "one"),
            (r#"{"message":"a\u001b[31mb"}"#, "a[31mb"),
            (r#"{"documentation_url":"x"}"#, ""),
            ("<html>", ""),
            ("", ""),
        ] {
            assert_eq!(words(body.as_bytes()), expected, "{body}");
        }
        let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(5_000));
        let answer = Answer::new(403, HeaderMap::new(), long.as_bytes(), None);
        assert_eq!(answer.words.len(), WORDS);
    }

    #[test]
    fn a_token_that_is_repeated_is_taken_out() {
        let bearer = Secret::new("ghp_hidden");
        let body = format!(r#"{{"message":"{}sent was Bearer ghp_hidden"}}"#, "x".repeat(270));
        let answer = Answer::new(400, HeaderMap::new(), body.as_bytes(), Some(&bearer));
        assert!(answer.words.contains("(secret)") && !answer.words.contains("ghp_"));
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("x-github-request-id"),
            HeaderValue::from_static("\tghp_hidden"),
        )]);
        let answer = Answer::new(200, headers, br#"["ghp_hidden"]"#, Some(&bearer));
        assert_eq!(answer.aside(), " (request (secret))");
        assert_eq!(answer.body, r#"["(secret)"]"#);
    }
}
