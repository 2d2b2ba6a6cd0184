//! A client of the stand-in's GitHub.

use std::fmt;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An error message for the runner's output.
#[derive(Debug)]
pub(super) struct ServerError(String);

impl ServerError {
    pub(super) fn new(text: impl Into<String>) -> ServerError {
        ServerError(text.into())
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for ServerError {
    fn from(error: std::io::Error) -> ServerError {
        ServerError::new(error.to_string())
    }
}

/// A client with the URL and token of one caller.
pub(super) struct Server {
    http: Http,
    root: String,
    authorization: String,
    header: Option<(&'static str, String)>,
}

/// GitHub's answer to a request.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) id: String,
    pub(super) text: String,
}

/// Clients for the two schemes. Only TLS needs the certificates of the system.
enum Http {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
    /// There is no TLS here, for this reason.
    NoTls(String),
}

impl Http {
    fn to(root: &str) -> Http {
        let client = Client::builder(TokioExecutor::new());
        if !root.starts_with("https:") {
            return Http::Plain(client.build_http());
        }
        match HttpsConnectorBuilder::new().with_native_roots() {
            Ok(tls) => Http::Tls(client.build(tls.https_only().enable_http1().build())),
            Err(error) => Http::NoTls(format!("no certificates of the system: {error}")),
        }
    }

    async fn request(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ServerError> {
        let asked = match self {
            Http::Plain(client) => client.request(request).await,
            Http::Tls(client) => client.request(request).await,
            Http::NoTls(reason) => return Err(ServerError::new(reason)),
        };
        asked.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            ServerError::new(format!("{error}: {}", cause.unwrap_or_default()))
        })
    }
}

impl Server {
    pub(super) fn new(root: &str, authorization: String) -> Server {
        let http = Http::to(root);
        Server { http, root: root.trim_end_matches('/').to_owned(), authorization, header: None }
    }

    /// Sends this header with each request.
    pub(super) fn with_header(self, name: &'static str, value: String) -> Server {
        Server { header: Some((name, value)), ..self }
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Sends a request and waits for the answer without a time limit.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Reply, ServerError> {
        let failed = |error: &dyn fmt::Display| ServerError::new(error.to_string());
        let body = serde_json::to_vec(body).map_err(|error| failed(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.root))
            .header("user-agent", "GitHubActionsRunner-linux-x64")
            .header(AUTHORIZATION, &self.authorization);
        if let Some((name, value)) = &self.header {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| failed(&error))?;
        let reply = self.http.request(request).await?;
        let (head, body) = reply.into_parts();
        let body = body.collect().await.map_err(|error| failed(&error))?.to_bytes();
        let id = head.headers.get("x-github-request-id").and_then(|id| id.to_str().ok());
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(Reply { status: head.status, id: id.unwrap_or_default().to_owned(), text })
    }
}

impl Reply {
    /// Parses the body of a successful answer.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ServerError> {
        if !self.status.is_success() {
            return Err(ServerError::new(self.message()));
        }
        serde_json::from_str(&self.text).map_err(|error| ServerError::new(error.to_string()))
    }

    /// The message of an error answer.
    pub(super) fn message(&self) -> String {
        let body: Value = serde_json::from_str(&self.text).unwrap_or_default();
        body["message"].as_str().unwrap_or(&self.text).to_owned()
    }
}
