//! Forwards calls to the emulators over pooled connections, or to the SQS of this process.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::aws::call::Call;
use crate::aws::faults::answers;
use crate::aws::sqs::Sqs;

use crate::http::Answer;

/// How long an idle connection is kept. Emulators close connections that were idle for some
/// seconds; if we did not close them first, requests would fail now and then.
const IDLE: Duration = Duration::from_secs(2);

/// The access key that all forwarded calls use. DynamoDB Local keeps separate tables for every
/// access key, and machines have other keys than the control plane.
const KEY: &str = "test";

/// A client of the emulators.
#[derive(Debug)]
pub(super) struct Upstreams {
    client: Client<HttpConnector, Full<Bytes>>,
    dynamodb: Upstream,
    others: Upstream,
    own_sqs: Option<Sqs>,
}

#[derive(Debug)]
struct Upstream {
    base: String,
    host: HeaderValue,
}

impl Upstreams {
    /// Emulators at these URLs. Calls to SQS go to `own_sqs`, or else to the emulator of the other services.
    pub(super) fn new(dynamodb: &str, others: &str, own_sqs: Option<Sqs>) -> Upstreams {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        let (dynamodb, others) = (Upstream::at(dynamodb), Upstream::at(others));
        Upstreams { client, dynamodb, others, own_sqs }
    }

    pub(super) async fn dynamodb(&self, call: &Call) -> Answer {
        self.forward(&self.dynamodb, call).await
    }

    pub(super) async fn sqs(&self, call: &Call) -> Answer {
        match &self.own_sqs {
            Some(sqs) => sqs.answer(call).await,
            None => self.forward(&self.others, call).await,
        }
    }

    /// Whether SQS answers a receive that waits as soon as there is a message.
    pub(super) fn sqs_waits(&self) -> bool {
        self.own_sqs.is_some()
    }

    /// STS, SSM, Secrets Manager and CloudWatch Logs.
    pub(super) async fn others(&self, call: &Call) -> Answer {
        self.forward(&self.others, call).await
    }

    async fn forward(&self, upstream: &Upstream, call: &Call) -> Answer {
        match self.ask(upstream, call).await {
            Ok(answer) => answer,
            // AWS never gives this status, so it cannot be mistaken for an injected fault.
            Err(error) => {
                let message = format!("cannot reach {}: {error}", upstream.base);
                answers::refusal(call.service, 502, "BadGateway", &message)
            }
        }
    }

    async fn ask(
        &self,
        upstream: &Upstream,
        call: &Call,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let path = call.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri = format!("{}{path}", upstream.base).parse()?;
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        let mut headers = without_framing(call.headers.clone());
        headers.insert(HOST, upstream.host.clone());
        if let Some(authorization) = headers.get(AUTHORIZATION).and_then(with_one_key) {
            headers.insert(AUTHORIZATION, authorization);
        }
        *request.headers_mut() = headers;
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: without_framing(head.headers), body })
    }
}

impl Upstream {
    fn at(url: &str) -> Upstream {
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().unwrap_or_else(|_| panic!("not an address: {url}"));
        let host = uri.authority().unwrap_or_else(|| panic!("an address without a host: {url}"));
        let host = HeaderValue::from_str(host.as_str()).expect("a host is plain text");
        Upstream { base, host }
    }
}

/// Removes headers that apply to one connection only.
fn without_framing(mut headers: HeaderMap) -> HeaderMap {
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers
}

/// Replaces the access key in `Credential=ASIA…/20261115/…` by [`KEY`].
fn with_one_key(authorization: &HeaderValue) -> Option<HeaderValue> {
    let (before, credential) = authorization.to_str().ok()?.split_once("Credential=")?;
    let (_, after) = credential.split_once('/')?;
    HeaderValue::from_str(&format!("{before}Credential={KEY}/{after}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_callers_have_one_key() {
        let header = |text: &str| HeaderValue::from_str(text).unwrap();
        let before =
            header("AWS4-HMAC-SHA256 Credential=ASIAX/20261115/r/dynamodb/aws4_request, S=1");
        let after =
            header("AWS4-HMAC-SHA256 Credential=test/20261115/r/dynamodb/aws4_request, S=1");
        assert_eq!(with_one_key(&before), Some(after));
        assert_eq!(with_one_key(&header("Basic abc")), None);
    }
}
