//! A thin client for the few actions of EC2 that ondeck needs, on the SDK's own credentials,
//! signatures and connections. ADR 0009 says why.
//!
//! It repeats nothing: what did not answer is unavailable, and core decides about the rest.

mod answers;
mod endpoint;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod keys;
#[cfg(test)]
pub(crate) mod loopback;
#[cfg(test)]
pub(crate) mod models;
mod query;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::http::{Request, Response};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::ports::{PortError, PortResult};
use ondeck_core::runtime::retry::RequestRetry;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::cloud::Cloud;
use crate::error::{self, Chain, EC2, ErrorResponse};
use crate::skew::Skew;
use crate::wire::Wire;

pub(crate) use answers::{
    Done, FleetAnswer, FleetError, FleetInstances, Image, ImagesAnswer, Instance, InstancesAnswer,
    Set, TemplateAnswer, Version, VersionAnswer, VersionsAnswer, problem,
};
pub(crate) use endpoint::of_service as endpoint_of;
pub(crate) use keys::Keys;
pub(crate) use query::{Params, Query, VERSION};

/// For less than this no signature is refused.
const LEAST_CORRECTION: Duration = Duration::from_secs(30);

/// What EC2 says of a signature by a wrong clock, among other things that it may mean. If the
/// same answer has put our clock right, it meant that, and the next call will pass.
const DISTRUST: [&str; 5] = [
    "AuthFailure",
    "RequestExpired",
    "RequestInTheFuture",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
];

/// EC2, for one pool.
pub(crate) struct Ec2 {
    endpoint: PortResult<String>,
    region: String,
    keys: keys::Keys,
    skew: Arc<Skew>,
    gate: Arc<Semaphore>,
    wire: Wire,
    patience: RequestRetry,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failed {
    /// EC2 has answered, with an error.
    Refused(Refusal),
    /// There is no answer, or none that can be read.
    Unanswered(PortError),
}

/// An error that EC2 has answered with, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) action: &'static str,
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Ec2 {
    pub(crate) fn new(cloud: &Cloud) -> Ec2 {
        Ec2 {
            endpoint: endpoint::of(&cloud.config),
            region: cloud.region().to_owned(),
            keys: keys::Keys::of(&cloud.config),
            skew: cloud.skew.clone(),
            gate: cloud.gate.clone(),
            wire: cloud.wire.clone(),
            patience: cloud.patience.clone(),
        }
    }

    /// One call, signed, sent and read, once.
    pub(crate) async fn call<A: DeserializeOwned>(&self, query: &Query) -> Result<A, Failed> {
        let action = query.action();
        let _permit = self.gate.acquire().await;
        let limit = query.limit();
        let (started, signed_at) = (Instant::now(), self.now());
        let call = async {
            let keys = self.keys.get(action, signed_at).await?;
            let request = self.signed(query, &keys, signed_at)?;
            let (status, body) = self.send(action, request).await?;
            read(action, status, &body, &keys)
        };
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer,
            Err(_) => Err(unanswered(action, &format!("no answer within {} s", limit.as_secs()))),
        };
        if let Err(Failed::Refused(refusal)) = &answer {
            let corrected = match self.now().duration_since(signed_at) {
                Ok(span) => span > started.elapsed() + LEAST_CORRECTION,
                Err(_) => true,
            };
            if corrected && DISTRUST.contains(&refusal.code.as_str()) {
                return Err(unanswered(action, &format!("{}: wrong clock", refusal.said())));
            }
            if refusal.is_about_expired_keys() {
                self.keys.forget().await;
            }
        }
        answer
    }

    /// One call of several for one answer, none of which changes anything: it is repeated by
    /// itself, so that what the others have brought is not thrown away with it.
    pub(crate) async fn part<A: DeserializeOwned>(&self, query: &Query) -> PortResult<A> {
        let call = || async { self.call(query).await.map_err(PortError::from) };
        self.patience.retried(call).await
    }

    /// Where machines are launched.
    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// The time by which requests are signed, which is EC2's rather than this computer's.
    pub(crate) fn now(&self) -> SystemTime {
        TimeSource::now(&self.skew.clock())
    }

