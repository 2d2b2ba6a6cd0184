//! Spans in OTLP's JSON encoding, version 1: ids in hexadecimal digits, 64-bit numbers as texts,
//! enumerations as numbers.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

const INTERNAL: u8 = 1;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) parent_span_id: String,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    #[serde(serialize_with = "nanos")]
    pub(super) start_time_unix_nano: SystemTime,
    #[serde(serialize_with = "nanos")]
    pub(super) end_time_unix_nano: SystemTime,
    pub(super) attributes: Vec<Attribute>,
    pub(super) status: Status,
}

/// The only kind that there is here.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanKind;

impl Serialize for SpanKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(INTERNAL)
    }
}

/// What a span came to.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Status {
    /// 0 if nothing is said, 1 for a success, 2 for an error.
    code: u8,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Status {
    pub(super) fn ok() -> Status {
        Status { code: 1, message: String::new() }
    }

    pub(super) fn error(message: &str) -> Status {
        Status { code: 2, message: message.to_owned() }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Attribute {
    key: &'static str,
    value: Value,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    StringValue(String),
    IntValue(String),
}

impl Attribute {
    pub(super) fn text(key: &'static str, text: impl Into<String>) -> Attribute {
        Attribute { key, value: Value::StringValue(text.into()) }
    }

    pub(super) fn number(key: &'static str, number: usize) -> Attribute {
        Attribute { key, value: Value::IntValue(number.to_string()) }
    }
}

fn nanos<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since: Duration = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.collect_str(&since.as_nanos())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: &'a [Attribute],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: &'a [Span],
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

/// The body of a request with these spans.
pub(super) fn json(service: &str, spans: &[Span]) -> String {
    let attributes = [
        Attribute::text("service.name", service),
        Attribute::text("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let scope = Scope { name: "ondeck", version: env!("CARGO_PKG_VERSION") };
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes: &attributes },
            scope_spans: [ScopeSpans { scope, spans }],
        }],
    };
    serde_json::to_string(&request).unwrap_or_default()
}
