//! An answer from GitHub, with the token removed from everything that people may read.

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::PortResult;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use super::{Request, unavailable};

/// How many characters of GitHub's error message are passed on.
const WORDS: usize = 300;
/// How many characters of a request id are passed on. GitHub's ids have about forty.
const ID: usize = 100;

/// An HTTP answer. It has no `Debug`, because some bodies contain tokens.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    body: String,
    /// GitHub's id of the request, for its support; empty if there is none.
    pub(crate) request_id: String,
    /// GitHub's error message; empty if there is none.
    pub(crate) words: String,
}

impl Answer {
    /// Builds an answer from its parts. A proxy may echo the request anywhere in its answer, so every
    /// occurrence of `bearer` in the body, the message and the request id is replaced.
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

    /// Whether the status is 2xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the `Link` header names a next page.
    pub(crate) fn has_next(&self) -> bool {
        self.header("link").is_some_and(|link| link.contains("rel=\"next\""))
    }

    /// A header's value, or `None` if it is missing or not text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// GitHub's message, or else the request id, punctuated to be appended to an error. Empty if the
    /// answer has neither.
    pub(crate) fn aside(&self) -> String {
        match (self.words.as_str(), self.request_id.as_str()) {
            ("", "") => String::new(),
            ("", id) => format!(" (request {id})"),
            (words, _) => format!(": {words}"),
        }
    }

    /// Parses the body. Fails with the position of the problem but without any of the content, which
    /// may be secret.
    pub(crate) fn read<T: DeserializeOwned>(&self, request: &Request<'_>) -> PortResult<T> {
        serde_json::from_str(&self.body).map_err(|error| {
            let problem = match error.classify() {
                Category::Eof => "the answer is cut off",
                Category::Syntax | Category::Io => "the answer is not JSON",
                Category::Data => "the answer does not have the expected form",
            };
            let (line, column) = (error.line(), error.column());
            unavailable(request, &format!("{problem} (line {line}, column {column})"))
        })
    }
}

/// GitHub's message for an error: its first line, with the first of the details.
fn words(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct ErrorBody {
        #[serde(default)]
        message: String,
        #[serde(default)]
        errors: Vec<Value>,
    }
    let Ok(ErrorBody { message, errors }) = serde_json::from_slice(body) else {
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
    fn messages_are_githubs_own_and_short() {
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
    fn an_echoed_token_is_removed() {
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
