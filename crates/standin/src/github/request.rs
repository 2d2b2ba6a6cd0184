//! A request to GitHub, parsed.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, USER_AGENT};
use hyper::http::request::Parts;
use serde_json::Value;

use crate::http::Connection;

/// The path prefix of the REST API on an Enterprise Server.
const PREFIX: &str = "/api/v3";
/// The path prefix of the runner double's protocol.
const PRIVATE: &str = "/_standin/";

#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    pub(super) connection: Connection,
    pub(super) method: Method,
    /// The path without the prefix of an Enterprise Server.
    pub(super) path: String,
    /// The segments of the path, percent-decoded.
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The URL of the web host, by the name that the caller used.
    pub(super) root: String,
    /// The URL of the REST API, by the name that the caller used.
    pub(super) api: String,
}

impl ApiRequest {
    /// Parses a request. With `behind_tls`, the caller has used https.
    pub(super) fn of(
        connection: Connection,
        head: Parts,
        body: Bytes,
        behind_tls: bool,
    ) -> ApiRequest {
        let whole = head.uri.path();
        let path = match whole.strip_prefix(PREFIX) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ => whole,
        };
        let prefix = if path.len() == whole.len() { "" } else { PREFIX };
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let scheme = if behind_tls { "https" } else { "http" };
        let host = host.unwrap_or("127.0.0.1");
        let root = format!("{scheme}://{}", host.strip_prefix("api.").unwrap_or(host));
        let api = format!("{scheme}://{host}{prefix}");
        let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        ApiRequest {
            connection,
            method: head.method,
            segments: path.split('/').skip(1).map(decoded).collect(),
            query: query.into_owned().collect(),
            path: path.to_owned(),
            headers: head.headers,
            body,
            api,
            root,
        }
    }

    /// The value of a query parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a header; `None` if it is missing or not text.
    pub(super) fn header(&self, name: impl hyper::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The scheme and the secret of the `Authorization` header.
    pub(super) fn credentials(&self) -> Option<(&str, &str)> {
        self.header(AUTHORIZATION)?.split_once(' ')
    }

    /// The token of a runner that registers or removes itself.
    pub(super) fn remote_auth(&self) -> Option<&str> {
        self.credentials().filter(|(scheme, _)| *scheme == "RemoteAuth").map(|(_, secret)| secret)
    }

    pub(super) fn has_user_agent(&self) -> bool {
        self.header(USER_AGENT).is_some_and(|agent| !agent.is_empty())
    }

    /// Whether the runner double sent this request by its own protocol. Such
    /// requests are not logged.
    pub(super) fn is_private(&self) -> bool {
        self.path.starts_with(PRIVATE)
    }

    /// The body as JSON, `null` if it is empty; `None` if it is not JSON.
    pub(super) fn json(&self) -> Option<Value> {
        if self.body.is_empty() {
            return Some(Value::Null);
        }
        serde_json::from_slice(&self.body).ok()
    }
}

/// Percent-decodes a segment of a path.
fn decoded(segment: &str) -> String {
    // A plus is a space in forms, but a plus in paths.
    let pair = format!("x={}", segment.replace('+', "%2B"));
    let value = form_urlencoded::parse(pair.as_bytes()).next();
    value.map(|(_, value)| value.into_owned()).unwrap_or_default()
}
