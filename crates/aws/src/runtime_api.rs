//! The runtime API of Lambda, version 2018-06-01, as a custom runtime calls it: on loopback, without
//! TLS. Its reference is "Using the Lambda runtime API for custom runtimes" in the Lambda Developer
//! Guide.

use std::time::{Duration, SystemTime};

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::http::Request;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use serde_json::{Value, json};

use crate::error::Chain;

/// Where Lambda says that its runtime API is.
const VARIABLE: &str = "AWS_LAMBDA_RUNTIME_API";

/// The runtime API of this execution environment.
#[derive(Debug)]
pub struct RuntimeApi {
    connector: SharedHttpConnector,
    address: String,
}

/// One call of the function.
#[derive(Debug)]
pub struct FunctionCall {
    id: String,
    /// When Lambda ends the process; `None` if it did not say.
    deadline: Option<SystemTime>,
    /// What the caller has sent; null if it is no JSON.
    pub event: Value,
}

impl FunctionCall {
    /// How much time is left. Lambda sets the deadline by the same clock.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.deadline?.duration_since(SystemTime::now());
        Some(left.unwrap_or_default())
    }
}

impl RuntimeApi {
    /// The API of the environment that this process runs in; `None` outside of Lambda.
    pub fn of_environment() -> Option<RuntimeApi> {
        let address = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty())?;
        // There is no time limit on an answer: Lambda answers when the function is called, which may
        // be after hours in which the process is frozen.
        let settings = HttpConnectorSettings::builder().connect_timeout(Duration::from_secs(3));
        let connector = Connector::builder()
            .connector_settings(settings.build())
            .proxy_config(ProxyConfig::disabled())
            .build_http();
        Some(RuntimeApi { connector: SharedHttpConnector::new(connector), address })
    }

    /// Waits for the next call. Fails if the API does not answer, or with something else than a call.
    pub async fn next(&self) -> Result<FunctionCall, String> {
        let (headers, body) = self.exchange("GET", "invocation/next", None, None).await?;
        let id = headers.request_id.ok_or("the runtime API names no request")?;
        let since_epoch = headers.deadline.and_then(|text| text.parse().ok());
        let deadline = since_epoch.map(|it| SystemTime::UNIX_EPOCH + Duration::from_millis(it));
        let event = serde_json::from_slice(&body).unwrap_or_default();
        Ok(FunctionCall { id, deadline, event })
    }

    pub async fn respond(&self, call: &FunctionCall, answer: &Value) -> Result<(), String> {
        let path = format!("invocation/{}/response", call.id);
        self.exchange("POST", &path, Some(answer), None).await.map(drop)
    }

    /// Answers that a call has failed.
    pub async fn fail(&self, call: &FunctionCall, kind: &str, message: &str) -> Result<(), String> {
        let path = format!("invocation/{}/error", call.id);
        self.exchange("POST", &path, Some(&error(kind, message)), Some(kind)).await.map(drop)
    }

    /// Says that the function cannot be called. The process must end afterwards.
    pub async fn fail_to_start(&self, kind: &str, message: &str) -> Result<(), String> {
        self.exchange("POST", "init/error", Some(&error(kind, message)), Some(kind)).await.map(drop)
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        error_type: Option<&str>,
    ) -> Result<(Headers, Vec<u8>), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{method} {path}: {error}");
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::new(SdkBody::from(text.as_str()));
        request.set_method(method).map_err(|error| failed(&error))?;
        let url = format!("http://{}/2018-06-01/runtime/{path}", self.address);
        request.set_uri(url).map_err(|error| failed(&error))?;
        if body.is_some() {
            request.headers_mut().insert("content-type", "application/json");
        }
        if let Some(kind) = error_type {
            request
                .headers_mut()
                .insert("lambda-runtime-function-error-type", format!("Refresh.{kind}"));
        }
        let answer = self.connector.call(request).await.map_err(|error| failed(&Chain(&error)))?;
        let status = answer.status().as_u16();
        let header = |name: &str| answer.headers().get(name).map(str::to_owned);
        let headers = Headers {
            request_id: header("lambda-runtime-aws-request-id"),
            deadline: header("lambda-runtime-deadline-ms"),
        };
        let body = ByteStream::new(answer.into_body()).collect().await;
        let body = body.map_err(|error| failed(&Chain(&error)))?.to_vec();
        match status {
            200..300 => Ok((headers, body)),
            _ => Err(failed(&status)),
        }
    }
}

/// The headers that a call comes with.
struct Headers {
    request_id: Option<String>,
    deadline: Option<String>,
}

/// What Lambda shows of a failure.
fn error(kind: &str, message: &str) -> Value {
    json!({ "errorType": kind, "errorMessage": message, "stackTrace": [] })
}
