//! One API of GitHub, asked once for each request: what came back, and whether it may be asked
//! again.

pub(crate) mod answer;
mod complaint;
mod limit;
mod moment;
mod request;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{Clock, PortError, PortResult};
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};

use crate::http::{self, Redirects};
pub(crate) use answer::Answer;
pub(crate) use complaint::complaint;
use limit::Limit;
#[cfg(feature = "fuzzing")]
pub(crate) use limit::until;
pub(crate) use moment::moment;
pub(crate) use request::{Purpose, Request, TokenKind};

pub(crate) use crate::http::GITHUB;

/// How long one request may take, its answer included.
const CALL: Duration = Duration::from_secs(30);

/// Supported at least until March 2028, and by Enterprise Server as well, where the later one
/// need not be known.
const API_VERSION: &str = "2022-11-28";

/// The way to an API for one identity: limits are counted for each.
pub(crate) struct Client {
    http: reqwest::Client,
    root: Url,
    clock: Arc<dyn Clock>,
    limit: Limit,
}

impl Client {
    /// For the API under this address. Nothing is contacted yet.
    pub(crate) fn new(root: &Url, clock: Arc<dyn Clock>) -> Result<Client, Failure> {
        let http = http::builder(root, Redirects::SameServer).timeout(CALL).build();
        let http = http.map_err(|error| {
            let problem = in_words(&error.without_url());
            Failure::new(FailureKind::Unexpected, format!("GitHub cannot be spoken to: {problem}"))
        })?;
        Ok(Client { http, root: root.clone(), clock, limit: Limit::default() })
    }

    /// The clock that tokens expire by.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Asks, with a token if there is one. Gives whatever GitHub has decided; all that may pass by
    /// itself is an error.
    pub(crate) async fn send(
        &self,
        request: &Request<'_>,
        bearer: Option<&Secret>,
    ) -> PortResult<Answer> {
        self.limit.check(self.clock.now())?;
        let answer = self
            .exchange(request, bearer)
            .await
            .map_err(|error| unavailable(request, &in_words(&error.without_url())))?;
        let (status, id) = (answer.status, answer.request_id.as_str());
        tracing::debug!(method = %request.method, path = request.path, status, id, "asked GitHub");
        if let Some(until) = limit::until(&answer, self.clock.now()) {
            return Err(self.limit.heed(&*self.clock, until).await);
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

/// Out of reach, or cut off.
pub(crate) fn unavailable(request: &Request<'_>, reason: &str) -> PortError {
    let reason = format!("{}: {reason}", request.purpose);
    PortError::Unavailable { service: GITHUB, reason }
}

/// A token that fits into no header was refused when it was given; should one get here all the
/// same, nothing of it leaves.
fn authorization(bearer: &Secret) -> HeaderValue {
    let value = HeaderValue::from_str(&format!("Bearer {}", bearer.expose()));
    let mut value = value.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
    value.set_sensitive(true);
    value
}

/// An error with all that caused it: the outermost says no more than that there was one.
fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