    fn signed(
        &self,
        query: &Query,
        keys: &Credentials,
        now: SystemTime,
    ) -> Result<Request, Failed> {
        let action = query.action();
        let url = self.endpoint.clone()?;
        let body = query.body();
        let mut request = Request::new(SdkBody::from(body.as_str()));
        let unusable = |error: &dyn fmt::Display| {
            Failed::Unanswered(PortError::Unusable {
                service: EC2,
                reason: format!("{action}: the request cannot be made: {error}"),
                hint: format!("check the endpoint: {url}"),
            })
        };
        request.set_method("POST").map_err(|error| unusable(&error))?;
        request.set_uri(url.as_str()).map_err(|error| unusable(&error))?;
        let headers = request.headers_mut();
        headers.insert("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        headers.insert("user-agent", concat!("ondeck/", env!("CARGO_PKG_VERSION")));
        let signature = signature(&request, &body, keys, ("ec2", &self.region), now)
            .map_err(|error| unusable(&error))?;
        for (name, value) in signature {
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    async fn send(&self, action: &'static str, request: Request) -> Result<(u16, Vec<u8>), Failed> {
        let sent = Instant::now();
        let answer: Response = self
            .wire
            .connector()
            .call(request)
            .await
            .map_err(|error| unanswered(action, &Chain(&error)))?;
        if let Some(date) = answer.headers().get("date") {
            self.skew.observe(date, sent.elapsed());
        }
        let status = answer.status().as_u16();
        let body = ByteStream::new(answer.into_body())
            .collect()
            .await
            .map_err(|error| unanswered(action, &Chain(&error)))?;
        Ok((status, body.to_vec()))
    }
}

impl Refusal {
    /// The port error for a caller that handles no code of its own.
    pub(crate) fn into_error(self) -> PortError {
        let Refusal { action, status, code, message } = &self;
        error::error_of_response(EC2, action, ErrorResponse { status: *status, code, message })
    }

    pub(crate) fn said(&self) -> String {
        one_line(&format!("{}: {}: {}", self.action, self.code, self.message))
    }

    fn is_about_expired_keys(&self) -> bool {
        self.code.contains("ExpiredToken") || self.code == "RequestExpired"
    }
}

impl From<PortError> for Failed {
    fn from(error: PortError) -> Failed {
        Failed::Unanswered(error)
    }
}

impl From<Failed> for PortError {
    fn from(failed: Failed) -> PortError {
        match failed {
            Failed::Refused(refusal) => refusal.into_error(),
            Failed::Unanswered(error) => error,
        }
    }
}

impl fmt::Debug for Ec2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ec2({})", self.region)
    }
}

/// The headers that prove who asks, for a service by the name under which it is signed and its
/// region.
pub(crate) fn signature(
    request: &Request,
    body: &str,
    keys: &Credentials,
    (service, region): (&str, &str),
    now: SystemTime,
) -> Result<Vec<(&'static str, String)>, Box<dyn std::error::Error + Send + Sync>> {
    let identity = keys.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(now)
        .settings(SigningSettings::default())
        .build()?
        .into();
    let body = SignableBody::Bytes(body.as_bytes());
    let request =
        SignableRequest::new(request.method(), request.uri(), request.headers().iter(), body)?;
    let (instructions, _) = sign(request, &params)?.into_parts();
    let (headers, _) = instructions.into_parts();
    Ok(headers.iter().map(|header| (header.name(), header.value().to_owned())).collect())
}

/// Makes an answer of what has come back.
fn read<A: DeserializeOwned>(
    action: &'static str,
    status: u16,
    body: &[u8],
    keys: &Credentials,
) -> Result<A, Failed> {
    let text = without_secrets(&String::from_utf8_lossy(body), keys);
    if (200..300).contains(&status) {
        return quick_xml::de::from_str(&text).map_err(|error| {
            unanswered(action, &format!("the answer cannot be read: {}", one_line(&error)))
        });
    }
    // What is not XML comes from something in between: the status alone must do. Of a message the
    // first line says all that a person can use.
    let (code, message) = answers::problem(&text).unwrap_or_default();
    let message = message.lines().next().unwrap_or_default().to_owned();
    Err(Failed::Refused(Refusal { action, status, code, message }))
}

/// A refused signature is explained by repeating what was signed, the session token included; and
/// what cannot be read is explained by repeating some of it.
fn without_secrets(answer: &str, keys: &Credentials) -> String {
    let mut answer = answer.to_owned();
    for secret in [Some(keys.secret_access_key()), keys.session_token()].into_iter().flatten() {
        // A short one stands for nothing but a test's, and would mangle ordinary words.
        if secret.len() > 8 {
            answer = answer.replace(secret, "***");
        }
    }
    answer
}

fn unanswered(action: &str, error: &dyn fmt::Display) -> Failed {
    Failed::Unanswered(error::unavailable(EC2, action, error))
}
