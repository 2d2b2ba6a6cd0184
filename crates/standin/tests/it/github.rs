//! Tests of the stand-in's GitHub.

mod apps;
mod environments;
mod faults;
mod lists;
mod permissions;
mod registration;
mod request_checks;
mod runner;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::{GitHub, Permission};
use serde_json::Value;

const TOKEN: &str = "ghp_test";
const REPOSITORY: &str = "acme/web";
const RUNNERS: &str = "/repos/acme/web/actions/runners";

/// A GitHub with a token that has every permission in one repository.
fn github() -> GitHub {
    let github = GitHub::start(ondeck_standin::GitHubOptions::default());
    github.allow(TOKEN, REPOSITORY, &[Permission::Administration, Permission::ActionsRead]);
    github
}

/// GitHub's answer to a request.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A client that sends requests as they are given.
struct Caller {
    http: Client<HttpConnector, Full<Bytes>>,
    root: String,
    token: Option<String>,
}

impl Caller {
    fn new(github: &GitHub, token: &str) -> Caller {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Caller { http, root: github.api_url(), token: Some(token.to_owned()) }
    }

    /// Sends a request. Fails if there is no complete answer.
    async fn try_ask(&self, request: &str, body: &str) -> Result<Answer, String> {
        let (method, path) = request.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.root));
        request = request.header("user-agent", "test");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let answered = async {
            let (head, body) =
                self.http.request(request).await.map_err(|it| it.to_string())?.into_parts();
            let body = body.collect().await.map_err(|it| it.to_string())?.to_bytes();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(Duration::from_secs(20), answered).await.unwrap()
    }

    async fn ask(&self, request: &str) -> Answer {
        self.try_ask(request, "").await.unwrap()
    }
}
