//! A client for GitHub's API. It sends each request once and tells errors that may pass, which core
//! retries, from decisions.

pub(crate) mod answer;
mod error;
mod limit;
mod request;
mod time;

use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{Clock, PortError, PortResult};
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};

use crate::http::{self, Redirects, with_causes};
pub(crate) use answer::Answer;
pub(crate) use error::error_for;
use limit::Limit;
#[cfg(feature = "fuzzing")]
pub(crate) use limit::until;
pub(crate) use request::{Purpose, Request, TokenKind};
pub(crate) use time::parse_time;

pub(crate) use crate::http::GITHUB;

/// How long one request may take, its answer included.
const CALL: Duration = Duration::from_secs(30);

/// GitHub supports this version at least until March 2028. Enterprise Server supports it too, but
/// may not know the later one.
const API_VERSION: &str = "2022-11-28";

/// A client for one API and one credential. Rate limits are tracked per client, because GitHub
/// counts them per credential.
pub(crate) struct Client {
    http: reqwest::Client,
    root: Url,
    clock: Arc<dyn Clock>,
    limit: Limit,
}

impl Client {
    /// Creates a client for the API at `root` without contacting it. Fails if the HTTP client cannot
    /// be built.
    pub(crate) fn new(root: &Url, clock: Arc<dyn Clock>) -> Result<Client, Failure> {
        let http = http::builder(root, Redirects::SameServer).timeout(CALL).build();
        let http = http.map_err(|error| {
            let problem = with_causes(&error.without_url());
            Failure::new(
                FailureKind::Unexpected,
                format!("cannot set up the HTTP client for GitHub: {problem}"),
            )
        })?;
        Ok(Client { http, root: root.clone(), clock, limit: Limit::default() })
    }

    /// The clock that decides whether a token has expired.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Sends a request once, with a token if there is one. Returns the answer for every status except
    /// 408, 5xx and rate limits. Those and connection failures are errors.
    pub(crate) async fn send(
        &self,
        request: &Request<'_>,
        bearer: Option<&Secret>,
    ) -> PortResult<Answer> {
        self.limit.check(&*self.clock)?;
        let answer = self
            .exchange(request, bearer)
            .await
            .map_err(|error| unavailable(request, &with_causes(&error.without_url())))?;
        let (status, id) = (answer.status, answer.request_id.as_str());
        tracing::debug!(method = %request.method, path = request.path, status, id, "GitHub answered");
        if let Some(until) = limit::until(&answer, self.clock.now()) {
            return Err(self.limit.apply(&*self.clock, until).await);
        }
        if status >= 500 || status == 408 {
            return Err(unavailable(request, &format!("status {status}{}", answer.aside())));
        }
        Ok(answer)
    }

    async fn exchange(
        &self,
        request: &Request<'_>,
        bearer: Option<&Secret>,
    ) -> Result<Answer, reqwest::Error> {
        let url = format!("{}/{}", self.root.as_str().trim_end_matches('/'), request.path);
        let mut call = self
            .http
            .request(request.method.clone(), url)
            .header(ACCEPT, "application/vnd.github+json")
            .header("X-GitHub-Api-Version", API_VERSION);
        if !request.query.is_empty() {
            call = call.query(&request.query);
        }
        if let Some(bearer) = bearer {
            call = call.header(AUTHORIZATION, authorization(bearer));
        }
        let response = call.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?;
        Ok(Answer::new(status, headers, &body, bearer))
    }
}

/// The error for a request that may succeed when it is retried.
pub(crate) fn unavailable(request: &Request<'_>, reason: &str) -> PortError {
    let reason = format!("{}: {reason}", request.purpose);
    PortError::Unavailable { service: GITHUB, reason }
}

/// The authorization header. Tokens that do not fit into a header are rejected when they are
/// configured; should one get here anyway, the header is sent without it.
fn authorization(bearer: &Secret) -> HeaderValue {
    let value = HeaderValue::from_str(&format!("Bearer {}", bearer.expose()));
    let mut value = value.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
    value.set_sensitive(true);
    value
}
