//! A request to GitHub, told apart.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, USER_AGENT};
use hyper::http::request::Parts;
use serde_json::Value;

use crate::http::Connection;

/// Where an Enterprise Server has its REST interface.
const PREFIX: &str = "/api/v3";
/// What only the stand-in's own runner calls.
const PRIVATE: &str = "/_standin/";

/// A request to GitHub.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) connection: Connection,
    pub(super) method: Method,
    /// Without the prefix of an Enterprise Server.
    pub(super) path: String,
    /// The path's parts, decoded.
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The web's root, as the caller has called it.
    pub(super) root: String,
    /// The interface's root, as the caller has called it.
    pub(super) api: String,
}

impl Ask {
    pub(super) fn of(connection: Connection, head: Parts, body: Bytes) -> Ask {
        let whole = head.uri.path();
        let path = match whole.strip_prefix(PREFIX) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ => whole,
        };
        let prefix = if path.len() == whole.len() { "" } else { PREFIX };
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let root = format!("http://{}", host.unwrap_or("127.0.0.1"));
        let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        Ask {
            connection,
            method: head.method,
            segments: path.split('/').skip(1).map(decoded).collect(),
            query: query.into_owned().collect(),
            path: path.to_owned(),
            headers: head.headers,
            body,
            api: format!("{root}{prefix}"),
            root,
        }
    }

    /// A parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A header, where it is text.
    pub(super) fn header(&self, name: impl hyper::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The scheme and the secret of the authorisation.
    pub(super) fn credentials(&self) -> Option<(&str, &str)> {
        self.header(AUTHORIZATION)?.split_once(' ')
    }

    pub(super) fn has_user_agent(&self) -> bool {
        self.header(USER_AGENT).is_some_and(|agent| !agent.is_empty())
    }

    /// Whether this is the stand-in's own runner, whose calls are nobody's business.
    pub(super) fn is_private(&self) -> bool {
        self.path.starts_with(PRIVATE)
    }

    /// The body as JSON; an empty one says nothing.
    pub(super) fn json(&self) -> Option<Value> {
        if self.body.is_empty() {
            return Some(Value::Null);
        }
        serde_json::from_slice(&self.body).ok()
    }
}

/// A part of a path, without percent signs.
fn decoded(segment: &str) -> String {
    // A plus stands for a space in forms, and for itself in paths.
    let pair = format!("x={}", segment.replace('+', "%2B"));
    let value = form_urlencoded::parse(pair.as_bytes()).next();
    value.map(|(_, value)| value.into_owned()).unwrap_or_default()
}
